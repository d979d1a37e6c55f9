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

use super::ecn::EcnState;
use super::rtt::Rtt;
use super::transitions::{PathEvent, PathState, step, step_to};

/// Packets past the cumulative acknowledgment, at most (REL-003).
const MOST_IN_FLIGHT: u32 = Sack::BITS;
/// New packets before the first report, at most.
const MOST_UNHEARD: u32 = 16;
/// Timeouts in a row after which a path has failed in any case.
const MOST_TIMEOUTS: u32 = 7;
/// Transmissions after which a packet waits for the timeout before each further one (REL-060).
const PROMPT_TRANSMISSIONS: u8 = 8;
/// Transmissions of one packet, at most (REL-052). A peer that answers every probe and yet never takes the packet
/// resets the count of timeouts each time, and must not keep the path busy for ever.
const MOST_TRANSMISSIONS: u8 = 64;
/// Transmissions whose times are remembered: an echo of any other one proves nothing.
const REMEMBERED: usize = 1024;
/// A time that does not come.
const NEVER: u64 = u64::MAX;

/// What a packet carries: its place in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carried {
    pub stream: u16,
    pub msn: Msn,
    /// Position of the packet in its message.
    pub index: u32,
    /// It belongs to the answer to a request of the peer.
    pub response: bool,
}

/// What is known of a packet that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Flying,
    Acked,
    /// Shown to be lost.
    Lost,
    /// Lost as a timeout supposes.
    Guessed,
    /// Refused with RNR: it waits until its time has come.
    Waiting,
    /// Refused for good: it waits for the end of its stream.
    Refused,
}

/// A packet that is not yet acknowledged up to it.
#[derive(Debug, Clone, Copy)]
struct Sent {
    carried: Carried,
    /// Times of its first and of its latest transmission.
    first: u64,
    latest: u64,
    /// While it waits: until when. While it flies: when a gap was reported for it. While it is lost: 0 when it was held.
    at: u64,
    /// Counted anew after each NAK RNR.
    transmissions: u8,
    /// Times that it was refused with RNR.
    not_ready: u8,
    fate: Fate,
    /// A gap has shown it to be lost.
    by_gap: bool,
}

/// Whether a packet is lost that has been sent as often as is allowed.
fn is_out(sent: &Sent) -> bool {
    sent.transmissions >= MOST_TRANSMISSIONS && matches!(sent.fate, Fate::Lost | Fate::Guessed)
}

/// What a timer of the path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Probe,
    Timeout,
}

/// A report of what has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report<'r> {
    pub cum: Psn,
    pub sack: &'r Sack,
    /// The data transmission that it answers, as far as it tells.
    pub trigger: Option<u64>,
    /// The probe that it answers.
    pub probe: Option<u64>,
    /// When the window of the connection was used up last.
    pub used_up_at: Option<u64>,
    /// The peer has seen a duplicate.
    pub duplicate: bool,
}

/// What a report has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Packets newly acknowledged.
    pub newly: u32,
    /// Those of them that were in flight when a window was used up (CC-013).
    pub tested: u32,
    /// A gap has been reported that counts as evidence.
    pub gap: bool,
}

/// Counts of a path since the connection began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub packets: u64,
    pub bytes: u64,
    pub losses: u64,
    pub retransmissions: u64,
    pub timeouts: u32,
    pub probes: u32,
}

/// One path of the sending direction.
pub(super) struct TxPath {
    pub port: u16,
    pub plane: u8,
    pub epoch: u8,
    pub state: PathState,
    pub rtt: Rtt,
    pub ecn: EcnState,
    pub totals: Totals,
    /// Timeouts in a row, and when the first of them was.
    pub timeouts: u32,
    pub first_timeout: u64,
    /// When anything was last acknowledged on it.
    pub acked_at: Option<u64>,
    base: Psn,
    next: Psn,
    sent: VecDeque<Sent>,
    in_flight: u32,
    lost: u32,
    held: u32,
    acked: u32,
    /// Times of the transmissions that an echo can belong to, rising.
    stamps: VecDeque<u64>,
    last_stamp: Option<u64>,
    /// Stamp of the latest packet after which a window was used up.
    used_up_at: Option<u64>,
    /// The latest transmission, acknowledgment or timeout.
    progress: u64,
    /// A packet is lost that has been sent as often as is allowed.
    exhausted: bool,
    /// The latest change of route: the last stamp before it, and its time.
    changed: Option<(u64, u64)>,
    first_since_change: Psn,
    /// When the next gap begins to count.
    gap_due: u64,
    /// Reordering allowance, ns, and when it last rose (PATH-018).
    allowance: u64,
    allowance_raised: u64,
    repaired: bool,
    /// Packets of the epoch that the acknowledgment has reported whose counts of marks were taken last.
    counted: u32,
    counted_cum: Psn,
    epoch_first: Psn,
}

