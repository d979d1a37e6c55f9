//! What is lost is found and sent again: exactly that, on its path, and as soon as it shows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use metaroce_endpoint::core::Status;
use metaroce_wire::metaroce::{Body, Cbh, Flags, Opcode, Packet, parse_unsealed};

use crate::link::{DELAY, Link, bytes};

const MS: u64 = 1_000_000;

/// Drops the first `times` transmissions of the data packet number `index` of `path`.
fn drop_data(link: &mut Link, path: u8, isn: u32, lost: &[(u32, u32)]) {
    let mut left: BTreeMap<u32, u32> = lost.iter().copied().collect();
    link.drop_when(move |from, packet| {
        let index = packet.cbh.psn.value().wrapping_sub(isn);
        let hit = from == 0 && packet.cbh.opcode.is_data() && packet.cbh.path == path;
        match left.get_mut(&index).filter(|left| hit && **left > 0) {
            Some(left) => {
                *left -= 1;
                true
            }
            None => false,
        }
    });
}

/// The headers of what end 0 sent, with times.
fn headers(link: &Link) -> Vec<(u64, Cbh)> {
    let own = link.sent.iter().filter(|(_, from, _)| *from == 0);
    own.map(|(at, _, bytes)| (*at, parse_unsealed(bytes).unwrap().cbh))
        .collect()
}

fn repeats(link: &Link) -> Vec<(u64, Cbh)> {
    let mut all = headers(link);
    all.retain(|(_, cbh)| cbh.flags.has(Flags::RTX));
    all
}

#[test]
fn a_gap_is_repaired_in_one_round_trip_on_its_path() {
    const ISN: u32 = 0xffff_fffc;
    let mut link = Link::new(1, 0);
    link.establish(4, 1, Some(ISN));
    drop_data(&mut link, 2, ISN, &[(3, 1), (5, 1)]);
    let begin = link.now;
    link.write_and_check(0, 7, 40 * 1024);
    let repeats = repeats(&link);
    let named: Vec<(u8, u32)> = repeats
        .iter()
        .map(|(_, cbh)| (cbh.path, cbh.psn.value().wrapping_sub(ISN)))
        .collect();
    assert_eq!(named, [(2, 3), (2, 5)]);
    assert!(
        repeats
            .iter()
            .all(|(at, _)| at - begin < 2 * (DELAY + 300_000))
    );
    let counters = link.counters(0);
    assert_eq!((counters.timeouts, counters.retransmissions), (0, 2));
    assert_eq!(link.counters(1).duplicates, 0);
}

#[test]
fn a_retransmission_that_is_lost_twice_is_found_each_time_without_a_timeout() {
    const ISN: u32 = 5;
    let mut link = Link::new(2, 0);
    link.establish(1, 1, Some(ISN));
    drop_data(&mut link, 0, ISN, &[(4, 3)]);
    link.write_and_check(0, 7, 200 * 1024);
    assert_eq!(repeats(&link).len(), 3);
    assert_eq!(link.counters(0).timeouts, 0);
    assert_eq!(link.counters(1).duplicates, 0);
}

#[test]
fn the_loss_of_the_last_packets_is_found_by_a_probe() {
    const ISN: u32 = 5;
    for lost in [1, 2] {
        let mut link = Link::new(3, 0);
        link.establish(1, 1, Some(ISN));
        link.write_and_check(0, 1, 30 * 1024);
        drop_data(&mut link, 0, ISN, &[(33, lost), (34, lost)]);
        let begin = link.now;
        link.write_and_check(0, 2, 5 * 1024);
        let counters = link.counters(0);
        assert_eq!(counters.timeouts, 0);
        assert_eq!(counters.probes, u64::from(lost));
        assert_eq!(counters.retransmissions, 2 * u64::from(lost));
        assert!(link.now - begin < 15 * MS, "{}", link.now - begin);
    }
}

#[test]
fn a_timeout_helps_where_probes_are_lost_too() {
    let mut link = Link::new(4, 0);
    link.establish(2, 1, None);
    link.write_and_check(0, 1, 30 * 1024);
    let until = link.now + 60 * MS;
    let clock = Rc::new(RefCell::new(link.now));
    let shared = Rc::clone(&clock);
    link.drop_when(move |from, packet| {
        from == 0 && packet.cbh.path == 1 && *shared.borrow() < until
    });
    let data = bytes(2, 20_000);
    let buffer = link.source(0, &data);
    let target = link.target(1, 20_000);
    link.write(0, 2, buffer, target);
    while link.completions(0).len() < 2 {
        *clock.borrow_mut() = link.now;
        assert!(link.step());
    }
    assert!(link.counters(0).timeouts >= 2);
    assert_eq!(link.ends[1].memory(target.mr), Some(&data[..]));
}

#[test]
fn half_the_acknowledgments_lost() {
    for seed in 0..50 {
        let mut link = Link::new(seed, 0);
        link.establish(4, 1, None);
        let mut state = seed;
        link.drop_when(move |_, packet| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(99);
            packet.cbh.opcode.is_ack() && state >> 63 == 1
        });
        link.write_and_check(0, 7, 300 * 1024);
        link.write_and_check(1, 8, 300 * 1024);
        // Nothing was lost but acknowledgments, and probes tell so before a timeout guesses.
        assert_eq!(link.watch.repeats, [0, 0], "seed {seed}");
    }
}

