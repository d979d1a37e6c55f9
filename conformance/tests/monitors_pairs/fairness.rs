//! What a real link blurs is not charged, and what cannot be told apart is not passed.

use metaroce_conformance::evidence::MemoryPart;
use metaroce_conformance::monitors::{Tally, merge};
use metaroce_conformance::trace::Side;
use metaroce_reports::Verdict;
use metaroce_wire::metaroce::{Flags, Opcode};

use crate::scenes::{ready_receiver, receiving, sending};
use crate::trace::{MS, Trace, US, write};

fn broken(t: &Trace) -> Vec<&'static str> {
    let found = t.judge();
    let broken = found
        .iter()
        .filter(|(_, tally)| !tally.violations.is_empty());
    broken.map(|(clause, _)| *clause).collect()
}

/// An acknowledgment that was under way when the next packet passed the tap.
fn crossing() -> Trace {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 700), 0);
    let reply = t.reply_pkt(0);
    t.wait(10 * US);
    t.arrive(0, 1, write(0, 700), 1);
    t.wait(5 * US);
    t.tx(reply);
    t.wait(5 * US);
    t.reply(0);
    t.wait(MS);
    t
}

#[test]
fn an_acknowledgment_that_crosses_a_packet_is_charged_without_an_allowance_alone() {
    let mut t = crossing();
    t.allowance = 50 * US;
    assert!(broken(&t).is_empty(), "{:?}", broken(&t));
    t.allowance = 0;
    assert!(broken(&t).contains(&"REL-013"), "{:?}", broken(&t));
}

#[test]
fn an_endpoint_that_is_behind_is_late_and_no_liar() {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 700), 0);
    let behind = t.reply_pkt(0);
    t.wait(10 * US);
    t.arrive(0, 1, write(0, 700), 1);
    t.wait(5 * MS);
    t.tx(behind);
    t.wait(5 * MS);
    t.reply(0);
    t.wait(MS);
    t.allowance = MS;
    let found = broken(&t);
    assert!(
        !found.contains(&"REL-013") && !found.contains(&"REL-022"),
        "{found:?}"
    );
    // The same echo over a report that knows of more is one.
    let mut liar = t.clone();
    let echo = liar.ack_of(0, 0).u32(16);
    liar.ack_of(0, 1).put(16, echo);
    assert!(broken(&liar).contains(&"REL-022"), "{:?}", broken(&liar));
}

#[test]
fn a_repair_that_crosses_its_acknowledgment_is_no_violation() {
    let mut t = sending();
    let again = t.find(true, Opcode::WRITE).clone().flag(Flags::RTX);
    let at = t.index(false, Opcode::ACK, 0);
    let time = t.items[at].time;
    t.insert(at + 1, true, 0, again);
    t.items[at + 1].time = time + 10 * US;
    assert!(broken(&t).contains(&"REL-030"));
    t.allowance = 20 * US;
    assert!(!broken(&t).contains(&"REL-030"));
}

#[test]
fn a_delay_finer_than_the_jitter_passes_nothing() {
    let mut t = receiving();
    t.allowance = MS;
    t.jitter = MS;
    let found = t.judge();
    for clause in ["REL-014", "REL-015", "REL-017", "REL-018", "ECN-009"] {
        let tally = &found[clause];
        assert!(
            tally.exercised > 0 && tally.inconclusive.is_some(),
            "{clause}: {tally:?}"
        );
        assert_eq!(tally.clone().finding(clause).verdict, Verdict::Inconclusive);
    }
    t.jitter = 100 * US;
    assert!(t.judge()["REL-014"].inconclusive.is_none());
}

/// What a real link says of an acknowledgment that is due at once and comes `after` ns.
fn acknowledged(after: u64) -> Verdict {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 100), 0);
    t.wait(after);
    t.reply(0);
    t.wait(500 * MS);
    t.allowance = 100 * MS;
    t.jitter = 100 * US;
    let tally = t.judge()["REL-015"].clone();
    assert!(tally.exercised > 0, "{after} ns");
    tally.finding("REL-015").verdict
}

