//! What the receiver reports, and when.

use metaroce_conformance::trace::Side;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{Flags, Opcode};

use crate::scenes::{ready_receiver, receiving};
use crate::trace::{MS, Trace, US, write};
use crate::{Case, case};

/// A packet outside the window, which is told.
fn out_of_window() -> Trace {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 100), 0);
    t.reply(0);
    t.wait(US);
    let far = t.data(false, 0, 257, write(1, 100), 0);
    t.get(far);
    t.wait(US);
    t.arrive(0, 1, write(2, 100), 0);
    let reply = t.reply_pkt(0);
    t.tx(reply.with(|pkt| pkt.bytes[22] |= 0x20));
    t.wait(50 * MS);
    t
}

/// Two gaps, one after the other.
fn two_gaps() -> Trace {
    let mut t = ready_receiver();
    t.arrive(0, 1, write(0, 256 * 6), 1);
    t.reply(0);
    t.wait(US);
    t.arrive(0, 3, write(0, 256 * 6), 3);
    t.reply(0);
    t.wait(MS);
    t
}

/// A packet that arrives Not-ECT.
fn bleached() -> Trace {
    let mut t = ready_receiver();
    let pkt = t.data(false, 0, 0, write(0, 10), 0);
    t.arrive_pkt(pkt.marked(Ecn::NotEct));
    t.reply(0);
    t.wait(MS);
    t
}

/// Packets of 8 KiB: the second fills 16 KiB.
fn large() -> Trace {
    let mut t = Trace::new(Side::B);
    t.offer();
    t.p = 8192;
    (t.mine.payload_size, t.theirs.payload_size) = (8192, 8192);
    t.connect();
    t.open_stream();
    t.wait(MS);
    t.arrive(0, 0, write(0, 8192 * 4), 0);
    t.wait(10 * US);
    t.arrive(0, 1, write(0, 8192 * 4), 1);
    t.reply(0);
    t.wait(MS);
    t
}

/// Data from another source port than the path began with.
fn other_port() -> Trace {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 10), 0);
    t.reply(0);
    t.wait(US);
    let moved = t.data(false, 0, 1, write(1, 10), 0);
    t.arrive_pkt(moved.with(|pkt| pkt.port = 60_000));
    t.reply(0);
    t.wait(MS);
    t
}

/// Makes an acknowledgment late by a little.
fn late(t: &mut Trace, path: u8, n: usize) {
    let at = t.ack_at(path, n);
    t.items[at].time += 10 * US;
}

pub fn cases() -> Vec<Case> {
    let mut all = reports();
    all.extend(prompt());
    all.extend(echo());
    all
}

fn reports() -> Vec<Case> {
    vec![
        case("STRM-023", receiving, |t| t.ack_of(0, 3).put(8, 0)),
        case("REL-004", out_of_window, |t| {
            let last = t.items.len() - 1;
            let stamp = t.items[last].pkt.u32(16);
            let mut lie = t.ack(true, 0, 1, &[255], stamp);
            lie.bytes[22] |= 0x20;
            t.items[last].pkt = lie;
        }),
        case("REL-005", out_of_window, |t| {
            let last = t.items.len() - 1;
            t.items[last].pkt.bytes[22] &= !0x20;
        }),
        case("REL-007", receiving, |t| {
            let ack = t.ack_of(0, 0);
            ack.put(8, ack.psn().wrapping_add(1));
        }),
        case("REL-008", receiving, |t| {
            t.find(true, Opcode::ACK_SACK).bytes[40] |= 0x10
        }),
        case("REL-009", receiving, |t| {
            let ack = t.ack_of(0, 4);
            ack.put(8, ack.psn().wrapping_sub(3));
        }),
        case("REL-010", two_gaps, |t| t.ack_of(0, 1).bytes[40] &= !0x40),
        case("REL-011", receiving, |t| {
            t.find(true, Opcode::ACK_SACK).bytes[40] |= 0x80
        }),
        case("REL-012", receiving, |t| {
            let at = t.index(true, Opcode::ACK_SACK, 0);
            let stamp = t.items[at].pkt.u32(16);
            let mut ack = t.ack(true, 1, -1, &[], stamp);
            ack.put(28, 1);
            t.items[at].pkt = ack;
        }),
        case("REL-013", two_gaps, |t| t.ack_of(0, 1).bytes[40] &= !0x10),
        case("REL-037", receiving, |t| {
            let answer = t.find(true, Opcode::PATH_PROBE_ACK);
            answer.put(24, answer.u32(24) ^ 1);
        }),
        case("REL-038", receiving, |t| {
            t.find(true, Opcode::PATH_PROBE_ACK).bytes[32] |= 0x10
        }),
        case("REL-039", receiving, |t| {
            t.find(true, Opcode::PATH_PROBE_ACK).bytes[32] = 0
        }),
        case("PATH-007", other_port, |t| {
            let ack = t.ack_of(0, 1);
            ack.put(8, ack.psn().wrapping_sub(1));
        }),
        case(
            "PATH-008",
            || crate::scenes::bad_packets(|pkt| pkt.bytes[0] |= 3),
            crate::formats::acknowledge_bad,
        ),
    ]
}

fn prompt() -> Vec<Case> {
    vec![
        case("REL-014", receiving, |t| late(t, 1, 1)),
        case("REL-015", receiving, |t| late(t, 0, 2)),
        case("REL-016", receiving, |t| late(t, 0, 6)),
        case("REL-017", receiving, |t| late(t, 1, 0)),
        case("REL-018", receiving, |t| late(t, 1, 2)),
        case("REL-019", receiving, |t| {
            for n in [1, 0] {
                let at = t.ack_at(0, n);
                t.items.remove(at);
            }
        }),
        case("REL-047", large, |t| late(t, 0, 0)),
        case("ECN-009", receiving, |t| late(t, 1, 3)),
    ]
}

fn echo() -> Vec<Case> {
    vec![
        case("REL-020", receiving, |t| t.ack_of(1, 2).bytes[22] &= !0x40),
        case("REL-021", receiving, |t| t.ack_of(0, 3).bytes[22] |= 0x40),
        case("REL-022", receiving, |t| t.ack_of(0, 3).put(16, 77)),
        case("REL-024", receiving, |t| {
            t.ack_of(0, 3).bytes[2] |= Flags::RTXE.0
        }),
        case("REL-025", receiving, |t| t.ack_of(0, 3).put16(36, 4)),
        case("ECN-003", receiving, |t| t.ack_of(1, 3).put(24, 0)),
        case("ECN-004", receiving, |t| t.ack_of(0, 0).put(28, 5)),
        case("ECN-005", receiving, |t| {
            let ack = t.ack_of(1, 2);
            ack.put(28, ack.u32(28) + 1);
        }),
        case("ECN-006", receiving, |t| {
            let ack = t.ack_of(1, 1);
            ack.put(28, ack.u32(28) - 1);
        }),
        case("ECN-007", bleached, |t| t.ack_of(0, 0).put(28, 1)),
        case("ECN-008", receiving, |t| t.ack_of(1, 6).put(28, 1)),
    ]
}
