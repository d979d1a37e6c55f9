//! Packets that no honest peer sends: they change nothing, are counted, and are answered where the rules say so.

use std::net::SocketAddr;

use metaroce_endpoint::core::{
    Buffer, Completion, Counters, Ecn, Event, Misuse, Region, Status, WorkKind,
};
use metaroce_wire::crc::{PseudoHeader, seal};
use metaroce_wire::metaroce::{
    Body, Cbh, MFlags, NakCode, NakScope, Opcode, Packet, parse_unsealed,
};
use metaroce_wire::serial::Psn;

use crate::link::{Link, bytes};

const ISN: u32 = 1000;

/// Makes a data packet ask for its acknowledgment.
fn ask(bytes: &mut [u8]) {
    bytes[2] |= 0x80;
}

/// A connection of which end 0 is played by the test, which edits that end's packets.
struct Forge {
    link: Link,
    target: Region,
    /// A WRITE of ten packets, none of them delivered.
    packets: Vec<Vec<u8>>,
}

impl Forge {
    fn new() -> Self {
        let mut link = Link::new(1, 0);
        link.establish(2, 1, Some(ISN));
        let buffer = link.source(0, &bytes(1, 10 * 1024));
        let target = link.target(1, 20 * 1024);
        link.write(0, 1, buffer, target);
        let mut packets = Vec::new();
        let mut out = Vec::new();
        while link.ends[0].poll_transmit(link.now, &mut out).is_some() {
            packets.push(out.clone());
        }
        assert_eq!(packets.len(), 10);
        Self {
            link,
            target,
            packets,
        }
    }

    /// Delivers bytes to `end` as they are; returns what it answers at once.
    fn deliver_raw(&mut self, end: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
        let from = SocketAddr::new(self.link.addresses[1 - end].ip(), 50000);
        self.link.ends[end].handle_datagram(self.link.now, from, Ecn::Ect0, bytes);
        let mut answers = Vec::new();
        let mut out = Vec::new();
        while self.link.ends[end]
            .poll_transmit(self.link.now, &mut out)
            .is_some()
        {
            answers.push(out.clone());
        }
        answers
    }

    /// Delivers data packet `n` to end 1 after a change, with a right trailer.
    fn deliver(&mut self, n: usize, change: impl Fn(&mut Vec<u8>)) -> Vec<Vec<u8>> {
        let mut bytes = self.packets[n].clone();
        change(&mut bytes);
        self.reseal(1, &mut bytes);
        self.deliver_raw(1, &bytes)
    }

    fn reseal(&self, end: usize, bytes: &mut [u8]) {
        let from = self.link.addresses[1 - end].ip();
        seal(&PseudoHeader::new(from, self.link.addresses[end]), bytes).unwrap();
    }

    fn memory(&self) -> &[u8] {
        self.link.ends[1].memory(self.target.mr).unwrap()
    }

    fn counters(&self) -> Counters {
        self.link.counters(1)
    }

    fn untouched(&self) -> bool {
        self.memory().iter().all(|&byte| byte == 0)
    }
}

#[test]
fn damaged_and_malformed_packets_are_dropped_in_silence_and_counted() {
    let mut forge = Forge::new();
    let mut damaged = forge.packets[0].clone();
    let len = damaged.len();
    for at in 0..len {
        damaged[at] ^= 0x10;
        assert!(forge.deliver_raw(1, &damaged).is_empty());
        damaged[at] ^= 0x10;
    }
    assert_eq!(forge.counters().crc_errors, len as u64);
    let version = forge.deliver(0, |b| b[0] = 0x20);
    let reserved = forge.deliver(0, |b| b[4] |= 1);
    let flags = forge.deliver(0, |b| b[2] |= 8);
    let short = forge.deliver(0, |b| b.truncate(40));
    assert!([version, reserved, flags, short].iter().all(Vec::is_empty));
    assert_eq!(forge.counters().malformed, 4);
    assert!(forge.deliver(0, |b| b[1] = 0x3e).is_empty());
    assert!(forge.deliver(0, |b| b[1] = 0xe1).is_empty());
    assert_eq!(forge.counters().unknown_opcode, 2);
    // What belongs to a feature that was not agreed on.
    let reset = |b: &mut Vec<u8>| {
        b[1] = Opcode::STREAM_RESET.0;
        (b[2], b[3]) = (0, 0);
        b[16..24].fill(0);
        b.truncate(28);
    };
    assert!(forge.deliver(0, reset).is_empty());
    assert_eq!(forge.counters().misdirected, 1);
    assert!(forge.untouched());
    for len in 0..60 {
        forge.deliver_raw(1, &bytes(len, len as usize));
    }
    // Afterwards it still works.
    assert_eq!(forge.deliver(0, |b| ask(b)).len(), 1);
}