impl TxPath {
    pub(super) fn new(isn: Psn, port: u16, plane: u8, peer_ack_delay: u64) -> Self {
        Self {
            port,
            plane,
            epoch: 0,
            state: PathState::Open,
            rtt: Rtt::new(peer_ack_delay),
            ecn: EcnState::default(),
            totals: Totals::default(),
            timeouts: 0,
            first_timeout: 0,
            acked_at: None,
            base: isn,
            next: isn,
            sent: VecDeque::new(),
            in_flight: 0,
            lost: 0,
            held: 0,
            acked: 0,
            stamps: VecDeque::new(),
            last_stamp: None,
            used_up_at: None,
            progress: 0,
            exhausted: false,
            changed: None,
            first_since_change: isn,
            gap_due: NEVER,
            allowance: 0,
            allowance_raised: 0,
            repaired: false,
            counted: 0,
            counted_cum: isn.sub(1),
            epoch_first: isn,
        }
    }

    /// Begins an epoch with `first` as its first PSN, which a report has opened at `now`. Only the clock of transmissions and
    /// the totals go on: an echo of an earlier epoch proves nothing (REL-059).
    pub(super) fn begin_epoch(&mut self, now: u64, epoch: u8, first: Psn, peer_ack_delay: u64) {
        *self = Self {
            epoch,
            state: self.state,
            totals: self.totals,
            last_stamp: self.last_stamp,
            acked_at: Some(now),
            ..Self::new(first, self.port, self.plane, peer_ack_delay)
        };
    }

    // ---- what is under way --------------------------------------------------------------------------------------

    /// Packets in the network, as far as is known.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether the 256 bits of the vector and the state of the path allow a new packet. Before anything is heard of the path
    /// there are 16 in all, those included that a NAK has taken out of flight (PATH-010).
    pub(super) fn takes_new(&self) -> bool {
        let most = if self.acked_at.is_some() {
            MOST_IN_FLIGHT
        } else {
            MOST_UNHEARD
        };
        self.state.is_alive() && (self.sent.len() as u32) < most
    }

    /// Whether the next new packet is the last that the vector allows.
    pub(super) fn fills_vector(&self) -> bool {
        self.sent.len() as u32 + 1 == MOST_IN_FLIGHT
    }

    /// Whether nothing is unacknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// Whether packets are lost that are not sent again yet.
    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    pub(super) fn highest_sent(&self) -> Psn {
        self.next.sub(1)
    }

    /// The PSN of the next new packet.
    pub(super) fn next_psn(&self) -> Psn {
        self.next
    }

    /// What was sent under `psn`, while it is unacknowledged.
    pub(super) fn outstanding(&self, psn: Psn) -> Option<Carried> {
        let sent = self.sent.get(psn.distance_from(self.base) as usize)?;
        (sent.fate != Fate::Acked).then_some(sent.carried)
    }

    fn at(&mut self, psn: Psn) -> Option<&mut Sent> {
        self.sent.get_mut(psn.distance_from(self.base) as usize)
    }

    // ---- sending ------------------------------------------------------------------------------------------------

    /// A time that no earlier transmission of the path has, and that follows them all (PKT-017).
    fn next_stamp(&mut self, now: u64) -> u64 {
        let stamp = self.last_stamp.map_or(now, |last| now.max(last + 1));
        self.last_stamp = Some(stamp);
        if self.stamps.len() == REMEMBERED {
            self.stamps.pop_front();
        }
        self.stamps.push_back(stamp);
        stamp
    }

    /// Notes that a probe is sent; returns when it was, which is also its timestamp.
    pub(super) fn send_probe(&mut self, now: u64) -> u64 {
        self.totals.probes += 1;
        self.next_stamp(now)
    }

    /// The transmission that an echo belongs to: one of the path's own (REL-059).
    pub(super) fn transmission(&self, echo: u32) -> Option<u64> {
        let last = self.last_stamp?;
        let stamp = last.checked_sub(u64::from((last as u32).wrapping_sub(echo)))?;
        self.stamps.binary_search(&stamp).is_ok().then_some(stamp)
    }

