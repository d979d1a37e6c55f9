//! The sending end of one path: what is under way, what of it is lost, and when to ask or give up waiting.
//!
//! A path is first-in first-out, so what was sent on it before a packet that arrived, and is not reported with it, is
//! lost. The order of transmission decides, not the order of PSNs: every transmission bears its own timestamp, and the
//! timestamp that a report echoes tells which transmission it follows; so do the packets that it reports as arrived, by
//! the time of their first transmission. A lost retransmission is found in the same way as a lost original, and no loss
//! is repaired twice on one evidence.

use std::collections::VecDeque;

use metaroce_wire::metaroce::Sack;
use metaroce_wire::serial::{Msn, Psn};

use super::transitions::{PathEvent, PathState, step};

/// Congestion window at first, packets (PATH-010).
const FIRST_WINDOW: f64 = 16.0;
/// Packets past the cumulative acknowledgment, at most (REL-003).
const MOST_IN_FLIGHT: u32 = Sack::BITS;
const MS: u64 = 1_000_000;
/// Retransmission timeout before the first sample, ns.
const FIRST_RTO: u64 = 100 * MS;
const LEAST_RTO: u64 = 10 * MS;
/// Largest retransmission timeout, ns.
pub(super) const MOST_RTO: u64 = 2_000 * MS;
/// Shortest wait before a probe, ns.
const LEAST_PROBE: u64 = 2 * MS;
/// Timeouts in a row after which a path has failed.
const MOST_TIMEOUTS: u32 = 7;
/// Transmissions of one packet after which its path has failed. A peer that answers every probe and yet never takes
/// the packet resets the count of timeouts each time, and must not keep the path busy for ever.
const MOST_TRANSMISSIONS: u8 = 64;
/// Oldest transmission that an echo can belong to, ns: timestamps have 32 bits, and nothing waits for so long.
const OLDEST_ECHO: u64 = 1 << 31;

/// A packet that is not yet acknowledged up to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub stream: u16,
    pub msn: Msn,
    /// Position of the packet in its message.
    pub index: u32,
    /// Times of its first and of its latest transmission.
    first: u64,
    latest: u64,
    transmissions: u8,
    acked: bool,
    lost: bool,
    /// The loss is no more than the guess of a timeout.
    guessed: bool,
}

/// What a timer of the path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Probe,
    Timeout,
    Failure,
}

/// One path of the sending direction.
pub(super) struct TxPath {
    pub port: u16,
    base: Psn,
    next: Psn,
    sent: VecDeque<Sent>,
    in_flight: u32,
    window: f64,
    cut_until: u64,
    ce: u32,
    /// Time of the latest transmission of any kind: no two have the same.
    last_stamp: Option<u64>,
    /// The latest transmission, acknowledgment or timeout.
    progress: u64,
    state: PathState,
    timeouts: u32,
    exhausted: bool,
    rtt: Option<(u64, u64)>,
    peer_ack_delay: u64,
}

impl TxPath {
    pub(super) fn new(isn: Psn, port: u16, peer_ack_delay: u64) -> Self {
        Self {
            port,
            base: isn,
            next: isn,
            sent: VecDeque::new(),
            in_flight: 0,
            window: FIRST_WINDOW,
            cut_until: 0,
            ce: 0,
            last_stamp: None,
            progress: 0,
            state: PathState::Open,
            timeouts: 0,
            exhausted: false,
            rtt: None,
            peer_ack_delay,
        }
    }

    fn room_in_window(&self) -> bool {
        f64::from(self.in_flight) < self.window.max(1.0).floor()
    }

    /// Whether a new packet may be sent now.
    pub(super) fn has_room(&self) -> bool {
        self.room_in_window() && (self.sent.len() as u32) < MOST_IN_FLIGHT
    }

    /// Whether the next new packet fills the window, so that an acknowledgment of it is needed to go on.
    pub(super) fn last_room(&self) -> bool {
        f64::from(self.in_flight + 1) >= self.window.max(1.0).floor()
            || self.sent.len() as u32 + 1 == MOST_IN_FLIGHT
    }

