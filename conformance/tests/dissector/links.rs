//! The links between the frames of a capture, computed in the plainest way: every frame looks at all before it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use metaroce_conformance::trace::Side;
use metaroce_wire::metaroce::{Packet, Value};

/// A packet of the capture that its trailer and the parser accept.
pub struct Seen {
    /// Number of its frame, from 1.
    pub frame: u64,
    tap: Side,
    src: IpAddr,
    dst: IpAddr,
    name: &'static str,
    dcid: u64,
    /// Epoch and path.
    path: (u64, u64),
    psn: u32,
    /// Whether the packet takes a PSN.
    is_data: bool,
    numbers: BTreeMap<String, u64>,
    vector: Vec<u8>,
}

/// What the dissector should show of one frame besides its fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links {
    pub original: Vec<u64>,
    pub again: Vec<u64>,
    pub acks: Vec<u64>,
    pub acked: Vec<u64>,
    pub request: Vec<u64>,
    pub response: Vec<u64>,
    pub refuses: Vec<u64>,
    pub refused: Vec<u64>,
}

impl Seen {
    pub fn new(frame: u64, tap: Side, src: IpAddr, dst: IpAddr, packet: &Packet<'_>) -> Self {
        let mut seen = Self {
            frame,
            tap,
            src,
            dst,
            name: packet.cbh.opcode.name().unwrap_or("UNKNOWN"),
            dcid: packet.cbh.dcid.value().into(),
            path: (packet.cbh.epoch.into(), packet.cbh.path.into()),
            psn: packet.cbh.psn.value(),
            is_data: packet.cbh.opcode.is_data() && packet.cbh.opcode.name().is_some(),
            numbers: BTreeMap::new(),
            vector: Vec::new(),
        };
        packet.visit(&mut |layer, field, value| match value {
            Value::Int(number) => {
                seen.numbers.insert(format!("{layer}.{field}"), number);
            }
            Value::Bytes(bytes) if field == "sack" => seen.vector = bytes.to_vec(),
            Value::Bytes(_) => {}
        });
        seen
    }

    fn number(&self, name: &str) -> u64 {
        self.numbers[name]
    }

    /// Whether the packet is marked as a retransmission.
    pub fn is_retransmission(&self) -> bool {
        self.is_data && self.number("CBH.flags") & 0x40 != 0
    }

    /// Whether an earlier packet of the capture, at either tap, has the same PSN on the same path.
    pub fn has_original(&self, seen: &[Self]) -> bool {
        let mut before = seen.iter().filter(|other| other.frame < self.frame);
        before.any(|other| self.is_same(other))
    }

    fn is_same(&self, other: &Self) -> bool {
        other.psn == self.psn
            && other.is_data
            && (other.src, other.dst) == (self.src, self.dst)
            && other.dcid == self.dcid
            && other.path == self.path
    }

    /// The PSN up to which an acknowledgment or a report of a path has everything.
    fn cumulative(&self) -> Option<u32> {
        match self.name {
            "ACK" | "ACK_SACK" => Some(self.psn),
            "PATH_PROBE_ACK" | "PATH_RETIRED" => {
                Some(self.number(&format!("{}.cum_psn", self.name)) as u32)
            }
            _ => None,
        }
    }

    /// Whether an acknowledgment with this cumulative PSN has `psn`.
    fn covers(&self, cumulative: u32, psn: u32) -> bool {
        let distance = psn.wrapping_sub(cumulative);
        if distance == 0 || distance > u32::MAX / 2 {
            return true;
        }
        let bit = distance as usize - 1;
        self.vector
            .get(bit / 8)
            .is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1)
    }

    /// Whether `data` is what this packet speaks about, given which ids belong together.
    fn speaks_of(&self, data: &Self, pairs: &BTreeSet<(u64, u64)>) -> bool {
        if !data.is_data || data.path != self.path || !self.answers(data) {
            return false;
        }
        match (self.name, self.dcid) {
            ("NAK", 0) => data.dcid == self.number("NAK.detail"),
            _ => pairs.contains(&(self.dcid, data.dcid)),
        }
    }

    /// Whether the other packet went the other way, at the same tap.
    fn answers(&self, other: &Self) -> bool {
        (self.tap, self.src, self.dst) == (other.tap, other.dst, other.src)
    }
}

/// What answers what.
const ANSWERS: [(&str, &[&str]); 8] = [
    ("ACCEPT", &["OPEN"]),
    ("REJECT", &["OPEN", "CONFIRM"]),
    ("CONFIRM_ACK", &["CONFIRM"]),
    ("CLOSE_ACK", &["CLOSE"]),
    ("PATH_PROBE_ACK", &["PATH_PROBE"]),
    ("PATH_RETIRED", &["PATH_RETIRE"]),
    ("STREAM_RESET_ACK", &["STREAM_RESET"]),
    ("STREAM_OPEN_ACK", &["STREAM_OPEN"]),
];

