//! The receiving end of one path: what has arrived, and which acknowledgment is due.

use metaroce_wire::metaroce::Sack;
use metaroce_wire::serial::Psn;

use super::config::Ecn;

/// Packets past the cumulative PSN that can be told apart.
const WINDOW: u32 = Sack::BITS;
/// Data packets after which an acknowledgment is due (REL-016).
const ACK_EVERY: u32 = 8;
/// Payload bytes after which an acknowledgment is due (REL-047).
const ACK_EVERY_BYTES: usize = 16 << 10;
/// Arrivals after a sign of loss during which acknowledgments are repeated.
const REPEATING: u32 = 256;

/// What a PSN is to the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    New,
    Duplicate,
    OutOfWindow,
}

/// The latest arrival, which the next acknowledgment answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trigger {
    pub timestamp: u32,
    pub arrived: u64,
    pub stream: u16,
    pub rtx: bool,
    /// Plane in which it came.
    pub plane: u8,
}

/// What the peer was told when it retired an epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retired {
    pub epoch: u8,
    pub cum: Psn,
    pub sack: Sack,
}

/// One path of the peer's sending direction.
pub(super) struct RxPath {
    pub epoch: u8,
    pub cum: Psn,
    /// By PSN modulo 256; only those within the window past `cum` mean anything.
    seen: [u64; 4],
    highest: Psn,
    pub ce: u32,
    pub ect: u32,
    last_was_ce: bool,
    pub trigger: Option<Trigger>,
    pub ack_now: bool,
    pub ack_due: Option<u64>,
    since_ack: u32,
    bytes_since_ack: usize,
    /// Arrivals left during which acknowledgments are repeated.
    repeating: u32,
    pub duplicate_seen: bool,
    pub out_of_window_seen: bool,
    /// Acknowledgments leave from another port after a duplicate (PATH-017): by how many ports they are shifted.
    pub shift: u16,
    /// The final report of the epoch before.
    pub retired: Option<Box<Retired>>,
}

impl RxPath {
    pub(super) fn new(isn: Psn) -> Self {
        Self {
            epoch: 0,
            cum: isn.sub(1),
            seen: [0; 4],
            highest: isn.sub(1),
            ce: 0,
            ect: 0,
            last_was_ce: false,
            trigger: None,
            ack_now: false,
            ack_due: None,
            since_ack: 0,
            bytes_since_ack: 0,
            repeating: 0,
            duplicate_seen: false,
            out_of_window_seen: false,
            shift: 0,
            retired: None,
        }
    }

