//! Conventions, packet formats and connections.

use metaroce_conformance::evidence::{MemoryPart, What};
use metaroce_conformance::trace::Side;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{NakCode, Opcode};

use crate::scenes::{accepting, bad_packets, ready_receiver, receiving, refusing, sending};
use crate::trace::{MS, RKEY, Trace, US, write};
use crate::{Case, case};

/// A damaged packet: sealed for other addresses, so that its trailer is wrong.
pub fn damaged() -> Trace {
    bad_packets(|pkt| pkt.seal = false)
}

/// Acknowledges the faulty packet of `bad_packets`, in the acknowledgment after it.
pub fn acknowledge_bad(t: &mut Trace) {
    let last = t.items.len() - 1;
    let stamp = t.items[last - 1].pkt.stamp();
    let mut ack = t.ack(true, 0, 2, &[], stamp);
    ack.put(28, 2);
    t.items[last].pkt = ack;
}

/// Answers the faulty packet of `bad_packets` at once.
pub fn answer_bad(t: &mut Trace) {
    let bad = t.items.len() - 3;
    let stamp = t.items[bad].pkt.stamp();
    let ack = t.ack(true, 0, 0, &[], stamp);
    let time = t.items[bad].time;
    t.insert(bad + 1, true, 0, ack);
    t.items[bad + 1].time = time;
}

fn counted(errors: u64) -> What {
    let values = [("crc_errors".to_owned(), errors)].into_iter().collect();
    What::Counters { values }
}

fn damaged_and_counted() -> Trace {
    let mut t = damaged();
    t.say(Side::B, counted(1));
    t
}

fn damaged_and_looked_at() -> Trace {
    let mut t = damaged();
    t.memory(0, MemoryPart::Inside, "aa", "aa");
    t
}

pub fn look_otherwise(t: &mut Trace) {
    for event in &mut t.events {
        if let What::Memory { seen, .. } = &mut event.what {
            *seen = "bb".into();
        }
    }
}

/// Control for a connection that is not there.
fn stray_control() -> Trace {
    let mut t = ready_receiver();
    let close = t.close_pkt(false, 99);
    t.get(close.with(|pkt| pkt.bytes[7] ^= 0xff));
    t.wait(50 * MS);
    t
}

/// A Write under a wrong key, refused.
pub fn refused() -> Trace {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 100), 0);
    t.reply(0);
    t.wait(MS);
    let bad = t.data(false, 0, 1, write(1, 100), 0);
    let bad = bad.with(|pkt| pkt.put(40, RKEY ^ 1));
    t.get(bad.clone());
    let nak = t.nak_pkt(true, &bad, NakCode::REM_ACCESS, 1);
    t.tx(nak);
    t.wait(50 * MS);
    t.memory(0, MemoryPart::Inside, "aa", "aa");
    t
}

/// OPEN goes unanswered and is repeated.
fn repeating(times: u32) -> Trace {
    let mut t = Trace::new(Side::A);
    let open = t.open_pkt(true, 11);
    t.tx(open.clone());
    let mut pause = 50 * MS;
    for _ in 0..times {
        t.wait(pause);
        t.tx(open.clone());
        pause *= 2;
    }
    t.wait(MS);
    t
}

pub fn cases() -> Vec<Case> {
    let mut all = conventions();
    all.extend(packets());
    all.extend(set_up());
    all.extend(requests());
    all
}

