use proptest::prelude::*;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const FULL: u32 = 1_100;
const RTT: u64 = 100 * US;
const RTO: u64 = 10 * MS;

fn hint() -> Hint {
    Hint::new(true, 10, FULL)
}

/// A sender that has been told to pause at `now`.
fn paused(now: u64) -> Hint {
    let mut hint = hint();
    hint.on_hint(now, 1, 1, 0);
    hint
}

/// Sends `count` probes as they fall due; returns when.
fn probe(hint: &mut Hint, rtt: u64, count: usize) -> Vec<u64> {
    let probe = |_| {
        let at = hint.deadline(true, rtt, RTO).unwrap();
        assert!(!hint.probe_due(at - 1, rtt) && hint.probe_due(at, rtt));
        hint.on_probe_sent(at, RTO);
        at
    };
    (0..count).map(probe).collect()
}

/// HINT-010: an earlier timestamp, or the same with an earlier epoch, is ignored; also where either wraps. What the
/// epoch says about packets of other times does not matter.
#[test]
fn later_packets_bear_later_hints() {
    let mut hint = hint();
    for (timestamp, epoch, rate, then) in [
        (0xffff_fff0, 255, 100, 100),
        (0xffff_ffef, 0, 200, 100),
        (0xffff_fff0, 254, 200, 100),
        (0xffff_fff0, 0, 300, 300),
        (0xffff_fff0, 255, 200, 300),
        (5, 200, 400, 400),
        (0xffff_fff1, 1, 200, 400),
        (6, 199, 0xff_ffff, 0xff_ffff),
        (5, 201, 7, 0xff_ffff),
        (0x8000_0006, 0, 8, 8),
        (0x8000_0006, 128, 9, 9),
    ] {
        hint.on_hint(0, timestamp, epoch, rate);
        assert_eq!(hint.rate(), then, "after {timestamp:x} {epoch} {rate}");
    }
}

/// HINT-010: 2^30 units after the packet that bore the hint, of the peer's unit, an earlier timestamp is a later one.
#[test]
fn an_old_hint_orders_nothing() {
    let mut hint = hint();
    hint.on_hint(MS, 1_000, 1, 100);
    let old = MS + (10 << 30);
    hint.on_hint(old - 1, 999, 1, 200);
    assert_eq!(hint.rate(), 100);
    hint.on_hint(old, 998, 1, 300);
    assert_eq!(hint.rate(), 300);
}

/// HINT-016: a peer that has declared no hints gives none.
#[test]
fn hints_of_a_peer_without_them_are_ignored() {
    let mut hint = Hint::new(false, 10, FULL);
    hint.on_hint(0, 1, 1, 0);
    assert_eq!((hint.rate(), hint.may_send(0)), (NO_LIMIT, Ok(())));
    assert_eq!(hint.deadline(true, RTT, RTO), None);
}

/// HINT-011: nothing new after a hint of 0, however long it takes, until another one comes. Without one, or with
/// ffffff, nothing waits.
#[test]
fn a_hint_of_zero_pauses() {
    let mut hint = hint();
    hint.on_sent(0, u32::MAX);
    assert_eq!(hint.may_send(0), Ok(()));
    hint.on_hint(0, 1, 1, 0);
    assert_eq!(hint.may_send(1 << 60), Err(u64::MAX));
    hint.on_hint(MS, 2, 2, 1);
    assert_eq!(hint.may_send(MS), Ok(()));
    hint.on_hint(MS, 3, 3, 0);
    hint.on_hint(MS, 4, 4, NO_LIMIT);
    assert_eq!(hint.may_send(MS), Ok(()));
}

/// HINT-008, HINT-012: retransmissions do not wait, new packets pay for them.
#[test]
fn retransmissions_are_counted() {
    let mut hint = hint();
    hint.on_hint(0, 1, 1, 8_000);
    hint.on_sent(0, 1_000);
    assert_eq!(hint.may_send(0), Err(1_000), "1000 bytes take 1 us");
    hint.on_sent(0, 1_000);
    assert_eq!(hint.may_send(500), Err(2_000));
    assert_eq!(hint.may_send(1_999), Err(2_000));
    assert_eq!(hint.may_send(2_000), Ok(()));
}

