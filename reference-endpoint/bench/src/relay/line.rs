//! One direction of the relay: a rate, a queue that is finite and marks, a delay, and random loss.

use std::sync::atomic::{AtomicU64, Ordering};

use quinn_udp::EcnCodepoint;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Bytes of the IPv4 and UDP headers, which take their time on the line too.
const HEADERS: u64 = 28;

/// What the line is like, the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LineSetup {
    /// Bits per second, headers of IP and UDP included.
    pub rate: u64,
    /// One-way delay, ns, on top of the time in the queue.
    pub delay_ns: u64,
    /// Most bytes that wait in the queue.
    pub queue: u64,
    /// Bytes in the queue from which on ECN-capable packets are marked.
    pub mark_from: u64,
}

impl LineSetup {
    /// A line with a queue of so many products of its rate and a round trip, that marks from a fifth of it.
    pub fn new(megabits: u64, delay_us: u64, products: f64) -> Self {
        let rate = megabits * 1_000_000;
        let product = rate as f64 / 8.0 * (2 * delay_us) as f64 / 1e6;
        let queue = (product * products) as u64;
        Self {
            rate,
            delay_ns: delay_us * 1000,
            queue,
            mark_from: queue / 5,
        }
    }
}

/// What a direction has done, in packets.
#[derive(Debug, Default)]
pub struct Counts {
    /// Came in.
    pub entered: AtomicU64,
    /// Did not fit into the queue.
    pub overflowed: AtomicU64,
    /// Lost at random.
    pub lost: AtomicU64,
    /// Marked.
    pub marked: AtomicU64,
    /// Went out.
    pub delivered: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64) {
        // One thread writes; the others read when it has stopped.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// One direction.
pub struct Line {
    setup: LineSetup,
    loss: f64,
    random: ChaCha8Rng,
    /// When the last bit of what waits now has left the queue, ns.
    busy_until: u64,
}

impl Line {
    /// An idle line that loses this share of the packets, by this seed.
    pub fn new(setup: LineSetup, loss: f64, seed: u64) -> Self {
        Self {
            setup,
            loss,
            random: ChaCha8Rng::seed_from_u64(seed),
            busy_until: 0,
        }
    }

    /// Takes a packet at `now`: when it arrives, ns, and with which mark; nothing when it does not.
    pub fn take(
        &mut self,
        now: u64,
        len: usize,
        ecn: Option<EcnCodepoint>,
        counts: &Counts,
    ) -> Option<(u64, Option<EcnCodepoint>)> {
        Counts::add(&counts.entered);
        // What is lost is lost behind the queue: it has taken its time on the line. The choice is drawn for every
        // packet, so that one that overflows does not change the fate of others.
        let lost = self.draw() < self.loss;
        let rate = u128::from(self.setup.rate);
        let waiting = u128::from(self.busy_until.saturating_sub(now)) * rate / 8_000_000_000;
        let len = len as u64 + HEADERS;
        if waiting + u128::from(len) > u128::from(self.setup.queue) {
            Counts::add(&counts.overflowed);
            return None;
        }
        let on_line = u128::from(len) * 8_000_000_000 / rate;
        self.busy_until = self.busy_until.max(now) + on_line as u64;
        if lost {
            Counts::add(&counts.lost);
            return None;
        }
        let mut ecn = ecn;
        if ecn.is_some() && waiting >= u128::from(self.setup.mark_from) {
            Counts::add(&counts.marked);
            ecn = Some(EcnCodepoint::Ce);
        }
        Some((self.busy_until + self.setup.delay_ns, ecn))
    }

    /// A number from 0 to 1, 1 left out.
    fn draw(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: LineSetup = LineSetup {
        rate: 8_000_000,
        delay_ns: 1_000_000,
        queue: 5_000,
        mark_from: 1_000,
    };

    #[test]
    fn a_packet_waits_for_those_before_it_and_then_for_the_delay() {
        let (mut line, counts) = (Line::new(SETUP, 0.0, 1), Counts::default());
        // A byte takes a microsecond; headers are 28 bytes.
        let mut take = |now| line.take(now, 472, None, &counts).map(|(at, _)| at);
        assert_eq!(take(0), Some(1_500_000));
        assert_eq!(take(100_000), Some(2_000_000));
        assert_eq!(take(5_000_000), Some(6_500_000));
    }

    #[test]
    fn a_queue_marks_and_then_overflows() {
        let (mut line, counts) = (Line::new(SETUP, 0.0, 1), Counts::default());
        let ect = Some(EcnCodepoint::Ect0);
        let mut marks = Vec::new();
        for _ in 0..11 {
            marks.push(line.take(0, 472, ect, &counts).map(|(_, ecn)| ecn));
        }
        let ce = Some(EcnCodepoint::Ce);
        let mut expected = vec![Some(ect), Some(ect)];
        expected.extend([Some(ce); 8]);
        expected.push(None);
        assert_eq!(marks, expected);
        assert_eq!(counts.overflowed.load(Ordering::Relaxed), 1);
        assert_eq!(counts.marked.load(Ordering::Relaxed), 8);
        let plain = line.take(2_000_000, 100, None, &counts);
        assert_eq!(plain.map(|(_, ecn)| ecn), Some(None), "not ECN-capable");
    }

    #[test]
    fn loss_is_the_share_asked_for_and_the_same_again() {
        let lost = |seed| {
            let (mut line, counts) = (Line::new(SETUP, 0.1, seed), Counts::default());
            let taken: Vec<bool> = (0..100_000u64)
                .map(|i| line.take(i * 10_000_000, 100, None, &counts).is_some())
                .collect();
            (taken, counts.lost.load(Ordering::Relaxed))
        };
        let (taken, count) = lost(7);
        assert!((9_700..10_300).contains(&count), "{count}");
        assert_eq!(taken, lost(7).0);
        assert_ne!(taken, lost(8).0);
    }

    #[test]
    fn a_fifth_of_the_queue_marks() {
        let setup = LineSetup::new(500, 1000, 1.0);
        assert_eq!(setup.queue, 125_000);
        assert_eq!(setup.mark_from, 25_000);
    }
}
