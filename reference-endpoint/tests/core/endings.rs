//! Streams and connections that end while something else is under way: what is said last, to whom, and in which order.

use std::net::SocketAddr;

use metaroce_endpoint::core::{
    Access, Data, Ecn, Event, Features, Op, Region, Remote, Service, Status, StreamConfig, Work,
    WorkKind,
};
use metaroce_wire::crc::{PseudoHeader, seal};
use metaroce_wire::metaroce::Opcode;

use crate::link::{Link, bytes};

const MS: u64 = 1_000_000;

fn service(paths: u16, streams: u16) -> Service {
    Service {
        features: Features::RESET,
        read_depth: 1,
        ..Link::service(paths, streams, None)
    }
}

fn link(service: Service) -> Link {
    let mut link = Link::new(1, 0);
    link.watch.on = false;
    link.establish_with(service);
    link
}

fn sent(link: &Link, end: usize, opcode: Opcode) -> usize {
    let all = link.sent.iter();
    all.filter(|(_, from, bytes)| *from == end && bytes[1] == opcode.0)
        .count()
}

/// Hands bytes that the other end has sent before to `end` once more.
fn again(link: &mut Link, end: usize, mut bytes: Vec<u8>) {
    let from = SocketAddr::new(link.addresses[1 - end].ip(), 50_000);
    let pseudo = PseudoHeader::new(from.ip(), link.addresses[end]);
    seal(&pseudo, &mut bytes).unwrap();
    link.ends[end].handle_datagram(link.now, from, Ecn::NotEct, &bytes);
    link.drain();
}

fn readable(link: &mut Link, end: usize, len: usize) -> Region {
    let access = Access {
        remote_read: true,
        ..Access::default()
    };
    link.ends[end].register(len, access).unwrap()
}

fn read(link: &mut Link, stream: u16, wr_id: u64, from: Region) {
    let len = 100;
    let buffer = link.source(0, &vec![0; len]);
    let remote = Remote {
        va: from.va,
        rkey: from.rkey,
    };
    let work = Work::new(wr_id, Op::Read(remote), Data::Buffer(buffer));
    link.ends[0].post(link.now, 0, stream, work).unwrap();
}

/// REL-030, REL-042: a Read that had arrived ahead of a lost Write was refused late. Its packet then counted as held, was
/// sent again when the stream had been reset, and the path asked for nothing any more.
#[test]
fn a_request_that_has_arrived_and_is_refused_is_not_sent_again() {
    let mut link = link(service(1, 2));
    let (source, target) = (link.source(0, &bytes(1, 100)), link.target(1, 100));
    let region = readable(&mut link, 1, 100);
    let mut left = 1;
    link.drop_when(move |from, packet| {
        let hit = from == 0 && packet.cbh.opcode == Opcode::WRITE && left > 0;
        left -= i32::from(hit);
        hit
    });
    link.write(0, 1, source, target);
    read(&mut link, 0, 2, region);
    link.pass(MS);
    link.ends[1].deregister(region.mr).unwrap();
    link.run(|link| {
        let ended = |e: &Event| matches!(e, Event::StreamEnded { stream: 0, .. });
        link.events.iter().all(|events| events.iter().any(ended))
    });
    assert_eq!(link.statuses(0)[1], Status::RemAccessErr);
    // The path still repairs what is lost on it.
    let buffer = link.source(0, &bytes(2, 100));
    let target = link.target(1, 100);
    let mut left = 1;
    link.drop_when(move |from, packet| {
        let hit = from == 0 && packet.cbh.opcode == Opcode::WRITE && left > 0;
        left -= i32::from(hit);
        hit
    });
    link.ends[0]
        .post_write(link.now, 0, 2, 3, buffer, target.va, target.rkey)
        .unwrap();
    link.run(|link| link.statuses(0).len() == 3);
    assert_eq!(sent(&link, 0, Opcode::FILL), 0);
}