/// An operation that was not agreed is a fault of the sender, and not of the link: a WRITE_IMM in place of the WRITE.
#[test]
fn operations_that_were_not_agreed_are_refused() {
    let mut forge = Forge::new();
    let with_imm = |b: &mut Vec<u8>| (b[1], b[20]) = (Opcode::WRITE_IMM.0, b[20] | MFlags::IMM.0);
    assert_eq!(
        nak_of(&forge.deliver(0, with_imm)).1,
        NakCode::REM_INV_REQ,
        "OPS-002"
    );
    assert!(forge.untouched());
}

#[test]
fn paths_epochs_streams_and_messages_that_are_not_there() {
    let mut forge = Forge::new();
    let changes: [(usize, u8); 4] = [
        (3, 2),  // path 2 of 2
        (0, 5),  // epoch 5
        (17, 4), // stream 4
        (16, 9), // stream 0x900
    ];
    for (at, value) in changes {
        assert!(forge.deliver(0, |b| b[at] |= value).is_empty(), "byte {at}");
    }
    assert_eq!(forge.counters().misdirected, 4);
    // MSN 256 lies past the message window of 64.
    let answers = forge.deliver(0, |b| b[22] |= 1);
    assert_eq!(nak_of(&answers).1, NakCode::REM_INV_REQ, "MEM-011");
    assert!(forge.untouched());
    assert_eq!(
        forge.deliver(0, |b| ask(b)).len(),
        1,
        "the PSN was not used up"
    );
}

