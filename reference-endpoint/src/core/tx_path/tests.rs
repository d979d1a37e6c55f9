use super::*;

const ISN: u32 = 0xffff_fffe;
const MS: u64 = 1_000_000;

fn carried(i: u32) -> Carried {
    Carried {
        stream: 0,
        msn: Msn::new(i),
        index: 0,
        response: false,
    }
}

fn path(packets: u32) -> TxPath {
    let mut path = TxPath::new(Psn::new(ISN), 50_000, 0, 200_000);
    for i in 0..packets {
        path.send_new(1_000 + u64::from(i), carried(i), false);
    }
    path
}

fn psn(i: u32) -> Psn {
    Psn::new(ISN).add(i)
}

/// A vector over `cum` with the packets `arrived`.
fn sack(cum: Psn, arrived: &[u32]) -> Sack {
    let mut sack = Sack::EMPTY;
    arrived
        .iter()
        .for_each(|&i| sack.set(psn(i).distance_from(cum) - 1));
    sack
}

fn lost(path: &TxPath) -> Vec<u32> {
    let lost = |sent: &Sent| matches!(sent.fate, Fate::Lost | Fate::Guessed);
    let all = (0..).zip(&path.sent).filter(|(_, sent)| lost(sent));
    all.map(|(i, _)| path.base.add(i).distance_from(psn(0)))
        .collect()
}

/// Takes a report of the cumulative PSN and the packets beyond it; returns how many were new.
fn report(path: &mut TxPath, now: u64, cum: Psn, arrived: &[u32]) -> Option<Shown> {
    report_of(path, now, cum, arrived, None, None)
}

fn report_of(
    path: &mut TxPath,
    now: u64,
    cum: Psn,
    arrived: &[u32],
    trigger: Option<u64>,
    probe: Option<u64>,
) -> Option<Shown> {
    let sack = sack(cum, arrived);
    let report = Report {
        cum,
        sack: &sack,
        trigger,
        probe,
        used_up_at: None,
        duplicate: false,
    };
    path.on_report(now, &report, &mut Vec::new())
}

fn timer(path: &mut TxPath, now: u64) -> Option<Due> {
    path.on_timer(now, &mut Shown::default())
}

/// CC-013: all that is in flight when a window is used up, and nothing that leaves later.
#[test]
fn what_was_in_flight_when_a_window_was_full_lets_it_grow() {
    let mut path = path(3);
    assert_eq!(report(&mut path, 9_000, psn(0), &[]).unwrap().tested, 0);
    path.send_new(9_001, carried(3), true);
    path.send_new(9_002, carried(4), false);
    let shown = report(&mut path, 10_000, psn(4), &[]).unwrap();
    assert_eq!((shown.newly, shown.tested), (4, 3));
    path.send_new(11_000, carried(5), false);
    path.send_new(11_001, carried(6), false);
    let report = Report {
        cum: psn(6),
        sack: &Sack::EMPTY,
        trigger: None,
        probe: None,
        used_up_at: Some(11_000),
        duplicate: false,
    };
    let shown = path.on_report(12_000, &report, &mut Vec::new()).unwrap();
    assert_eq!((shown.newly, shown.tested), (2, 1), "by the connection");
}

#[test]
fn a_gap_loses_exactly_what_is_missing() {
    let mut path = path(6);
    let shown = report(&mut path, 9_000, psn(0), &[2, 4]).unwrap();
    assert_eq!((shown.newly, shown.gap), (3, true));
    assert_eq!(lost(&path), [1, 3]);
    assert_eq!(path.in_flight, 1);
}

#[test]
fn one_evidence_repairs_once_and_a_later_one_again() {
    let mut path = path(4);
    let cum = psn(0);
    report(&mut path, 9_000, cum, &[2]);
    assert_eq!(lost(&path), [1]);
    path.send_again(10_000, psn(1));
    report(&mut path, 11_000, cum, &[2, 3]);
    assert!(
        lost(&path).is_empty(),
        "packet 3 was sent before the repair"
    );
    path.send_new(12_000, carried(4), false);
    report(&mut path, 13_000, cum, &[2, 3, 4]);
    assert_eq!(lost(&path), [1], "packet 4 was sent after the repair");
}