#[test]
fn what_the_machine_may_have_held_up_neither_passes_nor_fails() {
    assert_eq!(acknowledged(2 * MS), Verdict::Pass);
    assert_eq!(acknowledged(20 * MS), Verdict::Inconclusive);
    assert_eq!(acknowledged(200 * MS), Verdict::Fail);

    // A retransmission soon after the report of its packet may have crossed it; a while later nobody can tell.
    for (after, unsure) in [(2 * MS, false), (20 * MS, true)] {
        let mut t = sending();
        let again = t.find(true, Opcode::WRITE).clone().flag(Flags::RTX);
        let at = t.index(false, Opcode::ACK, 0);
        let time = t.items[at].time + after;
        // In order of time, also behind all the others.
        let later = |item: &&crate::trace::Item| item.time > time;
        let before = t.items.iter().filter(|item| !later(item)).count() - 1;
        t.insert(before, true, 0, again);
        t.items.swap(before, before + 1);
        t.items[before + 1].time = time;
        t.allowance = 100 * MS;
        t.jitter = 100 * US;
        let tally = &t.judge()["REL-030"];
        assert!(tally.violations.is_empty(), "{tally:?}");
        assert_eq!(
            tally.inconclusive.is_some(),
            unsure,
            "{after} ns: {tally:?}"
        );
    }
}

#[test]
fn a_duplicate_over_its_own_bytes_shows_nothing() {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 100), 0);
    t.reply(0);
    t.wait(US);
    let again = t.data(false, 0, 0, write(0, 100), 0);
    t.arrive_pkt(again.flag(Flags::RTX));
    t.reply(0);
    t.wait(MS);
    // All that a tester writes to, under an id that no work has.
    t.memory(0, MemoryPart::Inside, "aa", "aa");
    let found = t.judge();
    assert_eq!(found["REL-006"].exercised, 0);
    assert!(found["STRM-019"].exercised > 0);
}

#[test]
fn a_trace_beyond_what_is_tracked_is_inconclusive_not_wrong() {
    let mut t = Trace::new(Side::B);
    for n in 0..70 {
        let confirm = t.confirm_pkt(false, n);
        t.get(confirm.with(|pkt| pkt.put16(22, n as u16 + 1)));
        t.wait(US);
    }
    t.connect();
    let found = t.judge();
    let tally = &found["PKT-002"];
    assert!(tally.violations.is_empty());
    assert!(
        tally
            .inconclusive
            .as_deref()
            .unwrap_or("")
            .contains("tracked")
    );
}

#[test]
fn both_sides_make_one_finding_and_the_first_twenty_violations_are_kept() {
    let of = |side: &str, count: u64| {
        let mut tally = Tally::default();
        tally.held();
        (0..count).for_each(|n| tally.broken(vec![2 * n + 1], "this", "that"));
        let entry = metaroce_conformance::monitors::everything()[0];
        (side.to_owned(), vec![(entry, tally)])
    };
    let findings = merge(vec![of("a", 15), of("b", 15)]);
    assert_eq!(findings.len(), 1);
    let finding = &findings[0];
    assert_eq!((finding.verdict, finding.exercised), (Verdict::Fail, 32));
    assert_eq!(
        (finding.violations.len(), finding.more_violations),
        (20, 10)
    );
    assert!(
        finding
            .violations
            .is_sorted_by_key(|violation| violation.frames[0])
    );
    assert!(finding.violations[1].seen.starts_with("b: "));
}

#[test]
fn random_damage_to_a_trace_never_panics() {
    let mut word = 1u64;
    let mut draw = |below: usize| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 33) as usize % below
    };
    for _ in 0..300 {
        let mut t = if draw(2) == 0 { receiving() } else { sending() };
        for _ in 0..1 + draw(6) {
            let at = draw(t.items.len());
            match draw(6) {
                0 => drop(t.items.remove(at)),
                1 => {
                    let copy = t.items[at].clone();
                    t.items.insert(at, copy);
                }
                2 => {
                    let len = 4 + draw(t.items[at].pkt.bytes.len());
                    t.items[at].pkt.bytes.resize(len, 0xa5);
                }
                3 => t.items[at].sent = !t.items[at].sent,
                4 => t.items[at].time = draw(1 << 30) as u64,
                _ => {
                    let bytes = &mut t.items[at].pkt.bytes;
                    let byte = draw(bytes.len());
                    bytes[byte] ^= 1 << draw(8);
                }
            }
        }
        t.judge();
    }
}