    /// Notes a first transmission; returns its PSN and timestamp. `used_up` says that a window has no room any more.
    pub(super) fn send_new(&mut self, now: u64, carried: Carried, used_up: bool) -> (Psn, u32) {
        let (psn, stamp) = (self.next, self.next_stamp(now));
        self.sent.push_back(Sent {
            carried,
            first: stamp,
            latest: stamp,
            at: NEVER,
            transmissions: 1,
            not_ready: 0,
            fate: Fate::Flying,
            by_gap: false,
        });
        if used_up {
            self.used_up_at = Some(stamp);
        }
        self.next = self.next.add(1);
        self.in_flight += 1;
        self.progress = now;
        self.transmitted();
        (psn, stamp as u32)
    }

    /// Notes that the lost packet under `psn` is sent again; returns its timestamp.
    pub(super) fn send_again(&mut self, now: u64, psn: Psn) -> u32 {
        let stamp = self.next_stamp(now);
        if let Some(sent) = self.at(psn) {
            sent.latest = stamp;
            sent.transmissions += 1;
            sent.at = NEVER;
            sent.fate = Fate::Flying;
            let by_gap = std::mem::take(&mut sent.by_gap);
            let refused = sent.not_ready > 0;
            self.repaired |= by_gap;
            self.lost -= 1;
            self.in_flight += 1;
            // Whoever is refused again and again must not put off the questions for the others.
            if !refused || !self.waits_for_others() {
                self.progress = now;
            }
        }
        self.totals.retransmissions += 1;
        self.transmitted();
        stamp as u32
    }

    /// Whether a packet is unacknowledged that was never refused with RNR.
    fn waits_for_others(&self) -> bool {
        let asked = |sent: &Sent| sent.not_ready == 0;
        let open = |sent: &Sent| matches!(sent.fate, Fate::Flying | Fate::Lost | Fate::Guessed);
        self.sent.iter().any(|sent| asked(sent) && open(sent))
    }

    fn transmitted(&mut self) {
        self.totals.packets += 1;
        if self.state == PathState::Probing {
            step(&mut self.state, PathEvent::Sent);
        }
    }

    /// When a lost packet may be sent again: at once, but for one that has been lost many times (REL-060, REL-061). What a
    /// timeout supposes to be lost has had its wait, and so has what was held.
    fn free_at(&self, sent: &Sent) -> u64 {
        if sent.transmissions < PROMPT_TRANSMISSIONS || sent.fate == Fate::Guessed || sent.at == 0 {
            return 0;
        }
        sent.latest + self.rtt.timeout(self.timeouts)
    }

    /// The first packet to be sent again now, with its PSN. A loss that was shown is repaired whatever the window: the
    /// repair takes the place of a packet that has left the network. What a timeout guesses waits for `room` (REL-056).
    pub(super) fn next_lost(&self, now: u64, room: bool) -> Option<(Psn, Carried)> {
        if self.lost == 0 || !self.state.is_alive() {
            return None;
        }
        let goes = |sent: &Sent| {
            (sent.fate == Fate::Lost || room && sent.fate == Fate::Guessed)
                && sent.transmissions < MOST_TRANSMISSIONS
        };
        let mut all = (0..).zip(&self.sent);
        let (i, sent) = all.find(|(_, sent)| goes(sent) && self.free_at(sent) <= now)?;
        Some((self.base.add(i), sent.carried))
    }

    // ---- reports ------------------------------------------------------------------------------------------------

    /// Whether a report can be true: it speaks of nothing that was not sent (REL-044).
    fn is_possible(&self, report: &Report<'_>) -> Option<i64> {
        let known = self.base.sub(1);
        // Below zero when a newer report came first. Then it tells of no arrival that is not known, but still of what it
        // follows.
        let ahead = if report.cum.precedes(known) {
            -i64::from(known.distance_from(report.cum))
        } else {
            i64::from(report.cum.distance_from(known))
        };
        let beyond = report.sack.highest().map_or(0, |bit| 1 + i64::from(bit));
        (ahead + beyond <= self.sent.len() as i64).then_some(ahead)
    }