#[test]
fn an_answer_to_a_probe_is_evidence_of_its_own() {
    let mut path = path(3);
    let cum = psn(0);
    report(&mut path, 9_000, cum, &[2]);
    path.send_again(10_000, psn(1));
    let probe = path.send_probe(20_000);
    let stamp = path.transmission(probe as u32);
    assert_eq!(stamp, Some(20_000));
    report_of(&mut path, 30_000, cum, &[2], None, stamp);
    assert_eq!(lost(&path), [1]);
}

#[test]
fn what_cannot_be_true_changes_nothing() {
    let mut path = path(3);
    for (cum, arrived) in [(psn(3), &[][..]), (psn(0), &[3]), (psn(0).sub(9), &[3])] {
        assert!(report(&mut path, 9_000, cum, arrived).is_none());
    }
    assert!(report(&mut path, 9_000, psn(0).add(0x7fff_fff0), &[]).is_none());
    assert_eq!(path.in_flight, 3);
}

#[test]
fn only_echoes_of_own_transmissions_count() {
    let mut path = path(0);
    let late = 90_000_000_000;
    let (_, stamp) = path.send_new(late, carried(0), false);
    assert_eq!(path.transmission(stamp), Some(late));
    for other in [1, 1 << 31, 0u32.wrapping_sub(1_000_000)] {
        assert_eq!(path.transmission(stamp.wrapping_add(other)), None);
    }
    let (_, again) = path.send_new(late + 5, carried(1), false);
    assert_eq!(path.transmission(stamp), Some(late));
    assert_eq!(path.transmission(again), Some(late + 5));
    assert_eq!(path.transmission(stamp + 1), None);
}

#[test]
fn stamps_rise_within_one_tick_and_over_long_pauses() {
    let mut path = path(0);
    let pauses = [0, 0, 1, 3_000_000_000, 4_294_967_296, 6_000_000_000];
    let mut now = 5;
    let mut last = None;
    for pause in pauses {
        now += pause;
        let stamp = path.next_stamp(now);
        assert!(last < Some(stamp));
        assert!(stamp - now < 3, "the stamp stays with the clock");
        assert_eq!(path.transmission(stamp as u32), Some(stamp));
        last = Some(stamp);
    }
}

#[test]
fn what_is_shown_to_be_lost_needs_no_room() {
    let mut path = path(16);
    report(&mut path, 9_000, psn(0), &[3]);
    for i in [1, 2] {
        assert_eq!(
            path.next_lost(9_000, false).map(|(psn, _)| psn),
            Some(psn(i))
        );
        path.send_again(9_000, psn(i));
    }
    assert!(path.next_lost(9_000, true).is_none());
}

#[test]
fn what_a_timeout_guesses_waits_until_it_is_shown() {
    let mut path = path(8);
    let probe_at = path.deadline().unwrap();
    assert_eq!(timer(&mut path, probe_at), Some(Due::Probe));
    let timeout_at = path.deadline().unwrap();
    assert_eq!(timer(&mut path, timeout_at), Some(Due::Timeout));
    assert_eq!(lost(&path).len(), 8);
    assert_eq!(path.in_flight, 0);
    assert!(path.next_lost(timeout_at, false).is_none());
    path.send_again(timeout_at, psn(0));
    let then = timeout_at + MS;
    report_of(&mut path, then, psn(0), &[], Some(timeout_at), None);
    for i in 1..8 {
        assert_eq!(
            path.next_lost(then, false).map(|(psn, _)| psn),
            Some(psn(i))
        );
        path.send_again(then, psn(i));
    }
}

#[test]
fn seven_timeouts_that_double_exhaust_a_path() {
    let mut path = path(2);
    let mut now = 1_001;
    let mut waits = Vec::new();
    while !path.is_exhausted() {
        let deadline = path.deadline().unwrap();
        assert_eq!(timer(&mut path, deadline - 1), None);
        match timer(&mut path, deadline) {
            Some(Due::Probe) => {
                path.send_probe(deadline);
            }
            Some(Due::Timeout) => {
                waits.push((deadline - now) / MS);
                now = deadline;
                path.send_again(now, psn(0));
            }
            None => panic!("the deadline has come"),
        }
    }
    assert_eq!(waits, [100, 200, 400, 800, 1600, 2000, 2000]);
}

