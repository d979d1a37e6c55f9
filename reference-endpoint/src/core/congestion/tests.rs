use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const SRTT: Option<u64> = Some(MS);

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-4, "{a} is not {b}");
}

/// Windows that are out of their start, in all one path with 16 packets and alpha 1 still.
fn grown() -> Congestion {
    let mut windows = Congestion::new(1);
    windows.on_acked(0, 0, (1, 0), 1, SRTT);
    near(windows.window(0), 8.0);
    windows.set(0, FIRST_WINDOW);
    windows
}

/// Rule 1, PATH-010: 16 packets and alpha 1 on every path, and 16 times the number of paths for the connection.
#[test]
fn first_windows() {
    let windows = Congestion::new(8);
    (0..8).for_each(|path| assert_eq!((windows.window(path), windows.alpha(path)), (16.0, 1.0)));
    assert_eq!(windows.connection_window(), 128.0);
}

/// CC-001 and CC-002: the window of the path and that of the connection, each by itself; one packet with nothing in flight.
#[test]
fn both_windows_bound_what_is_in_flight() {
    let mut windows = Congestion::new(2);
    assert!(windows.room(0, 0, 15, 31, SRTT));
    assert!(!windows.room(0, 0, 16, 16, SRTT));
    assert!(!windows.room(0, 0, 0, 32, SRTT));
    assert!(!windows.path_room(0, 16) && windows.path_room(0, 15));
    windows.set(0, 0.5);
    windows.set(1, 0.25);
    assert_eq!(windows.connection_window(), 1.0);
    assert!(windows.room(0, 0, 0, 0, SRTT));
    assert!(!windows.room(0, 0, 1, 1, SRTT));
    assert!(
        !windows.room(0, 0, 0, 1, SRTT),
        "the other path has the connection's packet"
    );
}

/// A window of a part of a packet more than a whole number takes one more: what is in flight is not yet as many.
#[test]
fn parts_of_packets_count() {
    let mut windows = Congestion::new(1);
    windows.set(0, 16.5);
    assert!(windows.room(0, 0, 16, 16, SRTT));
    assert!(!windows.room(0, 0, 17, 17, SRTT));
    assert!(!windows.uses_up(0, 15) && windows.uses_up(0, 16));
}

/// A packet that fills either window uses it up.
#[test]
fn either_window_is_used_up() {
    let windows = Congestion::new(2);
    assert!(windows.uses_up(0, 15) && !windows.uses_up(0, 14));
    assert!(windows.uses_up_all(31) && !windows.uses_up_all(30));
}

/// CC-004, rule 2: one for each packet, and so the connection's, up to 256.
#[test]
fn the_start_doubles() {
    let mut windows = Congestion::new(2);
    windows.on_acked(0, MS, (16, 16), 0, SRTT);
    assert_eq!((windows.window(0), windows.window(1)), (32.0, 16.0));
    assert_eq!(windows.connection_window(), 48.0);
    windows.on_acked(0, MS, (250, 250), 0, SRTT);
    assert_eq!(windows.window(0), 256.0);
    assert_eq!(windows.connection_window(), 272.0);
    windows.on_acked(0, MS, (256, 256), 0, SRTT);
    assert_eq!(windows.connection_window(), 272.0);
}

/// CC-003: one packet per round for the whole connection after the start; a part of it for each packet.
#[test]
fn growth_is_one_packet_per_round_of_all() {
    let mut windows = Congestion::new(4);
    (0..4).for_each(|path| windows.on_acked(path, 0, (1, 1), 1, SRTT));
    near(windows.connection_window(), 32.0);
    for path in 0..4 {
        windows.on_acked(path, MS, (8, 8), 0, SRTT);
    }
    assert!(windows.connection_window() <= 33.0 && windows.connection_window() > 32.95);
    near(windows.sum, windows.connection_window());
}

/// CC-003 below one packet: a sum below 1 counts as 1.
#[test]
fn a_small_window_grows_by_no_more_than_one() {
    let mut windows = grown();
    windows.set(0, 0.25);
    windows.on_acked(0, MS, (1, 1), 0, SRTT);
    assert_eq!(windows.window(0), 1.25);
    near(windows.connection_window(), 1.25);
}