    /// Takes a report; what is newly acknowledged is added to `out`. Nothing when the report cannot be true (REL-044).
    pub(super) fn on_report(
        &mut self,
        now: u64,
        report: &Report<'_>,
        out: &mut Vec<Carried>,
    ) -> Option<Shown> {
        let ahead = self.is_possible(report)?;
        let mut shown = Shown::default();
        let mut evidence = report.trigger;
        let used_up_at = self.used_up_at.max(report.used_up_at);
        for (i, sent) in (1i64..).zip(self.sent.iter_mut()) {
            let arrived = i <= ahead || report.sack.bit((i - ahead - 1) as u32);
            if !arrived || sent.fate == Fate::Acked {
                continue;
            }
            match sent.fate {
                Fate::Lost | Fate::Guessed => self.lost -= 1,
                Fate::Waiting | Fate::Refused => self.held -= 1,
                Fate::Flying | Fate::Acked => self.in_flight -= 1,
            }
            sent.fate = Fate::Acked;
            self.acked += 1;
            // Which transmission it was is not known here; the first is the one that proves least (REL-054).
            evidence = evidence.max(Some(sent.first));
            shown.newly += 1;
            shown.tested += u32::from(used_up_at.is_some_and(|at| sent.first <= at));
            out.push(sent.carried);
        }
        while self
            .sent
            .front()
            .is_some_and(|sent| sent.fate == Fate::Acked)
        {
            self.sent.pop_front();
            self.acked -= 1;
            self.base = self.base.add(1);
        }
        if self.exhausted {
            self.exhausted = self.sent.iter().any(is_out);
        }
        if report.duplicate {
            self.on_duplicate_seen(now);
        }
        if self.allowance > 0 && now >= self.allowance_raised + 16 * self.rtt.smoothed_or_half() {
            self.allowance = 0;
        }
        self.find_lost(now, evidence, report.probe, &mut shown);
        self.progress = now;
        if self.state == PathState::Probing {
            step(&mut self.state, PathEvent::Report);
        }
        self.timeouts = 0;
        self.acked_at = Some(now);
        Some(shown)
    }

    /// Takes for lost what was sent before a transmission that has arrived, and is not reported.
    fn find_lost(
        &mut self,
        now: u64,
        evidence: Option<u64>,
        probe: Option<u64>,
        shown: &mut Shown,
    ) {
        if self.sent.is_empty() {
            self.gap_due = NEVER;
            return;
        }
        let before_change = self.changed.map_or(0, |(stamp, _)| stamp);
        let smoothed = self.rtt.smoothed_or_half();
        let grace = self
            .changed
            .map_or(0, |(_, at)| at + smoothed + smoothed / 8);
        let mut gap_due = NEVER;
        for sent in &mut self.sent {
            if !matches!(sent.fate, Fate::Flying | Fate::Guessed) {
                continue;
            }
            // On the old route a packet may still come, whatever the new one has brought (PATH-013).
            let overlaps = sent.latest <= before_change;
            // A probe that was sent when the old route can hold nothing any more has overtaken all of it (REL-040).
            let overtakes = |probe: u64| sent.latest < probe && (!overlaps || probe >= grace);
            let by_probe = probe.is_some_and(overtakes);
            if sent.at == NEVER && evidence.is_some_and(|evidence| evidence > sent.latest) {
                sent.at = now;
            }
            if !by_probe && sent.at == NEVER {
                continue;
            }
            // A later change of route or a longer allowance puts it off further (PATH-013, PATH-018).
            let end = if overlaps {
                grace.max(sent.at.saturating_add(smoothed / 4))
            } else {
                sent.at
            };
            let due = end.max(sent.at.saturating_add(self.allowance));
            if by_probe || due <= now {
                if sent.fate == Fate::Flying {
                    self.in_flight -= 1;
                    self.lost += 1;
                }
                sent.fate = Fate::Lost;
                sent.at = NEVER;
                self.totals.losses += 1;
                self.exhausted |= sent.transmissions >= MOST_TRANSMISSIONS;
                sent.by_gap = !by_probe;
                shown.gap |= !by_probe;
            } else {
                gap_due = gap_due.min(due);
            }
        }
        self.gap_due = gap_due;
    }

