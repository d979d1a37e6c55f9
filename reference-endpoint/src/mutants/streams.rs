//! Mutants of streams, messages and completions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use metaroce_wire::metaroce::{Body, Cbh, Opcode, parse_unsealed};

use super::catalogue;
use super::edge::{Edge, Edit, Reach, Received, Sent};
use super::tools::{
    ack_copies, at, change, dropping, is_new, put, receiving, reporting, some_data, u16_at,
};
use crate::adapter::Work;
use crate::core::{Completion, Event, Service, Status, WorkKind};

/// Where the message header has its offset.
const OFFSET: usize = 24;
const LARGEST_WINDOW: u16 = 32_767;
/// Where OPEN, ACCEPT and CONFIRM have the message window, and CONFIRM that of the acceptor.
const WINDOW: usize = 16 + 26;
const CONFIRM_WINDOW: usize = 204 + 26;
const RQ_CREDIT_LIMIT: usize = 20;
const STREAM_OPEN_LIMIT: usize = 26;
/// Where RQ_CREDIT tells an asking one from a telling one.
const RQ_CREDIT_KIND: usize = 18;

/// Believes that the peer has posted eight receives more than it says.
fn overdraw(cbh: &Cbh, received: &mut Received) -> bool {
    let at = match cbh.opcode {
        Opcode::ACK | Opcode::ACK_SACK => at::RQ_LIMIT,
        Opcode::RQ_CREDIT if received.bytes.get(RQ_CREDIT_KIND) == Some(&1) => RQ_CREDIT_LIMIT,
        Opcode::STREAM_OPEN | Opcode::STREAM_OPEN_ACK => STREAM_OPEN_LIMIT,
        _ => return false,
    };
    let more = u16_at(&received.bytes, at).wrapping_add(8);
    put(&mut received.bytes, at, &more.to_be_bytes());
    true
}

/// As initiator, works with the largest message window while the wire names the agreed one.
#[derive(Default)]
struct WideWindow {
    offered: u16,
    agreed: Option<u16>,
}

impl Edit for WideWindow {
    fn connecting(&mut self, service: &mut Service) {
        self.offered = std::mem::replace(&mut service.msg_window, LARGEST_WINDOW);
    }
    fn outgoing(&mut self, edge: &mut Edge, mut sent: Sent) {
        if matches!(sent.bytes.get(1), Some(0x60 | 0x63)) {
            put(&mut sent.bytes, WINDOW, &self.offered.to_be_bytes());
        }
        if sent.bytes.get(1) == Some(&Opcode::CONFIRM.0)
            && let Some(agreed) = self.agreed
        {
            put(&mut sent.bytes, CONFIRM_WINDOW, &agreed.to_be_bytes());
        }
        edge.send(sent);
    }
    fn incoming(&mut self, edge: &mut Edge, mut received: Received) {
        if received.bytes.get(1) == Some(&Opcode::ACCEPT.0) {
            self.agreed = Some(u16_at(&received.bytes, WINDOW));
            put(&mut received.bytes, WINDOW, &LARGEST_WINDOW.to_be_bytes());
            received.reseal = true;
        }
        edge.deliver(received);
    }
}

/// Does not answer when it is asked for credit.
#[derive(Default)]
struct NoCredit {
    asked: std::collections::BTreeSet<u32>,
}

impl Edit for NoCredit {
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        if let Ok((cbh, _)) = Cbh::read(&received.bytes)
            && cbh.opcode == Opcode::RQ_CREDIT
            && received.bytes.get(RQ_CREDIT_KIND) == Some(&0)
        {
            self.asked.insert(cbh.psn.value());
        }
        edge.deliver(received);
    }
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        let answers = Cbh::read(&sent.bytes).is_ok_and(|(cbh, _)| {
            cbh.opcode == Opcode::RQ_CREDIT
                && sent.bytes.get(RQ_CREDIT_KIND) == Some(&1)
                && self.asked.contains(&cbh.psn.value())
        });
        if !answers {
            edge.send(sent);
        }
    }
}

/// Reports work as done when its last packet has been sent.
#[derive(Default)]
struct Early {
    /// Work by stream, in the order of posting; the messages take their numbers in the same order.
    posted: BTreeMap<u16, VecDeque<Work>>,
    /// Work under a message number, by stream.
    under_way: BTreeMap<(u16, u32), Work>,
    reported: std::collections::BTreeSet<(u16, u64)>,
}

