//! What comes twice, or is asked again: answers from other ports, refusals that the network has doubled, ids in use, and
//! paths that are asked in turn.

use std::net::SocketAddr;

use metaroce_endpoint::core::{Ecn, Event, Features, Service, Status};
use metaroce_wire::crc::{PseudoHeader, seal};
use metaroce_wire::metaroce::{Body, NakCode, NakScope, Opcode, RejectReason, parse_unsealed};

use crate::link::{Link, bytes};

const MS: u64 = 1_000_000;

/// What `end` sends now, all of it, with the ports that it leaves from.
fn take(link: &mut Link, end: usize) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some(transmit) = link.ends[end].poll_transmit(link.now, &mut out) {
        all.push((transmit.src_port, out.clone()));
    }
    all
}

/// Hands bytes to `end` as if they had come from `port` of the other one, with a right trailer; returns the answers.
fn give(link: &mut Link, end: usize, port: u16, mut bytes: Vec<u8>) -> Vec<(u16, Vec<u8>)> {
    let from = SocketAddr::new(link.addresses[1 - end].ip(), port);
    seal(
        &PseudoHeader::new(from.ip(), link.addresses[end]),
        &mut bytes,
    )
    .unwrap();
    link.ends[end].handle_datagram(link.now, from, Ecn::NotEct, &bytes);
    take(link, end)
}

/// CONN-056, also when repetitions of several requests come in turn, and from whoever repeats on the same port.
#[test]
fn the_answer_to_a_repetition_leaves_from_another_port() {
    let mut link = Link::new(1, 0);
    let service = Link::service(4, 4, None);
    link.ends[1].listen(service).unwrap();
    let to = link.addresses[1];
    link.ends[0].connect(link.now, to, service).unwrap();
    let open = take(&mut link, 0).remove(0).1;
    let accept = give(&mut link, 1, 50_000, open).remove(0).1;
    let confirm = give(&mut link, 0, 50_000, accept).remove(0).1;
    let ack = give(&mut link, 1, 50_000, confirm).remove(0).1;
    let opens = give(&mut link, 0, 50_000, ack);
    assert_eq!(opens.len(), 4, "STREAM_OPEN of all streams");
    let mut answers = |port: u16| -> Vec<u16> {
        let each = opens.iter().map(|(_, open)| {
            let answer = give(&mut link, 1, port, open.clone()).remove(0);
            assert_eq!(answer.1[1], Opcode::STREAM_OPEN_ACK.0);
            answer.0
        });
        each.collect()
    };
    let rounds = [answers(50_000), answers(50_001), answers(50_002)];
    for pair in rounds.windows(2) {
        assert!(pair[0].iter().zip(&pair[1]).all(|(a, b)| a != b));
    }
    let (_, last) = &opens[3];
    let mut again = || give(&mut link, 1, 50_002, last.clone()).remove(0).0;
    assert_ne!(again(), rounds[2][3], "repeated from the same port");
    assert_ne!(again(), again());
}

/// CONN-048: the id of another connection of the same initiator, while it is in use and while it rests.
#[test]
fn the_id_of_an_initiator_is_used_once_at_its_address() {
    let mut link = Link::new(1, 0);
    link.establish(2, 1, None);
    let opens = |link: &Link| -> Vec<Vec<u8>> {
        let all = link.sent.iter().map(|(_, _, bytes)| bytes);
        let opens = all.filter(|bytes| bytes[1] == Opcode::OPEN.0);
        opens.cloned().collect()
    };
    let first = opens(&link).remove(0);
    let service = Link::service(2, 1, None);
    let to = link.addresses[1];
    link.ends[0].connect(link.now, to, service).unwrap();
    let second = take(&mut link, 0).remove(0).1;
    let mut same_id = second.clone();
    same_id[21..24].copy_from_slice(&first[21..24]);
    let reason = |link: &mut Link, bytes: Vec<u8>| {
        let answer = give(link, 1, 50_000, bytes).remove(0).1;
        match parse_unsealed(&answer).unwrap().body {
            Body::Reject(reject) => Some(RejectReason(reject.reason)),
            Body::Accept(_) => None,
            other => panic!("{other:?}"),
        }
    };
    let taken = Some(RejectReason::NO_RESOURCE);
    assert_eq!(reason(&mut link, same_id.clone()), taken);
    assert_eq!(reason(&mut link, first.clone()), None, "its own OPEN");
    assert_eq!(reason(&mut link, second), None, "an id of its own");
    for end in [0, 1] {
        link.ends[end].close(link.now, 0).unwrap();
    }
    let closed = |e: &Event| matches!(e, Event::Closed { conn: 0, .. });
    link.run(|link| link.events[1].iter().any(closed));
    assert_eq!(reason(&mut link, same_id.clone()), taken, "it rests");
    link.pass(7_000 * MS);
    assert_eq!(reason(&mut link, same_id), None, "it has rested");
}

