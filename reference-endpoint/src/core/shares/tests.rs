use proptest::prelude::*;

use super::*;

const US: u64 = 1_000;
const INTERVAL: u64 = 100 * US;
/// Capacity of the examples, Mb/s.
const CAPACITY: u32 = 400_000;

/// Shares, and what every sender has to send, Mb/s.
struct Bench {
    shares: Shares,
    now: u64,
    packet: u32,
    srtt: Option<u64>,
    /// By handle: the load, and bytes that are due but less than a packet.
    loads: Vec<(u32, f64)>,
}

impl Bench {
    fn new(capacity: u32, packet: u32, loads: &[u32]) -> Self {
        Self {
            shares: Shares::new(capacity, INTERVAL),
            now: 0,
            packet,
            srtt: None,
            loads: loads.iter().map(|&load| (load, 0.0)).collect(),
        }
    }

    /// Lets one hint interval pass, in which every sender sends its load as far as its hint lets it, in steps of 1 us.
    fn interval(&mut self) {
        let end = self.now + INTERVAL;
        while self.now < end {
            self.now += US;
            for (handle, (load, due)) in (0..).zip(self.loads.iter_mut()) {
                let rate = (*load).min(self.shares.hint(handle).1);
                *due += f64::from(rate) * US as f64 / PARTS as f64;
                while *due >= f64::from(self.packet) {
                    *due -= f64::from(self.packet);
                    self.shares
                        .on_arrival(self.now, handle, self.packet, self.srtt);
                }
            }
            self.shares.renew(self.now);
        }
    }

    fn rates(&mut self) -> Vec<u32> {
        (0..self.loads.len() as u32)
            .map(|handle| self.shares.hint(handle).1)
            .collect()
    }
}

/// HINT-005: within 1 % plus 1 Mb/s.
fn near(rate: u32, share: u32) {
    let most = f64::from(share) * 0.01 + 1.0;
    assert!(
        (f64::from(rate) - f64::from(share)).abs() <= most,
        "{rate} is not {share}"
    );
}

/// The example of the chapter: 380 of 400 Gb/s over demands of 50, 400, 400 and 400.
#[test]
fn the_example_of_the_chapter() {
    let mut demands = [400_000, 50_000, 400_000, 400_000];
    assert_eq!(shared(CAPACITY), 380_000);
    assert_eq!(max_min(380_000, &mut demands), 110_000);
}

/// Edges: nobody, all met, everything equal, and what does not go up is rounded down.
#[test]
fn max_min_at_its_edges() {
    assert_eq!(max_min(100, &mut []), UNLIMITED);
    assert_eq!(max_min(100, &mut [20, 80]), UNLIMITED);
    assert_eq!(max_min(100, &mut [20, 81]), 80);
    assert_eq!(max_min(100, &mut [UNLIMITED; 3]), 33);
    assert_eq!(max_min(2, &mut [UNLIMITED; 3]), 0);
    assert_eq!(max_min(u32::MAX, &mut [UNLIMITED - 1, 2]), u32::MAX - 2);
}

/// HINT-005, the example measured: a load of 40 Gb/s is a demand of 50, and the others share what is left.
#[test]
fn shares_follow_what_is_used() {
    let mut bench = Bench::new(CAPACITY, 4_000, &[40_000, 400_000, 400_000, 400_000]);
    (0..4).for_each(|_| bench.interval());
    for _ in 0..50 {
        bench.interval();
        let rates = bench.rates();
        near(rates[0], 50_000);
        rates[1..].iter().for_each(|&rate| near(rate, 110_000));
    }
}

/// HINT-005: a load that has changed counts within three intervals, up and down.
#[test]
fn shares_follow_changes_within_three_intervals() {
    let mut bench = Bench::new(CAPACITY, 4_000, &[400_000, 400_000]);
    (0..5).for_each(|_| bench.interval());
    assert_eq!(bench.rates(), [190_000, 190_000]);
    bench.loads[0].0 = 80_000;
    (0..3).for_each(|_| bench.interval());
    let rates = bench.rates();
    near(rates[0], 100_000);
    near(rates[1], 280_000);
    bench.loads[0].0 = 400_000;
    (0..3).for_each(|_| bench.interval());
    assert_eq!(bench.rates(), [190_000, 190_000]);
}