impl Edit for Early {
    fn posted(&mut self, work: &Work) {
        if work.is_plain() {
            let posted = self.posted.entry(work.stream).or_default();
            posted.push_back(work.clone());
        }
    }
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        if let Ok(packet) = parse_unsealed(&sent.bytes)
            && is_new(&packet.cbh)
            && let Body::Send(metaroce_wire::metaroce::Send { msgh, .. })
            | Body::Write(metaroce_wire::metaroce::Write { msgh, .. }) = packet.body
        {
            let key = (msgh.stream, msgh.msn.value());
            if msgh.mflags.has(metaroce_wire::metaroce::MFlags::SOM)
                && let Some(work) = self
                    .posted
                    .get_mut(&msgh.stream)
                    .and_then(VecDeque::pop_front)
            {
                self.under_way.insert(key, work);
            }
            if msgh.mflags.has(metaroce_wire::metaroce::MFlags::EOM)
                && let Some(work) = self.under_way.remove(&key)
            {
                self.reported.insert((work.stream, work.wr_id));
                edge.report(Event::Completion(work.succeeded(msgh.len)));
            }
        }
        edge.send(sent);
    }
    fn event(&mut self, edge: &mut Edge, event: Event) {
        let told = match &event {
            Event::Completion(Completion {
                stream,
                wr_id,
                kind: WorkKind::Send | WorkKind::Write,
                ..
            }) => self.reported.remove(&(*stream, *wr_id)),
            _ => false,
        };
        if !told {
            edge.report(event);
        }
    }
}

/// Reports the completions of a kind two by two in the wrong order. The first of two waits for the second, but not for
/// ever.
struct Swapped {
    picks: fn(WorkKind) -> bool,
    waiting: Option<u16>,
}

impl Edit for Swapped {
    fn event(&mut self, edge: &mut Edge, event: Event) {
        let Event::Completion(Completion {
            kind,
            stream,
            status: Status::Success,
            ..
        }) = event
        else {
            edge.report(event);
            return;
        };
        if !(self.picks)(kind) {
            edge.report(event);
            return;
        }
        match edge.take_held_event() {
            Some(first) if self.waiting == Some(stream) => {
                edge.report(event);
                edge.report(first);
            }
            other => {
                if let Some(other) = other {
                    edge.report(other);
                }
                self.waiting = Some(stream);
                edge.report_at(edge.now + 5_000_000, event);
            }
        }
    }
}

/// Writes one byte beside the place of each Write that ends a message.
struct OneTooMany;

impl Edit for OneTooMany {
    fn arrived(&mut self, bytes: &[u8], memory: &mut Reach<'_>) {
        let Ok(packet) = parse_unsealed(bytes) else {
            return;
        };
        let Body::Write(write) = packet.body else {
            return;
        };
        let end = write.tagh.va.saturating_add(u64::from(write.msgh.len));
        // Behind the message, or before it where its region ends with it.
        let place = if memory.byte(write.tagh.rkey, end).is_some() {
            end
        } else {
            write.tagh.va.wrapping_sub(1)
        };
        if let Some(byte) = memory.byte(write.tagh.rkey, place) {
            *byte = 0x5a;
        }
    }
}

/// Places the payload of each Write whenever it comes, and not only the first time.
#[derive(Default)]
struct PlacesAgain {
    seen: BTreeSet<(u8, u32)>,
}

impl Edit for PlacesAgain {
    fn arrived(&mut self, bytes: &[u8], memory: &mut Reach<'_>) {
        let Ok(packet) = parse_unsealed(bytes) else {
            return;
        };
        let Body::Write(write) = packet.body else {
            return;
        };
        if self.seen.insert((packet.cbh.path, packet.cbh.psn.value())) {
            return;
        }
        let start = write.tagh.va.saturating_add(u64::from(write.msgh.offset));
        for (va, byte) in (start..).zip(write.payload) {
            if let Some(place) = memory.byte(write.tagh.rkey, va) {
                *place = *byte;
            }
        }
    }
}

fn is_middle(bytes: &[u8]) -> bool {
    bytes
        .get(OFFSET..OFFSET + 4)
        .is_some_and(|offset| offset != [0; 4])
}