/// Whether `answer` answers `request`, the ids of the connection aside.
fn is_answer(answer: &Seen, request: &Seen) -> bool {
    let kinds = match answer.name {
        "RQ_CREDIT" if request.name == "RQ_CREDIT" => {
            answer.number("RQ_CREDIT.kind") == 1 && request.number("RQ_CREDIT.kind") == 0
        }
        _ => ANSWERS
            .iter()
            .any(|(name, requests)| *name == answer.name && requests.contains(&request.name)),
    };
    kinds && answer.psn == request.psn && answer.answers(request)
}

/// Which connection ids belong together, both ways, as the handshakes of the capture tell.
fn pairs(seen: &[Seen]) -> BTreeSet<(u64, u64)> {
    let accepts = seen.iter().filter(|packet| packet.name == "ACCEPT");
    accepts
        .flat_map(|accept| {
            let (theirs, ours) = (accept.dcid, accept.number("params.scid"));
            [(theirs, ours), (ours, theirs)]
        })
        .collect()
}

/// The links of every packet, by the number of its frame.
pub fn links(seen: &[Seen]) -> BTreeMap<u64, Links> {
    let pairs = pairs(seen);
    let mut links: BTreeMap<u64, Links> = BTreeMap::new();
    for packet in seen {
        links.entry(packet.frame).or_default();
    }
    let mut covered = BTreeSet::new();
    let mut answered = BTreeSet::new();
    for (index, packet) in seen.iter().enumerate() {
        let before = &seen[..index];
        let original = packet.is_data.then(|| original(packet, before));
        if let Some(original) = original.flatten() {
            links.get_mut(&packet.frame).unwrap().original = vec![original];
            links.get_mut(&original).unwrap().again.push(packet.frame);
        }
        if let Some(cumulative) = packet.cumulative() {
            for frame in newly_covered(packet, cumulative, before, &pairs, &covered) {
                covered.insert(frame);
                links.get_mut(&packet.frame).unwrap().acks.push(frame);
                links.get_mut(&frame).unwrap().acked.push(packet.frame);
            }
        }
        let of_connection = |request: &&Seen| {
            let opens = request.name == "OPEN" && packet.dcid == request.number("params.scid");
            is_answer(packet, request) && (opens || pairs.contains(&(packet.dcid, request.dcid)))
        };
        let requests: Vec<u64> = before
            .iter()
            .filter(of_connection)
            .map(|request| request.frame)
            .collect();
        if let Some(last) = requests.last() {
            links.get_mut(&packet.frame).unwrap().request = vec![*last];
        }
        for request in requests {
            if answered.insert(request) {
                links.get_mut(&request).unwrap().response.push(packet.frame);
            }
        }
        if packet.name == "NAK" {
            let psn = packet.number("NAK.offending_psn") as u32;
            let mut refused = before
                .iter()
                .rev()
                .filter(|data| packet.speaks_of(data, &pairs) && data.psn == psn);
            if let Some(refused) = refused.next() {
                links.get_mut(&packet.frame).unwrap().refuses = vec![refused.frame];
                let of_refused = links.get_mut(&refused.frame).unwrap();
                if of_refused.refused.is_empty() {
                    of_refused.refused = vec![packet.frame];
                }
            }
        }
    }
    links
}

/// The first frame with the PSN of `packet`: at its own tap, and for a retransmission at the other one if there is none.
fn original(packet: &Seen, before: &[Seen]) -> Option<u64> {
    let same = |other: &&Seen| packet.is_same(other);
    let here = before
        .iter()
        .filter(same)
        .find(|other| other.tap == packet.tap)
        .map(|other| other.frame);
    let there = before.iter().find(same).map(|other| other.frame);
    match here {
        // The first one at this tap may itself be a retransmission of what got lost before it.
        Some(frame) => {
            let first = before.iter().position(|other| other.frame == frame)?;
            let again = before[first].is_retransmission();
            let found = again.then(|| original(&before[first], &before[..first]));
            found.flatten().or(Some(frame))
        }
        None => there.filter(|_| packet.is_retransmission()),
    }
}

/// The frames that an acknowledgment covers and none before it has. One that speaks of PSNs that were not sent covers
/// nothing.
fn newly_covered(
    ack: &Seen,
    cumulative: u32,
    before: &[Seen],
    pairs: &BTreeSet<(u64, u64)>,
    covered: &BTreeSet<u64>,
) -> Vec<u64> {
    let data: Vec<&Seen> = before
        .iter()
        .filter(|data| ack.speaks_of(data, pairs))
        .collect();
    let bits = ack.vector.len() * 8;
    let last_bit = (0..bits)
        .rev()
        .find(|bit| ack.vector[bit / 8] >> (7 - bit % 8) & 1 == 1);
    let highest = last_bit.map_or(cumulative, |bit| cumulative.wrapping_add(1 + bit as u32));
    let is_ahead = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
    if !data.iter().any(|data| !is_ahead(highest, data.psn)) {
        return Vec::new();
    }
    data.iter()
        .filter(|data| !covered.contains(&data.frame) && ack.covers(cumulative, data.psn))
        .map(|data| data.frame)
        .collect()
}