fn conventions() -> Vec<Case> {
    vec![
        case("CONV-001", sending, |t| {
            t.find(true, Opcode::CLOSE).bytes.extend([0; 24]);
        }),
        case("CONV-003", sending, |t| {
            t.find(true, Opcode::WRITE).dst_port = 50_000
        }),
        case("CONV-004", sending, |t| {
            t.sent_where(|pkt| pkt.opcode().is_data() && pkt.psn() == 0)
                .put(8, 1);
        }),
        case("CONV-005", receiving, |t| {
            t.ack_of(0, 2).put(8, 0xffff_ffff)
        }),
        case("CONV-006", damaged, acknowledge_bad),
        case("CONV-007", damaged, answer_bad),
        case("CONV-008", damaged_and_looked_at, look_otherwise),
        case(
            "CONV-009",
            || bad_packets(|pkt| pkt.bytes[1] = 0x0a),
            answer_bad,
        ),
        case(
            "CONV-010",
            || bad_packets(|pkt| pkt.bytes[0] ^= 0x30),
            answer_bad,
        ),
        case(
            "CONV-011",
            || bad_packets(|pkt| pkt.bytes[2] |= 0x01),
            answer_bad,
        ),
        case("CONV-012", damaged_and_counted, |t| {
            t.events.pop();
            t.say(Side::B, counted(0));
        }),
    ]
}

fn packets() -> Vec<Case> {
    vec![
        case("PKT-001", receiving, |t| {
            t.find(true, Opcode::ACK).bytes[0] ^= 0x30
        }),
        case("PKT-002", receiving, |t| {
            t.find(true, Opcode::ACK).seal = false
        }),
        case("PKT-003", receiving, |t| {
            t.find(true, Opcode::ACK).bytes[4] |= 1
        }),
        case("PKT-004", receiving, |t| {
            t.find(true, Opcode::ACK).bytes[2] |= 0x80
        }),
        case("PKT-005", sending, |t| {
            t.find(true, Opcode::WRITE).bytes[2] |= 0x10
        }),
        case("PKT-006", sending, |t| padded(t).bytes[4] &= 0x3f),
        case("PKT-007", sending, |t| {
            let pkt = padded(t);
            let last = pkt.bytes.len() - 5;
            pkt.bytes[last] = 1;
        }),
        case("PKT-008", receiving, |t| {
            t.find(true, Opcode::ACK).bytes[4] |= 0x40
        }),
        case("PKT-009", receiving, |t| {
            t.find(true, Opcode::ACK).bytes.extend([0; 4])
        }),
        case("PKT-010", sending, |t| {
            t.find(true, Opcode::CONFIRM).bytes[3] = 1
        }),
        case("PKT-011", sending, |t| {
            t.find(true, Opcode::WRITE).bytes[7] ^= 1
        }),
        case("PKT-012", receiving, |t| {
            t.find(true, Opcode::ACK).bytes[33] = 0
        }),
        case("PKT-013", sending, |t| {
            t.find(true, Opcode::WRITE).put(44, 1)
        }),
        case("PKT-014", sending, |t| {
            t.find(true, Opcode::WRITE).bytes[20] |= 0x20
        }),
        case("PKT-015", stray_control, |t| {
            let close = t.items[t.items.len() - 1].pkt.clone();
            let nak = t.nak_pkt(true, &close, NakCode::UNKNOWN_CID, 0);
            t.tx(nak);
        }),
        case("PKT-016", refused, |t| t.find(true, Opcode::NAK).put(8, 1)),
        case("PKT-017", sending, |t| {
            let pkt = t.sent_where(|pkt| pkt.opcode().is_data() && pkt.psn() == 0xffff_ffff);
            pkt.put(12, pkt.stamp() - 100_000);
        }),
    ]
}

/// The first packet with padding.
fn padded(t: &mut Trace) -> &mut crate::trace::Pkt {
    t.sent_where(|pkt| pkt.opcode().is_data() && pkt.bytes[4] >> 6 != 0)
}

