//! One observation, decoded and related to what came before it.

use std::net::SocketAddr;

use metaroce_wire::Error;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{AckHeader, Body, Cbh, Msgh, Opcode, Sack, Tagh};
use metaroce_wire::serial::Psn;

use super::receiver::{AckRecord, Arrival};
use super::sender::{AckFault, Proof, SentPacket};
use super::suspect::{Answered, Suspect};
use crate::trace::Note;

/// A packet at the tap of the judged side.
#[derive(Debug, Clone)]
pub struct Sighting<'a> {
    /// Frame number in the capture.
    pub frame: u64,
    /// When, ns.
    pub time: u64,
    /// Whether the judged side sent it; otherwise it was delivered to it.
    pub sent: bool,
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// Congestion mark.
    pub ecn: Ecn,
    /// The UDP payload.
    pub payload: &'a [u8],
    /// Base header, when at least it is there.
    pub cbh: Option<Cbh>,
    /// Body, when its headers are all there.
    pub body: Option<Body<'a>>,
    /// The first thing wrong with it, the trailer aside.
    pub error: Option<Error>,
    /// Whether the trailer is right.
    pub crc_ok: bool,
    /// What the link is about to do to it; only for what the judged side sent.
    pub notes: &'a [Note],
    /// Position of its connection in the model.
    pub connection: Option<usize>,
    /// How it relates to what came before.
    pub relation: Relation,
    /// Why it does not arrive, when it was delivered and does not.
    pub suspect: Option<Suspect>,
    /// Packets that it answers although they must not be answered, or not so; only for what the judged side sent.
    pub answers: Vec<Answered>,
}

impl<'a> Sighting<'a> {
    /// The opcode, when the base header is there.
    pub fn opcode(&self) -> Option<Opcode> {
        self.cbh.map(|cbh| cbh.opcode)
    }

    /// Whether it was delivered without a fault.
    pub fn is_sound(&self) -> bool {
        self.crc_ok && self.error.is_none() && self.suspect.is_none()
    }

    /// Message header of data, and the tagged header where it has one.
    pub fn headers(&self) -> Option<(Msgh, Option<Tagh>)> {
        let body = self.body.as_ref()?;
        Some((*body.msgh()?, body.tagh().copied()))
    }

    /// [`Self::headers`] and payload of data that carries a piece of a message.
    pub fn message(&self) -> Option<(Msgh, Option<Tagh>, &'a [u8])> {
        let (msgh, tagh) = self.headers()?;
        Some((msgh, tagh, self.body?.payload()?))
    }

    /// The acknowledgment's fields, with its vector.
    pub fn ack(&self) -> Option<(AckHeader, Option<Sack>)> {
        match self.body? {
            Body::Ack(ack) => Some((ack.header, None)),
            Body::AckSack(ack) => Some((ack.header, Some(ack.sack))),
            _ => None,
        }
    }
}

/// How a packet relates to what came before it.
#[derive(Debug, Clone)]
pub enum Relation {
    /// In none of the ways below.
    Nothing,
    /// Data of the judged side.
    DataSent(DataSent),
    /// Data that arrived at the judged side.
    DataArrived(Arrival),
    /// An acknowledgment, or the answer to a probe, delivered to the judged side.
    AckArrived(AckArrived),
    /// An acknowledgment of the judged side.
    AckSent(AckSent),
    /// The answer of the judged side to a probe.
    AnswerSent(AnswerSent),
}

/// Data of the judged side.
#[derive(Debug, Clone)]
pub struct DataSent {
    /// Path.
    pub path: u8,
    /// PSN.
    pub psn: Psn,
    /// First PSN of the path.
    pub isn: Psn,
    /// The packet as it was sent before under this PSN, when it was.
    pub before: Option<SentPacket>,
    /// PSN of the new packet before on this path.
    pub last_new: Option<Psn>,
    /// Timestamp, frame and time of the data packet before on this path.
    pub last_stamp: Option<(u32, u64, u64)>,
    /// Source port of the new packet before on this path.
    pub port_of_new: Option<u16>,
    /// Highest CumPSN reported for the path, ISN - 1 at first.
    pub cum: Psn,
    /// What shows that the packet was lost, for a retransmission.
    pub proof: Proof,
    /// Whether what is sent has the bytes of the first transmission; true for a new packet.
    pub same_bytes: bool,
    /// The message.
    pub message: Option<MessageSent>,
    /// Whether an acknowledgment or answer for the path had arrived.
    pub heard: bool,
    /// New packets on the path, this one included.
    pub new_packets: u64,
}

