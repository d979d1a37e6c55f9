//! Paths: how they are used.

use metaroce_conformance::evidence::WorkKind;
use metaroce_conformance::trace::Side;
use metaroce_wire::metaroce::Opcode;

use crate::scenes::{OK, sending};
use crate::trace::{MS, Trace, US, write};
use crate::{Case, case};

/// Thirty-two packets and two more, on the paths that `spread` tells, each acknowledged in time.
fn spray(spread: fn(u32) -> u8) -> Trace {
    let mut t = Trace::ready(Side::A);
    let mut sent = [-1i64; 2];
    for piece in 0..34 {
        let path = spread(piece);
        let last = t.send_new(path, write(0, 256 * 40), piece);
        sent[usize::from(path)] += 1;
        if piece % 8 == 7 {
            t.wait(MS);
            let stamp = t.items[last].pkt.stamp();
            for path in [0, 1] {
                if sent[usize::from(path)] >= 0 {
                    t.acked(path, sent[usize::from(path)], &[], stamp);
                }
            }
        }
        t.wait(US);
    }
    t.wait(MS);
    t
}

fn alternate() -> Trace {
    spray(|piece| (piece % 2) as u8)
}

/// The first window of a path, before anything is heard of it.
fn first_window(packets: u32) -> Trace {
    let mut t = Trace::ready(Side::A);
    for piece in 0..packets {
        t.send_new(0, write(0, 256 * 40), piece);
        t.wait(US);
    }
    t.wait(MS);
    t
}

/// Path 1 is silent; path 0 goes on as far as `more` tells.
fn silent(more: u32) -> Trace {
    let mut t = Trace::ready(Side::A);
    t.posted(Side::A, 1, WorkKind::Write, 256 * 40);
    let message = write(0, 256 * 40);
    let lost = t.send_new(1, message, 0);
    t.wait(US);
    for (place, piece) in (0..).zip(1..=30 + more) {
        let sent = t.send_new(0, message, piece);
        t.wait(4 * MS);
        let stamp = t.items[sent].pkt.stamp();
        t.acked(0, place, &[], stamp);
        if piece == 11 {
            let probe = t.probe_pkt(true, 1, 901, 0);
            t.tx(probe);
        }
        if piece == 26 {
            t.resend(lost);
        }
    }
    for _ in 0..10 {
        t.wait(10 * MS);
        let credit = t.credit_pkt(false, 77, true);
        t.get(credit);
    }
    t
}

/// A path on which nothing gets through, until the work fails.
fn failed() -> Trace {
    let mut t = Trace::ready(Side::A);
    t.posted(Side::A, 1, WorkKind::Write, 10);
    t.posted(Side::A, 3, WorkKind::Write, 10);
    let lost = t.send_new(0, write(0, 10), 0);
    t.wait(50 * MS);
    let probe = t.probe_pkt(true, 0, 901, 0);
    t.tx(probe);
    t.wait(50 * MS);
    t.resend(lost);
    t.wait(200 * MS);
    t.completed(1, WorkKind::Write, "IBV_WC_RETRY_EXC_ERR", 0);
    t.completed(3, WorkKind::Write, "IBV_WC_WR_FLUSH_ERR", 0);
    t
}

pub fn cases() -> Vec<Case> {
    vec![
        case("PATH-001", sending, |t| {
            t.find(true, Opcode::WRITE).bytes[3] = 9
        }),
        case("PATH-002", sending, |t| {
            for item in t.items.iter_mut().filter(|item| item.sent) {
                item.pkt.port = 50_000;
            }
        }),
        case("PATH-005", alternate, |t| *t = spray(|_| 0)),
        case("PATH-006", alternate, |t| {
            *t = spray(|piece| u8::from(piece < 8))
        }),
        case("PATH-009", || silent(9), |t| *t = silent(0)),
        case("PATH-010", || first_window(16), |t| *t = first_window(17)),
        case("PATH-011", failed, |t| {
            use metaroce_conformance::evidence::What;
            if let What::Completed { status, .. } = &mut t.completion(0).what {
                *status = OK.replace("SUCCESS", "WR_FLUSH_ERR");
            }
        }),
    ]
}
