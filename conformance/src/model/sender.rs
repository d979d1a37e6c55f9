//! One path on which the judged side sends: what it sent, how often, and what it has been told of it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use metaroce_wire::metaroce::{Cbh, Flags, Opcode, Sack};
use metaroce_wire::serial::Psn;

use super::receiver::{position, psn_at};
use super::sighting::AckArrived;

/// Packets of a path that are remembered.
const REMEMBERED: usize = 1024;
/// Transmissions of a path whose timestamps are remembered.
const STAMPS: usize = 4096;
/// Probes of a path that are remembered.
const PROBES: usize = 64;

/// Why a report must be ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AckFault {
    /// It reports a PSN that was never sent on the path.
    NeverSent,
    /// Bit 0 of its vector is set.
    BitZero,
    /// It is about a path or an epoch that does not exist.
    NoPath,
}

/// A packet that the judged side has sent, once or more often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPacket {
    /// PSN.
    pub psn: Psn,
    /// Opcode.
    pub opcode: Opcode,
    /// Stream.
    pub stream: u16,
    /// Position of the message in its stream.
    pub message: u64,
    /// Hash of all bytes but the flags AR and RTX, timestamp and trailer.
    pub digest: u64,
    /// Bytes of the UDP payload.
    pub len: usize,
    /// Frame of the first transmission.
    pub first_frame: u64,
    /// Place of the first transmission among all of the path.
    pub first_order: u64,
    /// Frame of the latest transmission.
    pub last_frame: u64,
    /// When that was, ns.
    pub last_time: u64,
    /// Its place among all transmissions of the path.
    pub last_order: u64,
    /// How often it was sent.
    pub transmissions: u32,
    /// Frame and time of the report that it has arrived.
    pub reported: Option<(u64, u64)>,
    /// Whether a report that must be ignored claims it.
    pub claimed: Option<AckFault>,
    /// Place of the transmission that was last shown to be lost.
    lost: u64,
}

/// A question of the judged side what has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Transaction id.
    pub transaction: u32,
    /// Frame.
    pub frame: u64,
    /// When, ns.
    pub time: u64,
    /// Place among the transmissions of the path: what is before it was sent before it.
    pub order: u64,
    /// Whether its answer has come: any further one is ignored.
    pub answered: bool,
}

/// What shows that a packet was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Proof {
    /// Something sent after it has been reported, as far as can be known.
    pub gap: bool,
    /// The answer to a probe that was sent after it lacks it.
    pub probe: bool,
    /// Time since the latest transmission, probe left out, or report on the path, ns.
    pub idle_ns: u64,
    /// The same, probes counted as transmissions.
    pub idle_with_probes_ns: u64,
    /// Whether a probe was sent on the path after the packet's first transmission.
    pub probed: bool,
}

/// A path of the judged side's data.
#[derive(Debug, Clone)]
pub struct OutPath {
    /// First PSN.
    pub isn: Psn,
    /// Highest cumulative place that was reported; -1 at first.
    pub cumulative: i64,
    /// Highest place sent; -1 at first.
    pub highest: i64,
    /// New packets sent.
    pub new_packets: u64,
    /// PSN of the latest new packet.
    pub last_new: Option<Psn>,
    /// Source port of the latest new packet.
    pub port_of_new: Option<u16>,
    /// Source port of the latest data packet.
    pub port: Option<u16>,
    /// Timestamp, frame and time of the latest data packet.
    pub last_stamp: Option<(u32, u64, u64)>,
    /// When the latest report for it was delivered, ns.
    pub heard: Option<u64>,
    /// When the latest data packet was sent, ns.
    pub sent_at: u64,
    /// When the latest probe was sent, ns.
    pub probed_at: Option<u64>,
    /// Whether any CE mark was reported.
    pub marked: bool,
    /// Whether its window may have been cut: by a mark, or by anything that has shown or let suppose a loss. Until then it is
    /// that of the beginning or larger.
    pub cut: bool,
    /// Whether a gap, or the answer to a probe, may be no evidence of loss: the path has changed its source port (grace
    /// period), or a duplicate of something repaired was reported (reordering allowance). How long that lasts depends on what
    /// the sender measured.
    pub unsettled: bool,
    /// Retransmissions that nothing but a timeout explains.
    pub timeouts: u64,
    /// Packets that have been sent and not been reported.
    pub outstanding: u32,
    sent: BTreeMap<i64, SentPacket>,
    forgotten: i64,
    order: u64,
    /// Timestamps of transmissions: place among those of the path, and when, ns.
    stamps: HashMap<u32, (u64, u64)>,
    stamp_list: VecDeque<u32>,
    probes: VecDeque<Probe>,
    possible_order: u64,
    sure_order: u64,
    answered_order: u64,
}

/// What the tracker knows of a data packet that is sent.
pub(super) struct Transmission<'a> {
    pub frame: u64,
    pub time: u64,
    pub cbh: &'a Cbh,
    pub port: u16,
    pub stream: u16,
    pub message: u64,
    pub bytes: &'a [u8],
}