/// An acknowledgment of many packets adds no more than as many of one packet each.
#[test]
fn one_large_acknowledgment_is_as_many_small_ones() {
    let (mut once, mut often) = (grown(), grown());
    once.on_acked(0, MS, (64, 64), 0, SRTT);
    (0..64).for_each(|_| often.on_acked(0, MS, (1, 1), 0, SRTT));
    near(once.window(0), often.window(0));
    near(once.connection_window(), often.connection_window());
}

/// CC-013, rule 3: what has not been used up does not grow, in the start and after it.
#[test]
fn what_is_not_used_up_does_not_grow() {
    let mut windows = Congestion::new(1);
    windows.on_acked(0, MS, (8, 0), 0, SRTT);
    assert_eq!(
        (windows.window(0), windows.connection_window()),
        (16.0, 16.0)
    );
    let mut windows = grown();
    windows.on_acked(0, MS, (8, 0), 0, SRTT);
    assert_eq!(
        (windows.window(0), windows.connection_window()),
        (16.0, 16.0)
    );
}

/// CC-005, CC-008, ECN-010: to 1 - alpha/2, once per SRTT; the connection by as much; nothing grows with a mark.
#[test]
fn marks_cut_once_per_round() {
    let mut windows = Congestion::new(2);
    windows.on_acked(0, MS, (8, 8), 2, SRTT);
    near(windows.window(0), 8.0);
    near(windows.connection_window(), 24.0);
    windows.on_acked(0, 2 * MS - 1, (8, 8), 8, SRTT);
    near(windows.window(0), 8.0);
    near(windows.connection_window(), 24.0);
    windows.on_acked(0, 2 * MS, (8, 8), 1, SRTT);
    let alpha = 15.0 / 16.0 + 11.0 / 24.0 / 16.0;
    near(windows.alpha(0), alpha);
    near(windows.window(0), 8.0 * (1.0 - alpha / 2.0));
    near(windows.connection_window(), 16.0 + windows.window(0));
}

/// CC-005: marks of packets that the answer to a probe has reported first cut all the same.
#[test]
fn marks_that_come_after_their_packets_cut() {
    let mut windows = Congestion::new(1);
    windows.on_acked(0, MS, (8, 0), 0, SRTT);
    windows.on_acked(0, MS + 9, (0, 0), 8, SRTT);
    near(windows.window(0), 8.0);
    windows.on_acked(0, 2 * MS, (0, 0), 8, SRTT);
    assert_eq!(windows.alpha(0), 1.0, "no more than all are marked");
    windows.on_acked(0, 4 * MS, (0, 0), 8, SRTT);
    assert_eq!(windows.alpha(0), 1.0);
    windows.on_acked(0, 6 * MS, (0, 0), 0, SRTT);
    near(windows.window(0), 4.0);
}

/// CC-007, P5: marks of one path leave the window, the start and alpha of another alone.
#[test]
fn marks_of_one_path_are_not_those_of_another() {
    let mut windows = Congestion::new(2);
    windows.on_acked(0, MS, (8, 8), 8, SRTT);
    windows.on_timeout(0);
    assert_eq!((windows.window(1), windows.alpha(1)), (16.0, 1.0));
    windows.on_acked(1, MS, (4, 4), 0, SRTT);
    assert_eq!(windows.window(1), 20.0);
}

/// CC-006: once per SRTT, at weight 1/16, with the part of that time and no other.
#[test]
fn alpha_follows_the_marked_part() {
    let mut windows = Congestion::new(1);
    windows.on_acked(0, 0, (10, 0), 0, SRTT);
    windows.on_acked(0, MS / 2, (10, 0), 0, SRTT);
    assert_eq!(windows.alpha(0), 1.0, "the period is not over");
    windows.on_acked(0, MS, (20, 0), 10, SRTT);
    let mut alpha = 15.0 / 16.0 + 0.25 / 16.0;
    near(windows.alpha(0), alpha);
    windows.on_acked(0, 2 * MS - 1, (10, 0), 10, SRTT);
    near(windows.alpha(0), alpha);
    windows.on_acked(0, 5 * MS, (10, 0), 0, SRTT);
    alpha = alpha * 15.0 / 16.0 + 0.5 / 16.0;
    near(windows.alpha(0), alpha);
    windows.on_acked(0, 6 * MS, (10, 0), 0, SRTT);
    near(windows.alpha(0), alpha * 15.0 / 16.0);
}

