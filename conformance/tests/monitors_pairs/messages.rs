//! Streams, messages, completions and placement.

use metaroce_conformance::evidence::{MemoryPart, What, WorkKind};
use metaroce_conformance::trace::Side;
use metaroce_wire::metaroce::{Flags, NakCode, Opcode};
use sha2::{Digest, Sha256};

use crate::formats::{acknowledge_bad, look_otherwise, refused};
use crate::scenes::{OK, accepting, bad_packets, ready_receiver, receiving, sending};
use crate::trace::{FIRST_RQSN, MS, RKEY, Trace, US, VA, send, write};
use crate::{Case, case};

/// As many messages under way as the window allows.
fn full_window() -> Trace {
    let mut t = Trace::ready(Side::A);
    let mut last = 0;
    for n in 0..4 {
        last = t.send_new(0, write(n, 10), 0);
        t.wait(US);
    }
    t.wait(2 * MS);
    let stamp = t.items[last].pkt.stamp();
    t.acked(0, 3, &[], stamp);
    t.wait(MS);
    t
}

/// A Send without credit: the judged side asks, and is told.
fn starved() -> Trace {
    let mut t = Trace::new(Side::A);
    t.posted(Side::A, 1, WorkKind::Send, 10);
    t.limit = FIRST_RQSN;
    t.connect();
    t.open_stream();
    t.wait(10 * MS);
    let ask = t.credit_pkt(true, 31, false);
    t.tx(ask);
    t.wait(1500 * MS);
    t.limit = FIRST_RQSN.wrapping_add(1);
    let tell = t.credit_pkt(false, 31, true);
    t.get(tell);
    let last = t.send_new(0, send(0, 0, 10), 0);
    t.wait(2 * MS);
    let stamp = t.items[last].pkt.stamp();
    t.acked(0, 0, &[], stamp);
    t.wait(MS);
    t
}

/// A Send longer than its receive, refused.
fn too_long() -> Trace {
    let mut t = ready_receiver();
    let bad = t.data(false, 0, 0, send(0, 0, 2000), 0);
    t.get(bad.clone());
    let nak = t.nak_pkt(true, &bad, NakCode::LENGTH, 0);
    t.tx(nak);
    t.wait(50 * MS);
    t
}

/// The peer refuses the judged side's work.
fn refused_by_peer(code: NakCode, status: &str) -> Trace {
    let mut t = Trace::new(Side::A);
    for wr_id in [1, 3, 5] {
        t.posted(Side::A, wr_id, WorkKind::Write, 10);
    }
    t.connect();
    t.open_stream();
    let mut first = t.data(true, 0, 0, write(0, 10), 0);
    for n in 0..3 {
        let at = t.send_new(0, write(n, 10), 0);
        if n == 0 {
            first = t.items[at].pkt.clone();
        }
        t.wait(US);
    }
    t.wait(2 * MS);
    let nak = t.nak_pkt(false, &first, code, 0);
    t.get(nak);
    t.wait(US);
    t.completed(1, WorkKind::Write, status, 0);
    t.completed(3, WorkKind::Write, "IBV_WC_WR_FLUSH_ERR", 0);
    t.completed(5, WorkKind::Write, "IBV_WC_WR_FLUSH_ERR", 0);
    t.wait(50 * MS);
    t
}

fn access_refused() -> Trace {
    refused_by_peer(NakCode::REM_ACCESS, "IBV_WC_REM_ACCESS_ERR")
}

fn length_refused() -> Trace {
    refused_by_peer(NakCode::LENGTH, "IBV_WC_REM_INV_REQ_ERR")
}