impl OutPath {
    pub(super) fn new(isn: Psn) -> Self {
        Self {
            isn,
            cumulative: -1,
            highest: -1,
            new_packets: 0,
            last_new: None,
            port_of_new: None,
            port: None,
            last_stamp: None,
            heard: None,
            sent_at: 0,
            probed_at: None,
            marked: false,
            cut: false,
            unsettled: false,
            timeouts: 0,
            outstanding: 0,
            sent: BTreeMap::new(),
            forgotten: i64::MIN,
            order: 0,
            stamps: HashMap::new(),
            stamp_list: VecDeque::new(),
            probes: VecDeque::new(),
            possible_order: 0,
            sure_order: 0,
            answered_order: 0,
        }
    }

    /// The packet sent under a PSN, as long as it is remembered.
    pub fn packet(&self, psn: Psn) -> Option<&SentPacket> {
        self.sent.get(&position(self.isn, psn))
    }

    /// Packets that are not reported as arrived, in the order of their PSNs.
    pub fn unreported(&self) -> impl Iterator<Item = &SentPacket> {
        self.sent
            .range(self.cumulative.saturating_add(1)..)
            .map(|(_, packet)| packet)
            .filter(|packet| packet.reported.is_none())
    }

    /// Whether a PSN was sent so long ago that it is no longer remembered.
    pub fn is_forgotten(&self, psn: Psn) -> bool {
        position(self.isn, psn) <= self.forgotten
    }

    /// The latest time at which something was sent or heard on the path, ns.
    pub fn active_at(&self, with_probes: bool) -> u64 {
        let probed = self.probed_at.filter(|_| with_probes).unwrap_or(0);
        self.sent_at.max(self.heard.unwrap_or(0)).max(probed)
    }

    /// What shows at `now` that the latest transmission of a packet was lost.
    fn proof(&self, packet: &SentPacket, now: u64) -> Proof {
        Proof {
            gap: self.possible_order > packet.last_order,
            probe: self.answered_order > packet.last_order,
            idle_ns: now.saturating_sub(self.active_at(false)),
            idle_with_probes_ns: now.saturating_sub(self.active_at(true)),
            probed: self
                .probes
                .iter()
                .any(|probe| probe.order > packet.first_order),
        }
    }

    /// Notes a transmission. Returns the packet as it stood before, the proof of its loss, and whether the bytes agree.
    pub(super) fn transmit(
        &mut self,
        packet: &Transmission<'_>,
    ) -> (Option<SentPacket>, Proof, bool) {
        let psn = packet.cbh.psn;
        let at = position(self.isn, psn);
        let digest = digest(packet.bytes);
        self.order += 1;
        let order = self.order;
        let before = self.sent.get(&at).copied();
        let proof = before
            .as_ref()
            .map_or(Proof::default(), |sent| self.proof(sent, packet.time));
        let same = before
            .as_ref()
            .is_none_or(|sent| sent.digest == digest && sent.len == packet.bytes.len());
        match self.sent.get_mut(&at) {
            Some(sent) => {
                sent.last_frame = packet.frame;
                sent.last_time = packet.time;
                sent.last_order = order;
                sent.transmissions += 1;
                self.cut = true;
                if !proof.gap && !proof.probe {
                    self.timeouts += 1;
                }
            }
            None => {
                let sent = SentPacket {
                    psn,
                    opcode: packet.cbh.opcode,
                    stream: packet.stream,
                    message: packet.message,
                    digest,
                    len: packet.bytes.len(),
                    first_frame: packet.frame,
                    first_order: order,
                    last_frame: packet.frame,
                    last_time: packet.time,
                    last_order: order,
                    transmissions: 1,
                    reported: None,
                    claimed: None,
                    lost: 0,
                };
                self.sent.insert(at, sent);
                self.outstanding += 1;
                self.highest = self.highest.max(at);
                self.new_packets += 1;
                self.last_new = Some(psn);
                self.port_of_new = Some(packet.port);
            }
        }
        self.unsettled |= self.port.is_some_and(|port| port != packet.port);
        self.port = Some(packet.port);
        self.sent_at = packet.time;
        self.last_stamp = Some((packet.cbh.timestamp, packet.frame, packet.time));
        self.remember_stamp(packet.cbh.timestamp, order, packet.time);
        while self.sent.len() > REMEMBERED {
            if let Some((at, sent)) = self.sent.pop_first() {
                self.forgotten = self.forgotten.max(at);
                self.outstanding -= u32::from(sent.reported.is_none());
            }
        }
        (before, proof, same)
    }

    fn remember_stamp(&mut self, stamp: u32, order: u64, time: u64) {
        if self.stamp_list.len() >= STAMPS
            && let Some(oldest) = self.stamp_list.pop_front()
        {
            self.stamps.remove(&oldest);
        }
        self.stamps.insert(stamp, (order, time));
        self.stamp_list.push_back(stamp);
    }

    /// Notes a probe. One from another port than the data before it tells that the path has changed its port.
    pub(super) fn probe(&mut self, transaction: u32, frame: u64, time: u64, port: u16) {
        self.unsettled |= self.port.is_some_and(|before| before != port);
        if self.probes.len() >= PROBES {
            self.probes.pop_front();
        }
        self.order += 1;
        self.probed_at = Some(time);
        self.probes.push_back(Probe {
            transaction,
            frame,
            time,
            order: self.order,
            answered: false,
        });
    }