/// Rule 4: the first period begins with the first sample of RTT.
#[test]
fn alpha_waits_for_a_sample() {
    let mut windows = Congestion::new(1);
    windows.on_acked(0, 0, (10, 0), 0, None);
    windows.on_acked(0, 200 * MS, (10, 0), 0, None);
    windows.on_acked(0, 300 * MS, (10, 0), 0, SRTT);
    assert_eq!(windows.alpha(0), 1.0);
    windows.on_acked(0, 301 * MS, (10, 0), 0, SRTT);
    near(windows.alpha(0), 15.0 / 16.0);
}

/// Rule 4: alpha is renewed before the cut, so that a cut follows its own marks.
#[test]
fn alpha_comes_before_the_cut() {
    let mut windows = grown();
    for round in 1..200 {
        windows.on_acked(0, round * MS, (16, 0), 0, SRTT);
    }
    assert!(windows.alpha(0) < 1e-4);
    windows.on_acked(0, 200 * MS, (16, 16), 16, SRTT);
    near(windows.alpha(0), 1.0 / 16.0);
    near(windows.window(0), 16.0 * (1.0 - 1.0 / 32.0));
}

/// CC-009, rule 5: one packet, the connection by as much; what is smaller stays. It ends the start.
#[test]
fn a_timeout_leaves_one_packet() {
    let mut windows = Congestion::new(2);
    windows.on_timeout(0);
    assert_eq!(
        (windows.window(0), windows.connection_window()),
        (1.0, 17.0)
    );
    windows.on_acked(0, MS, (1, 1), 0, SRTT);
    near(windows.window(0), 1.0 + 1.0 / 17.0);
    windows.set(0, 0.5);
    windows.on_timeout(0);
    assert_eq!(windows.window(0), 0.5);
}

/// CC-010, rule 6: a half at most once per SRTT, whatever marks have done; not below 1/16. It ends the start.
#[test]
fn a_gap_without_ecn_halves() {
    let mut windows = Congestion::new(2);
    windows.on_acked(0, MS, (8, 8), 8, SRTT);
    near(windows.window(0), 8.0);
    windows.on_gap_without_ecn(0, MS, SRTT);
    windows.on_gap_without_ecn(0, 2 * MS - 1, SRTT);
    near(windows.window(0), 4.0);
    near(windows.connection_window(), 20.0);
    windows.on_gap_without_ecn(0, 2 * MS, SRTT);
    near(windows.window(0), 2.0);
    windows.on_acked(0, 2 * MS, (8, 8), 8, SRTT);
    near(windows.window(0), 1.0);
    windows.on_gap_without_ecn(1, 2 * MS, SRTT);
    windows.on_acked(1, 3 * MS, (1, 1), 0, SRTT);
    near(windows.window(1), 8.0 + 1.0 / 9.0);
    (3..20).for_each(|i| windows.on_gap_without_ecn(0, i * MS, SRTT));
    assert_eq!(windows.window(0), 1.0 / 16.0);
}

/// CC-011, rule 7: SRTT divided by the window, with 1/16 as the least; only new packets below one packet are paced.
#[test]
fn windows_below_one_are_paced() {
    let mut windows = Congestion::new(1);
    windows.on_sent(0, 0, SRTT);
    assert_eq!(windows.next_room(0, SRTT), None);
    for i in 1..40 {
        windows.on_acked(0, i * MS, (1, 1), 1, SRTT);
    }
    assert_eq!(windows.window(0), 1.0 / 16.0);
    assert_eq!(windows.connection_window(), 1.0, "CC-008");
    windows.on_sent(0, 40 * MS, SRTT);
    assert_eq!(windows.next_room(0, SRTT), Some(56 * MS));
    assert!(!windows.room(0, 56 * MS - 1, 0, 0, SRTT));
    assert!(windows.room(0, 56 * MS, 0, 0, SRTT));
    assert!(!windows.room(0, 56 * MS, 1, 1, SRTT));
    assert!(windows.path_room(0, 0), "a repair is not paced");
}