/// Demand: without limit from 0.9 of the hint on, 1.25 times the use below, a packet being more or less.
#[test]
fn demand_by_what_was_used() {
    for (part, then) in [
        (100, None),
        (90, None),
        (85, Some(106_250)),
        (20, Some(25_000)),
    ] {
        let mut shares = Shares::new(CAPACITY, INTERVAL);
        shares.on_arrival(0, 0, 1_000, None);
        shares.renew(INTERVAL);
        let sender = shares.senders.get_mut(&0).unwrap();
        sender.rate = 100_000;
        sender.lowest = 100_000;
        // 1.25 MB in the interval are 100 Gb/s.
        for _ in 0..part * 1_250_000 / 100_000 {
            shares.on_arrival(2 * INTERVAL, 0, 1_000, None);
        }
        let sender = shares.senders.get_mut(&0).unwrap();
        sender.measure(2 * INTERVAL, INTERVAL);
        match then {
            None => assert_eq!(sender.demand, UNLIMITED, "{part} %"),
            Some(demand) => near(sender.demand, demand),
        }
    }
}

/// HINT-005 where a share is less than a packet in each interval: nobody's share falls for the coarseness of packets.
#[test]
fn small_shares_are_steady() {
    for senders in [1, 3, 8, 40] {
        let mut bench = Bench::new(1_000, 1_100, &vec![UNLIMITED; senders]);
        (0..20).for_each(|_| bench.interval());
        for _ in 0..300 {
            bench.interval();
            bench.rates().iter().for_each(|&rate| {
                assert!(rate == 950 / senders as u32 || rate == 950, "{rate}");
            });
        }
    }
}

/// A small demand beside large ones: its share settles and does not swing.
#[test]
fn a_trickle_keeps_its_share() {
    let mut bench = Bench::new(1_000, 1_100, &[10, 1_000, 1_000]);
    bench.srtt = Some(1_000 * US);
    (0..200).for_each(|_| bench.interval());
    for _ in 0..300 {
        bench.interval();
        let rates = bench.rates();
        assert!((10..=15).contains(&rates[0]), "{rates:?}");
        assert!(rates[1] >= 467 && rates[1] == rates[2], "{rates:?}");
    }
}

/// A hint that has risen has to reach the sender first: for one round trip it sends as before, and keeps its share.
#[test]
fn a_higher_hint_may_be_under_way() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    let mut now = 0;
    let mut round = |shares: &mut Shares, rates: &[u64]| {
        for _ in 0..10 {
            now += INTERVAL / 10;
            for (handle, rate) in (0..).zip(rates) {
                let bytes = (rate * INTERVAL / 10 / PARTS) as u32;
                shares.on_arrival(now, handle, bytes, Some(INTERVAL));
            }
            shares.renew(now);
        }
    };
    (0..5).for_each(|_| round(&mut shares, &[95_000; 4]));
    assert_eq!(shares.hint(0).1, 95_000);
    (0..2).for_each(|_| round(&mut shares, &[95_000; 2]));
    assert_eq!(shares.hint(0).1, 190_000);
    round(&mut shares, &[95_000; 2]);
    assert_eq!(shares.hint(0).1, 190_000);
    (0..3).for_each(|_| round(&mut shares, &[95_000; 2]));
    assert_eq!(shares.hint(0).1, 118_750, "then it is all that it has");
}