fn set_up() -> Vec<Case> {
    vec![
        case("CONN-001", sending, |t| {
            t.find(true, Opcode::OPEN).bytes[7] = 1
        }),
        case("CONN-002", sending, |t| {
            t.find(true, Opcode::OPEN).bytes[180] = 1
        }),
        case("CONN-003", sending, |t| {
            t.find(true, Opcode::OPEN).put16(18, 0)
        }),
        case("CONN-004", sending, |t| {
            t.find(true, Opcode::OPEN).bytes[21..24].fill(0)
        }),
        case("CONN-005", accepting, |t| {
            t.find(true, Opcode::ACCEPT).put(8, 99)
        }),
        case("CONN-006", accepting, |t| {
            t.find(true, Opcode::ACCEPT).bytes.extend([0; 4])
        }),
        case("CONN-007", accepting, |t| {
            t.find(true, Opcode::ACCEPT).put16(18, 3)
        }),
        case("CONN-008", accepting, |t| {
            t.find(true, Opcode::ACCEPT).bytes[17] = 2
        }),
        case("CONN-009", refusing, |t| {
            t.nth(true, Opcode::REJECT, 0).bytes[16] = 2
        }),
        case("CONN-010", refusing, |t| {
            t.nth(true, Opcode::REJECT, 1).bytes[16] = 3
        }),
        case("CONN-011", refusing, |t| {
            t.nth(true, Opcode::REJECT, 0).bytes[20] ^= 1
        }),
        case("CONN-012", sending, |t| {
            t.find(true, Opcode::CONFIRM).bytes[36] ^= 1
        }),
        case("CONN-013", sending, |t| {
            t.find(true, Opcode::CONFIRM).bytes[172] ^= 1
        }),
        case("CONN-015", accepting, |t| {
            t.find(true, Opcode::CONFIRM_ACK).bytes[16] ^= 1
        }),
        case("CONN-016", refusing, |t| {
            let at = t.index(true, Opcode::REJECT, 2);
            t.items[at].pkt = t.confirm_ack_pkt(true, 24);
        }),
        case("CONN-017", refusing, |t| {
            t.nth(true, Opcode::REJECT, 2).bytes[16] = 4
        }),
        case("CONN-018", accepting, |t| {
            t.remove(true, Opcode::CONFIRM_ACK, 1)
        }),
        case("CONN-019", sending, |t| {
            t.remove(false, Opcode::CONFIRM_ACK, 0)
        }),
        case("CONN-020", accepting, |t| {
            t.remove(true, Opcode::CONFIRM_ACK, 1);
            t.remove(true, Opcode::CONFIRM_ACK, 0);
        }),
    ]
}

fn requests() -> Vec<Case> {
    vec![
        case("CONN-014", sending, |t| {
            t.find(true, Opcode::CLOSE).put(8, 13)
        }),
        case(
            "CONN-022",
            || repeating(2),
            |t| t.nth(true, Opcode::OPEN, 1).bytes[24] ^= 1,
        ),
        case(
            "CONN-023",
            || repeating(3),
            |t| {
                let at = t.index(true, Opcode::OPEN, 3);
                t.items[at].time -= 50 * MS;
            },
        ),
        case("CONN-024", || repeating(7), |t| *t = repeating(8)),
        case("CONN-025", accepting, |t| {
            t.nth(true, Opcode::STREAM_OPEN_ACK, 1).put16(24, 1)
        }),
        case("CONN-026", accepting, |t| {
            t.find(true, Opcode::CLOSE_ACK).put16(16, 1)
        }),
        case("CONN-027", sending, |t| {
            let late = t.data(true, 0, 5, write(5, 10), 0);
            t.tx(late);
        }),
        case("CONN-028", accepting, |t| {
            let late = t.data(true, 0, 1, write(1, 10), 0);
            t.tx(late);
        }),
        case("CONN-029", accepting, |t| {
            t.remove(true, Opcode::CLOSE_ACK, 1)
        }),
        case(
            "CONN-030",
            || bad_packets(|pkt| pkt.bytes[7] ^= 0xff),
            acknowledge_bad,
        ),
        case("CONN-031", accepting, |t| t.remove(false, Opcode::OPEN, 1)),
        case(
            "CONN-032",
            || bad_packets(|pkt| pkt.src = Some([192, 0, 2, 77].into())),
            acknowledge_bad,
        ),
        case("ECN-001", sending, |t| {
            t.find(true, Opcode::WRITE).ecn = Ecn::NotEct
        }),
        case("ECN-002", receiving, |t| {
            t.find(true, Opcode::ACK).ecn = Ecn::Ect0
        }),
        case("REL-023", receiving, |t| {
            t.ack_of(0, 0).put16(20, (101 * US / 64) as u16)
        }),
    ]
}