/// CONN-047: what is under way on a stream that is being reset is so until it has been.
#[test]
fn a_connection_is_closed_when_its_streams_have_been_reset() {
    let mut link = link(service(1, 2));
    let (source, target) = (link.source(0, &bytes(1, 100)), link.target(1, 100));
    link.drop_when(|from, packet| from == 1 && packet.cbh.opcode == Opcode::ACK);
    link.write(0, 1, source, target);
    link.pass(MS / 10);
    link.ends[0].reset_stream(link.now, 0, 0).unwrap();
    link.ends[0].close(link.now, 0).unwrap();
    link.drain();
    assert_eq!(sent(&link, 0, Opcode::STREAM_RESET), 1);
    assert_eq!(sent(&link, 0, Opcode::CLOSE), 0);
    let closed = |e: &Event| matches!(e, Event::Closed { .. });
    link.run(|link| link.events[0].iter().any(closed));
}

/// OPS-013: the peer holds a Read until it has reset the stream, and takes no other one in its place before.
#[test]
fn the_place_of_a_read_is_free_when_its_stream_has_been_reset() {
    let mut link = link(service(1, 2));
    let region = readable(&mut link, 1, 100);
    link.drop_when(|from, packet| {
        from == 1 && packet.cbh.opcode == Opcode::READ_RESP
            || from == 0 && packet.cbh.opcode == Opcode::STREAM_RESET
    });
    read(&mut link, 0, 1, region);
    read(&mut link, 2, 2, region);
    link.pass(MS);
    link.ends[0].reset_stream(link.now, 0, 0).unwrap();
    link.pass(40 * MS);
    assert_eq!(sent(&link, 0, Opcode::READ_REQ), 1);
    link.drop_when(|_, _| false);
    link.run(|link| link.statuses(0).len() == 2);
    assert_eq!(link.statuses(0), [Status::WrFlushErr, Status::Success]);
}

/// CLOSE follows when a stream that the peer has never answered for has been given up.
#[test]
fn a_stream_that_stays_unanswered_holds_up_no_close() {
    let mut link = link(service(1, 2));
    link.ends[0].reset_stream(link.now, 0, 2).unwrap();
    link.pass(7_000 * MS);
    link.drop_when(|from, packet| from == 0 && packet.cbh.opcode == Opcode::STREAM_OPEN);
    let stream = link.ends[0].open_stream(link.now, 0, StreamConfig::default());
    let (source, target) = (link.source(0, &bytes(1, 100)), link.target(1, 100));
    link.ends[0]
        .post_write(
            link.now,
            0,
            stream.unwrap(),
            1,
            source,
            target.va,
            target.rkey,
        )
        .unwrap();
    link.ends[0].close(link.now, 0).unwrap();
    let closed = |e: &Event| matches!(e, Event::Closed { reason: 0, .. });
    link.run(|link| link.events[0].iter().any(closed));
    assert_eq!(link.statuses(0), [Status::WrFlushErr]);
}

/// CONN-018: whoever has lost the answer to its CONFIRM gets another, although no service is offered any more.
#[test]
fn a_repeated_confirm_is_answered_when_nothing_is_offered_any_more() {
    let mut link = Link::new(1, 0);
    let service = service(1, 1);
    link.ends[1].listen(service).unwrap();
    let to = link.addresses[1];
    link.ends[0].connect(link.now, to, service).unwrap();
    let mut left = 1;
    link.drop_when(move |_, packet| {
        let hit = packet.cbh.opcode == Opcode::CONFIRM_ACK && left > 0;
        left -= i32::from(hit);
        hit
    });
    link.run(|link| sent(link, 1, Opcode::CONFIRM_ACK) == 1);
    link.ends[1].stop_listening();
    let up = |e: &Event| matches!(e, Event::Established { .. });
    link.run(|link| link.events[0].iter().any(up));
}

/// A first stream that the peer has opened and reset, while its answer was lost, is waited for no longer.
#[test]
fn a_connection_is_established_although_a_first_stream_was_reset_at_once() {
    let mut link = Link::new(1, 0);
    link.watch.on = false;
    let service = service(1, 2);
    link.ends[1].listen(service).unwrap();
    let to = link.addresses[1];
    link.ends[0].connect(link.now, to, service).unwrap();
    link.drop_when(|_, packet| packet.cbh.opcode == Opcode::STREAM_OPEN_ACK);
    let up = |e: &Event| matches!(e, Event::Established { .. });
    link.run(|link| link.events[1].iter().any(up));
    for stream in [0, 2] {
        link.ends[1].reset_stream(link.now, 0, stream).unwrap();
    }
    link.run(|link| link.events[0].iter().any(up));
}

