//! Mutants of set-up and close.

use metaroce_wire::metaroce::{
    Body, Cbh, ConfirmAck, Opcode, Packet, Params, Planes, parse_unsealed,
};

use super::catalogue;
use super::edge::{Edge, Edit, Received, Sent};
use super::tools::{at, change, dropping, each, put, sending, u16_at, u32_at};
use crate::core::Ecn;

/// Where PARAMS stand in OPEN, ACCEPT and CONFIRM.
const PARAMS: usize = 16;
const PATHS: usize = PARAMS + 2;
const STREAMS: usize = PARAMS + 24;
const OPEN_PADDING: usize = PARAMS + Params::LEN + Planes::LEN;
const COOKIE: usize = OPEN_PADDING;

/// Spoils the first packet of a kind only: its repetition is sound, so that the exchange comes to its end.
fn first(kind: Opcode, mut edit: impl FnMut(&mut Vec<u8>) + Send) -> impl Edit {
    let mut done = false;
    each(move |cbh, sent| {
        if cbh.opcode == kind && !done {
            done = true;
            edit(&mut sent.bytes);
        }
    })
}

/// Spoils the first CONFIRM and does not listen to the refusal.
struct SpoiledConfirm {
    done: bool,
    at: usize,
}

impl Edit for SpoiledConfirm {
    fn outgoing(&mut self, edge: &mut Edge, mut sent: Sent) {
        if is(&sent.bytes, Opcode::CONFIRM) && !self.done {
            self.done = true;
            change(&mut sent.bytes, self.at, |byte| byte ^ 1);
        }
        edge.send(sent);
    }
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        if !is(&received.bytes, Opcode::REJECT) {
            edge.deliver(received);
        }
    }
}

/// Takes CONFIRM for answered as soon as it is sent.
#[derive(Default)]
struct Hasty {
    nonce: u64,
    scid: Option<metaroce_wire::metaroce::U24>,
}

impl Edit for Hasty {
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        let packet = parse_unsealed(&sent.bytes).ok();
        match packet.map(|packet| (packet.cbh, packet.body)) {
            Some((_, Body::Open(open))) => {
                self.nonce = open.params.nonce;
                self.scid = Some(open.params.scid);
            }
            Some((cbh, Body::Confirm(_))) => {
                if let Some(scid) = self.scid {
                    let answer = Packet {
                        cbh: Cbh {
                            psn: cbh.psn,
                            timestamp: cbh.timestamp,
                            ..Cbh::new(Opcode::CONFIRM_ACK, scid)
                        },
                        body: Body::ConfirmAck(ConfirmAck { nonce: self.nonce }),
                    };
                    let pseudo =
                        metaroce_wire::crc::PseudoHeader::new(sent.transmit.dst.ip(), edge.local);
                    let mut bytes = vec![0; answer.wire_len()];
                    if answer.emit(&mut bytes, &pseudo).is_ok() {
                        edge.deliver(Received {
                            to: edge.local.ip(),
                            from: sent.transmit.dst,
                            ecn: Ecn::NotEct,
                            bytes,
                            sound: true,
                            reseal: false,
                        });
                    }
                }
            }
            _ => {}
        }
        edge.send(sent);
    }
}

/// Uses the transaction id of CONFIRM for the first STREAM_OPEN once more.
#[derive(Default)]
struct ReusedId {
    confirm: Option<u32>,
    /// Own id of that STREAM_OPEN.
    own: Option<u32>,
}

impl Edit for ReusedId {
    fn outgoing(&mut self, edge: &mut Edge, mut sent: Sent) {
        let id = u32_at(&sent.bytes, at::PSN);
        if is(&sent.bytes, Opcode::CONFIRM) {
            self.confirm = Some(id);
        }
        if is(&sent.bytes, Opcode::STREAM_OPEN)
            && let Some(confirm) = self.confirm
            && *self.own.get_or_insert(id) == id
        {
            put(&mut sent.bytes, at::PSN, &confirm.to_be_bytes());
        }
        edge.send(sent);
    }
    fn incoming(&mut self, edge: &mut Edge, mut received: Received) {
        let answered = Some(u32_at(&received.bytes, at::PSN)) == self.confirm;
        if is(&received.bytes, Opcode::STREAM_OPEN_ACK)
            && answered
            && let Some(own) = self.own
        {
            put(&mut received.bytes, at::PSN, &own.to_be_bytes());
            received.reseal = true;
        }
        edge.deliver(received);
    }
}