/// A Write and a Send of the peer, and looks into the memory that they went to.
fn looked_at() -> Trace {
    let mut t = Trace::new(Side::B);
    t.posted(Side::A, 1, WorkKind::Write, 100);
    t.posted(Side::A, 3, WorkKind::Send, 100);
    t.posted(Side::B, 101, WorkKind::Recv, 1024);
    t.connect();
    t.open_stream();
    t.wait(MS);
    t.arrive(0, 0, write(0, 100), 0);
    t.reply(0);
    t.wait(US);
    t.arrive(0, 1, send(1, 0, 100), 0);
    t.reply(0);
    t.wait(MS);
    for (wr_id, part) in [
        (1, MemoryPart::Inside),
        (1, MemoryPart::Outside),
        (101, MemoryPart::Inside),
    ] {
        t.memory(wr_id, part, "aa", "aa");
    }
    t
}

/// Makes one look, given by work and part, find something else.
fn look(t: &mut Trace, work: u64, which: MemoryPart, found: &str) {
    for event in &mut t.events {
        if let What::Memory {
            wr_id, part, seen, ..
        } = &mut event.what
            && (*wr_id, *part) == (work, which)
        {
            *seen = found.into();
        }
    }
}

/// A Write of which a packet comes twice, and a look at its memory.
fn duplicated() -> Trace {
    let mut t = Trace::new(Side::B);
    t.posted(Side::A, 1, WorkKind::Write, 100);
    t.connect();
    t.open_stream();
    t.wait(MS);
    t.arrive(0, 0, write(0, 100), 0);
    t.reply(0);
    t.wait(US);
    // Newer data to the same place.
    let newer = t.data(false, 0, 1, write(1, 100), 0);
    // The low word of the address.
    t.arrive_pkt(newer.with(|pkt| pkt.put(36, VA as u32)));
    t.reply(0);
    t.wait(US);
    let again = t.data(false, 0, 0, write(0, 100), 0);
    t.arrive_pkt(again.flag(Flags::RTX));
    t.reply(0);
    t.wait(MS);
    t.memory(1, MemoryPart::Inside, "aa", "aa");
    // All that a tester writes to, under an id that no work has.
    t.memory(0, MemoryPart::Inside, "aa", "aa");
    t
}