/// Of newcomers: the share that one more without limit would have, at once; the others keep theirs until the renewal.
/// ffffff is given to nobody that is active.
#[test]
fn a_newcomer_has_its_share_with_its_first_packet() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    assert_eq!(shares.hint(0), (0, NO_LIMIT));
    assert!(shares.on_arrival(0, 0, 1_000, None));
    assert_eq!(shares.hint(0), (1, 380_000));
    assert!(!shares.on_arrival(1, 0, 1_000, None), "it has been told");
    shares.renew(INTERVAL);
    assert_eq!(shares.hint(0), (1, 380_000));
    shares.on_arrival(INTERVAL + 1, 1, 1_000, None);
    shares.on_arrival(INTERVAL + 1, 2, 1_000, None);
    let hints: Vec<_> = (0..3).map(|handle| shares.hint(handle).1).collect();
    assert_eq!(hints, [380_000, 190_000, 190_000]);
    shares.on_arrival(2 * INTERVAL, 0, 4_750_000, None);
    shares.renew(2 * INTERVAL);
    let hints: Vec<_> = (0..3).map(|handle| shares.hint(handle).1).collect();
    assert_eq!(hints, [126_666; 3], "rounded down");
}

/// HINT-002: by one for each rate that is sent and is another one than before, modulo 256.
#[test]
fn the_epoch_counts_what_is_sent() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    shares.on_arrival(0, 0, 1_000, None);
    let mut give = |rate| {
        shares.senders.get_mut(&0).unwrap().give(rate);
        rate
    };
    give(5);
    give(6);
    assert_eq!([shares.hint(0), shares.hint(0)], [(1, 6), (1, 6)]);
    let mut give = |rate| shares.senders.get_mut(&0).unwrap().give(rate);
    give(7);
    give(6);
    assert_eq!(shares.hint(0), (1, 6), "7 was never sent");
    for i in 0..255 {
        shares.senders.get_mut(&0).unwrap().give(100 + i);
        shares.hint(0);
    }
    assert_eq!(shares.hint(0), (0, 354));
}

/// HINT-006, HINT-007: renewed once per interval while anybody is active, with those that have news; then quiet.
#[test]
fn renewals_come_once_per_interval_and_end() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    assert_eq!(shares.deadline(), None);
    shares.on_arrival(7, 3, 1_000, None);
    shares.on_arrival(9, 4, 1_000, None);
    assert_eq!(shares.deadline(), Some(7 + INTERVAL));
    shares.hint(3);
    shares.hint(4);
    assert!(shares.renew(6 + INTERVAL).is_empty());
    assert_eq!(shares.hint(3).1, 380_000, "it is not time yet");
    assert_eq!(shares.renew(7 + INTERVAL), [3, 4]);
    assert_eq!(shares.hint(3).1, 190_000);
    for handle in [3, 4] {
        shares.on_arrival(8 + INTERVAL, handle, 4_750_000, None);
    }
    assert_eq!(shares.deadline(), Some(7 + 2 * INTERVAL));
    assert_eq!(shares.renew(7 + 2 * INTERVAL), [4], "not told yet");
    shares.on_arrival(8 + 2 * INTERVAL, 3, 4_750_000, None);
    assert_eq!(
        shares.renew(7 + 3 * INTERVAL),
        [4, 3],
        "4 has left, and had not been told of less"
    );
    assert_eq!((shares.hint(3).1, shares.hint(4)), (380_000, (2, 190_000)));
    assert_eq!(shares.deadline(), Some(7 + 4 * INTERVAL));
    assert!(shares.renew(7 + 4 * INTERVAL).is_empty());
    assert_eq!(shares.deadline(), None);
}

/// Active: within the last interval, or the last SRTT if that is longer.
#[test]
fn a_sender_is_active_for_its_round_trip() {
    for (srtt, last) in [(None, 1), (Some(INTERVAL / 2), 1), (Some(5 * INTERVAL), 5)] {
        let mut shares = Shares::new(CAPACITY, INTERVAL);
        shares.on_arrival(0, 0, 1_000, srtt);
        for i in 1..=last {
            shares.renew(i * INTERVAL);
            assert!(shares.deadline().is_some(), "{srtt:?} {i}");
        }
        shares.renew((last + 1) * INTERVAL);
        assert_eq!(shares.deadline(), None, "{srtt:?}");
    }
}