    /// The first packet to be sent again now, with its PSN. A loss that was shown is repaired at once (REL-031): the
    /// repair takes the place of a packet that has left the network. What a timeout guesses waits for the window.
    pub(super) fn next_lost(&self) -> Option<(Psn, Sent)> {
        let room = self.room_in_window();
        let (i, sent) = self
            .sent
            .iter()
            .enumerate()
            .find(|(_, sent)| sent.lost && (room || !sent.guessed))?;
        Some((self.base.add(i as u32), *sent))
    }

    pub(super) fn highest_sent(&self) -> Psn {
        self.next.sub(1)
    }

    /// The packet sent under `psn`, while it is unacknowledged.
    pub(super) fn outstanding(&self, psn: Psn) -> Option<&Sent> {
        self.sent
            .get(psn.distance_from(self.base) as usize)
            .filter(|sent| !sent.acked)
    }

    /// A time that no earlier transmission of the path has, and that follows them all (PKT-017).
    fn next_stamp(&mut self, now: u64) -> u64 {
        let stamp = self.last_stamp.map_or(now, |last| now.max(last + 1));
        self.last_stamp = Some(stamp);
        stamp
    }

    /// Notes that a probe is sent; returns its timestamp.
    pub(super) fn send_probe(&mut self, now: u64) -> u32 {
        self.next_stamp(now) as u32
    }

    /// The transmission that an echo belongs to: one of the path's own, and not older than any that can matter.
    pub(super) fn transmission(&self, echo: u32) -> Option<u64> {
        let last = self.last_stamp?;
        let back = u64::from((last as u32).wrapping_sub(echo));
        last.checked_sub(back).filter(|_| back < OLDEST_ECHO)
    }

    /// Notes a first transmission; returns its PSN and timestamp.
    pub(super) fn send_new(&mut self, now: u64, stream: u16, msn: Msn, index: u32) -> (Psn, u32) {
        let (psn, stamp) = (self.next, self.next_stamp(now));
        self.sent.push_back(Sent {
            stream,
            msn,
            index,
            first: stamp,
            latest: stamp,
            transmissions: 1,
            acked: false,
            lost: false,
            guessed: false,
        });
        self.next = self.next.add(1);
        self.in_flight += 1;
        self.transmitted(now);
        (psn, stamp as u32)
    }

    /// Notes that the lost packet under `psn` is sent again; returns its timestamp.
    pub(super) fn send_again(&mut self, now: u64, psn: Psn) -> u32 {
        let stamp = self.next_stamp(now);
        if let Some(sent) = self.sent.get_mut(psn.distance_from(self.base) as usize) {
            sent.latest = stamp;
            sent.transmissions += 1;
            sent.lost = false;
            sent.guessed = false;
            self.in_flight += 1;
            self.exhausted |= sent.transmissions == MOST_TRANSMISSIONS;
        }
        self.transmitted(now);
        stamp as u32
    }

    fn transmitted(&mut self, now: u64) {
        self.progress = now;
        if self.state == PathState::Probing {
            step(&mut self.state, PathEvent::Sent);
        }
    }

    /// Takes a report of what has arrived. `follows` is the transmission that the report answers, as far as it tells.
    /// Returns what is newly acknowledged, or nothing when the report cannot be true (REL-044).
    pub(super) fn on_report(
        &mut self,
        now: u64,
        cum: Psn,
        sack: &Sack,
        follows: Option<u64>,
    ) -> Option<Vec<Sent>> {
        let known = self.base.sub(1);
        // Below zero when a newer report came first. Then it tells of no arrival that is not known, but still of what it
        // follows.
        let ahead = if cum.precedes(known) {
            -i64::from(known.distance_from(cum))
        } else {
            i64::from(cum.distance_from(known))
        };
        let reported = sack.highest().map_or(0, |bit| 1 + i64::from(bit));
        if ahead + reported > self.sent.len() as i64 {
            return None;
        }

        let mut evidence = follows;
        let mut newly = Vec::new();
        for (i, sent) in (1i64..).zip(self.sent.iter_mut()) {
            let arrived = i <= ahead || sack.bit((i - ahead - 1) as u32);
            if arrived && !sent.acked {
                sent.acked = true;
                if !sent.lost {
                    self.in_flight -= 1;
                }
                sent.lost = false;
                // Which transmission it was is not known here; the first is the one that proves least.
                evidence = evidence.max(Some(sent.first));
                newly.push(*sent);
            }
        }
        while self.sent.front().is_some_and(|sent| sent.acked) {
            self.sent.pop_front();
            self.base = self.base.add(1);
        }
        let proved = |sent: &&mut Sent| {
            !sent.acked && evidence.is_some_and(|evidence| sent.latest < evidence)
        };
        for sent in self.sent.iter_mut().filter(proved) {
            if !sent.lost {
                self.in_flight -= 1;
            }
            sent.lost = true;
            sent.guessed = false;
        }
        self.progress = now;
        if self.state == PathState::Probing {
            step(&mut self.state, PathEvent::Report);
        }
        self.timeouts = 0;
        self.window =
            (self.window + newly.len() as f64 / self.window).min(f64::from(MOST_IN_FLIGHT));
        Some(newly)
    }

