//! What the sender makes of a path's counts of marks.

/// Counts of one epoch of a path, as the peer has reported them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EcnState {
    ce: u32,
    ect: u32,
    off: bool,
    marks: u64,
}

impl EcnState {
    /// Takes the counts of an acknowledgment that advances; the others are passed over, and have nothing `newly`. That is
    /// how many packets it reports as arrived that the one whose counts were taken last has not reported;
    /// `all_since_change` tells whether they were all sent since the source port or plane last changed.
    ///
    /// Returns the new CE to react to: none when it is more than what has arrived (ECN-014).
    pub(super) fn on_counts(
        &mut self,
        newly: u32,
        all_since_change: bool,
        ce: u32,
        ect: u32,
    ) -> u32 {
        if newly == 0 {
            return 0;
        }
        let (ce_rise, ect_rise) = (ce.wrapping_sub(self.ce), ect.wrapping_sub(self.ect));
        // Also counts that make no sense are what the next ones are compared with: a peer that has erred once is
        // understood again with its next acknowledgment but one.
        (self.ce, self.ect) = (ce, ect);
        let sum = u64::from(ce_rise) + u64::from(ect_rise);
        // A count that goes back looks like a rise of more than anything that was sent, so it is no sign of erased marks.
        self.off |= all_since_change && sum < u64::from(newly);
        if ce_rise > newly {
            return 0;
        }
        self.marks += u64::from(ce_rise);
        ce_rise
    }

    /// Whether the marks of the path are erased, so that gaps are what tells of congestion (ECN-012).
    pub(super) fn is_off(&self) -> bool {
        self.off
    }

    /// Takes a change of source port or plane: another route may keep the marks.
    pub(super) fn on_route_change(&mut self) {
        self.off = false;
    }

    /// Packets that were reported as marked, those aside that could not be true.
    pub(super) fn marks(&self) -> u64 {
        self.marks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// ECN-012: fewer counts than packets that were sent since the change of route, and nothing else, turn ECN off.
    #[test]
    fn erased_marks_turn_ecn_off() {
        let mut path = EcnState::default();
        assert_eq!(path.on_counts(8, true, 0, 8), 0);
        assert_eq!(path.on_counts(8, true, 3, 13), 3);
        assert!(!path.is_off(), "all are counted");
        assert_eq!(path.on_counts(8, true, 4, 20), 1);
        assert!(!path.is_off());
        assert_eq!(path.on_counts(8, true, 4, 27), 0);
        assert!(path.is_off(), "seven of eight");
    }

    /// ECN-012: a route that has just changed proves nothing as long as packets of the one before are among them, and
    /// what holds for one route does not for the next.
    #[test]
    fn only_packets_of_the_present_route_prove_it() {
        let mut path = EcnState::default();
        path.on_counts(8, false, 0, 2);
        assert!(!path.is_off());
        path.on_counts(8, true, 0, 2);
        assert!(path.is_off());
        path.on_counts(8, true, 0, 10);
        assert!(path.is_off(), "until the route changes");
        path.on_route_change();
        assert!(!path.is_off());
        path.on_counts(8, true, 1, 17);
        assert!(!path.is_off());
    }

    /// ECN-013: state of one path is not that of another, nor that of the next epoch, which starts with its own.
    #[test]
    fn erased_marks_of_one_path_are_not_those_of_another() {
        let mut paths = [EcnState::default(); 2];
        paths[0].on_counts(8, true, 0, 0);
        paths[1].on_counts(8, true, 0, 8);
        assert_eq!(paths.map(|path| path.is_off()), [true, false]);
    }

    /// ECN-014: a rise of more than what is newly acknowledged is no congestion, one of all of it is.
    #[test]
    fn more_marks_than_packets_are_none() {
        let mut path = EcnState::default();
        assert_eq!(path.on_counts(8, true, 9, 0), 0);
        assert_eq!(path.marks(), 0);
        assert_eq!(path.on_counts(8, true, 17, 0), 8);
        assert_eq!(path.marks(), 8);
    }

    /// ECN-008 broken by a peer: counts that go back, or leap and come back, cause nothing, and the next ones are taken.
    #[test]
    fn counts_that_go_back_are_passed_over() {
        let mut path = EcnState::default();
        path.on_counts(50, true, 10, 40);
        assert_eq!(path.on_counts(8, true, 9, 45), 0);
        assert_eq!(path.on_counts(8, true, 10, 8), 1);
        assert!(!path.is_off());
        assert_eq!(path.on_counts(8, true, 70_000, 60_000), 0);
        assert_eq!(path.on_counts(8, true, 12, 22), 0);
        assert!(!path.is_off());
        assert_eq!(path.on_counts(8, true, 14, 28), 2);
    }

    /// An acknowledgment that was overtaken advances nothing.
    #[test]
    fn overtaken_counts_are_passed_over() {
        let mut path = EcnState::default();
        path.on_counts(16, true, 4, 12);
        assert_eq!(path.on_counts(0, true, 2, 6), 0);
        assert_eq!(path.on_counts(8, true, 5, 19), 1);
        assert!(!path.is_off());
    }

    /// Counts wrap at 2^32.
    #[test]
    fn counts_wrap() {
        let mut path = EcnState {
            ce: u32::MAX,
            ect: u32::MAX - 2,
            ..EcnState::default()
        };
        assert_eq!(path.on_counts(8, true, 3, 1), 4);
        assert!(!path.is_off());
        assert_eq!(path.on_counts(8, true, 3, 8), 0);
        assert!(path.is_off());
    }

    proptest! {
        /// ECN-012, ECN-014 over any honest history: every mark is seen once, and ECN is off when, and only when, an
        /// acknowledgment of the present route alone is short of a count.
        #[test]
        fn honest_counts(
            first: (u32, u32),
            acks in prop::collection::vec((1..257u32, 0..257u32, 0..3u32, any::<bool>()), 1..50),
        ) {
            let mut path = EcnState { ce: first.0, ect: first.1, ..EcnState::default() };
            let (mut ce, mut ect) = first;
            let (mut marks, mut off) = (0, false);
            for (newly, marked, erased, since_change) in acks {
                let marked = marked.min(newly);
                let erased = erased.min(newly - marked);
                ce = ce.wrapping_add(marked);
                ect = ect.wrapping_add(newly - marked - erased);
                prop_assert_eq!(path.on_counts(newly, since_change, ce, ect), marked);
                marks += u64::from(marked);
                off |= since_change && erased > 0;
                prop_assert_eq!(path.is_off(), off);
            }
            prop_assert_eq!(path.marks(), marks);
        }
    }
}
