//! Sound traces, each of which exercises many clauses.

use metaroce_conformance::evidence::WorkKind;
use metaroce_conformance::trace::Side;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{Flags, Opcode};

use crate::trace::{MS, RKEY, Trace, US, VA, send, write};

/// Status of work that went well.
pub const OK: &str = "IBV_WC_SUCCESS";

/// The receiver's connection, with a region that the peer may write to and receives for its Sends.
pub fn ready_receiver() -> Trace {
    let mut t = Trace::new(Side::B);
    t.offer();
    for n in 0..4 {
        t.posted(Side::B, 101 + n, WorkKind::Recv, 1024);
    }
    t.connect();
    t.open_stream();
    t.wait(MS);
    t
}

impl Trace {
    /// A region that the peer of the judged side may write to as it likes.
    pub fn offer(&mut self) {
        use metaroce_conformance::evidence::What;
        let what = What::Posted {
            stream: 0,
            wr_id: 0,
            kind: WorkKind::Write,
            len: 0x10000,
            remote: Some((VA, RKEY)),
        };
        self.say(self.me.other(), what);
    }
}

/// Data of one sender on two paths: across the wrap, with a gap, a duplicate, marks and a probe.
pub fn receiving() -> Trace {
    let mut t = ready_receiver();
    // Message 0 on path 0: three packets across the wrap; the second asks for an acknowledgment.
    t.arrive(0, 0, write(0, 700), 0);
    t.wait(100 * US);
    t.reply(0);
    t.wait(50 * US);
    t.arrive(0, 1, write(0, 700), 1);
    t.wait(150 * US);
    t.reply(0);
    t.wait(50 * US);
    t.arrive(0, 2, write(0, 700), 2);
    t.reply(0);
    t.wait(50 * US);
    // Message 1 on path 1, its first packet late: a gap, an early message, the repair.
    t.arrive(1, 1, write(1, 512), 1);
    t.reply(1);
    t.wait(20 * US);
    t.arrive(0, 3, write(2, 100), 0);
    t.reply(0);
    t.wait(20 * US);
    let late = t.data(false, 1, 0, write(1, 512), 0);
    t.arrive_pkt(late.flag(Flags::RTX.with(Flags::AR)));
    t.reply(1);
    t.wait(20 * US);
    // A duplicate of it.
    let again = t.data(false, 1, 0, write(1, 512), 0);
    t.arrive_pkt(again.flag(Flags::RTX));
    t.reply(1);
    t.wait(20 * US);
    // Marks: one CE, one ECT, one bleached.
    for (place, mark) in [(2, Ecn::Ce), (3, Ecn::Ect0), (4, Ecn::NotEct), (5, Ecn::Ce)] {
        let marked = t.data(false, 1, place, write(place as u32 + 1, 80), 0);
        t.arrive_pkt(marked.marked(mark));
        t.reply(1);
        t.wait(20 * US);
    }
    // A Send of two packets, the first asking for nothing.
    t.arrive(0, 4, send(7, 0, 300), 0);
    t.wait(10 * US);
    t.arrive(0, 5, send(7, 0, 300), 1);
    t.reply(0);
    t.completed(101, WorkKind::Recv, OK, 300);
    t.wait(20 * US);
    t.arrive(0, 6, send(8, 1, 0), 0);
    t.reply(0);
    t.completed(102, WorkKind::Recv, OK, 0);
    t.wait(20 * US);
    // Eight packets of one message.
    for piece in 0..8 {
        t.arrive(0, 7 + i64::from(piece), write(9, 256 * 9), piece);
        t.wait(US);
    }
    t.now -= US;
    t.reply(0);
    t.wait(20 * US);
    // Behind a gap, a probe: the answer shows both.
    t.arrive(1, 7, write(10, 512), 1);
    t.reply(1);
    t.wait(20 * US);
    let probe = t.probe_pkt(false, 1, 900, 8);
    t.get(probe.clone());
    let answer = t.answer_pkt(true, &probe, 5, &[1]);
    t.tx(answer);
    t.wait(20 * US);
    let credit = t.transaction();
    let ask = t.credit_pkt(false, credit, false);
    t.get(ask);
    let tell = t.credit_pkt(true, credit, true);
    t.tx(tell);
    t.wait(50 * MS);
    t
}