/// HINT-008: what has been saved and what is owed stay when the hint changes, each time at the rate in force.
#[test]
fn each_hint_counts_for_its_own_time() {
    let mut hint = hint();
    hint.on_hint(0, 1, 1, 8_000);
    hint.on_sent(0, 10_000);
    hint.on_hint(4_000, 2, 2, 800);
    assert_eq!(hint.may_send(4_000), Err(64_000));
    hint.on_hint(14_000, 3, 3, 0);
    assert_eq!(hint.may_send(14_000), Err(u64::MAX));
    hint.on_hint(MS, 4, 4, 4_000);
    assert_eq!(hint.may_send(MS), Err(MS + 10_000));
}

/// HINT-008: an allowance of 16 packets, and after it the rate and no more; but that in full.
#[test]
fn saved_packets_then_the_rate() {
    let mut hint = hint();
    hint.on_hint(0, 1, 1, 8_800);
    let mut now = 10 * MS;
    let burst = (0..100).take_while(|_| {
        let may = hint.may_send(now).is_ok();
        if may {
            hint.on_sent(now, FULL);
        }
        may
    });
    assert_eq!(burst.count(), 15);
    for _ in 0..1_000 {
        if let Err(at) = hint.may_send(now) {
            now = at;
        }
        hint.on_sent(now, FULL);
    }
    assert_eq!(now, 10 * MS + 1_000 * US, "a full packet takes 1 us");
}

/// HINT-013: one RTT after the hint, then after two, four and so on, 1 ms at most. A further 0 starts nothing anew.
#[test]
fn probes_double_up_to_the_longest_pause() {
    let mut hint = paused(MS);
    let mut at = probe(&mut hint, RTT, 3);
    hint.on_hint(2 * MS, 2, 2, 0);
    at.extend(probe(&mut hint, RTT, 4));
    let after: Vec<u64> = at.iter().map(|at| (at - MS) / RTT).collect();
    assert_eq!(after, [1, 3, 7, 15, 25, 35, 45]);
}

/// HINT-013: one RTT where that is longer; a series of its own after every other hint.
#[test]
fn long_round_trips_are_the_longest_pause() {
    let mut hint = paused(0);
    assert_eq!(probe(&mut hint, 5 * MS, 3), [5 * MS, 10 * MS, 15 * MS]);
    hint.on_hint(20 * MS, 2, 2, 1);
    assert!(!hint.probe_due(1 << 60, RTT));
    hint.on_hint(30 * MS, 3, 3, 0);
    assert_eq!(probe(&mut hint, RTT, 1), [30 * MS + RTT]);
}

/// HINT-013: who has nothing to send does not ask, and needs no timer to stay paused.
#[test]
fn an_idle_sender_does_not_ask() {
    let hint = paused(0);
    assert_eq!(hint.deadline(false, RTT, RTO), None);
    assert_eq!(hint.deadline(true, RTT, RTO), Some(RTT));
    assert!(hint.probe_due(MS, RTT), "as soon as there is something");
}

/// HINT-014: four in a row, each for its retransmission timeout. ffffff then holds.
#[test]
fn four_unanswered_probes_end_a_pause() {
    let mut hint = paused(0);
    let at = probe(&mut hint, RTT, 3);
    assert!(!hint.expire(1 << 40, RTO), "three are not enough");
    hint.on_probe_sent(at[2] + MS, 2 * RTO);
    probe(&mut hint, RTT, 2);
    let lapse = at[2] + MS + 2 * RTO;
    assert_eq!(hint.deadline(false, RTT, RTO), Some(lapse));
    assert!(!hint.expire(lapse - 1, RTO));
    assert_eq!(hint.may_send(lapse - 1), Err(u64::MAX));
    assert!(hint.expire(lapse, RTO));
    assert_eq!((hint.rate(), hint.may_send(lapse)), (NO_LIMIT, Ok(())));
    assert_eq!(hint.deadline(true, RTT, RTO), None);
}

