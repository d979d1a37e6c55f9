//! The sending end of one path: what is under way, what of it is lost, and when to ask or give up waiting.
//!
//! A path is first-in first-out, so what was sent on it before a packet that arrived, and is not reported with it, is
//! lost. The order of transmission decides, not the order of PSNs: every transmission bears its own timestamp, and the
//! timestamp that a report echoes tells which transmission it follows. A lost retransmission is found in the same way
//! as a lost original, and no loss is repaired twice on one evidence.

use std::collections::VecDeque;

use metaroce_wire::metaroce::Sack;
use metaroce_wire::serial::{Msn, Psn};

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

/// A packet that is not yet acknowledged up to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub stream: u16,
    pub msn: Msn,
    /// Position of the packet in its message.
    pub index: u32,
    /// Timestamp of its latest transmission.
    stamp: u32,
    acked: bool,
    lost: bool,
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
    last_stamp: Option<u32>,
    ever_acked: bool,
    ever_sent: u32,
    /// The latest transmission, acknowledgment or timeout.
    progress: u64,
    probed: bool,
    timeouts: u32,
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
            ever_acked: false,
            ever_sent: 0,
            progress: 0,
            probed: false,
            timeouts: 0,
            rtt: None,
            peer_ack_delay,
        }
    }

    fn room_in_window(&self) -> bool {
        f64::from(self.in_flight) < self.window.max(1.0).floor()
    }

    /// Whether a new packet may be sent now.
    pub(super) fn has_room(&self) -> bool {
        let untried = self.ever_acked || f64::from(self.ever_sent) < FIRST_WINDOW;
        self.room_in_window() && untried && (self.sent.len() as u32) < MOST_IN_FLIGHT
    }

    /// Whether the next new packet fills the window, so that an acknowledgment of it is needed to go on.
    pub(super) fn last_room(&self) -> bool {
        f64::from(self.in_flight + 1) >= self.window.max(1.0).floor()
            || self.sent.len() as u32 + 1 == MOST_IN_FLIGHT
    }

    /// The first packet to be sent again, with its PSN, when the window allows.
    pub(super) fn next_lost(&self) -> Option<(Psn, Sent)> {
        if !self.room_in_window() {
            return None;
        }
        let (i, sent) = self.sent.iter().enumerate().find(|(_, sent)| sent.lost)?;
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

    /// A timestamp that no earlier transmission of the path has, and that follows them all (PKT-017).
    pub(super) fn stamp(&mut self, now: u64) -> u32 {
        let clock = now as u32;
        let stamp = match self.last_stamp {
            Some(last) if !Psn::new(last).precedes(Psn::new(clock)) => last.wrapping_add(1),
            _ => clock,
        };
        self.last_stamp = Some(stamp);
        stamp
    }

    /// Notes a first transmission; returns its PSN and timestamp.
    pub(super) fn send_new(&mut self, now: u64, stream: u16, msn: Msn, index: u32) -> (Psn, u32) {
        let (psn, stamp) = (self.next, self.stamp(now));
        self.sent.push_back(Sent {
            stream,
            msn,
            index,
            stamp,
            acked: false,
            lost: false,
        });
        self.next = self.next.add(1);
        self.in_flight += 1;
        self.ever_sent = self.ever_sent.saturating_add(1);
        self.transmitted(now);
        (psn, stamp)
    }

    /// Notes that the lost packet under `psn` is sent again; returns its timestamp.
    pub(super) fn send_again(&mut self, now: u64, psn: Psn) -> u32 {
        let stamp = self.stamp(now);
        if let Some(sent) = self.sent.get_mut(psn.distance_from(self.base) as usize) {
            sent.stamp = stamp;
            sent.lost = false;
            self.in_flight += 1;
        }
        self.transmitted(now);
        stamp
    }

    fn transmitted(&mut self, now: u64) {
        self.progress = now;
        self.probed = false;
    }

    /// Takes a report of what has arrived. `echo` is the timestamp of the packet that the report follows. Returns what
    /// is newly acknowledged, or nothing when the report cannot be true.
    pub(super) fn on_report(
        &mut self,
        now: u64,
        cum: Psn,
        sack: &Sack,
        echo: Option<u32>,
    ) -> Option<Vec<Sent>> {
        let known = self.base.sub(1);
        if cum.precedes(known) {
            // Overtaken by a newer one: it is true, but tells nothing new.
            return Some(Vec::new());
        }
        let ahead = cum.distance_from(known);
        let highest = sack
            .highest()
            .map_or(ahead, |bit| ahead.saturating_add(1 + bit));
        if highest as usize > self.sent.len() {
            return None;
        }
        let mut newly = Vec::new();
        for (i, sent) in (1u32..).zip(self.sent.iter_mut()) {
            let arrived = i <= ahead || sack.bit(i - ahead - 1);
            if arrived && !sent.acked {
                sent.acked = true;
                if !sent.lost {
                    self.in_flight -= 1;
                }
                sent.lost = false;
                newly.push(*sent);
            }
        }
        while self.sent.front().is_some_and(|sent| sent.acked) {
            self.sent.pop_front();
            self.base = self.base.add(1);
        }
        if let Some(echo) = echo {
            for sent in self
                .sent
                .iter_mut()
                .filter(|sent| !sent.acked && !sent.lost)
            {
                if Psn::new(sent.stamp).precedes(Psn::new(echo)) {
                    sent.lost = true;
                    self.in_flight -= 1;
                }
            }
        }
        self.progress = now;
        self.probed = false;
        self.timeouts = 0;
        self.ever_acked = true;
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

    /// Takes a round-trip sample, ns (RFC 6298).
    pub(super) fn on_rtt(&mut self, sample: u64) {
        self.rtt = Some(match self.rtt {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => (
                (7 * smoothed + sample) / 8,
                (3 * variation + smoothed.abs_diff(sample)) / 4,
            ),
        });
    }

    fn rto(&self) -> u64 {
        let base = self.rtt.map_or(FIRST_RTO, |(smoothed, variation)| {
            smoothed + 4 * variation + self.peer_ack_delay
        });
        (base.clamp(LEAST_RTO, MOST_RTO) << self.timeouts.min(16)).min(MOST_RTO)
    }

    fn probe_wait(&self) -> u64 {
        let wait = self.rtt.map_or(FIRST_RTO / 2, |(smoothed, _)| {
            2 * smoothed + self.peer_ack_delay
        });
        // Never later than the timeout: the question comes before the answer is given up (REL-035).
        wait.max(LEAST_PROBE).min(self.rto() / 2)
    }

    /// When the path next wants [`Self::on_timer`].
    pub(super) fn deadline(&self) -> Option<u64> {
        if self.sent.is_empty() {
            return None;
        }
        let wait = if self.probed {
            self.rto()
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
        if !self.probed {
            self.probed = true;
            return Some(Due::Probe);
        }
        if self.timeouts >= MOST_TIMEOUTS {
            return Some(Due::Failure);
        }
        self.timeouts += 1;
        self.progress = now;
        self.probed = false;
        self.window = 1.0;
        self.in_flight = 0;
        self.sent
            .iter_mut()
            .filter(|sent| !sent.acked)
            .for_each(|sent| sent.lost = true);
        Some(Due::Timeout)
    }
}