fn is(bytes: &[u8], kind: Opcode) -> bool {
    bytes.get(1) == Some(&kind.0)
}

catalogue! {
    "padding-in-open" "CONN-002" ["CONN-014", "CONN-022"]
        because "the sound repetition differs from the spoiled first one under the same transaction id"
        "fills the first OPEN up with bytes that are not zero" =>
        first(Opcode::OPEN, |bytes| change(bytes, OPEN_PADDING, |_| 1));
    "accept-for-another" "CONN-005" [] "sends the first ACCEPT under another transaction id" =>
        first(Opcode::ACCEPT, |bytes| change(bytes, at::PSN, |byte| byte ^ 1));
    "accept-raises-paths" "CONN-007" [] "agrees to one path more than was offered" =>
        first(Opcode::ACCEPT, |bytes| {
            let more = u16_at(bytes, PATHS).wrapping_add(1);
            put(bytes, PATHS, &more.to_be_bytes());
        });
    "reject-wrong-nonce" "CONN-011" [] "echoes another nonce in REJECT" =>
        each(|cbh, sent| if cbh.opcode == Opcode::REJECT { change(&mut sent.bytes, 20, |byte| byte ^ 1); });
    "confirm-changes-offer" "CONN-012" ["CONN-014", "CONN-022"]
        because "the sound repetition differs from the spoiled first one under the same transaction id"
        "asks for other streams in the first CONFIRM than in OPEN" =>
        SpoiledConfirm { done: false, at: STREAMS + 1 };
    "confirm-changes-cookie" "CONN-013" ["CONN-014", "CONN-022"]
        because "the sound repetition differs from the spoiled first one under the same transaction id"
        "spoils the cookie in the first CONFIRM" =>
        SpoiledConfirm { done: false, at: COOKIE };
    "reused-transaction" "CONN-014" ["CONN-023"]
        because "two requests under one id look like one that is repeated too soon"
        "sends the first STREAM_OPEN under the transaction id of CONFIRM" =>
        ReusedId::default();
    "confirm-ack-wrong-nonce" "CONN-015" ["CONN-025"]
        because "the sound answer to the repetition differs from the spoiled first one"
        "echoes another nonce in the first CONFIRM_ACK" =>
        first(Opcode::CONFIRM_ACK, |bytes| change(bytes, 16, |byte| byte ^ 1));
    "confirm-answered-once" "CONN-018" [] "does not answer the first repetition of CONFIRM" => {
        let mut count = 0u32;
        dropping(move |cbh, _| {
            if cbh.opcode == Opcode::CONFIRM_ACK { count += 1; }
            cbh.opcode == Opcode::CONFIRM_ACK && count == 2
        })
    };
    "hasty-initiator" "CONN-019" [] "opens streams as soon as CONFIRM is sent" => Hasty::default();
    "repeated-differently" "CONN-022" ["CONN-014"]
        because "other bytes under a transaction id are a reuse of that id"
        "sends the first STREAM_OPEN with other queue pair numbers when it repeats it" => {
        let mut seen = std::collections::BTreeSet::new();
        each(move |cbh, sent| {
            if cbh.opcode == Opcode::STREAM_OPEN && !seen.insert(cbh.psn.value()) {
                change(&mut sent.bytes, 31, |byte| byte ^ 0x80);
            }
        })
    };
    "impatient" "CONN-023" [] "repeats the first STREAM_OPEN and the first CLOSE after 1 ms" => {
        let mut seen = std::collections::BTreeSet::new();
        sending(move |edge, cbh, sent| {
            let kinds = [Opcode::STREAM_OPEN, Opcode::CLOSE];
            if kinds.contains(&cbh.opcode) && seen.insert(cbh.opcode.0) {
                edge.send_at(edge.now + 1_000_000, sent.clone());
            }
            edge.send(sent);
        })
    };
    "silent-on-close" "CONN-026" ["CONN-029"]
        because "it answers no repeated CLOSE either"
        "does not answer CLOSE" =>
        dropping(|cbh, _| cbh.opcode == Opcode::CLOSE_ACK);
    "close-answered-once" "CONN-029" ["CONN-026"]
        because "a repeated CLOSE is a CLOSE that is not answered"
        "answers CLOSE once only" => {
        let mut answered = false;
        dropping(move |cbh, _| cbh.opcode == Opcode::CLOSE_ACK && std::mem::replace(&mut answered, true))
    };
}