/// RCV-007: a NAK RNR that the network has doubled uses up no retry.
#[test]
fn a_doubled_refusal_counts_once() {
    let mut link = Link::new(1, 0);
    let service = Service {
        rnr_retries: 2,
        ..Link::service(1, 1, None)
    };
    link.establish_with(service);
    let receive = link.source(1, &bytes(2, 100));
    link.ends[1].post_recv(link.now, 0, 0, 7, receive).unwrap();
    link.pass(10 * MS);
    let buffer = link.source(0, &bytes(1, 100));
    link.ends[0].post_send(link.now, 0, 0, 9, buffer).unwrap();
    let send = take(&mut link, 0).remove(0).1;
    let packet = parse_unsealed(&send).unwrap();
    let msgh = packet.body.msgh().unwrap();
    let nak = |timestamp: u32| {
        let mut nak = vec![0u8; 36];
        nak[..16].copy_from_slice(&send[..16]);
        nak[1] = Opcode::NAK.0;
        nak[2] = 0;
        nak[8..12].fill(0);
        nak[12..16].copy_from_slice(&timestamp.to_be_bytes());
        nak[16] = NakCode::RNR.0;
        nak[17] = NakScope::PACKET.0;
        nak[18..20].copy_from_slice(&msgh.stream.to_be_bytes());
        nak[20..23].copy_from_slice(&msgh.msn.value().to_be_bytes()[1..]);
        nak[24..28].copy_from_slice(&packet.cbh.psn.value().to_be_bytes());
        nak[31] = 100;
        nak[5..8].copy_from_slice(&own_id(&link)[..]);
        nak
    };
    let (first, second, third) = (nak(500), nak(900), nak(1_300));
    for bytes in [&first, &first, &second, &first, &second, &second] {
        give(&mut link, 0, 50_000, bytes.clone());
        assert!(link.ends[0].poll_event().is_none());
    }
    assert_eq!(link.counters(0).naks_received, 6);
    give(&mut link, 0, 50_000, third);
    let failed = std::iter::from_fn(|| link.ends[0].poll_event());
    let statuses = failed.filter_map(|event| match event {
        Event::Completion(done) => Some(done.status),
        _ => None,
    });
    assert_eq!(statuses.collect::<Vec<_>>(), [Status::RnrRetryExcErr]);
}

/// The id under which end 0 receives: that of its OPEN.
fn own_id(link: &Link) -> [u8; 3] {
    let open = link.sent.iter().find(|(_, from, _)| *from == 0).unwrap();
    open.2[21..24].try_into().unwrap()
}

/// PATH-044: one after another, and none once another path has been heard of.
#[test]
fn a_silent_path_has_the_others_asked_in_turn() {
    let mut link = Link::new(1, 0);
    let service = Service {
        features: Features::RETIRE,
        ..Link::service(4, 1, None)
    };
    link.establish_with(service);
    // Every path has had something to carry, and the next packet goes on path 0 again.
    link.write_and_check(0, 9, 4 * 1024);
    link.pass(10 * MS);
    link.drop_when(|_, _| true);
    let buffer = link.source(0, &bytes(1, 100));
    let target = link.target(1, 100);
    let from = link.sent.len();
    link.write(0, 1, buffer, target);
    let probes = |link: &Link| -> Vec<u8> {
        let sent = link.sent[from..].iter();
        let probes = sent.filter(|(_, end, bytes)| *end == 0 && bytes[1] == Opcode::PATH_PROBE.0);
        probes.map(|(_, _, bytes)| bytes[3]).collect()
    };
    link.run(|link| link.counters(0).timeouts == 3);
    let others: Vec<u8> = probes(&link)
        .into_iter()
        .filter(|path| *path != 0)
        .collect();
    assert_eq!(others, [1, 2, 3]);
    assert_eq!(probes(&link).len(), 6, "its own probes come besides");
}