    /// Takes the counts of marks of an acknowledgment that has been taken; returns the new marks to react to. An
    /// acknowledgment that does not advance is passed over.
    pub(super) fn on_counts(&mut self, report: &Report<'_>, ce: u32, ect: u32) -> u32 {
        let through = report.cum.add(1).distance_from(self.epoch_first);
        let beyond: u32 = report.sack.0.iter().map(|byte| byte.count_ones()).sum();
        let reported = through.wrapping_add(beyond);
        let newly = reported.wrapping_sub(self.counted);
        if newly == 0 || newly > 1 << 31 {
            return 0;
        }
        let settled = !self.counted_cum.precedes(self.first_since_change.sub(1));
        self.counted = reported;
        self.counted_cum = report.cum;
        // It moves along: when half of all PSNs have been used up it would lie ahead again.
        let next = report.cum.add(1);
        if self.first_since_change.precedes(next) {
            self.first_since_change = next;
        }
        self.ecn.on_counts(newly, settled, ce, ect)
    }

    /// Notes that the peer has seen a duplicate: after a repair because of a gap the network is taken to reorder, and the
    /// gaps get more time, those of the same report included (PATH-018).
    fn on_duplicate_seen(&mut self, now: u64) {
        if self.repaired {
            let smoothed = self.rtt.smoothed_or_half();
            self.allowance = (self.allowance + smoothed / 4).min(smoothed);
            self.allowance_raised = now;
        }
    }

    /// Gives back the memory that a path without work does not need.
    pub(super) fn rest(&mut self) {
        if self.is_idle() {
            self.sent = VecDeque::new();
            self.stamps = VecDeque::new();
        }
    }

    // ---- refusals -----------------------------------------------------------------------------------------------

    /// Notes that the packet under `psn` met no receive: it waits until `until`. Returns how often that has happened, this
    /// time included if it `counts`.
    pub(super) fn on_not_ready(&mut self, psn: Psn, until: u64, counts: bool) -> u8 {
        // An operation can be refused that was acknowledged; its packet has arrived and is past holding.
        let Some(sent) = self.at(psn).filter(|sent| sent.fate != Fate::Acked) else {
            return 0;
        };
        let before = sent.fate;
        sent.fate = Fate::Waiting;
        sent.at = until;
        sent.not_ready = sent.not_ready.saturating_add(u8::from(counts));
        sent.transmissions = 0;
        let times = sent.not_ready;
        self.hold(before);
        times
    }

    /// Notes that the packet under `psn` was refused for good.
    pub(super) fn on_refused(&mut self, psn: Psn) {
        let Some(sent) = self.at(psn).filter(|sent| sent.fate != Fate::Acked) else {
            return;
        };
        let before = std::mem::replace(&mut sent.fate, Fate::Refused);
        self.hold(before);
    }

    fn hold(&mut self, before: Fate) {
        match before {
            Fate::Lost | Fate::Guessed => self.lost -= 1,
            Fate::Flying => self.in_flight -= 1,
            Fate::Waiting | Fate::Refused | Fate::Acked => return,
        }
        self.held += 1;
    }

    /// Lets go what was held of `stream`: it is lost now (ERR-033).
    pub(super) fn release(&mut self, stream: u16) {
        let held = |sent: &&mut Sent| {
            matches!(sent.fate, Fate::Refused | Fate::Waiting) && sent.carried.stream == stream
        };
        for sent in self.sent.iter_mut().filter(held) {
            sent.fate = Fate::Lost;
            sent.at = 0;
            self.held -= 1;
            self.lost += 1;
        }
    }

    /// When the first packet that waits after an RNR may go, ns.
    fn waiting_due(&self) -> u64 {
        if self.held == 0 {
            return NEVER;
        }
        let waiting = self.sent.iter().filter(|sent| sent.fate == Fate::Waiting);
        waiting.map(|sent| sent.at).min().unwrap_or(NEVER)
    }

    // ---- route --------------------------------------------------------------------------------------------------

    /// Takes another source port or plane; everything else goes on (PATH-012).
    pub(super) fn change_route(&mut self, now: u64, port: u16, plane: u8) {
        self.port = port;
        self.plane = plane;
        self.changed = self.last_stamp.map(|stamp| (stamp, now));
        self.first_since_change = self.next;
        self.ecn.on_route_change();
    }

    // ---- timers -------------------------------------------------------------------------------------------------