    fn has(&self, psn: Psn) -> bool {
        let slot = psn.value() % WINDOW;
        self.seen[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn flip(&mut self, psn: Psn) {
        let slot = psn.value() % WINDOW;
        self.seen[slot as usize / 64] ^= 1 << (slot % 64);
    }

    pub(super) fn classify(&self, psn: Psn) -> Arrival {
        if psn.precedes_or_is(self.cum) {
            return Arrival::Duplicate;
        }
        match psn.distance_from(self.cum) {
            1..=WINDOW if self.has(psn) => Arrival::Duplicate,
            1..=WINDOW => Arrival::New,
            _ => Arrival::OutOfWindow,
        }
    }

    /// Notes a first arrival that has been placed.
    pub(super) fn take(&mut self, psn: Psn, ecn: Ecn, payload: usize, at_once: bool) {
        // It opens a gap when it lies past the highest arrival and not right behind it.
        let opens_gap = self.highest.precedes(psn) && psn != self.highest.add(1);
        if self.highest.precedes(psn) {
            self.highest = psn;
        }
        self.repeating = if opens_gap {
            REPEATING
        } else {
            self.repeating.saturating_sub(1)
        };
        self.flip(psn);
        while self.has(self.cum.add(1)) {
            self.cum = self.cum.add(1);
            self.flip(self.cum);
        }
        match ecn {
            Ecn::Ce => self.ce = self.ce.wrapping_add(1),
            Ecn::Ect0 | Ecn::Ect1 => self.ect = self.ect.wrapping_add(1),
            Ecn::NotEct => {}
        }
        let ce_changed = (ecn == Ecn::Ce) != self.last_was_ce;
        self.last_was_ce = ecn == Ecn::Ce;
        self.since_ack += 1;
        self.bytes_since_ack += payload;
        let many = self.since_ack >= ACK_EVERY || self.bytes_since_ack >= ACK_EVERY_BYTES;
        self.ack_now |= at_once || opens_gap || ce_changed || many;
    }

    /// Notes that a packet has come again, because of a lost acknowledgment as like as not.
    pub(super) fn take_again(&mut self) {
        self.duplicate_seen = true;
        self.shift = self.shift.wrapping_add(1);
        self.repeating = REPEATING;
        self.ack_now = true;
    }

    pub(super) fn sack(&self) -> Sack {
        let mut sack = Sack::EMPTY;
        if self.cum.precedes(self.highest) {
            for i in 0..self.highest.distance_from(self.cum).min(WINDOW) {
                if self.has(self.cum.add(1 + i)) {
                    sack.set(i);
                }
            }
        }
        sack
    }

    /// Forgets what the acknowledgment just made has told. Where packets get lost it is due once more at `again` if nothing
    /// comes before: acknowledgments get lost too, and one that nothing follows would stop a small window for the two
    /// round trips after which a sender asks.
    pub(super) fn acknowledged(&mut self, again: u64) {
        let news = self.since_ack > 0 || self.duplicate_seen;
        self.ack_now = false;
        self.ack_due = (news && self.repeating > 0).then_some(again);
        self.since_ack = 0;
        self.bytes_since_ack = 0;
        self.duplicate_seen = false;
        self.out_of_window_seen = false;
    }

    /// Ends the current epoch and begins the next one (PATH-026, PATH-034); returns the final report.
    pub(super) fn retire(&mut self) -> Retired {
        let report = Retired {
            epoch: self.epoch,
            cum: self.cum,
            sack: self.sack(),
        };
        *self = Self {
            epoch: (self.epoch + 1) % 16,
            shift: self.shift,
            retired: Some(Box::new(report)),
            ..Self::new(self.cum.add(WINDOW + 1))
        };
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_edges() {
        let mut path = RxPath::new(Psn::new(0));
        assert_eq!(path.classify(Psn::new(255)), Arrival::New);
        assert_eq!(path.classify(Psn::new(256)), Arrival::OutOfWindow);
        assert_eq!(path.classify(Psn::new(0xffff_ffff)), Arrival::Duplicate);
        path.take(Psn::new(255), Ecn::Ect0, 1, false);
        assert!(path.ack_now, "a gap is acknowledged at once");
        assert_eq!(path.classify(Psn::new(255)), Arrival::Duplicate);
        assert_eq!(path.sack().highest(), Some(255));
        (0..255).for_each(|psn| path.take(Psn::new(psn), Ecn::Ect0, 1, false));
        assert_eq!(path.cum, Psn::new(255));
        assert!(path.sack().is_empty());
        assert_eq!((path.ce, path.ect), (0, 256));
    }

    /// An acknowledgment that nothing follows is due once more, and no more than that, after a gap and not long without one.
    #[test]
    fn acknowledgments_are_repeated_where_packets_get_lost() {
        let mut path = RxPath::new(Psn::new(0));
        path.take(Psn::new(0), Ecn::Ect0, 1, true);
        path.acknowledged(500);
        assert_eq!(path.ack_due, None, "nothing was lost");
        path.take(Psn::new(2), Ecn::Ect0, 1, false);
        path.acknowledged(600);
        assert_eq!(path.ack_due, Some(600));
        path.acknowledged(700);
        assert_eq!(path.ack_due, None, "once is enough");
        (3..258).for_each(|psn| path.take(Psn::new(psn), Ecn::Ect0, 1, false));
        path.acknowledged(800);
        assert_eq!(path.ack_due, Some(800));
        path.take(Psn::new(1), Ecn::Ect0, 1, true);
        path.acknowledged(900);
        assert_eq!(path.ack_due, None, "it is long ago");
        path.take_again();
        path.acknowledged(1000);
        assert_eq!(path.ack_due, Some(1000), "the one before may be lost");
    }

    #[test]
    fn the_next_epoch_is_out_of_reach_of_the_old_one() {
        let mut path = RxPath::new(Psn::new(10));
        path.take(Psn::new(10), Ecn::Ce, 1, false);
        path.take(Psn::new(12), Ecn::Ce, 1, false);
        let report = path.retire();
        assert_eq!((report.epoch, report.cum), (0, Psn::new(10)));
        assert_eq!(report.sack.ones().collect::<Vec<_>>(), [1]);
        assert_eq!((path.epoch, path.ce, path.cum), (1, 0, Psn::new(266)));
        assert_eq!(path.classify(Psn::new(266)), Arrival::Duplicate);
        assert_eq!(path.classify(Psn::new(267)), Arrival::New);
        assert!(path.sack().is_empty() && path.trigger.is_none());
    }
}