/// HINT-014: an answer in between, with 0 again, begins another row, but no other pauses.
#[test]
fn an_answer_begins_another_row() {
    let mut hint = paused(0);
    probe(&mut hint, RTT, 3);
    hint.on_probe_answered();
    hint.on_hint(8 * RTT, 2, 2, 0);
    let at = probe(&mut hint, RTT, 3);
    assert_eq!(at, [15 * RTT, 25 * RTT, 35 * RTT]);
    assert!(!hint.expire(1 << 40, RTO));
    let last = probe(&mut hint, RTT, 1)[0];
    assert!(!hint.expire(last + RTO - 1, RTO) && hint.expire(last + RTO, RTO));
}

/// HINT-019: four times the largest retransmission timeout without any packet with a hint, also an ignored one.
#[test]
fn silence_ends_a_hint() {
    let mut hint = hint();
    hint.on_hint(0, 9, 1, 1);
    hint.on_sent(0, FULL);
    assert!(hint.may_send(0).is_err());
    hint.on_hint(MS, 8, 1, 2);
    assert_eq!(hint.rate(), 1);
    let lapse = MS + 4 * RTO;
    assert_eq!(hint.deadline(true, RTT, RTO), Some(lapse));
    assert!(!hint.expire(lapse - 1, RTO) && hint.rate() == 1);
    assert!(hint.expire(lapse, RTO));
    assert_eq!((hint.rate(), hint.may_send(lapse)), (NO_LIMIT, Ok(())));
    assert_eq!(hint.deadline(true, RTT, RTO), None);
}

/// HINT-018: the first hint, and the first after a lapse, whatever its epoch and time.
#[test]
fn after_a_lapse_any_hint_is_taken() {
    let mut hint = hint();
    hint.on_hint(0, 1_000, 200, 7);
    assert_eq!(hint.rate(), 7);
    assert!(hint.expire(4 * RTO, RTO));
    hint.on_hint(4 * RTO, 1, 100, 8);
    assert_eq!(hint.rate(), 8);
}

/// HINT-019 is not for a hint of 0: only probes that stay unanswered end a pause.
#[test]
fn silence_alone_does_not_end_a_pause() {
    assert!(!paused(0).expire(1 << 50, RTO));
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Hint(u32),
    New(u32),
    Again(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let size = 60..=FULL + 50;
    prop_oneof![
        1 => prop_oneof![Just(0), 1..100u32, 1_000..400_000u32, Just(NO_LIMIT)].prop_map(Op::Hint),
        6 => size.clone().prop_map(Op::New),
        2 => size.prop_map(Op::Again),
    ]
}

proptest! {
    /// HINT-008 by its definition: from any time on, the bytes are less than 16 packets above what the hints allow,
    /// each new packet being sent as soon as may be or later.
    #[test]
    fn never_more_than_the_hints_allow(
        ops in prop::collection::vec((prop_oneof![Just(0), 0..3 * US, 0..MS], op()), 1..200),
    ) {
        let mut hint = hint();
        let (mut now, mut rate) = (0, NO_LIMIT);
        // Since each packet or hint: how many parts of bytes are above what was allowed from just before it on.
        let mut above: Vec<i64> = Vec::new();
        let pass = |above: &mut Vec<i64>, rate: u32, time: u64| {
            above.iter_mut().for_each(|above| *above -= time as i64 * i64::from(rate));
            if rate == NO_LIMIT {
                above.clear();
            }
        };
        for (i, (pause, op)) in (0..).zip(ops) {
            pass(&mut above, rate, pause);
            now += pause;
            let (new, size) = match op {
                Op::Hint(next) => {
                    pass(&mut above, rate, 0);
                    hint.on_hint(now, i, 0, next);
                    rate = next;
                    continue;
                }
                Op::New(size) => match hint.may_send(now) {
                    Err(u64::MAX) => {
                        prop_assert_eq!(rate, 0);
                        continue;
                    }
                    Err(at) => {
                        prop_assert!(hint.may_send(at - 1).is_err() && hint.may_send(at).is_ok());
                        pass(&mut above, rate, at - now);
                        now = at;
                        (true, size)
                    }
                    Ok(()) => (true, size),
                },
                Op::Again(size) => (false, size),
            };
            hint.on_sent(now, size);
            above.push(0);
            above.iter_mut().for_each(|above| *above += PARTS * i64::from(size));
            let most = 16 * PARTS * i64::from(FULL);
            prop_assert!(!new || rate == NO_LIMIT || above.iter().all(|&above| above <= most));
        }
    }
}