    /// When the path next wants [`Self::on_timer`].
    pub(super) fn deadline(&self) -> Option<u64> {
        if !self.state.is_alive() || self.sent.is_empty() {
            return None;
        }
        if self.exhausted {
            return Some(self.progress);
        }
        let mut due = self.gap_due.min(self.waiting_due());
        if self.sent.len() as u32 - self.acked > self.held {
            let wait = if self.state == PathState::Probing {
                self.rtt.timeout(self.timeouts)
            } else {
                self.rtt.probe_wait(self.timeouts)
            };
            due = due.min(self.progress + wait);
        }
        if self.lost > 0 {
            let lost = self.sent.iter().filter(|sent| sent.fate == Fate::Lost);
            let later = lost
                .map(|s| self.free_at(s))
                .filter(|&at| at > self.progress);
            due = due.min(later.min().unwrap_or(NEVER));
        }
        (due != NEVER).then_some(due)
    }

    /// Whether the path has failed by itself: seven timeouts in a row, or one packet sent too often.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted || self.timeouts >= MOST_TIMEOUTS
    }

    /// What is due at `now`; [`Due::Timeout`] has made everything unacknowledged lost. `shown` tells of gaps that have
    /// begun to count.
    pub(super) fn on_timer(&mut self, now: u64, shown: &mut Shown) -> Option<Due> {
        if self.gap_due <= now {
            self.find_lost(now, None, None, shown);
        }
        if self.waiting_due() <= now {
            let over = |s: &&mut Sent| s.fate == Fate::Waiting && s.at <= now;
            for sent in self.sent.iter_mut().filter(over) {
                sent.fate = Fate::Lost;
                sent.at = 0;
                self.held -= 1;
                self.lost += 1;
            }
        }
        let asks = self.state.is_alive() && self.sent.len() as u32 - self.acked > self.held;
        let probed = self.state == PathState::Probing;
        let wait = if probed {
            self.rtt.timeout(self.timeouts)
        } else {
            self.rtt.probe_wait(self.timeouts)
        };
        if !asks || now < self.progress + wait {
            return None;
        }
        if !probed {
            step(&mut self.state, PathEvent::ProbeDue);
            return Some(Due::Probe);
        }
        step(&mut self.state, PathEvent::Timeout);
        if self.timeouts == 0 {
            self.first_timeout = now;
        }
        self.timeouts += 1;
        self.totals.timeouts += 1;
        self.progress = now;
        for sent in &mut self.sent {
            if sent.fate == Fate::Flying {
                sent.fate = Fate::Guessed;
                sent.at = NEVER;
                self.lost += 1;
                self.exhausted |= sent.transmissions >= MOST_TRANSMISSIONS;
            }
        }
        self.in_flight = 0;
        self.gap_due = NEVER;
        Some(Due::Timeout)
    }

    /// Takes what is in flight for lost: the path is given up, and others go on without it.
    pub(super) fn give_up(&mut self) {
        for sent in &mut self.sent {
            if sent.fate == Fate::Flying {
                sent.fate = Fate::Guessed;
                self.lost += 1;
            }
        }
        self.in_flight = 0;
    }

    /// The final report of the epoch: what is newly acknowledged is added to `newly`, what the peer has not got, with the
    /// time until which it waits, to `missing`. False when the report cannot be true (PATH-040).
    pub(super) fn end_epoch(
        &mut self,
        cum: Psn,
        sack: &Sack,
        newly: &mut Vec<Carried>,
        missing: &mut Vec<(Carried, u64)>,
    ) -> bool {
        let report = Report {
            cum,
            sack,
            trigger: None,
            probe: None,
            used_up_at: None,
            duplicate: false,
        };
        let Some(ahead) = self.is_possible(&report).filter(|&ahead| ahead >= 0) else {
            return false;
        };
        let has = |i: i64| i <= ahead || sack.bit((i - ahead - 1) as u32);
        let mut told = (1..).zip(&self.sent).filter(|(_, s)| s.fate == Fate::Acked);
        if !told.all(|(i, _)| has(i)) {
            return false;
        }
        for (i, sent) in (1..).zip(self.sent.drain(..)) {
            match sent.fate {
                Fate::Acked => {}
                _ if has(i) => newly.push(sent.carried),
                Fate::Waiting => missing.push((sent.carried, sent.at)),
                _ => missing.push((sent.carried, 0)),
            }
        }
        self.in_flight = 0;
        self.lost = 0;
        self.held = 0;
        self.acked = 0;
        self.gap_due = NEVER;
        true
    }

    /// Notes that the path has failed for good, and the connection with it.
    pub(super) fn fail(&mut self) {
        step_to(&mut self.state, PathEvent::Exhausted, PathState::Failed);
    }
}

#[cfg(test)]
#[path = "tx_path/tests.rs"]
mod tests;