catalogue! {
    "som-inside" "STRM-015" ["REL-027"]
        because "the spoiled first transmission differs from its sound repair"
        "sets SOM on some packets inside a message; the repair is right" =>
        some_data(|_, sent| {
            let middle = is_middle(&sent.bytes);
            if middle { change(&mut sent.bytes, at::MFLAGS, |mflags| mflags | 0x80); }
            middle
        });
    "eom-everywhere" "STRM-016" ["REL-027"]
        because "the spoiled first transmission differs from its sound repair"
        "sets EOM on some packets that end no message; the repair is right" =>
        some_data(|_, sent| {
            let open = sent.bytes.get(at::MFLAGS).is_some_and(|mflags| mflags & 0x40 == 0);
            if open { change(&mut sent.bytes, at::MFLAGS, |mflags| mflags | 0x40); }
            open
        });
    "rqsn-on-write" "STRM-008" ["REL-027", "STRM-009"]
        because "the spoiled first transmission differs from its sound repair; receive numbers are counted over all packets"
        "sends a receive number in some Writes; the repair has none" =>
        some_data(|cbh, sent| {
            if cbh.opcode == Opcode::WRITE { put(&mut sent.bytes, 18, &[0, 1]); }
            cbh.opcode == Opcode::WRITE
        });
    "overdraws" "STRM-010" ["STRM-030"]
        because "who sends without credit does not ask for it"
        "sends up to eight Sends more than there is credit for" => receiving(overdraw);
    "past-message-window" "STRM-011" [] "as initiator, starts messages beyond the agreed window" => WideWindow::default();
    "one-byte-too-many" "STRM-021" ["STRM-019", "CONV-008", "REL-006", "STRM-032"]
        because "the byte beside a message may belong to its neighbour: content, region and completeness suffer with it"
        "changes one byte beside each message that is written" => OneTooMany;
    "receives-out-of-order" "STRM-024" [] "reports receives two by two in the wrong order" =>
        Swapped { picks: |kind| kind == WorkKind::Recv, waiting: None };
    "receives-longer" "STRM-026" [] "reports one byte more than was received" =>
        reporting(|event| if let Event::Completion(Completion { kind: WorkKind::Recv, status: Status::Success, byte_len, .. }) = event {
            *byte_len += 1;
        });
    "completes-early" "STRM-027" ["CONN-026"]
        because "it closes before its last packet has arrived, while the peer is not ready to answer"
        "reports work as done when its last packet has been sent" => Early::default();
    "completes-out-of-order" "STRM-028" [] "reports sent work two by two in the wrong order" =>
        Swapped { picks: |kind| kind != WorkKind::Recv, waiting: None };
    "credit-not-told" "STRM-029" [] "does not answer when it is asked for credit" => NoCredit::default();
    "asks-for-no-credit" "STRM-030" [] "does not ask for credit" =>
        dropping(|cbh, sent| cbh.opcode == Opcode::RQ_CREDIT && sent.bytes.get(RQ_CREDIT_KIND) == Some(&0));
    "credit-taken-back" "STRM-031" [] "repeats acknowledgments with one receive less" =>
        ack_copies(|_, sent| {
            let limit = u16_at(&sent.bytes, at::RQ_LIMIT);
            put(&mut sent.bytes, at::RQ_LIMIT, &limit.wrapping_sub(1).to_be_bytes());
            limit > 0
        });
    "duplicate-placed" "REL-006" [] "places the payload of a Write again when it comes again" => PlacesAgain::default();
    "wrong-refusal" "STRM-036" [] "reports an access that the peer has refused as an invalid request" =>
        reporting(|event| if let Event::Completion(Completion { status: status @ Status::RemAccessErr, .. }) = event {
            *status = Status::RemInvReqErr;
        });
    "wrong-excess" "STRM-038" [] "reports a Send that the peer calls too long as an access refused" =>
        reporting(|event| if let Event::Completion(Completion { status: status @ Status::RemInvReqErr, .. }) = event {
            *status = Status::RemAccessErr;
        });
    "wrong-flush" "STRM-037" [] "reports flushed work as failed by itself" =>
        reporting(|event| if let Event::Completion(Completion { status: status @ Status::WrFlushErr, .. }) = event {
            *status = Status::RemInvReqErr;
        });
}