/// CC-015: what an acknowledgment of a whole window lets go at once leaves in a burst of 64, and then at twice its pace.
#[test]
fn a_large_window_is_not_sent_in_one_burst() {
    let mut windows = Congestion::new(1);
    (0..300).for_each(|_| windows.on_acked(0, 0, (1, 1), 0, SRTT));
    assert_eq!(windows.window(0), 256.0);
    let send = |windows: &mut Congestion, now| {
        let sent = (0..256)
            .take_while(|&n| {
                let room = windows.room(0, now, n, n, SRTT);
                if room {
                    windows.on_sent(0, now, SRTT);
                }
                room
            })
            .count();
        (sent, windows.next_room(0, SRTT))
    };
    let apart = MS / 512;
    assert_eq!(send(&mut windows, 5 * MS), (64, Some(5 * MS + apart + 1)));
    assert_eq!(send(&mut windows, 5 * MS + 10 * apart + 10).0, 10);
    assert_eq!(send(&mut windows, 7 * MS).0, 64, "no more is saved up");
}

/// CC-012, rule 8: for one SRTT after CE, on the path that has reported it.
#[test]
fn a_marked_path_is_hot_for_one_round() {
    let mut windows = Congestion::new(2);
    assert!(!windows.is_hot(0, 0, SRTT));
    windows.on_acked(0, MS, (8, 8), 1, SRTT);
    windows.on_acked(0, MS + 9, (8, 8), 1, SRTT);
    assert!(windows.is_hot(0, 2 * MS + 8, SRTT));
    assert!(!windows.is_hot(0, 2 * MS + 9, SRTT));
    assert!(!windows.is_hot(1, MS, SRTT));
}

/// CC-014, rule 9: at most the first windows; a smaller one stays, and so do alpha and the end of the start.
#[test]
fn a_pause_takes_windows_back() {
    let mut windows = Congestion::new(3);
    windows.on_acked(0, 0, (100, 100), 0, SRTT);
    windows.on_acked(1, 0, (100, 100), 0, SRTT);
    windows.on_timeout(2);
    windows.on_pause(0);
    assert_eq!((windows.window(0), windows.window(1)), (16.0, 116.0));
    assert_eq!(windows.connection_window(), 133.0);
    windows.on_pause_of_all();
    assert_eq!((windows.window(1), windows.window(2)), (16.0, 1.0));
    assert_eq!(windows.connection_window(), 33.0);
}

/// A path that is retired takes its window along; one that is opened again starts anew.
#[test]
fn retired_and_opened_again() {
    let mut windows = Congestion::new(2);
    windows.on_acked(0, MS, (8, 8), 8, SRTT);
    windows.on_acked(0, 2 * MS, (8, 8), 0, SRTT);
    windows.retire(0);
    assert_eq!(windows.window(0), 0.0);
    near(windows.connection_window(), 16.0);
    assert!(!windows.room(0, 3 * MS, 0, 0, SRTT));
    windows.on_acked(0, 3 * MS, (8, 8), 0, SRTT);
    assert_eq!(
        windows.window(0),
        0.0,
        "a late acknowledgment of the old epoch"
    );
    windows.reopen(0);
    assert_eq!((windows.window(0), windows.alpha(0)), (16.0, 1.0));
    near(windows.connection_window(), 32.0);
    assert!(!windows.is_hot(0, 2 * MS, SRTT));
    windows.on_acked(0, 3 * MS, (8, 8), 0, SRTT);
    assert_eq!(windows.window(0), 24.0);
    windows.retire(1);
    windows.retire(0);
    assert_eq!(windows.connection_window(), 1.0);
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Acked(u32, bool, u32),
    Timeout,
    Gap,
    Pause,
    PauseOfAll,
    Retire,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (1..64u32, any::<bool>(), 0..4u32)
            .prop_map(|(packets, full, part)| Op::Acked(packets, full, packets * part / 16)),
        1 => Just(Op::Timeout),
        1 => Just(Op::Gap),
        1 => Just(Op::Pause),
        1 => Just(Op::PauseOfAll),
        1 => Just(Op::Retire),
        2 => Just(Op::Reopen),
    ]
}