    /// Takes the peer's count of marked packets: a rise cuts the window, at most once per round trip (ECN-010).
    pub(super) fn on_ce_count(&mut self, now: u64, count: u32) {
        let risen = Psn::new(self.ce).precedes(Psn::new(count));
        if risen {
            self.ce = count;
            if now >= self.cut_until {
                self.window = (self.window / 2.0).max(1.0);
                self.cut_until = now + self.rtt.map_or(FIRST_RTO, |(smoothed, _)| smoothed);
            }
        }
    }

    /// Takes a round-trip sample: an answer that came `now` to the transmission at `follows`, and was held back for
    /// `delay` ns (RFC 6298).
    pub(super) fn on_answer(&mut self, now: u64, follows: u64, delay: u64) {
        let sample = now.saturating_sub(follows).saturating_sub(delay);
        self.rtt = Some(match self.rtt {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => (
                (7 * smoothed + sample) / 8,
                (3 * variation + smoothed.abs_diff(sample)) / 4,
            ),
        });
    }

    fn timeout_wait(&self) -> u64 {
        let base = self.rtt.map_or(FIRST_RTO, |(smoothed, variation)| {
            let rto = smoothed + 4 * variation + self.peer_ack_delay;
            // A steady round trip leaves no variation. The probe's answer must still be able to come first: it tells
            // what is lost, where a timeout only guesses (REL-035).
            rto.max(self.probe_due() + smoothed + self.peer_ack_delay)
        });
        (base.clamp(LEAST_RTO, MOST_RTO) << self.timeouts).min(MOST_RTO)
    }

    /// When a probe is due after the latest sign of life (REL-048).
    fn probe_due(&self) -> u64 {
        self.rtt
            .map_or(FIRST_RTO / 2, |(smoothed, _)| {
                2 * smoothed + self.peer_ack_delay
            })
            .max(LEAST_PROBE)
    }

    fn probe_wait(&self) -> u64 {
        // Round trips near the largest timeout leave less time: the question still comes before the answer is given up.
        self.probe_due().min(self.timeout_wait() / 2)
    }

    /// When the path next wants [`Self::on_timer`].
    pub(super) fn deadline(&self) -> Option<u64> {
        if self.sent.is_empty() || self.state == PathState::Failed {
            return None;
        }
        if self.exhausted {
            return Some(self.progress);
        }
        let wait = if self.state == PathState::Probing {
            self.timeout_wait()
        } else {
            self.probe_wait()
        };
        Some(self.progress + wait)
    }

