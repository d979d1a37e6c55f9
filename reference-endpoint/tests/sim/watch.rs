//! Looks at every packet and compares it with what an honest endpoint sends there, as far as packets alone can tell.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use metaroce_wire::crc::{PseudoHeader, verify};
use metaroce_wire::metaroce::{
    Body, Cbh, Flags, NakCode, Opcode, Packet, Sack, parse, parse_unsealed,
};
use metaroce_wire::serial::Psn;

use crate::net::Sent;
use crate::plan::Plan;
use crate::world::{PORT, address};
use metaroce_endpoint::core::Ecn;

/// One epoch of one path of one direction.
#[derive(Default)]
struct Path {
    first: u32,
    next: Option<u32>,
    /// By PSN: the bytes that may not change, and how often they were sent.
    sent: BTreeMap<u32, (Vec<u8>, u32)>,
    arrived: BTreeSet<u32>,
    /// What the receiver has said, and what of it has reached the sender.
    told: Option<Psn>,
    bits: BTreeSet<u32>,
    known: Option<Psn>,
    reported: BTreeSet<u32>,
    /// The sender knows that it is over.
    retired: bool,
    /// Source port of the latest data packet.
    port: u16,
}

/// Receiver and the id under which it receives.
type To = (usize, u32);
type PathId = (To, u8, u8);
/// Message packet: receiver, stream, whether a response, MSN, offset.
type Piece = (To, u16, bool, u32, u32);

pub struct Watch {
    /// The other side of a connection, and the first PSN of what is sent to this one.
    pairs: BTreeMap<To, (To, u32)>,
    paths: BTreeMap<PathId, Path>,
    /// Which path has sent last from a port, by receiver.
    ports: BTreeMap<(To, u16), PathId>,
    /// Probes without an answer, by who is asked and transaction.
    probes: BTreeSet<(To, u32)>,
    /// Where a packet of a message was sent last.
    pieces: BTreeMap<Piece, (u8, u8)>,
    /// Credit that has reached the sender, by receiver of the messages and stream.
    credit: BTreeMap<(To, u16), u16>,
    bytes: u64,
    ipv6: bool,
}

impl Watch {
    pub fn new(plan: &Plan) -> Self {
        Self {
            pairs: BTreeMap::new(),
            paths: BTreeMap::new(),
            ports: BTreeMap::new(),
            probes: BTreeSet::new(),
            pieces: BTreeMap::new(),
            credit: BTreeMap::new(),
            bytes: 0,
            ipv6: plan.ipv6,
        }
    }

    fn path(&mut self, to: To, cbh: &Cbh) -> &mut Path {
        let isn = self.pairs.get(&to).map_or(0, |pair| pair.1);
        self.paths
            .entry((to, cbh.path, cbh.epoch))
            .or_insert_with(|| Path {
                first: isn,
                ..Path::default()
            })
    }

    /// A packet leaves.
    pub fn sent(&mut self, _now: u64, sent: &Sent<'_>) {
        let packet = parse_unsealed(sent.bytes).unwrap_or_else(|e| panic!("an endpoint sends {e}"));
        let pseudo = PseudoHeader::new(
            address(sent.from, sent.plane, self.ipv6),
            SocketAddr::new(address(sent.to, sent.plane, self.ipv6), PORT),
        );
        assert!(verify(&pseudo, sent.bytes).is_ok(), "a wrong CRC is sent");
        self.bytes += sent.bytes.len() as u64;
        let cbh = packet.cbh;
        let to: To = (sent.to, cbh.dcid.value());
        let mark = if cbh.opcode.is_data() {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        };
        assert_eq!(sent.ecn, mark, "ECN-001, ECN-002");
        if cbh.opcode.is_data() {
            self.data_sent(to, &cbh, sent, &packet.body);
        }
        match packet.body {
            Body::Confirm(confirm) => {
                let mine: To = (sent.from, confirm.params.scid.value());
                let theirs: To = (sent.to, confirm.accepted.scid.value());
                self.pairs
                    .insert(mine, (theirs, confirm.accepted.isn.value()));
                self.pairs
                    .insert(theirs, (mine, confirm.params.isn.value()));
            }
            Body::PathProbe(_) => {
                self.probes.insert((to, cbh.psn.value()));
            }
            Body::Ack(_) => self.report_sent(to, &cbh, cbh.psn, &Sack::EMPTY),
            Body::AckSack(ack) => self.report_sent(to, &cbh, cbh.psn, &ack.sack),
            Body::PathProbeAck(ack) => self.report_sent(to, &cbh, ack.cum_psn, &ack.sack),
            _ => {}
        }
    }