/// Data of the judged side on two paths: across the wrap, Sends and Writes, a gap and its repair.
pub fn sending() -> Trace {
    let mut t = Trace::new(Side::A);
    for (wr_id, kind, len) in [
        (1, WorkKind::Write, 700),
        (3, WorkKind::Send, 300),
        (5, WorkKind::Write, 0),
        (7, WorkKind::Send, 1),
        (9, WorkKind::Write, 512),
    ] {
        t.posted(Side::A, wr_id, kind, len);
    }
    t.connect();
    t.open_stream();
    t.wait(MS);
    // Message 0: places 0 and 1 of path 0, place 0 of path 1.
    t.send_new(0, write(0, 700), 0);
    t.send_new(1, write(0, 700), 1);
    t.send_new(0, write(0, 700), 2);
    // Message 1, a Send, and an empty Write.
    t.wait(10 * US);
    t.send_new(1, send(1, 0, 300), 0);
    let last = t.send_new(0, send(1, 0, 300), 1);
    let empty = t.send_new(1, write(2, 0), 0);
    t.wait(2 * MS);
    let (a, b) = (t.items[last].pkt.stamp(), t.items[empty].pkt.stamp());
    t.acked(0, 2, &[], a);
    t.acked(1, 2, &[], b);
    t.completed(1, WorkKind::Write, OK, 700);
    t.completed(3, WorkKind::Send, OK, 300);
    t.completed(5, WorkKind::Write, OK, 0);
    // A Send of one byte and a Write; the first packet on path 0 is lost.
    t.wait(10 * US);
    let lost = t.send_new(0, send(3, 1, 1), 0);
    t.send_new(1, write(4, 512), 0);
    t.wait(10 * US);
    let after = t.send_new(0, write(4, 512), 1);
    t.wait(2 * MS);
    let stamp = t.items[after].pkt.stamp();
    t.acked(0, 2, &[1], stamp);
    let again = t.resend(lost);
    t.acked(1, 3, &[], stamp);
    t.wait(2 * MS);
    let stamp = t.items[again].pkt.stamp();
    t.acked(0, 4, &[], stamp);
    t.completed(7, WorkKind::Send, OK, 1);
    t.completed(9, WorkKind::Write, OK, 512);
    t.wait(MS);
    // The end.
    let close = t.transaction();
    let pkt = t.close_pkt(true, close);
    t.tx(pkt);
    t.wait(2 * MS);
    let answer = t.close_ack_pkt(false, close);
    t.get(answer);
    t.wait(50 * MS);
    t
}

/// The judged side asks what has arrived, repairs by the answer, then by timeouts that back off.
pub fn tail() -> Trace {
    let mut t = Trace::ready(Side::A);
    t.posted(Side::A, 1, WorkKind::Write, 512);
    let first = t.send_new(0, write(0, 512), 0);
    t.wait(2 * MS);
    let stamp = t.items[first].pkt.stamp();
    t.acked(0, 0, &[], stamp);
    let lost = t.send_new(0, write(0, 512), 1);
    t.wait(3 * MS);
    let probe = t.probe_pkt(true, 0, 901, 1);
    t.tx(probe.clone());
    t.wait(2 * MS);
    let answer = t.answer_pkt(false, &probe, 0, &[]);
    t.get(answer);
    t.resend(lost);
    t.wait(3 * MS);
    let probe = t.probe_pkt(true, 0, 902, 1);
    t.tx(probe);
    for pause in [20, 40, 80, 160] {
        t.wait(pause * MS);
        t.resend(lost);
    }
    t.wait(2 * MS);
    let stamp = t.items.last().map_or(0, |item| item.pkt.stamp());
    t.acked(0, 1, &[], stamp);
    t.completed(1, WorkKind::Write, OK, 512);
    t.wait(MS);
    t
}

/// A repair that is lost again.
pub fn lost_repair() -> Trace {
    let mut t = Trace::ready(Side::A);
    t.posted(Side::A, 1, WorkKind::Write, 256 * 6);
    let lost = t.send_new(0, write(0, 256 * 6), 0);
    t.wait(US);
    let second = t.send_new(0, write(0, 256 * 6), 1);
    t.wait(2 * MS);
    let stamp = t.items[second].pkt.stamp();
    t.acked(0, -1, &[1], stamp);
    t.resend(lost);
    t.wait(US);
    let third = t.send_new(0, write(0, 256 * 6), 2);
    t.wait(2 * MS);
    let stamp = t.items[third].pkt.stamp();
    t.acked(0, -1, &[1, 2], stamp);
    let again = t.resend(lost);
    t.wait(2 * MS);
    let stamp = t.items[again].pkt.stamp();
    t.acked(0, 2, &[], stamp);
    t.wait(MS);
    t
}

