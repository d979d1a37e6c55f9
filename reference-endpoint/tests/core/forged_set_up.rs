//! Set-up packets that answer something else, promise what was not offered, or come too late.

use std::net::SocketAddr;

use metaroce_endpoint::core::{Ecn, Event, Status, WorkKind};
use metaroce_wire::crc::{PseudoHeader, seal};
use metaroce_wire::metaroce::{Body, Opcode, RejectReason, parse_unsealed};

use crate::link::{Link, bytes};

const S: u64 = 1_000_000_000;

/// Two ends whose packets the test carries by hand.
struct Hands {
    link: Link,
}

impl Hands {
    fn new() -> Self {
        let mut link = Link::new(1, 0);
        let service = Link::service(4, 2, None);
        link.ends[1].listen(service).unwrap();
        link.ends[0]
            .connect(link.now, link.addresses[1], service)
            .unwrap();
        Self { link }
    }

    /// What `end` sends, all of it.
    fn take(&mut self, end: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut out = Vec::new();
        let now = self.link.now;
        while self.link.ends[end].poll_transmit(now, &mut out).is_some() {
            all.push(out.clone());
        }
        all
    }

    /// Hands bytes to `end`, with a right trailer.
    fn give(&mut self, end: usize, mut bytes: Vec<u8>) {
        let from = SocketAddr::new(self.link.addresses[1 - end].ip(), 50000);
        let pseudo = PseudoHeader::new(from.ip(), self.link.addresses[end]);
        seal(&pseudo, &mut bytes).unwrap();
        self.link.ends[end].handle_datagram(self.link.now, from, Ecn::NotEct, &bytes);
    }

    /// Carries one packet over; returns the answer.
    fn carry(&mut self, to: usize, bytes: Vec<u8>) -> Vec<u8> {
        self.give(to, bytes);
        self.take(to).remove(0)
    }
}

fn opcode(bytes: &[u8]) -> Opcode {
    parse_unsealed(bytes).unwrap().cbh.opcode
}

#[test]
fn an_accept_of_what_was_not_offered_is_a_failure() {
    let changes: [(&str, usize, u8); 8] = [
        ("version", 17, 2),
        ("more paths", 19, 5),
        ("no streams", 41, 0),
        ("more streams", 41, 3),
        ("a larger message window", 43, 65),
        ("no power of two", 44, 3),
        ("another vector", 46, 2),
        ("planes", 55, 1),
    ];
    for (what, at, value) in changes {
        let mut hands = Hands::new();
        let open = hands.take(0).remove(0);
        let mut accept = hands.carry(1, open);
        assert_ne!(accept[at], value, "{what}");
        accept[at] = value;
        hands.give(0, accept);
        let failed = hands.link.ends[0].poll_event();
        assert!(matches!(failed, Some(Event::Failed { .. })), "{what}");
        assert!(hands.take(0).is_empty(), "{what}");
    }
}

#[test]
fn answers_to_something_else_are_no_answers() {
    let mut hands = Hands::new();
    let open = hands.take(0).remove(0);
    let accept = hands.carry(1, open);
    let other_transaction = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[11] ^= 1;
        bytes
    };
    hands.give(0, other_transaction(&accept));
    assert!(hands.take(0).is_empty(), "ACCEPT of another transaction");
    let confirm = hands.carry(0, accept.clone());
    assert_eq!(opcode(&confirm), Opcode::CONFIRM);
    hands.give(0, accept);
    assert!(hands.take(0).is_empty(), "ACCEPT again");
    let mut refused = confirm.clone();
    refused[70] ^= 1;
    let reject = hands.carry(1, refused);
    assert_eq!(opcode(&reject), Opcode::REJECT);
    let mut other_nonce = reject.clone();
    other_nonce[27] ^= 1;
    for forged in [other_transaction(&reject), other_nonce] {
        hands.give(0, forged);
        assert_eq!(hands.link.ends[0].poll_event(), None, "REJECT");
    }
    let ack = hands.carry(1, confirm);
    assert_eq!(opcode(&ack), Opcode::CONFIRM_ACK);
    let mut other_nonce = ack.clone();
    other_nonce[23] ^= 1;
    for forged in [other_transaction(&ack), other_nonce] {
        hands.give(0, forged);
        assert!(hands.take(0).is_empty(), "CONFIRM_ACK");
    }
    hands.give(0, ack);
    let opens = hands.take(0);
    assert_eq!(opens.len(), 2, "STREAM_OPEN of both streams");
    let answers: Vec<Vec<u8>> = opens
        .iter()
        .map(|open| hands.carry(1, open.clone()))
        .collect();
    hands.give(0, other_transaction(&answers[0]));
    hands.give(0, answers[1].clone());
    assert_eq!(hands.link.ends[0].poll_event(), None, "one stream is open");
    hands.give(0, answers[0].clone());
    let established = hands.link.ends[0].poll_event();
    assert!(matches!(established, Some(Event::Established { .. })));
}