    fn data_sent(&mut self, to: To, cbh: &Cbh, sent: &Sent<'_>, body: &Body<'_>) {
        let psn = cbh.psn.value();
        let id = (to, cbh.path, cbh.epoch);
        let before = std::mem::replace(&mut self.path(to, cbh).port, sent.port);
        // A path can take the port that another one has left. Who has not left it goes on there.
        let owner = self.ports.insert((to, sent.port), id);
        assert!(
            before != sent.port || owner == Some(id),
            "PATH-002: {id:?} and {owner:?} leave from port {before}"
        );
        let mut fixed = sent.bytes.to_vec();
        fixed[2] = 0;
        fixed[12..16].fill(0);
        let end = fixed.len() - 4;
        fixed[end..].fill(0);
        let repeated = cbh.flags.has(Flags::RTX);
        let path = self.path(to, cbh);
        assert!(!path.retired, "PATH-024: data on an epoch that is retired");
        if let Some((first, times)) = path.sent.get_mut(&psn) {
            *times += 1;
            assert!(repeated, "REL-028");
            assert!(
                *first == fixed || cbh.opcode == Opcode::FILL,
                "REL-027: psn {psn:#x}"
            );
            assert!(!path.reported.contains(&psn), "REL-030: psn {psn:#x}");
            assert!(*times <= 64, "REL-052");
            *first = fixed;
            return;
        }
        assert!(!repeated, "REL-029: psn {psn:#x}");
        if cbh.epoch == 0 || path.next.is_some() {
            assert_eq!(psn, path.next.unwrap_or(path.first), "REL-001, REL-002");
        } else {
            path.first = psn;
        }
        let before = Psn::new(path.first.wrapping_sub(1));
        let known = path.known.unwrap_or(before).value();
        assert!(
            psn.wrapping_sub(known) <= 256,
            "REL-003: psn {psn:#x} past {known:#x}"
        );
        path.next = Some(psn.wrapping_add(1));
        path.sent.insert(psn, (fixed, 1));
        let Some(msgh) = body.msgh() else {
            return;
        };
        let response = msgh.mflags.0 & 0x04 != 0;
        let piece = (to, msgh.stream, response, msgh.msn.value(), msgh.offset);
        let here = (cbh.path, cbh.epoch);
        if let Some((path, epoch)) = self.pieces.insert(piece, here) {
            let gone = self
                .paths
                .get(&(to, path, epoch))
                .is_some_and(|p| p.retired);
            assert!(
                gone || cbh.opcode == Opcode::FILL,
                "PATH-030: {piece:?} is on path {path}.{epoch} already"
            );
        }
        if cbh.opcode.consumes_receive() {
            let limit = self.credit.get(&(to, msgh.stream));
            let has = limit.is_some_and(|limit| {
                limit.wrapping_sub(msgh.rqsn.value()).wrapping_sub(1) < 0x8000
            });
            assert!(
                has,
                "STRM-010: {piece:?} has rqsn {:?}, credit {limit:?}",
                msgh.rqsn
            );
        }
    }

    /// The receiver of a path says what has arrived.
    fn report_sent(&mut self, to: To, cbh: &Cbh, cum: Psn, sack: &Sack) {
        let Some(&(from, _)) = self.pairs.get(&to) else {
            return;
        };
        let path = self.path(from, cbh);
        if path.next.is_none() {
            return;
        }
        let start = Psn::new(path.first.wrapping_sub(1));
        assert!(!sack.bit(0), "REL-011");
        let told = path.told.unwrap_or(start);
        assert!(!cum.precedes(told), "REL-009: {cum:?} after {told:?}");
        let mut psn = told;
        while psn != cum {
            psn = Psn::new(psn.value().wrapping_add(1));
            assert!(path.arrived.contains(&psn.value()), "REL-007: {psn:?}");
        }
        path.told = Some(cum);
        let bits: BTreeSet<u32> = (0..Sack::BITS)
            .filter(|&i| sack.bit(i))
            .map(|i| cum.value().wrapping_add(1 + i))
            .collect();
        if let Some(wrong) = bits.iter().find(|psn| !path.arrived.contains(psn)) {
            panic!("REL-008, REL-038: psn {wrong:#x}");
        }
        let left = path
            .bits
            .iter()
            .find(|&&psn| cum.precedes(Psn::new(psn)) && !bits.contains(&psn));
        assert!(left.is_none(), "REL-010: psn {left:x?}");
        path.bits = bits;
    }