/// A sender that was away has a demand without limit again, whatever it had before, and is measured anew.
#[test]
fn who_comes_back_is_new() {
    let mut bench = Bench::new(CAPACITY, 4_000, &[8_000, 400_000]);
    (0..5).for_each(|_| bench.interval());
    near(bench.rates()[0], 10_000);
    bench.loads[0].0 = 0;
    (0..3).for_each(|_| bench.interval());
    assert_eq!(bench.rates()[1], 380_000);
    bench.shares.on_arrival(bench.now, 0, 4_000, None);
    assert_eq!(bench.rates()[0], 190_000);
    bench.loads[0].0 = 100_000;
    bench.interval();
    assert_eq!(bench.rates(), [190_000; 2]);
    bench.interval();
    near(bench.rates()[0], 125_000);
}

/// A sender that rises from next to nothing is not held down for as long as its low hint takes to let 16 packets pass.
#[test]
fn a_small_hint_is_outgrown_at_once() {
    let mut bench = Bench::new(1_000, 1_100, &[10, 1_000]);
    bench.srtt = Some(1_000 * US);
    (0..200).for_each(|_| bench.interval());
    assert!(bench.rates()[0] <= 15);
    // What it has saved may go at once.
    for _ in 0..14 {
        bench.shares.on_arrival(bench.now, 0, 1_100, bench.srtt);
    }
    bench.loads[0].0 = 1_000;
    (0..11).for_each(|_| bench.interval());
    assert_eq!(bench.rates(), [475; 2]);
}

/// Where SRTT is longer than the interval, a sender whose window goes out in bursts has used its hint between them, too.
#[test]
fn bursts_of_a_round_trip_are_its_use() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    let burst = 5 * INTERVAL * 95_000 / PARTS / 100;
    for i in 0..100 {
        for handle in 0..4 {
            shares.on_arrival(i * INTERVAL, handle, 1_000, Some(5 * INTERVAL));
        }
        if i % 5 == 0 {
            for handle in 0..4 {
                for _ in 0..burst {
                    shares.on_arrival(i * INTERVAL, handle, 100, Some(5 * INTERVAL));
                }
            }
        }
        shares.renew(i * INTERVAL);
        if i > 0 {
            (0..4).for_each(|handle| assert_eq!(shares.hint(handle).1, 95_000, "{i}"));
        }
    }
}

/// The lowest hint of the time that is measured is what a sender is sure to have had.
#[test]
fn the_lowest_hint_is_the_measure() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    shares.on_arrival(0, 0, 1_000, None);
    shares.renew(INTERVAL);
    let sender = shares.senders.get_mut(&0).unwrap();
    sender.give(100_000);
    sender.give(200_000);
    sender.arrived = 1_250_000;
    sender.measure(2 * INTERVAL, INTERVAL);
    assert_eq!(sender.demand, UNLIMITED);
}

/// ffffff is no share, however much there is.
#[test]
fn the_highest_share_is_not_no_limit() {
    let mut shares = Shares::new(u32::MAX, INTERVAL);
    shares.on_arrival(0, 0, 1_000, None);
    assert_eq!(shares.hint(0).1, NO_LIMIT - 1);
    shares.renew(INTERVAL);
    assert_eq!(shares.hint(0).1, NO_LIMIT - 1);
    shares.on_arrival(INTERVAL, 1, 1_000, None);
    assert_eq!(shares.hint(1).1, NO_LIMIT - 1);
}

/// HINT-004 with more senders than there is to share: a pause for all; a probe of a paused one makes it active, and
/// one that is not paused it does not.
#[test]
fn a_probe_of_a_paused_sender_makes_it_active() {
    let mut shares = Shares::new(3, INTERVAL);
    for handle in 0..3 {
        shares.on_arrival(0, handle, 100, None);
    }
    assert_eq!(shares.renew(INTERVAL), [0, 1, 2]);
    (0..3).for_each(|handle| assert_eq!(shares.hint(handle).1, 0));
    shares.renew(2 * INTERVAL);
    assert_eq!(shares.deadline(), None);
    shares.on_paused_probe(1, 5 * INTERVAL);
    assert_eq!(shares.hint(1).1, 2, "nobody else is active");
    shares.on_paused_probe(2, 5 * INTERVAL);
    assert_eq!(shares.hint(2).1, 2, "as much, until the renewal");
    shares.on_paused_probe(9, 5 * INTERVAL);
    assert_eq!(shares.renew(6 * INTERVAL), [1, 2]);
    assert_eq!([shares.hint(1).1, shares.hint(2).1], [1, 1]);
    shares.on_paused_probe(1, 6 * INTERVAL);
    shares.renew(7 * INTERVAL);
    assert_eq!(shares.deadline(), None);
}