#[test]
fn a_stream_is_opened_once() {
    let mut link = Link::new(2, 0);
    link.establish(1, 2, None);
    let open = link
        .sent
        .iter()
        .find(|(_, _, bytes)| bytes[1] == Opcode::STREAM_OPEN.0);
    let open = open.unwrap().2.clone();
    let mut hands = Hands { link };
    let status = |answer: Vec<u8>| match parse_unsealed(&answer).unwrap().body {
        Body::StreamOpenAck(ack) => ack.status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(hands.carry(1, open.clone())), 0, "a repetition");
    let mut again = open.clone();
    again[8] ^= 1;
    assert_eq!(status(hands.carry(1, again.clone())), 2, "in use");
    // An odd id is for the acceptor to open, and two streams are all that was agreed.
    for (stream, refused) in [(1, 2), (4, 1)] {
        again[9] ^= 1 << stream;
        again[17] = stream;
        let seen = status(hands.carry(1, again.clone()));
        assert_eq!(seen, refused, "stream {stream}");
    }
}

#[test]
fn an_old_cookie_is_refused() {
    for (age, fits) in [(9 * S, true), (11 * S, false)] {
        let mut hands = Hands::new();
        let open = hands.take(0).remove(0);
        let accept = hands.carry(1, open);
        let confirm = hands.carry(0, accept);
        hands.link.now += age;
        let answer = hands.carry(1, confirm);
        match parse_unsealed(&answer).unwrap().body {
            Body::ConfirmAck(_) => assert!(fits),
            Body::Reject(reject) => {
                assert!(!fits);
                assert_eq!(reject.reason, RejectReason::BAD_COOKIE.0, "CONN-017");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_closed_connection_lingers_for_three_times_the_largest_timeout() {
    let mut link = Link::new(3, 0);
    link.establish(1, 1, None);
    link.ends[0].close(link.now, 0).unwrap();
    let closed = |e: &Event| matches!(e, Event::Closed { .. });
    link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
    let close = link
        .sent
        .iter()
        .find(|(_, _, bytes)| bytes[1] == Opcode::CLOSE.0);
    let close = close.unwrap().2.clone();
    let end = link.now;
    let mut hands = Hands { link };
    for second in 1..6 {
        hands.link.now = end + second * S - S / 10;
        hands.link.ends[1].handle_timeout(hands.link.now);
        let answer = hands.carry(1, close.clone());
        assert_eq!(opcode(&answer), Opcode::CLOSE_ACK, "CONN-029");
    }
    hands.link.now = end + 6 * S;
    hands.link.ends[1].handle_timeout(hands.link.now);
    hands.give(1, close);
    assert!(hands.take(1).is_empty(), "the connection is forgotten");
}

#[test]
fn work_of_all_streams_is_flushed_in_the_order_of_posting() {
    let mut link = Link::new(4, 0);
    link.establish(2, 3, None);
    link.drop_when(|from, _| from == 0);
    let buffer = link.source(0, &bytes(1, 2_000));
    let order = [4u16, 0, 2, 0, 4, 2, 4];
    for (wr_id, stream) in (0..).zip(order) {
        let now = link.now;
        let end = &mut link.ends[0];
        if wr_id % 2 == 0 {
            end.post_write(now, 0, stream, wr_id, buffer, 1 << 28, 1)
                .unwrap();
        } else {
            end.post_recv(now, 0, stream, wr_id, buffer).unwrap();
        }
    }
    link.run(|link| link.completions(0).len() == order.len());
    let all = link.completions(0);
    let mut expected: Vec<(u16, u64, WorkKind, Status)> = (0..)
        .zip(order)
        .map(|(wr_id, stream)| {
            let (kind, status) = match wr_id {
                0 => (WorkKind::Write, Status::RetryExcErr),
                n if n % 2 == 0 => (WorkKind::Write, Status::WrFlushErr),
                _ => (WorkKind::Recv, Status::WrFlushErr),
            };
            (stream, wr_id, kind, status)
        })
        .collect();
    // Work first, then receives.
    expected.sort_by_key(|(.., kind, _)| *kind == WorkKind::Recv);
    assert_eq!(all, expected, "STRM-037, PATH-011");
}

#[test]
fn only_as_many_connections_as_the_configuration_allows() {
    let mut link = Link::new(5, 0);
    let service = Link::service(1, 1, None);
    link.ends[1].listen(service).unwrap();
    let established = |e: &Event| matches!(e, Event::Established { .. });
    for n in 1..=4 {
        link.ends[0]
            .connect(link.now, link.addresses[1], service)
            .unwrap();
        // The watcher follows one connection.
        link.watch.on = false;
        link.run(|link| link.events[1].iter().filter(|e| established(e)).count() == n);
    }
    assert!(
        link.ends[0]
            .connect(link.now, link.addresses[1], service)
            .is_err()
    );
    let mut hands = Hands::new();
    let open = hands.take(0).remove(0);
    let mut full = Hands { link };
    let answer = full.carry(1, open);
    match parse_unsealed(&answer).unwrap().body {
        Body::Reject(reject) => assert_eq!(reject.reason, RejectReason::NO_RESOURCE.0),
        other => panic!("{other:?}"),
    }
}