    /// What is due at `now`; [`Due::Timeout`] has made everything unacknowledged lost.
    pub(super) fn on_timer(&mut self, now: u64) -> Option<Due> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return None;
        }
        let probed = self.state == PathState::Probing;
        if self.exhausted || self.timeouts >= MOST_TIMEOUTS && probed {
            step(&mut self.state, PathEvent::Exhausted);
            return Some(Due::Failure);
        }
        if !probed {
            step(&mut self.state, PathEvent::ProbeDue);
            return Some(Due::Probe);
        }
        step(&mut self.state, PathEvent::Timeout);
        self.timeouts += 1;
        self.progress = now;
        self.window = 1.0;
        self.in_flight = 0;
        self.sent
            .iter_mut()
            .filter(|sent| !sent.acked && !sent.lost)
            .for_each(|sent| {
                sent.lost = true;
                sent.guessed = true;
            });
        Some(Due::Timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISN: u32 = 0xffff_fffe;

    fn path(packets: u32) -> TxPath {
        let mut path = TxPath::new(Psn::new(ISN), 50_000, 200_000);
        for i in 0..packets {
            path.send_new(1_000 + u64::from(i), 0, Msn::new(i), 0);
        }
        path
    }

    fn psn(i: u32) -> Psn {
        Psn::new(ISN).add(i)
    }

    /// A vector over `cum` with the packets `arrived`.
    fn sack(cum: Psn, arrived: &[u32]) -> Sack {
        let mut sack = Sack::EMPTY;
        arrived
            .iter()
            .for_each(|&i| sack.set(psn(i).distance_from(cum) - 1));
        sack
    }

    fn lost(path: &TxPath) -> Vec<u32> {
        let lost = path.sent.iter().enumerate().filter(|(_, sent)| sent.lost);
        lost.map(|(i, _)| path.base.add(i as u32).distance_from(psn(0)))
            .collect()
    }

    #[test]
    fn a_gap_loses_exactly_what_is_missing() {
        let mut path = path(6);
        let cum = psn(0);
        let newly = path.on_report(9_000, cum, &sack(cum, &[2, 4]), None);
        assert_eq!(newly.map(|newly| newly.len()), Some(3));
        assert_eq!(lost(&path), [1, 3]);
        assert_eq!(path.in_flight, 1);
    }

    #[test]
    fn one_evidence_repairs_once_and_a_later_one_again() {
        let mut path = path(4);
        let cum = psn(0);
        path.on_report(9_000, cum, &sack(cum, &[2]), None);
        assert_eq!(lost(&path), [1]);
        path.send_again(10_000, psn(1));
        path.on_report(11_000, cum, &sack(cum, &[2, 3]), None);
        assert_eq!(
            lost(&path),
            [0; 0],
            "packet 3 was sent before the retransmission"
        );
        path.send_new(12_000, 0, Msn::new(4), 0);
        path.on_report(13_000, cum, &sack(cum, &[2, 3, 4]), None);
        assert_eq!(
            lost(&path),
            [1],
            "packet 4 was sent after the retransmission"
        );
    }

    #[test]
    fn an_echo_of_a_retransmission_is_evidence_of_its_own() {
        let mut path = path(3);
        let cum = psn(0);
        path.on_report(9_000, cum, &sack(cum, &[2]), None);
        path.send_again(10_000, psn(1));
        let probe = path.send_probe(20_000);
        let follows = path.transmission(probe);
        assert_eq!(follows, Some(20_000));
        path.on_report(30_000, cum, &sack(cum, &[2]), follows);
        assert_eq!(lost(&path), [1]);
    }

    #[test]
    fn what_cannot_be_true_changes_nothing() {
        let mut path = path(3);
        for (cum, sack) in [
            (psn(3), Sack::EMPTY),
            (psn(0), sack(psn(0), &[3])),
            (psn(0).add(0x7fff_fff0), Sack::EMPTY),
            (psn(0).sub(9), sack(psn(0).sub(9), &[3])),
        ] {
            assert!(path.on_report(9_000, cum, &sack, None).is_none());
        }
        assert_eq!(path.in_flight, 3);
        assert_eq!(
            path.transmission(2_000_000),
            None,
            "an echo of a later time than any packet was sent"
        );
    }

    #[test]
    fn echoes_of_later_times_and_of_long_ago_are_none() {
        let mut path = path(0);
        let late = 90_000_000_000;
        let (_, stamp) = path.send_new(late, 0, Msn::new(0), 0);
        assert_eq!(path.transmission(stamp), Some(late));
        assert_eq!(path.transmission(stamp.wrapping_add(1)), None);
        assert_eq!(path.transmission(stamp.wrapping_sub(1 << 31)), None);
        let recent = stamp.wrapping_sub(1_000_000);
        assert_eq!(path.transmission(recent), Some(late - 1_000_000));
    }

    #[test]
    fn stamps_rise_within_one_tick_and_over_long_pauses() {
        let mut path = path(0);
        let pauses = [
            0,
            0,
            1,
            3_000_000_000,
            3_000_000_000,
            4_294_967_296,
            6_000_000_000,
        ];
        let mut now = 5;
        let mut last = None;
        for pause in pauses {
            now += pause;
            let stamp = path.next_stamp(now);
            assert!(last < Some(stamp));
            assert!(stamp - now < 3, "the stamp stays with the clock");
            assert_eq!(path.transmission(stamp as u32), Some(stamp));
            last = Some(stamp);
        }
    }

    #[test]
    fn what_is_shown_to_be_lost_does_not_wait_for_the_window() {
        let mut path = path(16);
        path.on_ce_count(9_000, 1);
        assert_eq!(path.window, 8.0);
        path.on_report(9_000, psn(0), &sack(psn(0), &[3]), None);
        assert!(path.in_flight > 8 && !path.has_room());
        for i in [1, 2] {
            assert_eq!(path.next_lost().map(|(psn, _)| psn), Some(psn(i)));
            path.send_again(9_000, psn(i));
        }
        assert!(path.next_lost().is_none());
    }

    #[test]
    fn what_a_timeout_guesses_waits_until_it_is_shown() {
        let mut path = path(8);
        let probe_at = path.deadline().unwrap();
        assert_eq!(path.on_timer(probe_at), Some(Due::Probe));
        let timeout_at = path.deadline().unwrap();
        assert_eq!(path.on_timer(timeout_at), Some(Due::Timeout));
        assert_eq!(lost(&path).len(), 8);
        path.send_again(timeout_at, psn(0));
        assert!(path.next_lost().is_none(), "the window is one packet");
        path.on_report(timeout_at + MS, psn(0), &Sack::EMPTY, Some(timeout_at));
        for i in 1..8 {
            assert_eq!(path.next_lost().map(|(psn, _)| psn), Some(psn(i)));
            path.send_again(timeout_at + MS, psn(i));
        }
    }

    #[test]
    fn probe_then_timeouts_that_double_then_failure() {
        let mut path = path(2);
        let sent_at = 1_001;
        let mut now = sent_at;
        let mut waits = Vec::new();
        loop {
            let deadline = path.deadline().unwrap();
            assert!(deadline > now);
            assert_eq!(path.on_timer(deadline - 1), None);
            match path.on_timer(deadline) {
                Some(Due::Probe) => {
                    path.send_probe(deadline);
                }
                Some(Due::Timeout) => {
                    waits.push(deadline - now);
                    now = deadline;
                    let (psn, _) = path.next_lost().unwrap();
                    path.send_again(now, psn);
                    assert!(path.next_lost().is_none(), "the window is one packet");
                }
                Some(Due::Failure) => break,
                None => panic!("the deadline has come"),
            }
        }
        assert_eq!(
            waits,
            [100, 200, 400, 800, 1600, 2000, 2000].map(|ms| ms * MS)
        );
    }

    #[test]
    fn a_probe_leaves_time_for_its_answer() {
        for round in [100_000, MS, 5 * MS, 30 * MS, 200 * MS] {
            let mut path = path(1);
            (0..50).for_each(|_| path.on_answer(1_000 + round, 1_000, 0));
            assert!(path.probe_wait() >= 2 * MS);
            assert!(path.probe_wait() + round < path.timeout_wait());
        }
    }

    #[test]
    fn marks_cut_once_per_round_and_losses_do_not() {
        let mut path = path(16);
        path.on_answer(MS, 0, 0);
        path.on_ce_count(2 * MS, 1);
        path.on_ce_count(2 * MS + 1, 5);
        path.on_ce_count(2 * MS + 2, 4);
        assert_eq!(path.window, 8.0);
        path.on_ce_count(3 * MS, 6);
        assert_eq!(path.window, 4.0);
        path.on_report(3 * MS, psn(0), &sack(psn(0), &[15]), None);
        assert_eq!(lost(&path).len(), 14);
        assert!(path.window >= 4.0);
    }

    #[test]
    fn a_packet_that_is_never_taken_fails_its_path() {
        let mut path = path(2);
        let cum = psn(0).sub(1);
        let mut now = 10_000;
        for _ in 1..MOST_TRANSMISSIONS {
            let probe = path.send_probe(now);
            let follows = path.transmission(probe);
            path.on_report(now, cum, &sack(cum, &[1]), follows);
            path.send_again(now + 1, psn(0));
            now += 10_000;
        }
        assert_eq!(path.on_timer(now), Some(Due::Failure));
    }
}