fn fill() -> String {
    let digest = Sha256::digest([0xee; 64]);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn set_status(t: &mut Trace, n: usize, to: &str) {
    if let What::Completed { status, .. } = &mut t.completion(n).what {
        *status = to.into();
    }
}

fn swap_completions(t: &mut Trace, a: u64, b: u64) {
    for event in &mut t.events {
        if let What::Completed { wr_id, .. } = &mut event.what {
            *wr_id = match *wr_id {
                id if id == a => b,
                id if id == b => a,
                id => id,
            };
        }
    }
}

pub fn cases() -> Vec<Case> {
    let mut all = streams();
    all.extend(cut());
    all.extend(completions());
    all.extend(placement());
    all
}

fn streams() -> Vec<Case> {
    vec![
        case("STRM-001", sending, |t| {
            t.find(true, Opcode::STREAM_OPEN).put16(16, 1)
        }),
        case("STRM-002", accepting, |t| {
            t.find(true, Opcode::STREAM_OPEN_ACK).put16(24, 5)
        }),
        case("STRM-003", sending, |t| {
            t.remove(false, Opcode::STREAM_OPEN_ACK, 0)
        }),
        case(
            "STRM-004",
            || bad_packets(|pkt| pkt.put16(16, 8)),
            acknowledge_bad,
        ),
        case("STRM-010", sending, |t| {
            for item in t.items.iter_mut().filter(|item| !item.sent) {
                match item.pkt.opcode() {
                    Opcode::STREAM_OPEN_ACK => item.pkt.put16(26, FIRST_RQSN),
                    opcode if opcode.is_ack() => item.pkt.put16(38, FIRST_RQSN),
                    _ => {}
                }
            }
        }),
        case("STRM-011", full_window, |t| {
            let fifth = t.data(true, 0, 4, write(4, 10), 0);
            let at = t.index(false, Opcode::ACK, 0);
            t.insert(at, true, MS, fifth);
        }),
        case("STRM-029", receiving, |t| {
            t.remove(true, Opcode::RQ_CREDIT, 0)
        }),
        case("STRM-030", starved, |t| {
            t.remove(true, Opcode::RQ_CREDIT, 0)
        }),
        case("STRM-031", receiving, |t| {
            t.nth(true, Opcode::ACK, 3).put16(38, FIRST_RQSN)
        }),
        case("STRM-033", refused, |t| {
            let last = t.items[t.items.len() - 2].pkt.stamp();
            let ack = t.ack(true, 0, 1, &[], last);
            t.tx(ack);
        }),
        case("STRM-034", refused, |t| {
            t.find(true, Opcode::NAK).bytes[16] = NakCode::LENGTH.0
        }),
        case("STRM-035", too_long, |t| t.remove(true, Opcode::NAK, 0)),
    ]
}

fn cut() -> Vec<Case> {
    vec![
        case("STRM-005", sending, |t| {
            t.find(true, Opcode::WRITE).bytes[23] = 4
        }),
        case("STRM-006", sending, |t| {
            t.find(true, Opcode::SEND).bytes[23] = 7
        }),
        case("STRM-007", sending, |t| {
            t.find(true, Opcode::SEND).put16(18, 3)
        }),
        case("STRM-008", sending, |t| {
            t.find(true, Opcode::WRITE).put16(18, 5)
        }),
        case("STRM-009", sending, |t| {
            t.nth(true, Opcode::WRITE, 1).put(40, RKEY + 1)
        }),
        case("STRM-012", sending, |t| {
            t.find(true, Opcode::WRITE).put(28, 0x8000_0001)
        }),
        case("STRM-013", sending, |t| {
            t.nth(true, Opcode::WRITE, 1).put(24, 100)
        }),
        case("STRM-014", sending, |t| {
            t.find(true, Opcode::WRITE).bytes.drain(48..52);
        }),
        case("STRM-015", sending, |t| {
            t.nth(true, Opcode::WRITE, 1).bytes[20] |= 0x80
        }),
        case("STRM-016", sending, |t| {
            t.nth(true, Opcode::WRITE, 1).bytes[20] |= 0x40
        }),
        case("STRM-017", sending, |t| t.remove(true, Opcode::SEND, 1)),
        case("STRM-018", sending, |t| {
            let empty = t.sent_where(|pkt| pkt.opcode().is_data() && pkt.u32(28) == 0);
            empty.bytes[20] = 0x80;
        }),
    ]
}

fn completions() -> Vec<Case> {
    vec![
        case("STRM-024", receiving, |t| swap_completions(t, 101, 102)),
        case("STRM-025", receiving, |t| t.completion(0).t_ns -= 5 * US),
        case("STRM-026", receiving, |t| {
            if let What::Completed { byte_len, .. } = &mut t.completion(0).what {
                *byte_len = 299;
            }
        }),
        case("STRM-027", sending, |t| t.completion(0).t_ns -= MS),
        case("STRM-028", sending, |t| swap_completions(t, 1, 3)),
        case("STRM-036", access_refused, |t| {
            set_status(t, 0, "IBV_WC_WR_FLUSH_ERR")
        }),
        case("STRM-037", access_refused, |t| set_status(t, 1, OK)),
        case("STRM-038", length_refused, |t| {
            set_status(t, 0, "IBV_WC_REM_ACCESS_ERR")
        }),
    ]
}

fn placement() -> Vec<Case> {
    vec![
        case("STRM-019", looked_at, |t| {
            look(t, 1, MemoryPart::Inside, "bb")
        }),
        case("STRM-020", looked_at, |t| {
            look(t, 101, MemoryPart::Inside, "bb")
        }),
        case("STRM-021", looked_at, |t| {
            look(t, 1, MemoryPart::Outside, "bb")
        }),
        case("STRM-022", looked_at, |t| {
            look(t, 1, MemoryPart::Inside, &fill())
        }),
        case("STRM-032", refused, look_otherwise),
        case("REL-006", duplicated, |t| {
            look(t, 0, MemoryPart::Inside, "bb")
        }),
    ]
}