#[test]
fn a_silent_path_does_not_stop_the_others() {
    let mut link = Link::new(6, 0);
    link.establish(4, 1, None);
    link.write_and_check(0, 1, 100 * 1024);
    link.drop_when(|from, packet| {
        let of_path = packet.cbh.opcode.is_data() || packet.cbh.opcode == Opcode::PATH_PROBE;
        from == 0 && of_path && packet.cbh.path == 3
    });
    let before = headers(&link).len();
    let data = bytes(2, 600 * 1024);
    let buffer = link.source(0, &data);
    let target = link.target(1, data.len());
    link.write(0, 2, buffer, target);
    link.pass(200 * MS);
    let mut new = BTreeMap::new();
    for (_, cbh) in &headers(&link)[before..] {
        if cbh.opcode.is_data() && !cbh.flags.has(Flags::RTX) {
            *new.entry(cbh.path).or_insert(0) += 1;
        }
    }
    assert_eq!(new.values().sum::<i32>(), 600);
    assert!(new[&0] > 150 && new[&1] > 150 && new[&2] > 150, "PATH-009");
    assert!(new[&3] < 100);
}

#[test]
fn a_path_that_stays_silent_fails_the_connection_in_order() {
    let mut link = Link::new(7, 0);
    link.establish(2, 1, None);
    link.write_and_check(0, 1, 100);
    link.drop_when(|from, _| from == 0);
    let buffer = link.source(0, &bytes(1, 4000));
    let target = link.target(1, 4000);
    let begin = link.now;
    for wr_id in 2..5 {
        link.write(0, wr_id, buffer, target);
    }
    link.run(|link| link.completions(0).len() == 4);
    use Status::{RetryExcErr, Success, WrFlushErr};
    let expected = [Success, RetryExcErr, WrFlushErr, WrFlushErr];
    assert_eq!(link.statuses(0), expected);
    // Path 0 knows its round-trip time and so fails first.
    let repeated = repeats(&link).into_iter();
    let at: Vec<u64> = repeated
        .filter(|(_, cbh)| cbh.path == 0)
        .map(|(at, _)| at - begin)
        .collect();
    assert_eq!(at, [10, 30, 70, 150, 310, 630].map(|ms| ms * MS));
    assert_eq!(
        link.now - begin,
        1_270 * MS,
        "the seventh timeout is the last"
    );
}

#[test]
fn marks_shrink_what_is_in_flight_and_losses_do_not() {
    let in_flight = |marked, loss| {
        let mut link = Link::new(8, loss);
        link.marked = marked;
        link.establish(1, 1, None);
        link.write_and_check(0, 1, 2_000 * 1024);
        link.now
    };
    let clean = in_flight(0, 0);
    assert!(in_flight(100, 0) > 2 * clean);
    assert!(in_flight(0, 10) < 2 * clean);
}

#[test]
fn the_window_is_used_up_to_its_last_place_and_no_further() {
    // Without the first packet CumPSN stands still, so that the sender must stop 256 packets past it.
    const ISN: u32 = 0x7fff_ff80;
    let mut link = Link::new(9, 0);
    link.establish(1, 1, Some(ISN));
    link.write_and_check(0, 1, 8_000 * 1024);
    let base = headers(&link)
        .iter()
        .filter(|(_, cbh)| cbh.opcode.is_data())
        .count() as u32;
    let held = Rc::new(RefCell::new(true));
    let shared = Rc::clone(&held);
    link.drop_when(move |from, packet: &Packet<'_>| {
        let is_data = matches!(packet.body, Body::Write(_));
        from == 0 && is_data && *shared.borrow() && packet.cbh.psn.value() == ISN + base
    });
    let data = bytes(3, 1_000 * 1024);
    let buffer = link.source(0, &data);
    let target = link.target(1, data.len());
    link.write(0, 2, buffer, target);
    link.pass(20 * MS);
    let highest = headers(&link)
        .iter()
        .filter(|(_, cbh)| cbh.opcode.is_data())
        .map(|(_, cbh)| cbh.psn.value().wrapping_sub(ISN + base))
        .filter(|ahead| *ahead < 0x8000_0000)
        .max();
    assert_eq!(highest, Some(255));
    *held.borrow_mut() = false;
    link.run(|link| link.completions(0).len() == 2);
    assert_eq!(link.ends[1].memory(target.mr), Some(&data[..]));
    assert_eq!(link.counters(1).out_of_window, 0);
}

/// Who looks for something to send and finds nothing has not used up the turn of a path (PATH-006).
#[test]
fn short_messages_take_the_paths_in_turn() {
    let mut link = Link::new(10, 0);
    link.establish(4, 1, None);
    for wr_id in 0..8 {
        link.write_and_check(0, wr_id, 10);
    }
    let data = headers(&link)
        .into_iter()
        .filter(|(_, cbh)| cbh.opcode.is_data());
    let paths: Vec<u8> = data.map(|(_, cbh)| cbh.path).collect();
    assert!(
        paths.windows(2).all(|two| (two[0] + 1) % 4 == two[1]),
        "{paths:?}"
    );
}
