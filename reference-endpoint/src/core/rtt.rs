//! The round-trip time of a path and the waits that follow from it (RFC 6298, chapter on reliability).

const MS: u64 = 1_000_000;
/// Retransmission timeout before the first sample, ns.
const FIRST_RTO: u64 = 100 * MS;
const LEAST_RTO: u64 = 10 * MS;
/// Largest retransmission timeout, ns.
pub(super) const MOST_RTO: u64 = 2_000 * MS;
/// Shortest wait before a probe, ns.
const LEAST_PROBE: u64 = 2 * MS;

/// What is known of the round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rtt {
    /// Smoothed time and its variation, ns.
    estimate: Option<(u64, u64)>,
    /// Longest time by which the peer delays an acknowledgment, ns.
    peer_ack_delay: u64,
}

impl Rtt {
    pub(super) fn new(peer_ack_delay: u64) -> Self {
        Self {
            estimate: None,
            peer_ack_delay,
        }
    }

    /// Takes a sample: an answer that came `now` to the transmission at `sent`, held back for `delay` ns. A delay that is
    /// not less than the whole time is a lie (REL-059).
    pub(super) fn sample(&mut self, now: u64, sent: u64, delay: u64) {
        let Some(sample) = now
            .checked_sub(sent)
            .and_then(|time| time.checked_sub(delay))
        else {
            return;
        };
        if sample == 0 {
            return;
        }
        self.estimate = Some(match self.estimate {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => (
                (7 * smoothed + sample) / 8,
                (3 * variation + smoothed.abs_diff(sample)) / 4,
            ),
        });
    }

    /// SRTT, ns; none before the first sample.
    pub(super) fn smoothed(&self) -> Option<u64> {
        self.estimate.map(|(smoothed, _)| smoothed)
    }

    /// RTTVAR, ns.
    pub(super) fn variation(&self) -> u64 {
        self.estimate.map_or(0, |(_, variation)| variation)
    }

    /// SRTT, or what stands for it before the first sample: half the retransmission timeout.
    pub(super) fn smoothed_or_half(&self) -> u64 {
        self.smoothed().unwrap_or(FIRST_RTO / 2)
    }

    /// The retransmission timeout after so many timeouts in a row, ns.
    pub(super) fn timeout(&self, in_a_row: u32) -> u64 {
        let base = self.estimate.map_or(FIRST_RTO, |(smoothed, variation)| {
            let rto = smoothed + 4 * variation + self.peer_ack_delay;
            // A steady round trip leaves no variation. The probe's answer must still be able to come first: it tells
            // what is lost, where a timeout only guesses (REL-035).
            rto.max(self.probe_due() + smoothed + self.peer_ack_delay)
        });
        (base.clamp(LEAST_RTO, MOST_RTO) << in_a_row.min(8)).min(MOST_RTO)
    }

    /// When a probe is due after the latest sign of life, ns (REL-048).
    fn probe_due(&self) -> u64 {
        self.estimate
            .map_or(FIRST_RTO / 2, |(smoothed, _)| {
                2 * smoothed + self.peer_ack_delay
            })
            .max(LEAST_PROBE)
    }

    /// The wait before a probe, ns. Round trips of about the largest timeout leave less time: the question still comes
    /// before the answer is given up.
    pub(super) fn probe_wait(&self, in_a_row: u32) -> u64 {
        let timeout = self.timeout(in_a_row);
        if self.probe_due() < timeout {
            self.probe_due()
        } else {
            timeout / 2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_time_for_its_answer() {
        for round in [100_000, MS, 5 * MS, 30 * MS, 200 * MS] {
            let mut rtt = Rtt::new(200_000);
            (0..50).for_each(|_| rtt.sample(1_000 + round, 1_000, 0));
            let due = (2 * round + 200_000).max(2 * MS);
            assert!(rtt.probe_wait(0).abs_diff(due) < 10, "REL-058");
            assert!(rtt.probe_wait(0) + round < rtt.timeout(0));
        }
    }

    #[test]
    fn timeouts_double_up_to_the_largest() {
        let rtt = Rtt::new(200_000);
        let waits: Vec<u64> = (0..7).map(|n| rtt.timeout(n) / MS).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn a_delay_as_long_as_the_round_trip_is_no_sample() {
        let mut rtt = Rtt::new(0);
        rtt.sample(1_000, 400, 600);
        rtt.sample(1_000, 400, 700);
        rtt.sample(1_000, 1_400, 0);
        assert_eq!(rtt.smoothed(), None);
        rtt.sample(1_000, 400, 500);
        assert_eq!(rtt.smoothed(), Some(100));
    }
}