/// STRM-037: also what was never begun, and behind what has been where the peer gives up.
#[test]
fn work_is_flushed_in_the_order_of_posting_after_the_close_of_the_peer() {
    for error in [false, true] {
        let mut link = link(service(1, 3));
        link.drop_when(|from, packet| from == 0 && packet.cbh.opcode.is_data());
        let long = link.source(0, &bytes(1, 20 * 1024));
        let short = link.source(0, &bytes(2, 3_000));
        let target = link.target(1, 20 * 1024);
        let write = |link: &mut Link, stream: u16, wr_id: u64, buffer| {
            let (now, end) = (link.now, &mut link.ends[0]);
            end.post_write(now, 0, stream, wr_id, buffer, target.va, target.rkey)
                .unwrap();
        };
        write(&mut link, 4, 1, long);
        link.drain();
        // All that the window allows is in flight: these wait.
        for wr_id in 2..40 {
            write(&mut link, [2, 0, 4][wr_id as usize % 3], wr_id, short);
        }
        if error {
            link.ends[1].abort(link.now, 0).unwrap();
        } else {
            link.ends[1].close(link.now, 0).unwrap();
        }
        link.pass(2 * MS);
        let flushed = |c: &&(u16, u64, WorkKind, Status)| c.3 == Status::WrFlushErr;
        let all = link.completions(0);
        let order: Vec<u64> = all.iter().filter(flushed).map(|c| c.1).collect();
        assert!(order.len() > 10 && order.is_sorted(), "{error}: {order:?}");
    }
}

/// CONN-030: a connection that is over says nothing but that.
#[test]
fn nothing_is_acknowledged_after_the_end() {
    let mut link = link(service(1, 1));
    let (source, target) = (link.source(0, &bytes(1, 3_000)), link.target(1, 3_000));
    link.drop_when(|from, packet| {
        let last = packet.body.msgh().is_some_and(|msgh| msgh.offset >= 1024);
        from == 0 && last
    });
    link.write(0, 1, source, target);
    link.pass(MS);
    link.ends[0].abort(link.now, 0).unwrap();
    let acks = |link: &Link| sent(link, 1, Opcode::ACK);
    let closed = |e: &Event| matches!(e, Event::Closed { .. });
    link.run(|link| link.events[1].iter().any(closed));
    let before = acks(&link);
    link.pass(10 * MS);
    assert_eq!(acks(&link), before);
}

/// ERR-024, and no more answers wait than 1024 however fast questions come.
#[test]
fn questions_that_come_too_fast_draw_no_heap_of_answers() {
    let mut link = link(service(1, 1));
    let open = link.sent.iter().find(|(_, _, b)| b[1] == Opcode::OPEN.0);
    let open = open.unwrap().2.clone();
    let reset = {
        link.ends[0].reset_stream(link.now, 0, 0).unwrap();
        link.drain();
        let sent = link.sent.iter().rev();
        sent.map(|(_, _, b)| b.clone())
            .find(|b| b[1] == Opcode::STREAM_RESET.0)
            .unwrap()
    };
    let from = SocketAddr::new(link.addresses[0].ip(), 50_000);
    for packet in [open, reset] {
        let before = link.counters(1).unanswered;
        for _ in 0..3_000 {
            link.ends[1].handle_datagram(link.now, from, Ecn::NotEct, &packet);
        }
        let mut answers = 0;
        let mut out = Vec::new();
        while link.ends[1].poll_transmit(link.now, &mut out).is_some() {
            answers += 1;
        }
        assert_eq!(answers, 1024);
        assert_eq!(link.counters(1).unanswered - before, 3_000 - 1024);
    }
}

/// An answer that nobody waits for is dropped and counted (ERR-024).
#[test]
fn answers_that_nobody_waits_for_are_counted() {
    let mut link = link(service(1, 1));
    for opcode in [Opcode::ACCEPT, Opcode::CONFIRM_ACK, Opcode::STREAM_OPEN_ACK] {
        let known = link.sent.iter().find(|(_, _, b)| b[1] == opcode.0);
        let bytes = known.unwrap().2.clone();
        let before = link.counters(0).stray;
        again(&mut link, 0, bytes);
        assert_eq!(link.counters(0).stray, before + 1, "{opcode:?}");
    }
}
