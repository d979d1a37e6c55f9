//! Mutants that take what they ought to refuse. What they take has not arrived in the sense of the specification, so that
//! whatever they say of it besides is wrong as well.

use metaroce_wire::metaroce::{Cbh, MFlags, Opcode};

use super::catalogue;
use super::edge::{Edge, Edit, Received, Sent};
use super::tools::{Counting, at, change, put, receiving};

/// Remembers what it learns from sound packets, and makes others look like them.
#[derive(Default)]
struct Lenient {
    /// Own connection id, low byte last.
    own: Option<[u8; 3]>,
    peer: Option<std::net::SocketAddr>,
    what: Leniency,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Leniency {
    #[default]
    Crc,
    Connection,
    Address,
}

/// Where the base header has the connection id.
const DCID: usize = 5;

impl Edit for Lenient {
    fn incoming(&mut self, edge: &mut Edge, mut received: Received) {
        let sound = received.sound;
        let data = Cbh::read(&received.bytes).is_ok_and(|(cbh, _)| cbh.opcode.is_data());
        let dcid = received
            .bytes
            .get(DCID..)
            .and_then(|rest| rest.first_chunk::<3>())
            .copied();
        if sound && !data && dcid.is_some_and(|dcid| dcid != [0; 3]) && self.own.is_none() {
            // The first sound packet with a connection id is part of the handshake, so both are right.
            self.own = dcid;
            self.peer = Some(received.from);
        }
        if data {
            match (self.what, self.own, self.peer) {
                (Leniency::Crc, ..) => (received.sound, received.reseal) = (true, true),
                (Leniency::Connection, Some(own), _) if sound && dcid != Some(own) => {
                    put(&mut received.bytes, DCID, &own);
                    received.reseal = true;
                }
                (Leniency::Address, _, Some(peer)) if sound && received.from.ip() != peer.ip() => {
                    received.from = peer;
                    received.reseal = true;
                }
                _ => {}
            }
        }
        edge.deliver(received);
    }
}

/// Answers what it does not know with a NAK.
#[derive(Default)]
struct Talkative {
    /// Its latest acknowledgment, from which the answer takes what every packet has.
    latest: Option<Sent>,
}

impl Talkative {
    /// A NAK of the packet: the base header of an acknowledgment, code REM_INV_REQ for that packet alone.
    fn refusal(&self, of: &Cbh) -> Option<Sent> {
        let mut sent = self.latest.clone()?;
        sent.bytes.truncate(Cbh::LEN);
        put(&mut sent.bytes, at::OPCODE, &[Opcode::NAK.0]);
        put(&mut sent.bytes, at::PATH, &[of.path]);
        put(&mut sent.bytes, at::PSN, &[0; 4]);
        sent.bytes.extend([0x10, 0, 0, 0, 0, 0, 0, 0]);
        sent.bytes.extend(of.psn.value().to_be_bytes());
        // The detail, and room for the trailer.
        sent.bytes.extend([0; 8]);
        Some(sent)
    }
}

impl Edit for Talkative {
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        if matches!(sent.bytes.get(1), Some(0x40 | 0x41)) {
            self.latest = Some(sent.clone());
        }
        edge.send(sent);
    }
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        if let Ok((cbh, _)) = Cbh::read(&received.bytes)
            && received.sound
            && cbh.version == 1
            && !Opcode::ALL.contains(&cbh.opcode)
            && let Some(refusal) = self.refusal(&cbh)
        {
            edge.send(refusal);
        }
        edge.deliver(received);
    }
}

/// Takes a packet although reserved bits are set in it.
fn without_reserved(cbh: &Cbh, received: &mut Received) -> bool {
    if !cbh.opcode.is_data() {
        return false;
    }
    let before = received.bytes.clone();
    change(&mut received.bytes, at::FLAGS, |flags| flags & 0xf0);
    change(&mut received.bytes, at::PAD, |byte| byte & 0xc0);
    change(&mut received.bytes, at::MFLAGS, |mflags| {
        mflags & !MFlags::RESERVED.0
    });
    before != received.bytes
}

catalogue! {
    "takes-wrong-crc" "CONV-006" ["CONV-007", "CONV-008", "CONV-012", "STRM-004", "STRM-019", "STRM-020", "REL-007", "REL-012", "REL-013", "REL-021", "REL-022",
        "REL-038", "ECN-003", "ECN-004"]
        because "what is taken is placed, counted and acknowledged, and the sound repair that follows is a duplicate"
        "takes data whose trailer is wrong" => Lenient { what: Leniency::Crc, ..Lenient::default() };
    "answers-unknown" "CONV-009" ["PKT-015"]
        because "its answer is a NAK of a packet that is no data"
        "answers packets of unknown kind" => Talkative::default();
    "takes-other-version" "CONV-010" ["STRM-004", "REL-007", "REL-021", "REL-022"]
        because "what is taken is placed, counted and acknowledged, and the sound one that follows is a duplicate"
        "takes data of other versions" =>
        receiving(|cbh, received| {
            let other = cbh.opcode.is_data() && cbh.version != 1;
            if other { change(&mut received.bytes, 0, |first| 0x10 | first & 0x0f); }
            other
        });
    "takes-reserved-bits" "CONV-011" ["STRM-004", "REL-007", "REL-021", "REL-022"]
        because "what is taken is placed, counted and acknowledged, and the sound one that follows is a duplicate"
        "takes data with reserved bits set" => receiving(without_reserved);
    "counts-no-damage" "CONV-012" [] "does not count wrong trailers" => Counting(|counters| counters.crc_errors = 0);
    "takes-other-connection" "CONN-030" ["STRM-004", "REL-007", "REL-021", "REL-022"]
        because "what is taken is placed, counted and acknowledged, and the sound one that follows is a duplicate"
        "takes data under a connection id that it does not know" =>
        Lenient { what: Leniency::Connection, ..Lenient::default() };
    "takes-other-address" "CONN-032" [] "takes data from an address that is not the peer's" =>
        Lenient { what: Leniency::Address, ..Lenient::default() };
    "takes-other-epoch" "PATH-008" ["STRM-004", "REL-007", "REL-021", "REL-022"]
        because "what is taken is placed, counted and acknowledged, and the sound one that follows is a duplicate"
        "takes data of another epoch" =>
        receiving(|cbh, received| {
            let other = cbh.opcode.is_data() && cbh.epoch != 0;
            if other { change(&mut received.bytes, 0, |first| first & 0xf0); }
            other
        });
}