    /// Whether a data packet comes for the first time.
    pub fn is_new(&self, end: usize, bytes: &[u8]) -> bool {
        let Ok(Packet { cbh, .. }) = parse_unsealed(bytes) else {
            return false;
        };
        let path = self
            .paths
            .get(&((end, cbh.dcid.value()), cbh.path, cbh.epoch));
        cbh.opcode.is_data() && path.is_some_and(|p| !p.arrived.contains(&cbh.psn.value()))
    }

    /// A packet is about to be handed to `to`. Damaged ones are passed over.
    pub fn delivered(&mut self, end: usize, plane: u8, from: SocketAddr, bytes: &[u8]) {
        let pseudo = PseudoHeader::new(
            from.ip(),
            SocketAddr::new(address(end, plane, self.ipv6), PORT),
        );
        let Ok(packet) = parse(bytes, &pseudo) else {
            return;
        };
        let cbh = packet.cbh;
        let to: To = (end, cbh.dcid.value());
        if cbh.opcode.is_data() {
            self.path(to, &cbh).arrived.insert(cbh.psn.value());
            return;
        }
        let Some(&(peer, _)) = self.pairs.get(&to) else {
            return;
        };
        match packet.body {
            Body::Ack(ack) => {
                self.reported(peer, &cbh, cbh.psn, &Sack::EMPTY);
                self.credited(peer, ack.header.stream, ack.header.rq_limit.value());
            }
            Body::AckSack(ack) => {
                self.reported(peer, &cbh, cbh.psn, &ack.sack);
                self.credited(peer, ack.header.stream, ack.header.rq_limit.value());
            }
            Body::Nak(nak) if nak.code == NakCode::RNR => {
                if let Some((_, times)) = self
                    .path(peer, &cbh)
                    .sent
                    .get_mut(&nak.offending_psn.value())
                {
                    *times = 0;
                }
            }
            // What answers a probe for the second time counts no more (CONN-043).
            Body::PathProbeAck(ack) if self.probes.remove(&(peer, cbh.psn.value())) => {
                self.reported(peer, &cbh, ack.cum_psn, &ack.sack);
            }
            Body::PathRetired(_) => self.path(peer, &cbh).retired = true,
            Body::RqCredit(tell) if tell.kind == 1 => {
                self.credited(peer, tell.stream, tell.rq_limit.value())
            }
            Body::StreamOpen(open) => self.credited(peer, open.stream, open.rq_limit.value()),
            Body::StreamOpenAck(ack) => self.credited(peer, ack.stream, ack.rq_limit.value()),
            _ => {}
        }
    }

    fn credited(&mut self, peer: To, stream: u16, limit: u16) {
        let known = self.credit.entry((peer, stream)).or_insert(limit);
        if limit.wrapping_sub(*known) < 0x8000 {
            *known = limit;
        }
    }

    /// The sender learns what has arrived.
    fn reported(&mut self, to: To, cbh: &Cbh, cum: Psn, sack: &Sack) {
        let path = self.path(to, cbh);
        let Some(next) = path.next else {
            return;
        };
        // A damaged report is not one.
        if cum.value().wrapping_sub(path.first.wrapping_sub(1)) > next.wrapping_sub(path.first) {
            return;
        }
        if path.known.is_none_or(|known| known.precedes(cum)) {
            path.known = Some(cum);
        }
        for psn in path.sent.keys() {
            let psn = Psn::new(*psn);
            if psn.precedes_or_is(cum) || sack.contains(cum, psn) {
                path.reported.insert(psn.value());
            }
        }
    }

    /// Everything that `end` had to send has been taken.
    pub fn drained(&mut self, _now: u64, _end: usize) {}
}
