//! Set-up and close, with every packet of them lost once, repeated, or coming from the wrong place.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use metaroce_endpoint::core::{Buffer, Ecn, Event, Misuse, Service, Status, WorkKind};
use metaroce_wire::crc::{PseudoHeader, seal};
use metaroce_wire::metaroce::{Body, Opcode, Packet, Reject, RejectReason, parse_unsealed};

use crate::link::{Link, bytes};

const MS: u64 = 1_000_000;

fn closed(event: &Event) -> bool {
    matches!(event, Event::Closed { reason: 0, .. })
}

fn count(link: &Link, from: usize, opcode: Opcode) -> usize {
    let all = link.sent.iter();
    all.filter(|(_, end, bytes)| *end == from && bytes[1] == opcode.0)
        .count()
}

/// Every packet of `end` with that opcode.
fn all(link: &Link, end: usize, opcode: Opcode) -> Vec<Vec<u8>> {
    let all = link.sent.iter();
    all.filter(|(_, from, bytes)| *from == end && bytes[1] == opcode.0)
        .map(|(_, _, bytes)| bytes.clone())
        .collect()
}

#[test]
fn every_packet_of_the_set_up_may_be_lost() {
    let opcodes = [
        Opcode::OPEN,
        Opcode::ACCEPT,
        Opcode::CONFIRM,
        Opcode::CONFIRM_ACK,
        Opcode::STREAM_OPEN,
        Opcode::STREAM_OPEN_ACK,
        Opcode::CLOSE,
        Opcode::CLOSE_ACK,
    ];
    for opcode in opcodes {
        for times in [1, 3] {
            let mut link = Link::new(1, 0);
            let mut left = times;
            link.drop_when(move |_, packet| {
                let hit = packet.cbh.opcode == opcode && left > 0;
                left -= i32::from(hit);
                hit
            });
            link.establish(2, 2, None);
            link.write_and_check(0, 1, 5_000);
            link.write_and_check(1, 2, 5_000);
            link.ends[1].close(link.now, 0).unwrap();
            link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
            assert!(count(&link, 0, opcode) + count(&link, 1, opcode) > times as usize);
            for end in [0, 1] {
                let up = |e: &&Event| matches!(e, Event::Established { .. });
                assert_eq!(link.events[end].iter().filter(up).count(), 1);
                assert_eq!(link.events[end].iter().filter(|e| closed(e)).count(), 1);
                let requests = all(&link, end, opcode);
                assert!(
                    opcode.0 == 0x61
                        || opcode == Opcode::STREAM_OPEN
                        || opcode == Opcode::STREAM_OPEN_ACK
                        || requests
                            .windows(2)
                            .all(|pair| pair[0][16..pair[0].len() - 4]
                                == pair[1][16..pair[1].len() - 4]),
                    "CONN-022, CONN-025: {opcode:?}"
                );
            }
        }
    }
}

#[test]
fn a_request_backs_off_and_gives_up() {
    let mut link = Link::new(2, 0);
    link.drop_when(|_, _| true);
    let service = Link::service(1, 1, None);
    link.ends[0]
        .connect(link.now, link.addresses[1], service)
        .unwrap();
    link.run(|link| !link.events[0].is_empty());
    assert!(matches!(
        link.events[0][0],
        Event::Failed {
            status: Status::RetryExcErr,
            ..
        }
    ));
    let at: Vec<u64> = link.sent.iter().map(|(at, ..)| *at).collect();
    let pauses: Vec<u64> = at.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect();
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200]);
    let first = &link.sent[0].2;
    for (at, _, bytes) in &link.sent {
        let end = bytes.len() - 4;
        assert_eq!(bytes[16..end], first[16..end], "CONN-022");
        assert_eq!(bytes[12..16], (*at as u32).to_be_bytes(), "time of sending");
    }
}