/// Packets that no honest peer sends, and silence after each.
pub fn bad_packets(edit: impl Fn(&mut crate::trace::Pkt)) -> Trace {
    let mut t = ready_receiver();
    t.arrive(0, 0, write(0, 256 * 3), 0);
    t.wait(100 * US);
    t.reply(0);
    t.wait(10 * US);
    let bad = t.data(false, 0, 1, write(0, 256 * 3), 1).with(edit);
    t.get(bad);
    t.wait(MS);
    t.arrive(0, 2, write(0, 256 * 3), 2);
    t.reply(0);
    t.wait(50 * MS);
    t
}

/// A handshake seen by the acceptor, with every part of it repeated once.
pub fn accepting() -> Trace {
    let mut t = Trace::new(Side::B);
    t.offer();
    let open = t.open_pkt(false, 11);
    t.get(open.clone());
    let accept = t.accept_pkt(true, 11);
    t.tx(accept.clone());
    t.wait(50 * MS);
    t.get(open);
    t.tx(accept);
    t.wait(2 * MS);
    let confirm = t.confirm_pkt(false, 12);
    t.get(confirm.clone());
    let answer = t.confirm_ack_pkt(true, 12);
    t.tx(answer.clone());
    t.wait(50 * MS);
    t.get(confirm);
    t.tx(answer);
    t.wait(2 * MS);
    let stream = t.stream_open_pkt(false, 13, 0);
    t.get(stream.clone());
    let answer = t.stream_ack_pkt(true, 13, 0);
    t.tx(answer.clone());
    t.wait(50 * MS);
    t.get(stream);
    t.tx(answer);
    t.wait(MS);
    let own = t.stream_open_pkt(true, 14, 1);
    t.tx(own);
    t.wait(2 * MS);
    let answer = t.stream_ack_pkt(false, 14, 1);
    t.get(answer);
    t.wait(MS);
    let data = t.data(true, 0, 0, write(0, 10), 0);
    let stamp = data.stamp();
    t.tx(data);
    t.wait(2 * MS);
    t.acked(0, 0, &[], stamp);
    let close = t.close_pkt(false, 15);
    t.get(close.clone());
    let answer = t.close_ack_pkt(true, 15);
    t.tx(answer.clone());
    t.wait(50 * MS);
    t.get(close);
    t.tx(answer);
    t.wait(50 * MS);
    t
}

/// OPENs that are refused, and a cookie that does not fit.
pub fn refusing() -> Trace {
    use metaroce_wire::metaroce::{Body, Reject};
    let mut t = Trace::new(Side::B);
    let reject = |t: &mut Trace, transaction, reason, nonce| {
        let body = Reject {
            reason,
            ver_min: 1,
            ver_max: 1,
            rsvd: 0,
            nonce,
            detail: 0,
        };
        let pkt = t.control(true, Opcode::REJECT, transaction, Body::Reject(body));
        t.tx(pkt);
    };
    let nonce = t.theirs.nonce;
    // Versions 2 to 3.
    let open = t.open_pkt(false, 21);
    t.get(open.with(|pkt| pkt.put16(16, 0x0203)));
    reject(&mut t, 21, 1, nonce);
    t.wait(MS);
    // A service that is not offered.
    let open = t.open_pkt(false, 22);
    t.get(open.with(|pkt| pkt.put(36, 99)));
    reject(&mut t, 22, 2, nonce);
    t.wait(MS);
    // A cookie with a flipped bit.
    let open = t.open_pkt(false, 23);
    t.get(open);
    let accept = t.accept_pkt(true, 23);
    t.tx(accept);
    t.wait(2 * MS);
    let confirm = t.confirm_pkt(false, 24);
    t.get(confirm.with(|pkt| pkt.bytes[172] ^= 1));
    reject(&mut t, 24, 5, nonce);
    t.wait(30 * MS);
    t.connect();
    t.wait(50 * MS);
    t
}

/// Data in messages of eight packets, each acknowledged: as many data packets as asked for, on two paths.
pub fn long(packets: u32) -> Trace {
    let mut t = ready_receiver();
    let mut places = [0i64; 2];
    for n in 0..packets {
        let path = (n / 8 % 2) as u8;
        let place = &mut places[usize::from(path)];
        let message = write(n / 8 % 8 + n / 64 * 8, 256 * 8);
        let mut pkt = t.data(false, path, *place, message, n % 8);
        // The region has room for a few messages: they go to the same places again and again.
        pkt.put(36, VA as u32 + (n / 8 % 8) * 0x1000);
        t.arrive_pkt(pkt);
        *place += 1;
        if n % 8 == 7 {
            t.reply(path);
        }
        t.wait(US);
    }
    t.wait(MS);
    t
}