#[test]
fn the_window_ends_256_past_the_cumulative_psn() {
    let psn = |value: u32| move |b: &mut Vec<u8>| b[8..12].copy_from_slice(&value.to_be_bytes());
    let mut forge = Forge::new();
    assert!(forge.deliver(0, psn(ISN + 256)).is_empty());
    assert_eq!(forge.counters().out_of_window, 1);
    assert!(forge.untouched());
    let answer = forge.deliver(0, psn(ISN + 255)).remove(0);
    match parse_unsealed(&answer).unwrap() {
        Packet {
            cbh,
            body: Body::AckSack(ack),
        } => {
            assert_eq!(cbh.psn, Psn::new(ISN - 1));
            assert_eq!(ack.sack.ones().collect::<Vec<_>>(), [255]);
            assert_eq!(ack.header.ack_flags, 0xa000, "REL-005");
        }
        other => panic!("{other:?}"),
    }
    let again = forge.deliver(0, psn(ISN + 255)).remove(0);
    match parse_unsealed(&again).unwrap().body {
        Body::AckSack(ack) => assert_eq!(ack.header.ack_flags, 0xc000, "REL-020"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_duplicate_is_not_placed_again() {
    let mut forge = Forge::new();
    forge.deliver(0, |_| ());
    let mr = forge.target.mr;
    forge.link.ends[1].memory_mut(mr).unwrap().fill(0x77);
    let answers = forge.deliver(0, |b| b[2] |= 0x40);
    let ack = parse_unsealed(&answers[0]).unwrap();
    assert!(ack.cbh.flags.0 & 0x10 != 0, "REL-024");
    assert!(forge.memory().iter().all(|&byte| byte == 0x77));
    assert_eq!(forge.counters().duplicates, 1);
}

#[test]
fn packets_that_are_not_cut_as_messages_are() {
    // Packet 1 at an offset that is no multiple of the payload size; packet 0 with too little payload.
    let shifted = |b: &mut Vec<u8>| b[27] = 4;
    let short = |b: &mut Vec<u8>| drop(b.drain(48..52));
    for (n, change) in [(1, &shifted as &dyn Fn(&mut Vec<u8>)), (0, &short)] {
        let mut forge = Forge::new();
        let answers = forge.deliver(n, change);
        assert_eq!(nak_of(&answers).1, NakCode::REM_INV_REQ, "MEM-009");
        assert!(forge.untouched(), "MEM-008");
    }
    // Packet 1 with another length of its message than packet 0 had, and as a Send, which packet 0 was not.
    let longer = |b: &mut Vec<u8>| b[30] ^= 0x40;
    let send = |b: &mut Vec<u8>| {
        b[1] = Opcode::SEND.0;
        b.drain(32..48);
    };
    for change in [&longer as &dyn Fn(&mut Vec<u8>), &send] {
        let mut forge = Forge::new();
        forge.deliver(0, |_| ());
        let answers = forge.deliver(1, change);
        assert_eq!(nak_of(&answers).1, NakCode::REM_INV_REQ, "MEM-010");
        assert!(forge.memory()[1024..].iter().all(|&byte| byte == 0));
    }
}

fn nak_of(answers: &[Vec<u8>]) -> (Cbh, NakCode) {
    match parse_unsealed(&answers[0]).unwrap() {
        Packet {
            cbh,
            body: Body::Nak(nak),
        } => {
            assert_eq!(nak.scope, NakScope::CONNECTION);
            (cbh, nak.code)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn accesses_that_are_not_allowed_are_refused_and_not_acknowledged() {
    let mut forge = Forge::new();
    let shut = forge.link.ends[1]
        .register(4096, Default::default())
        .unwrap();
    let end = forge.target.va + 20 * 1024;
    let places = [
        (forge.target.va, forge.target.rkey ^ 1),
        (forge.target.va - 1, forge.target.rkey),
        (end - 1023, forge.target.rkey),
        (end + 4096, forge.target.rkey),
        (u64::MAX - 10 * 1024, forge.target.rkey),
        (shut.va, shut.rkey),
        (shut.va, forge.target.rkey),
    ];
    // Each place in a message of its own: further packets of one that was refused draw a NAK after a pause only.
    for (msn, (va, rkey)) in (0u8..).zip(places) {
        let change = |b: &mut Vec<u8>| {
            b[23] = msn;
            b[32..40].copy_from_slice(&va.to_be_bytes());
            b[40..44].copy_from_slice(&rkey.to_be_bytes());
        };
        for pause in [0, 10_000_000] {
            forge.link.now += pause;
            let answers = forge.deliver(0, change);
            assert_eq!(answers.len(), 1, "STRM-033, ERR-003");
            let (cbh, code) = nak_of(&answers);
            assert_eq!(code, NakCode::REM_ACCESS, "STRM-034");
            assert_eq!((cbh.psn.value(), cbh.path), (0, 0), "PKT-016");
            assert!(forge.deliver(0, change).is_empty(), "ERR-003");
        }
    }
    forge.link.now += 10_000_000;
    let (cbh, _) = nak_of(&forge.deliver(1, |b| b[43] ^= 1));
    assert_eq!(cbh.path, 1, "PKT-016");
    assert!(forge.untouched());
    assert!(
        forge.link.ends[1]
            .memory(shut.mr)
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
}

#[test]
fn a_wrong_key_fails_its_work_and_flushes_the_rest_in_order_even_when_naks_are_lost() {
    for lost in [0, 3] {
        let mut link = Link::new(3, 0);
        link.establish(2, 1, None);
        link.watch.on = false;
        let mut left = lost;
        link.drop_when(move |_, packet| {
            let hit = packet.cbh.opcode == Opcode::NAK && left > 0;
            left -= i32::from(hit);
            hit
        });
        let buffer = link.source(0, &bytes(1, 900));
        let target = link.target(1, 5000);
        let receive = link.source(1, &[0; 10]);
        link.ends[1].post_recv(link.now, 0, 0, 9, receive).unwrap();
        for wr_id in 0..4 {
            let rkey = target.rkey ^ u32::from(wr_id == 1);
            link.ends[0]
                .post_write(link.now, 0, 0, wr_id, buffer, target.va, rkey)
                .unwrap();
        }
        link.run(|link| link.completions(0).len() == 4 && link.events[1].len() == 3);
        use Status::{RemAccessErr, Success, WrFlushErr};
        let expected = [Success, RemAccessErr, WrFlushErr, WrFlushErr];
        assert_eq!(link.statuses(0), expected, "STRM-036, STRM-037");
        let flushed = (0, 9, WorkKind::Recv, WrFlushErr);
        assert_eq!(link.completions(1), [flushed]);
        let closed = Event::Closed { conn: 0, reason: 1 };
        assert_eq!(link.events[1].last(), Some(&closed));
        link.ends[0].post_recv(link.now, 0, 0, 1, buffer).unwrap();
        link.drain();
        let flushed = Some((0, 1, WorkKind::Recv, WrFlushErr));
        assert_eq!(link.completions(0).pop(), flushed, "VERB-007");
        link.run_until_idle();
    }
}

#[test]
fn a_send_that_is_too_long_fails_on_both_sides() {
    let mut link = Link::new(4, 0);
    link.establish(2, 1, None);
    link.watch.on = false;
    let region = link.target(1, 5000);
    for wr_id in 0..3 {
        let receive = Buffer {
            mr: region.mr,
            offset: 1000 * wr_id as usize,
            len: 1000,
        };
        link.ends[1]
            .post_recv(link.now, 0, 0, 100 + wr_id, receive)
            .unwrap();
    }
    let (fits, exceeds) = (
        link.source(0, &bytes(1, 1000)),
        link.source(0, &bytes(2, 1001)),
    );
    for (wr_id, buffer) in [fits, exceeds, fits].into_iter().enumerate() {
        link.ends[0]
            .post_send(link.now, 0, 0, wr_id as u64, buffer)
            .unwrap();
    }
    link.run(|link| link.completions(0).len() == 3 && link.completions(1).len() == 3);
    use Status::{LocLenErr, RemInvReqErr, Success, WrFlushErr};
    // What was sent behind it on the other path may have arrived, but completes in order only.
    assert_eq!(link.statuses(0), [Success, RemInvReqErr, WrFlushErr]);
    assert_eq!(link.statuses(1), [Success, LocLenErr, WrFlushErr]);
    let memory = link.ends[1].memory(region.mr).unwrap();
    assert!(memory[1000..2000].iter().all(|&byte| byte == 0));
}

#[test]
fn sends_numbered_out_of_order_end_the_connection() {
    let mut link = Link::new(5, 0);
    link.establish(1, 1, Some(ISN));
    let region = link.target(1, 20);
    for wr_id in 0..2 {
        let receive = Buffer {
            mr: region.mr,
            offset: 10 * wr_id as usize,
            len: 10,
        };
        link.ends[1]
            .post_recv(link.now, 0, 0, wr_id, receive)
            .unwrap();
    }
    // The acknowledgment of a Write tells of both receives.
    link.write_and_check(0, 9, 10);
    let buffer = link.source(0, &bytes(1, 10));
    link.ends[0].post_send(link.now, 0, 0, 5, buffer).unwrap();
    let mut bytes = Vec::new();
    link.ends[0].poll_transmit(link.now, &mut bytes).unwrap();
    assert_eq!(bytes[1], Opcode::SEND.0);
    bytes[19] = 1;
    let from = link.addresses[0];
    seal(&PseudoHeader::new(from.ip(), link.addresses[1]), &mut bytes).unwrap();
    link.ends[1].handle_datagram(link.now, from, Ecn::Ect0, &bytes);
    let events: Vec<Event> = std::iter::from_fn(|| link.ends[1].poll_event()).collect();
    assert!(matches!(events.last(), Some(Event::Failed { .. })));
    assert!(!events.iter().any(|event| matches!(
        event,
        Event::Completion(Completion {
            status: Status::Success,
            ..
        })
    )));
}

/// The acknowledgment that end 1 gives to the first data packet.
fn honest_ack(forge: &mut Forge) -> Vec<u8> {
    forge.deliver(0, |b| ask(b)).remove(0)
}

#[test]
fn acknowledgments_that_cannot_be_true_change_nothing() {
    let mut forge = Forge::new();
    let ack = honest_ack(&mut forge);
    let sack_of = |bit: usize| {
        let mut vector = [0u8; 32];
        vector[bit / 8] = 0x80 >> (bit % 8);
        vector
    };
    let with_vector = |vector: [u8; 32]| {
        move |b: &mut Vec<u8>| {
            b[1] = Opcode::ACK_SACK.0;
            b.splice(40..40, vector);
        }
    };
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    // Path 0 has sent five packets, ISN to ISN + 4.
    let forgeries: Vec<(&str, Change)> = vec![
        ("one too many", Box::new(|b| b[11] += 5)),
        ("far ahead", Box::new(|b| b[8] += 0x30)),
        ("another path", Box::new(|b| b[3] = 7)),
        ("another epoch", Box::new(|b| b[0] |= 3)),
        ("bit of the never sent", Box::new(with_vector(sack_of(4)))),
        ("the last bit", Box::new(with_vector(sack_of(255)))),
        ("bit 0", Box::new(with_vector(sack_of(0)))),
        ("reserved flag", Box::new(|b| b[23] = 1)),
    ];
    let before = forge.link.counters(0);
    for (what, change) in &forgeries {
        let mut bytes = ack.clone();
        change(&mut bytes);
        forge.reseal(0, &mut bytes);
        assert!(forge.deliver_raw(0, &bytes).is_empty(), "{what}");
        assert_eq!(forge.link.ends[0].poll_event(), None, "{what}");
    }
    let after = forge.link.counters(0);
    assert_eq!(after.bad_acks - before.bad_acks, 6);
    assert_eq!(after.malformed - before.malformed, 2);
    assert_eq!(after.retransmissions, 0);
}

#[test]
fn an_echo_of_what_was_never_sent_repairs_nothing() {
    let mut forge = Forge::new();
    let ack = honest_ack(&mut forge);
    for echo in [0u32, 5_000_000, 0x7fff_ffff, 0xffff_ffff] {
        let mut bytes = ack.clone();
        bytes[16..20].copy_from_slice(&echo.to_be_bytes());
        forge.reseal(0, &mut bytes);
        assert!(forge.deliver_raw(0, &bytes).is_empty(), "echo {echo:#x}");
    }
    assert_eq!(forge.link.counters(0).retransmissions, 0);
}

#[test]
fn a_nak_of_what_was_never_sent_fails_nothing() {
    let mut forge = Forge::new();
    let nak = forge.deliver(0, |b| b[43] ^= 1).remove(0);
    for (at, value) in [(27, 9u8), (24, 7), (23, 3), (19, 2), (3, 9)] {
        let mut bytes = nak.clone();
        bytes[at] ^= value;
        forge.reseal(0, &mut bytes);
        forge.deliver_raw(0, &bytes);
        assert_eq!(forge.link.ends[0].poll_event(), None, "byte {at}");
    }
    forge.deliver_raw(0, &nak);
    assert!(forge.link.ends[0].poll_event().is_some());
}

#[test]
fn misuse_is_told_and_changes_nothing() {
    let mut link = Link::new(6, 0);
    link.establish(1, 1, None);
    let buffer = link.source(0, &[0; 10]);
    let end = &mut link.ends[0];
    let beyond = Buffer { len: 11, ..buffer };
    let foreign = Buffer { mr: 99, ..buffer };
    assert_eq!(end.post_send(1, 0, 0, 1, beyond), Err(Misuse::NoMemory));
    assert_eq!(end.post_recv(1, 0, 0, 1, foreign), Err(Misuse::NoMemory));
    assert_eq!(end.post_send(1, 0, 2, 1, buffer), Err(Misuse::NoStream(2)));
    assert_eq!(
        end.post_send(1, 5, 0, 1, buffer),
        Err(Misuse::NoConnection(5))
    );
    let wraps = end.post_write(1, 0, 0, 1, buffer, u64::MAX, 1);
    assert_eq!(wraps, Err(Misuse::Range { what: "va" }));
    assert!(end.register(usize::MAX, Default::default()).is_err());
    let huge = Buffer {
        offset: usize::MAX,
        ..buffer
    };
    assert_eq!(end.post_send(1, 0, 0, 1, huge), Err(Misuse::NoMemory));
    link.run_until_idle();
    assert!(link.completions(0).is_empty());
}

#[test]
fn every_truncation_and_every_bit_of_every_kind_of_packet_is_survived() {
    let mut link = Link::new(7, 50);
    link.establish(2, 2, None);
    let receive = link.target(1, 3000);
    let receive = Buffer {
        mr: receive.mr,
        offset: 0,
        len: 3000,
    };
    link.ends[1].post_recv(link.now, 0, 0, 1, receive).unwrap();
    let buffer = link.source(0, &bytes(1, 3000));
    link.ends[0].post_send(link.now, 0, 0, 1, buffer).unwrap();
    link.write_and_check(0, 2, 30_000);
    link.ends[0].close(link.now, 0).unwrap();
    link.watch.on = false;
    link.run(|link| {
        link.events[1]
            .iter()
            .any(|e| matches!(e, Event::Closed { .. }))
    });
    let mut kinds = std::collections::BTreeMap::new();
    for (_, from, bytes) in &link.sent {
        kinds.insert((*from, bytes[1]), bytes.clone());
    }
    assert!(kinds.len() >= 14, "{}", kinds.len());
    // To an endpoint in each state of life.
    for age in 0..4 {
        let mut link = Link::new(7, 50);
        link.watch.on = false;
        match age {
            0 => link.ends[1].listen(Link::service(2, 2, None)).unwrap(),
            1 => {
                let peer = link.addresses[0];
                let service = Link::service(2, 2, None);
                link.ends[1].connect(link.now, peer, service).unwrap();
            }
            _ => link.establish(2, 2, None),
        }
        if age == 3 {
            link.ends[1].close(link.now, 0).unwrap();
        }
        let from = link.addresses[0];
        let pseudo = PseudoHeader::new(from.ip(), link.addresses[1]);
        let mut out = Vec::new();
        for bytes in kinds.values() {
            let mut forgeries: Vec<Vec<u8>> = (4..bytes.len().min(160))
                .map(|len| bytes[..len].to_vec())
                .collect();
            for bit in 0..bytes.len().min(140) * 8 {
                let mut forged = bytes.clone();
                forged[bit / 8] ^= 0x80 >> (bit % 8);
                forgeries.push(forged);
            }
            for mut forged in forgeries {
                seal(&pseudo, &mut forged).unwrap();
                link.now += 1_000;
                link.ends[1].handle_datagram(link.now, from, Ecn::Ect0, &forged);
                link.ends[1].handle_timeout(link.now);
                while link.ends[1].poll_transmit(link.now, &mut out).is_some() {}
                while link.ends[1].poll_event().is_some() {}
            }
        }
    }
}