#[test]
fn both_sides_agree_on_the_smaller_values() {
    let mut link = Link::new(3, 0);
    let offered = Service {
        service_id: 9,
        paths: 7,
        streams: 5,
        first_streams: 5,
        payload_size: 8192,
        msg_window: 100,
        ..Service::default()
    };
    let provided = Service {
        paths: 3,
        streams: 8,
        payload_size: 512,
        msg_window: 200,
        ..offered
    };
    link.ends[1].listen(provided).unwrap();
    link.ends[0]
        .connect(link.now, link.addresses[1], offered)
        .unwrap();
    link.run(|link| link.events.iter().all(|events| !events.is_empty()));
    let established = Event::Established {
        conn: 0,
        paths: 3,
        streams: 5,
    };
    assert!(
        link.events
            .iter()
            .all(|events| *events == [established.clone()])
    );
    link.write_and_check(0, 1, 3_000);
    assert_eq!(all(&link, 0, Opcode::WRITE).len(), 6);
}

/// Refuses an OPEN by its `service`; returns the refusal.
fn refusal(change: impl Fn(&mut Vec<u8>)) -> Reject {
    let mut link = Link::new(4, 0);
    link.ends[1].listen(Link::service(1, 1, None)).unwrap();
    let mut other = Link::new(5, 0);
    let service = Link::service(1, 1, None);
    other.ends[0]
        .connect(other.now, other.addresses[1], service)
        .unwrap();
    let mut open = Vec::new();
    other.ends[0].poll_transmit(other.now, &mut open).unwrap();
    change(&mut open);
    let pseudo = PseudoHeader::new(link.addresses[0].ip(), link.addresses[1]);
    seal(&pseudo, &mut open).unwrap();
    let from = SocketAddr::new(link.addresses[0].ip(), 50000);
    link.ends[1].handle_datagram(link.now, from, Ecn::NotEct, &open);
    let mut out = Vec::new();
    link.ends[1].poll_transmit(link.now, &mut out).unwrap();
    assert!(out.len() <= open.len(), "CONN-006");
    let (asked, answer) = (
        parse_unsealed(&open).unwrap(),
        parse_unsealed(&out).unwrap(),
    );
    assert_eq!(answer.cbh.psn, asked.cbh.psn, "CONN-011");
    match (asked.body, answer.body) {
        (Body::Open(open), Body::Reject(reject)) => {
            assert_eq!(reject.nonce, open.params.nonce, "CONN-011");
            assert_eq!(answer.cbh.dcid, open.params.scid, "PKT-011");
            // The initiator takes the refusal for an end.
            other.ends[0].handle_datagram(other.now, other.addresses[1], Ecn::NotEct, &out);
            assert!(matches!(
                other.ends[0].poll_event(),
                Some(Event::Failed { .. })
            ));
            reject
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_name_their_reason() {
    assert_eq!(
        refusal(|open| open[39] = 77).reason,
        RejectReason::NO_SERVICE.0
    );
    let version = refusal(|open| open[16..18].copy_from_slice(&[2, 9]));
    assert_eq!(version.reason, RejectReason::VERSION.0);
    assert_eq!((version.ver_min, version.ver_max), (1, 1));
    // Payload size, paths.
    for at in [44, 18] {
        let bad = refusal(|open| open[at..at + 2].copy_from_slice(&[0x01, 0x2c]));
        assert_eq!(bad.reason, RejectReason::BAD_PARAMETERS.0);
    }
    // Interval and support of hints: an interval without support, and one that is too short.
    for hints in [[0, 100, 0], [0, 9, 1], [0, 0, 1]] {
        let bad = refusal(|open| open[52..55].copy_from_slice(&hints));
        assert_eq!(bad.reason, RejectReason::BAD_PARAMETERS.0, "CONN-034");
    }
}

#[test]
fn a_confirm_without_the_right_cookie_is_refused_also_when_it_looks_repeated() {
    let mut link = Link::new(6, 0);
    link.establish(1, 1, None);
    let confirm = all(&link, 0, Opcode::CONFIRM).remove(0);
    let from = SocketAddr::new(link.addresses[0].ip(), 50000);
    let mut answer = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = confirm.clone();
        change(&mut bytes);
        let pseudo = PseudoHeader::new(link.addresses[0].ip(), link.addresses[1]);
        seal(&pseudo, &mut bytes).unwrap();
        link.ends[1].handle_datagram(link.now, from, Ecn::NotEct, &bytes);
        let mut out = Vec::new();
        link.ends[1].poll_transmit(link.now, &mut out).unwrap();
        match parse_unsealed(&out).unwrap().body {
            Body::Reject(reject) => reject.reason,
            Body::ConfirmAck(_) => 0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer(&|_| ()), 0, "CONN-018");
    for at in [172, 179, 203] {
        assert_eq!(answer(&|b| b[at] ^= 1), RejectReason::BAD_COOKIE.0);
    }
    // Parameters that the cookie does not vouch for: paths, and the acceptor's first PSN.
    for at in [19, 223] {
        assert_eq!(answer(&|b| b[at] ^= 1), RejectReason::BAD_COOKIE.0);
    }
    link.write_and_check(0, 1, 100);
}

#[test]
fn no_state_is_kept_before_confirm() {
    let mut link = Link::new(7, 0);
    link.ends[1].listen(Link::service(1, 1, None)).unwrap();
    let mut out = Vec::new();
    for n in 0..100 {
        let mut other = Link::new(100 + n, 0);
        other.ends[0]
            .connect(1, other.addresses[1], Link::service(1, 1, None))
            .unwrap();
        let transmit = other.ends[0].poll_transmit(1, &mut out).unwrap();
        let from = SocketAddr::new(other.addresses[0].ip(), transmit.src_port);
        link.ends[1].handle_datagram(1, from, Ecn::NotEct, &out);
        link.ends[1].poll_transmit(1, &mut out).unwrap();
        assert_eq!(out[1], Opcode::ACCEPT.0);
    }
    // One hundred openings, and still a timer or a place for none of them.
    assert_eq!(link.ends[1].poll_timeout(), None);
    link.establish(1, 1, None);
}

#[test]
fn a_held_back_confirm_of_a_dead_connection_is_forgotten() {
    let mut link = Link::new(8, 0);
    link.establish(1, 1, None);
    let confirm = all(&link, 0, Opcode::CONFIRM).remove(0);
    link.ends[0].close(link.now, 0).unwrap();
    link.watch.on = false;
    link.run_until_idle();
    let from = SocketAddr::new(link.addresses[0].ip(), 50000);
    assert!(link.now < 10_000 * MS, "the cookie still lives");
    link.ends[1].handle_datagram(link.now, from, Ecn::NotEct, &confirm);
    let mut out = Vec::new();
    link.ends[1].poll_transmit(link.now, &mut out).unwrap();
    assert_eq!(out[1], Opcode::REJECT.0, "SEC-008");
    assert_eq!(link.ends[1].poll_timeout(), None, "nothing has come of it");
}

#[test]
fn packets_from_another_address_or_for_another_connection_are_nothing() {
    let mut link = Link::new(9, 0);
    link.establish(1, 1, None);
    let data = bytes(1, 10);
    let buffer = link.source(0, &data);
    let target = link.target(1, 10);
    link.write(0, 1, buffer, target);
    let mut packet = Vec::new();
    link.ends[0].poll_transmit(link.now, &mut packet).unwrap();
    let stranger: SocketAddr = "192.0.2.99:50000".parse().unwrap();
    let mut deliver = |from: SocketAddr, change: u8| {
        let mut bytes = packet.clone();
        bytes[7] ^= change;
        seal(&PseudoHeader::new(from.ip(), link.addresses[1]), &mut bytes).unwrap();
        link.ends[1].handle_datagram(link.now, from, Ecn::Ect0, &bytes);
        let mut out = Vec::new();
        link.ends[1].poll_transmit(link.now, &mut out).is_some()
    };
    let peer = SocketAddr::new(link.addresses[0].ip(), 1234);
    assert!(!deliver(stranger, 0), "CONN-032");
    assert!(!deliver(peer, 1), "CONN-030");
    assert!(deliver(peer, 0), "PATH-007");
    assert_eq!(link.counters(1).unknown_connection, 2);
    assert_eq!(link.ends[1].memory(target.mr), Some(&data[..]));
}

#[test]
fn a_close_waits_for_the_work_of_both_sides() {
    for seed in 0..40 {
        let mut link = Link::new(seed, 100);
        link.establish(2, 1, None);
        let mut expected = Vec::new();
        for from in [0, 1] {
            let data = bytes(seed + from as u64, 60_000);
            let buffer = link.source(from, &data);
            let target = link.target(1 - from, 60_000);
            link.write(from, 7, buffer, target);
            expected.push((1 - from, target, data));
        }
        let region = link.target(0, 100);
        let receive = Buffer {
            mr: region.mr,
            offset: 0,
            len: 100,
        };
        link.ends[0].post_recv(link.now, 0, 0, 9, receive).unwrap();
        link.drain();
        link.ends[0].close(link.now, 0).unwrap();
        let more = link.ends[0].post_write(link.now, 0, 0, 8, receive, 0, 0);
        assert_eq!(more, Err(Misuse::Closing));
        link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
        let success = (0, 7, WorkKind::Write, Status::Success);
        let flushed = (0, 9, WorkKind::Recv, Status::WrFlushErr);
        assert_eq!(link.completions(0), [success, flushed], "seed {seed}");
        assert_eq!(link.completions(1), [success], "seed {seed}");
        for (end, target, data) in expected {
            assert_eq!(link.ends[end].memory(target.mr), Some(&data[..]));
        }
        link.watch.on = false;
        link.run_until_idle();
        assert_eq!(link.ends[0].counters(0), None);
        assert_eq!(link.ends[1].counters(0), None);
    }
}

#[test]
fn no_message_begins_after_the_close_of_the_peer() {
    let mut link = Link::new(11, 0);
    link.establish(1, 1, None);
    let buffer = link.source(1, &bytes(1, 100_000));
    let target = link.target(0, 100_000);
    for wr_id in 0..4 {
        link.write(1, wr_id, buffer, target);
    }
    link.drain();
    link.ends[0].close(link.now, 0).unwrap();
    link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
    use Status::{Success, WrFlushErr};
    assert_eq!(
        link.statuses(1),
        [Success, WrFlushErr, WrFlushErr, WrFlushErr]
    );
    let last_data = link.sent.iter().rposition(|(_, _, b)| b[1] == 0x04);
    let answer = link.sent.iter().position(|(_, _, b)| b[1] == 0x65);
    assert!(last_data < answer);
}

#[test]
fn both_may_close_at_once() {
    let mut link = Link::new(12, 0);
    link.establish(1, 1, None);
    for end in [0, 1] {
        link.ends[end].close(link.now, 0).unwrap();
    }
    link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
    link.watch.on = false;
    link.run_until_idle();
    assert_eq!(
        count(&link, 0, Opcode::CLOSE_ACK) + count(&link, 1, Opcode::CLOSE_ACK),
        2
    );
}

#[test]
fn a_repeated_close_is_answered_while_the_connection_lingers() {
    let mut link = Link::new(13, 0);
    link.establish(1, 1, None);
    let lost = Rc::new(RefCell::new(0));
    let shared = Rc::clone(&lost);
    link.drop_when(move |_, packet: &Packet<'_>| {
        let hit = packet.cbh.opcode == Opcode::CLOSE_ACK && *shared.borrow() < 4;
        *shared.borrow_mut() += u32::from(hit);
        hit
    });
    link.ends[0].close(link.now, 0).unwrap();
    link.run(|link| link.events[0].iter().any(closed));
    assert_eq!(count(&link, 1, Opcode::CLOSE_ACK), 5, "CONN-029");
    let answers = all(&link, 1, Opcode::CLOSE_ACK);
    assert!(
        answers
            .iter()
            .all(|b| b[8..12] == answers[0][8..12] && b[16..20] == answers[0][16..20])
    );
}

#[test]
fn an_error_of_the_peer_ends_the_work_at_once() {
    let mut link = Link::new(14, 0);
    link.establish(2, 1, None);
    link.watch.on = false;
    let buffer = link.source(1, &bytes(1, 500_000));
    let target = link.target(0, 500_000);
    link.write(1, 1, buffer, target);
    let small = link.source(0, &bytes(2, 10));
    link.ends[0]
        .post_write(link.now, 0, 0, 2, small, 1, 1)
        .unwrap();
    let begin = link.now;
    link.run(|link| link.events.iter().all(|events| events.len() >= 3));
    assert!(link.now - begin < 10 * MS);
    assert_eq!(link.statuses(0), [Status::RemAccessErr]);
    assert_eq!(link.statuses(1), [Status::WrFlushErr]);
    let closed = Event::Closed { conn: 0, reason: 1 };
    assert_eq!(link.events[1].last(), Some(&closed));
    link.run_until_idle();
    assert_eq!(link.completions(1).len(), 1);
}

#[test]
fn a_connection_that_is_over_acknowledges_nothing() {
    let mut link = Link::new(15, 0);
    link.establish(1, 1, None);
    let buffer = link.source(1, &[0; 10]);
    for wr_id in 0..3 {
        link.ends[1]
            .post_recv(link.now, 0, 0, wr_id, buffer)
            .unwrap();
    }
    link.write_and_check(0, 7, 10);
    let data = all(&link, 0, Opcode::WRITE).remove(0);
    link.ends[0].close(link.now, 0).unwrap();
    link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
    let from = link.addresses[0];
    let before = all(&link, 1, Opcode::ACK);
    link.ends[1].handle_datagram(link.now, from, Ecn::Ect0, &data);
    link.drain();
    // Whoever has answered CLOSE knows the connection no more.
    assert_eq!(all(&link, 1, Opcode::ACK), before, "CONN-030");
    for ack in before {
        match parse_unsealed(&ack).unwrap().body {
            Body::Ack(ack) => assert_eq!(ack.header.rq_limit.value(), 3, "STRM-031"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_established_connection_may_rest() {
    let mut link = Link::new(16, 0);
    link.establish(1, 1, None);
    for wr_id in 0..3 {
        link.write_and_check(1, wr_id, 3_000);
        link.pass(40_000 * MS);
    }
    assert_eq!(link.watch.repeats, [0, 0]);
}

/// A requester may be held up between making a request and sending it (CONN-023).
#[test]
fn the_pause_of_a_request_counts_from_when_it_leaves() {
    let mut link = Link::new(1, 0);
    let (end, mut out) = (&mut link.ends[0], Vec::new());
    end.connect(0, link.addresses[1], Link::service(1, 1, None))
        .unwrap();
    assert!(end.poll_transmit(3 * MS, &mut out).is_some(), "OPEN");
    end.handle_timeout(50 * MS);
    assert!(end.poll_transmit(50 * MS, &mut out).is_none());
    assert_eq!(end.poll_timeout(), Some(53 * MS));
    end.handle_timeout(53 * MS);
    assert!(end.poll_transmit(53 * MS, &mut out).is_some());
    assert_eq!(end.poll_timeout(), Some(153 * MS));
}

/// The opener takes data of a peer whose STREAM_OPEN_ACK is lost (STRM-046).
#[test]
fn data_may_come_before_the_answer_to_stream_open() {
    let mut link = Link::new(1, 0);
    let mut left = 1;
    link.drop_when(move |_, packet| {
        let hit = packet.cbh.opcode == Opcode::STREAM_OPEN_ACK && left > 0;
        left -= i32::from(hit);
        hit
    });
    let service = Link::service(1, 1, None);
    link.ends[1].listen(service).unwrap();
    link.ends[0]
        .connect(link.now, link.addresses[1], service)
        .unwrap();
    let is_up = |e: &Event| matches!(e, Event::Established { .. });
    link.run(|link| link.events[1].iter().any(is_up));
    link.write_and_check(1, 1, 5_000);
    assert!(link.now < 50 * MS, "before STREAM_OPEN is repeated");
    assert!(!link.events[0].iter().any(is_up));
}