/// A plane less is capacity less, for newcomers at once and for all with the next renewal.
#[test]
fn capacity_can_change() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    shares.on_arrival(0, 0, 1_000, None);
    shares.set_capacity(CAPACITY / 2);
    shares.on_arrival(1, 1, 1_000, None);
    assert_eq!(shares.hint(1).1, 190_000);
    shares.renew(INTERVAL);
    assert_eq!([shares.hint(0).1, shares.hint(1).1], [95_000; 2]);
}

/// Who is forgotten has no share, and another one with the same handle starts anew.
#[test]
fn forgotten_senders_share_nothing() {
    let mut shares = Shares::new(CAPACITY, INTERVAL);
    shares.on_arrival(0, 0, 1_000, None);
    shares.on_arrival(0, 1, 1_000, None);
    shares.hint(0);
    shares.forget(0);
    assert_eq!(shares.hint(0), (0, NO_LIMIT));
    shares.renew(INTERVAL);
    assert_eq!(shares.hint(1).1, 380_000);
    shares.forget(1);
    assert_eq!(shares.deadline(), None);
}

proptest! {
    /// Max-min by its definition: no more than there is, nobody above its demand, whoever is below it has the largest
    /// share, and nothing but what cannot be divided is left over.
    #[test]
    fn max_min_is_fair(
        capacity in prop_oneof![0..100u32, any::<u32>()],
        demands in prop::collection::vec(prop_oneof![0..50u32, any::<u32>(), Just(UNLIMITED)], 1..40),
    ) {
        let level = max_min(capacity, &mut demands.clone());
        let shares: Vec<u32> = demands.iter().map(|&demand| demand.min(level)).collect();
        let sum: u64 = shares.iter().map(|&share| u64::from(share)).sum();
        prop_assert!(sum <= u64::from(capacity));
        let largest = shares.iter().copied().max().unwrap();
        let mut below = 0;
        for (share, demand) in shares.into_iter().zip(demands) {
            prop_assert!(share <= demand);
            prop_assert!(share == demand || share == largest);
            below += u64::from(share < demand);
        }
        prop_assert!(below == 0 || u64::from(capacity) - sum < below);
    }

    /// HINT-004 after any arrivals: at every renewal the hints of those that are active are no more than 0.95 of the
    /// capacity together, none of them is ffffff, and those whose demand has no limit have the same.
    #[test]
    fn hints_never_exceed_the_capacity(
        capacity in prop_oneof![1..50u32, 1_000..1_000_000u32],
        steps in prop::collection::vec((0..2 * INTERVAL, 0..12u32, 1..10_000u32, 1..50u32), 1..300),
    ) {
        let mut shares = Shares::new(capacity, INTERVAL);
        let mut now = 0;
        for (pause, handle, bytes, packets) in steps {
            now += pause;
            let renewed = shares.deadline().is_some_and(|at| at <= now);
            shares.renew(now);
            if renewed {
                let active: Vec<&Sender> = shares.active.iter().map(|handle| &shares.senders[handle]).collect();
                let sum: u64 = active.iter().map(|sender| u64::from(sender.rate)).sum();
                prop_assert!(sum * 100 <= u64::from(capacity) * 95);
                let eager: Vec<u32> = active.iter().filter(|sender| sender.demand == UNLIMITED).map(|sender| sender.rate).collect();
                prop_assert!(eager.windows(2).all(|pair| pair[0] == pair[1]));
                prop_assert!(active.iter().all(|sender| sender.active && sender.rate <= sender.demand));
            }
            let srtt = (handle % 3 == 0).then_some(3 * INTERVAL);
            for _ in 0..packets {
shares.on_arrival(now, handle, bytes, srtt);
}
            prop_assert!(shares.hint(handle).1 < NO_LIMIT);
        }
    }
}