/// The message of a data packet of the judged side.
#[derive(Debug, Clone, Copy)]
pub struct MessageSent {
    /// Position in the stream: 0 for the first MSN agreed.
    pub index: u64,
    /// Whether this is its first packet.
    pub begins: bool,
    /// Position of the message whose first packet was sent before it in the stream.
    pub last_begun: Option<u64>,
    /// RQSN of the Send that began before it in the stream.
    pub last_rqsn: Option<u16>,
    /// Opcode and headers of its first packet.
    pub first: (Opcode, Msgh, Option<Tagh>, u64),
    /// Whether this new packet repeats a piece that was sent under another PSN: its path and PSN.
    pub piece_again: bool,
    /// Position of the lowest message not wholly acknowledged.
    pub lowest_open: u64,
    /// First receive that the peer has not yet told to be posted.
    pub limit: Option<u16>,
}

/// A report delivered to the judged side.
#[derive(Debug, Clone)]
pub struct AckArrived {
    /// Path.
    pub path: u8,
    /// Why it must be ignored, when it must.
    pub fault: Option<AckFault>,
    /// PSNs that it reports for the first time.
    pub newly: Vec<Psn>,
    /// PSNs that it shows to be lost: sent once before something that it reports, and missing.
    pub lost: Vec<Psn>,
    /// Whether it answers a probe.
    pub answer: bool,
    /// Time since the transmission that it echoes, or since the probe that it answers, ns: the longest round trip that the
    /// sender can take from it.
    pub trip_ns: Option<u64>,
}

/// An acknowledgment of the judged side.
#[derive(Debug, Clone)]
pub struct AckSent {
    /// Path.
    pub path: u8,
    /// First PSN of the path.
    pub isn: Psn,
    /// Cumulative place that it reports.
    pub cumulative: i64,
    /// Its vector; none in an ACK.
    pub sack: Option<Sack>,
    /// Its fields.
    pub header: AckHeader,
    /// Whether it has the flag "duplicate seen".
    pub duplicate_flag: bool,
    /// Whether it has the flag "out of window seen".
    pub out_of_window_flag: bool,
    /// The latest arrival of which it must know.
    pub definite: Option<Arrival>,
    /// The latest arrival at the tap.
    pub latest: Option<Arrival>,
    /// Arrivals that can be its trigger by what it echoes, the latest first.
    pub triggers: Vec<Arrival>,
    /// PSNs that its CumPSN covers and that have not arrived.
    pub false_below: Vec<Psn>,
    /// PSNs whose bits are set and which have not arrived.
    pub false_bits: Vec<Psn>,
    /// PSNs that had arrived up to the trigger and are not in it.
    pub omitted: Vec<Psn>,
    /// PSNs beyond CumPSN that were reported before and are not in its vector.
    pub withdrawn: Vec<Psn>,
    /// The acknowledgment before it for the path, with the highest cumulative place of all before.
    pub previous: Option<AckRecord>,
}

impl AckSent {
    /// Whether it was surely made in knowledge of the arrival with number `seq`.
    pub fn covers(&self, seq: u64) -> bool {
        let by_echo = self.triggers.last().map_or(0, |trigger| trigger.seq);
        by_echo.max(self.definite.map_or(0, |arrival| arrival.seq)) >= seq
    }

    /// Whether it can have been made in knowledge of it.
    pub fn may_cover(&self, seq: u64) -> bool {
        let by_echo = self.triggers.first().map_or(0, |trigger| trigger.seq);
        self.triggers.is_empty() || by_echo >= seq || self.covers(seq)
    }
}

/// The answer of the judged side to a probe.
#[derive(Debug, Clone)]
pub struct AnswerSent {
    /// Path.
    pub path: u8,
    /// PSNs that it reports and which have not arrived.
    pub falsely: Vec<Psn>,
    /// PSNs that had arrived before the probe and are not in it.
    pub omitted: Vec<Psn>,
}
