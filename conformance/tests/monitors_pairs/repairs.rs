//! The sender's part of reliability.

use metaroce_conformance::evidence::WorkKind;
use metaroce_conformance::trace::Side;
use metaroce_wire::metaroce::{Flags, Opcode};

use crate::scenes::{OK, lost_repair, sending, tail};
use crate::trace::{MS, Trace, US, write};
use crate::{Case, case};

/// More under way than the first window, after an acknowledgment.
fn wide() -> Trace {
    let mut t = Trace::new(Side::A);
    (t.mine.paths, t.theirs.paths) = (1, 1);
    t.connect();
    t.open_stream();
    let message = write(0, 256 * 40);
    let mut last = 0;
    for piece in 0..16 {
        last = t.send_new(0, message, piece);
        t.wait(US);
    }
    let stamp = t.items[last].pkt.stamp();
    t.acked(0, 0, &[], stamp);
    for piece in 16..20 {
        last = t.send_new(0, message, piece);
        t.wait(US);
    }
    let stamp = t.items[last].pkt.stamp();
    t.acked(0, 19, &[], stamp);
    t.wait(MS);
    t
}

/// Timeouts on a path that has been asked about.
fn timeouts() -> Trace {
    let mut t = Trace::ready(Side::A);
    let lost = t.send_new(0, write(0, 10), 0);
    t.wait(50 * MS);
    let probe = t.probe_pkt(true, 0, 901, 0);
    t.tx(probe);
    let mut pause = 50;
    for _ in 0..3 {
        t.wait(pause * MS);
        t.resend(lost);
        pause = if pause == 50 { 200 } else { 2 * pause };
    }
    t.wait(2 * MS);
    let stamp = t.items.last().map_or(0, |item| item.pkt.stamp());
    t.acked(0, 0, &[], stamp);
    t.wait(MS);
    t
}

/// A report that must be ignored comes before the true one.
fn lied_to(lie: fn(&Trace) -> crate::trace::Pkt) -> Trace {
    let mut t = Trace::ready(Side::A);
    t.posted(Side::A, 1, WorkKind::Write, 300);
    t.send_new(0, write(0, 300), 0);
    let last = t.send_new(0, write(0, 300), 1);
    t.wait(2 * MS);
    let false_report = lie(&t);
    t.get(false_report);
    t.wait(10 * MS);
    let stamp = t.items[last].pkt.stamp();
    t.acked(0, 1, &[], stamp);
    t.completed(1, WorkKind::Write, OK, 300);
    t.wait(MS);
    t
}

fn believe(t: &mut Trace) {
    t.completion(0).t_ns -= 9 * MS;
}

pub fn cases() -> Vec<Case> {
    let mut all = sent();
    all.extend(evidence());
    all.extend(timers());
    all
}

fn sent() -> Vec<Case> {
    vec![
        case("REL-001", sending, |t| {
            let first = t.find(true, Opcode::WRITE);
            first.put(8, first.psn() + 1);
        }),
        case("REL-002", wide, |t| {
            let pkt = t.nth(true, Opcode::WRITE, 4);
            pkt.put(8, pkt.psn() + 30);
        }),
        case("REL-003", wide, |t| {
            let pkt = t.nth(true, Opcode::WRITE, 19);
            pkt.put(8, pkt.psn().wrapping_add(300));
        }),
        case("REL-026", lost_repair, |t| {
            let at = t.index(true, Opcode::WRITE, 3);
            let stamp = t.items[at].pkt.stamp();
            let moved = t.data(true, 0, 2, write(0, 256 * 6), 0);
            t.items[at].pkt = moved.with(|pkt| pkt.put(12, stamp));
        }),
        case("REL-027", sending, |t| {
            let at = t.rtx_at(0);
            t.items[at].pkt.bytes[32] ^= 1;
        }),
        case("REL-028", sending, |t| {
            let at = t.rtx_at(0);
            t.items[at].pkt.bytes[2] &= !Flags::RTX.0;
        }),
        case("REL-029", sending, |t| {
            t.find(true, Opcode::WRITE).bytes[2] |= Flags::RTX.0
        }),
        case("REL-030", sending, |t| {
            let again = t.find(true, Opcode::WRITE).clone().flag(Flags::RTX);
            let at = t.index(true, Opcode::CLOSE, 0);
            t.insert(at, true, 10 * US, again);
        }),
        case("REL-036", tail, |t| {
            let probe = t.find(true, Opcode::PATH_PROBE);
            probe.put(16, probe.u32(16) ^ 1);
        }),
        case("PATH-004", tail, |t| {
            t.find(true, Opcode::PATH_PROBE).port += 5
        }),
        case("PATH-003", lost_repair, |t| {
            let at = t.rtx_at(0);
            t.items[at].pkt.port += 9;
        }),
    ]
}

fn evidence() -> Vec<Case> {
    vec![
        case("REL-031", sending, |t| {
            let at = t.rtx_at(0);
            t.items[at].time += 100 * US;
            t.items.swap(at, at + 1);
        }),
        case("REL-032", sending, |t| {
            let again = t.nth(true, Opcode::SEND, 2).clone().flag(Flags::RTX);
            let at = t.index(true, Opcode::SEND, 2);
            let time = t.items[at].time;
            t.insert(at + 1, true, 0, again);
            t.items[at + 1].time = time + US;
        }),
        case("REL-033", lost_repair, |t| {
            let at = t.rtx_at(0);
            let again = t.items[at].pkt.clone();
            t.insert(at + 1, true, 0, again);
        }),
        case("REL-034", lost_repair, |t| {
            t.items.pop();
            t.items.pop();
        }),
        case("REL-040", tail, |t| {
            let at = t.rtx_at(0);
            t.items.remove(at);
        }),
        case(
            "REL-044",
            || lied_to(|t| t.ack(false, 0, 100, &[], 5)),
            believe,
        ),
        case(
            "REL-045",
            || lied_to(|t| t.ack(false, 0, -1, &[0, 1], 5)),
            believe,
        ),
        case(
            "REL-046",
            || lied_to(|t| t.ack(false, 0, 1, &[], 5).with(|pkt| pkt.bytes[0] |= 2)),
            believe,
        ),
    ]
}

fn timers() -> Vec<Case> {
    vec![
        case("REL-035", timeouts, |t| {
            t.remove(true, Opcode::PATH_PROBE, 0)
        }),
        case("REL-041", timeouts, |t| {
            let at = t.rtx_at(0);
            // Five milliseconds after the first transmission, and before the question.
            let again = t.items.remove(at);
            let probe = t.index(true, Opcode::PATH_PROBE, 0);
            t.insert(probe, true, 45 * MS, again.pkt);
        }),
        case("REL-042", timeouts, |t| {
            let at = t.rtx_at(0);
            t.items.truncate(at);
            t.wait(3000 * MS);
        }),
        case("REL-043", tail, |t| {
            let at = t.rtx_at(4);
            t.items[at].time -= 100 * MS;
        }),
        case("REL-048", tail, |t| {
            let at = t.index(true, Opcode::PATH_PROBE, 0);
            t.items.truncate(at);
        }),
    ]
}