    /// Whether a response under a transaction id is to no unanswered probe, and so must be ignored (CONN-043).
    pub fn ignores_answer(&self, transaction: u32) -> bool {
        match self.find_probe(transaction) {
            Some(probe) => probe.answered,
            // It may have been one that is no longer remembered.
            None => self.probes.len() < PROBES,
        }
    }

    /// The probe under a transaction id.
    pub fn find_probe(&self, transaction: u32) -> Option<&Probe> {
        self.probes
            .iter()
            .rev()
            .find(|probe| probe.transaction == transaction)
    }

    /// Why a report for this path must be ignored.
    pub(super) fn fault(&self, cum: Psn, sack: Option<&Sack>) -> Option<AckFault> {
        if sack.is_some_and(|sack| sack.bit(0)) {
            return Some(AckFault::BitZero);
        }
        let cum = position(self.isn, cum);
        let bits = sack
            .and_then(Sack::highest)
            .map_or(0, |bit| i64::from(bit) + 1);
        (cum + bits > self.highest).then_some(AckFault::NeverSent)
    }

    /// Marks what a report claims that must be ignored.
    pub(super) fn claim(&mut self, cum: Psn, sack: Option<&Sack>, fault: AckFault) {
        let cum = position(self.isn, cum);
        for (at, packet) in self.sent.range_mut(self.cumulative.saturating_add(1)..) {
            if packet.reported.is_none() && covers(cum, sack, *at) {
                packet.claimed = Some(fault);
            }
        }
    }

    /// Takes a report that is possible. Returns the packets newly reported besides what the sighting shows.
    pub(super) fn report(
        &mut self,
        (frame, time, path): (u64, u64, u8),
        cum: Psn,
        sack: Option<&Sack>,
        echo: Option<u32>,
        answer_to: Option<Probe>,
    ) -> (AckArrived, Vec<SentPacket>) {
        let cum = position(self.isn, cum);
        let mut newly = Vec::new();
        let from = self.cumulative.saturating_add(1);
        let to = sack
            .and_then(Sack::highest)
            .map_or(cum, |bit| cum + 1 + i64::from(bit));
        if to >= from {
            for (at, packet) in self.sent.range_mut(from..=to) {
                if packet.reported.is_none() && covers(cum, sack, *at) {
                    packet.reported = Some((frame, time));
                    self.outstanding -= 1;
                    self.possible_order = self.possible_order.max(packet.last_order);
                    if packet.transmissions == 1 {
                        self.sure_order = self.sure_order.max(packet.first_order);
                    }
                    newly.push(*packet);
                }
            }
        }
        self.cumulative = self.cumulative.max(cum);
        let trigger = echo.and_then(|stamp| self.stamps.get(&stamp)).copied();
        if let Some((order, _)) = trigger {
            self.possible_order = self.possible_order.max(order);
        }
        if let Some(answered) = answer_to {
            self.answered_order = self.answered_order.max(answered.order);
            let same = |probe: &&mut Probe| probe.transaction == answered.transaction;
            if let Some(probe) = self.probes.iter_mut().rev().find(same) {
                probe.answered = true;
            }
        }
        self.heard = Some(time);
        let bound = match answer_to {
            Some(_) => self.answered_order,
            None => self.sure_order,
        };
        let suspected = self.possible_order.max(self.answered_order);
        let mut lost = Vec::new();
        for (_, packet) in self.sent.range_mut(self.cumulative.saturating_add(1)..) {
            let open = packet.reported.is_none() && packet.lost < packet.last_order;
            self.cut |= packet.reported.is_none() && packet.last_order < suspected;
            if open && packet.last_order < bound {
                packet.lost = packet.last_order;
                lost.push(packet.psn);
            }
        }
        let arrived = AckArrived {
            path,
            fault: None,
            newly: newly.iter().map(|packet| packet.psn).collect(),
            lost,
            answer: answer_to.is_some(),
            trip_ns: trigger
                .map(|(_, sent)| sent)
                .max(answer_to.map(|probe| probe.time))
                .map(|sent| time.saturating_sub(sent)),
        };
        (arrived, newly)
    }

    /// PSN at a place of the path.
    pub fn psn_at(&self, place: i64) -> Psn {
        psn_at(self.isn, place)
    }
}

fn covers(cum: i64, sack: Option<&Sack>, at: i64) -> bool {
    at <= cum || sack.is_some_and(|sack| u32::try_from(at - cum - 1).is_ok_and(|bit| sack.bit(bit)))
}

/// Hash of a data packet without the flags that may change, timestamp and trailer.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let end = bytes.len().saturating_sub(4);
    for range in [0..2.min(end), 3.min(end)..12.min(end), 16.min(end)..end] {
        bytes.get(range).hash(&mut hasher);
    }
    let may_change = Flags::AR.with(Flags::RTX);
    let flags = bytes.get(2).map(|flags| Flags(*flags).without(may_change));
    flags.hash(&mut hasher);
    hasher.finish()
}