#[test]
fn after_eight_transmissions_a_repair_waits_for_the_timeout() {
    let mut path = path(2);
    let cum = psn(0).sub(1);
    let mut now = 10_000;
    let mut prompt = 0;
    loop {
        let probe = path.send_probe(now);
        let stamp = path.transmission(probe as u32);
        report_of(&mut path, now, cum, &[1], None, stamp);
        if path.is_exhausted() {
            break;
        }
        if path.next_lost(now, true).is_none() {
            // The latest transmission was 10 us ago, or one later where a probe had the time before it.
            now += 100 * MS - 10_000 + 1;
            let before = path.next_lost(now - 2, true);
            assert_eq!(before, None, "REL-060");
            assert!(path.deadline().is_some_and(|due| due <= now), "REL-061");
        } else {
            prompt += 1;
        }
        assert_eq!(path.next_lost(now, true).map(|(psn, _)| psn), Some(psn(0)));
        path.send_again(now, psn(0));
        now += 10_000;
    }
    assert_eq!(prompt, 7, "REL-031");
    assert_eq!(path.totals.retransmissions, 63, "REL-052");
}

/// REL-042: its wait was the timeout itself. With each doubling the next wait would have begun anew, for ever.
#[test]
fn at_a_timeout_a_packet_goes_at_once_however_often_it_was_sent() {
    let mut path = path(1);
    for now in 1..=7 {
        let probe = path.send_probe(now * 10_000);
        let stamp = path.transmission(probe as u32);
        report_of(&mut path, now * 10_000, psn(0).sub(1), &[], None, stamp);
        if path.next_lost(now * 10_000, true).is_some() {
            path.send_again(now * 10_000, psn(0));
        }
    }
    assert_eq!(path.totals.retransmissions, 7);
    for _ in 0..3 {
        let due = path.deadline().unwrap();
        if timer(&mut path, due) == Some(Due::Timeout) {
            assert_eq!(path.next_lost(due, true).map(|(psn, _)| psn), Some(psn(0)));
            return;
        }
    }
    panic!("no timeout");
}

#[test]
fn a_gap_over_a_change_of_route_counts_when_the_grace_period_is_over() {
    let mut path = path(0);
    path.rtt.sample(MS, 0, 0);
    for i in 0..3 {
        path.send_new(2 * MS + i, carried(i as u32), false);
    }
    path.change_route(3 * MS, 50_001, 0);
    path.send_new(3 * MS + 1, carried(3), false);
    path.send_new(3 * MS + 2, carried(4), false);
    // The gap within the new route counts at once, the one on the old route when both parts of the period are over.
    report(&mut path, 3 * MS + 500, psn(0), &[4]);
    assert_eq!(lost(&path), [3]);
    let end = 3 * MS + MS + MS / 8;
    assert_eq!(path.deadline(), Some(end));
    timer(&mut path, end - 1);
    assert_eq!(lost(&path), [3]);
    timer(&mut path, end);
    assert_eq!(lost(&path), [1, 2, 3], "PATH-013");
}

/// What is lost right before a change of route leaves no gap on it, and the old route brings nothing any more.
#[test]
fn a_late_probe_finds_what_was_lost_before_a_change_of_route() {
    let mut path = path(0);
    path.rtt.sample(MS, 0, 0);
    path.send_new(2 * MS, carried(0), false);
    path.change_route(3 * MS, 50_001, 0);
    let cum = psn(0).sub(1);
    for (at, found) in [(4 * MS, false), (4 * MS + MS / 8, true)] {
        let probe = path.send_probe(at);
        let stamp = path.transmission(probe as u32);
        report_of(&mut path, at + MS, cum, &[], None, stamp);
        assert_eq!(!lost(&path).is_empty(), found, "probe at {at}");
    }
}