/// The connection's window kept by the letter of the rules, from what happens to the windows of the paths.
fn by_the_letter(window: f64, op: Op, old: Path, new: Path, sum: f64) -> f64 {
    let fall = old.window - new.window;
    let next = match op {
        Op::Acked(packets, true, 0) if old.open => (0..packets).fold(window, |window, _| {
            window
                + if old.starting {
                    1.0
                } else {
                    1.0 / window.max(1.0)
                }
        }),
        Op::Acked(..) | Op::Timeout | Op::Gap | Op::Retire => window - fall,
        Op::Reopen => window - old.window + FIRST_WINDOW,
        Op::Pause => window,
        Op::PauseOfAll => window.min(3.0 * FIRST_WINDOW),
    };
    next.min(sum.max(1.0)).max(1.0)
}

/// Whatever rounding has done to the sum, it is put right again and again.
#[test]
fn the_sum_does_not_drift() {
    let mut windows = Congestion::new(8);
    windows.sum += 1e-6;
    (0..u64::from(CHANGES)).for_each(|i| windows.on_acked(3, i, (1, 1), 0, SRTT));
    assert_eq!(windows.sum, 7.0 * 16.0 + 256.0);
}

proptest! {
    /// Rules 1 to 9 at once, after any history: the bounds of all windows, the sum, what may grow, what may shrink, and
    /// that no path touches another (CC-003, CC-004, CC-005, CC-007 to CC-010, CC-014).
    #[test]
    fn any_history(ops in prop::collection::vec((0..3usize, 0..3 * MS, op()), 1..400)) {
        let mut windows = Congestion::new(3);
        let (mut now, mut connection) = (0, windows.connection_window());
        for (path, pause, op) in ops {
            now += pause;
            let (state, sum) = (windows.paths.clone(), windows.sum);
            let old = state[path];
            match op {
                Op::Acked(packets, full, marked) => { let tested = if full { packets } else { 0 }; windows.on_acked(path, now, (packets, tested), marked, SRTT) }
                Op::Timeout => windows.on_timeout(path),
                Op::Gap => windows.on_gap_without_ecn(path, now, SRTT),
                Op::Pause => windows.on_pause(path),
                Op::PauseOfAll => windows.on_pause_of_all(),
                Op::Retire => windows.retire(path),
                Op::Reopen => windows.reopen(path),
            }
            let new = windows.paths[path];
            let (rise, tiny) = (new.window - old.window, 1e-9);

            let total: f64 = windows.paths.iter().map(|path| path.window).sum();
            prop_assert!((windows.sum - total).abs() < tiny);
            connection = by_the_letter(connection, op, old, new, total);
            prop_assert!((windows.connection_window() - connection).abs() < 1e-6);
            let fits = |path: &Path| if path.open { (LEAST_WINDOW..=MOST_WINDOW).contains(&path.window) } else { path.window == 0.0 };
            prop_assert!(windows.paths.iter().all(fits));
            prop_assert!((0.0..=1.0).contains(&new.alpha));
            if !matches!(op, Op::PauseOfAll) {
                let others = (0..3).filter(|&other| other != path);
                for other in others {
                    prop_assert_eq!(windows.paths[other].window, state[other].window);
                }
            }
            match op {
                Op::Acked(packets, full, 0) => {
                    let most = if old.starting { 1.0 } else { 1.0 / sum.max(1.0) };
                    prop_assert!(rise >= 0.0 && rise <= f64::from(packets) * most + tiny);
                    prop_assert!(full || rise == 0.0);
                }
                Op::Acked(..) => {
                    let cut = old.window * (1.0 - f64::from(new.alpha) / 2.0);
                    let due = old.open && (old.cut_at == NEVER || now - old.cut_at >= MS);
                    let to = if due { cut.max(LEAST_WINDOW) } else { old.window };
                    prop_assert!((new.window - to).abs() < tiny);
                }
                Op::Timeout => prop_assert_eq!(new.window, old.window.min(1.0)),
                Op::Gap => prop_assert!(new.window >= old.window / 2.0 && rise <= 0.0),
                Op::Pause => prop_assert_eq!(new.window, old.window.min(FIRST_WINDOW)),
                Op::PauseOfAll => prop_assert!(windows.paths.iter().all(|path| path.window <= FIRST_WINDOW)),
                Op::Retire => prop_assert!(!new.open),
                Op::Reopen => prop_assert_eq!(new.window, FIRST_WINDOW),
            }
        }
    }
}