#[test]
fn needless_repairs_give_gaps_more_time() {
    let mut path = path(0);
    path.rtt.sample(MS, 0, 0);
    path.on_duplicate_seen(MS);
    assert_eq!(path.allowance, 0, "nothing was repaired");
    for i in 0..4 {
        path.send_new(2 * MS + i, carried(i as u32), false);
    }
    report(&mut path, 3 * MS, psn(0), &[2]);
    assert_eq!(lost(&path), [1]);
    path.send_again(3 * MS, psn(1));
    report(&mut path, 3 * MS + 9, psn(2), &[]);
    path.on_duplicate_seen(3 * MS + 10);
    path.send_new(3 * MS + 20, carried(4), false);
    path.send_new(3 * MS + 21, carried(5), false);
    report(&mut path, 4 * MS, psn(3), &[5]);
    assert!(lost(&path).is_empty());
    assert_eq!(path.deadline(), Some(4 * MS + MS / 4), "PATH-018");
    timer(&mut path, 4 * MS + MS / 4);
    assert_eq!(lost(&path), [4]);
}

#[test]
fn what_was_refused_is_held() {
    let mut path = path(4);
    assert_eq!(path.on_not_ready(psn(1), 40_000, true), 1);
    assert_eq!(path.on_not_ready(psn(1), 50_000, false), 1, "RCV-007");
    path.on_refused(psn(2));
    assert_eq!(path.in_flight, 2);
    report(&mut path, 9_000, psn(0), &[3]);
    assert!(lost(&path).is_empty(), "no gap frees what is held");
    assert_eq!(path.deadline(), Some(50_000));
    timer(&mut path, 50_000);
    assert_eq!(lost(&path), [1], "RCV-013");
    path.release(0);
    assert_eq!(lost(&path), [1, 2], "ERR-033");
}

#[test]
fn an_epoch_ends_with_what_the_peer_has_not_got() {
    let mut path = path(5);
    report(&mut path, 9_000, psn(0), &[2]);
    let (mut newly, mut missing) = (Vec::new(), Vec::new());
    let mut end = |path: &mut TxPath, cum, arrived: &[u32]| {
        path.end_epoch(cum, &sack(cum, arrived), &mut newly, &mut missing)
    };
    assert!(!end(&mut path, psn(0), &[3]), "it lacks what was reported");
    assert!(
        !end(&mut path, psn(4), &[5]),
        "it reports what was not sent"
    );
    assert!(end(&mut path, psn(0), &[2, 3]));
    assert_eq!(newly, [carried(3)]);
    assert_eq!(missing, [(carried(1), 0), (carried(4), 0)]);
    assert_eq!((path.in_flight, path.lost, path.held), (0, 0, 0));
}

/// ECN-012, with the first acknowledgment and after so many packets that PSNs have come round.
#[test]
fn counts_that_fall_behind_turn_ecn_off() {
    for (parts, part) in [(0u32, 0u32), (2, 3), (3, 1 << 30)] {
        let mut path = path(0);
        let settle = |path: &mut TxPath, cum: u32, ect: u32| {
            let (cum, sack) = (psn(cum), Sack::EMPTY);
            let report = Report {
                cum,
                sack: &sack,
                trigger: None,
                probe: None,
                used_up_at: None,
                duplicate: false,
            };
            path.on_report(9_000, &report, &mut Vec::new());
            path.on_counts(&report, 0, ect);
        };
        // As if that many had been sent and acknowledged, a part at a time.
        for n in 1..=parts {
            path.base = psn(part * n);
            path.next = path.base;
            settle(&mut path, part * n - 1, part * n);
        }
        assert!(!path.ecn.is_off());
        path.send_new(1_000, carried(0), false);
        settle(&mut path, part * parts, part * parts);
        assert!(path.ecn.is_off(), "after {parts} times {part}");
    }
}

#[test]
fn counts_are_taken_from_acknowledgments_that_advance() {
    let mut path = path(6);
    let counts = |path: &mut TxPath, cum, arrived: &[u32], ce, ect| {
        let sack = sack(cum, arrived);
        let report = Report {
            cum,
            sack: &sack,
            trigger: None,
            probe: None,
            used_up_at: None,
            duplicate: false,
        };
        path.on_counts(&report, ce, ect)
    };
    assert_eq!(counts(&mut path, psn(0), &[2], 1, 1), 1);
    assert_eq!(
        counts(&mut path, psn(0), &[2], 2, 1),
        0,
        "it does not advance"
    );
    assert_eq!(counts(&mut path, psn(2), &[], 1, 2), 0);
    assert!(!path.ecn.is_off());
    assert_eq!(counts(&mut path, psn(4), &[], 1, 3), 0);
    assert!(path.ecn.is_off(), "one of two bore no mark (ECN-012)");
}
