//! A connection as it can be known at the tap of the judged side.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use metaroce_wire::metaroce::{Msgh, NakCode, Opcode, Params, Tagh};
use metaroce_wire::serial::{Msn, Rqsn};

use super::bits::Bits;
use super::receiver::{Arrival, InPath};
use super::sender::OutPath;

/// Frame and time of an event on the wire.
pub type Moment = (u64, u64);

/// Messages of a stream and direction that are remembered.
const MESSAGES: usize = 1 << 16;

/// What ends a connection, and when it was seen.
#[derive(Debug, Clone, Default)]
pub struct Closing {
    /// The judged side sent CLOSE, with this reason.
    pub close_sent: Option<(Moment, u16)>,
    /// A CLOSE was delivered to it.
    pub close_arrived: Option<(Moment, u16)>,
    /// It sent CLOSE_ACK.
    pub close_ack_sent: Option<Moment>,
    /// It sent a NAK whose scope is the connection.
    pub nak_sent: Option<Moment>,
    /// Such a NAK was delivered to it: code, stream and MSN.
    pub nak_arrived: Option<(Moment, NakCode, u16, Msn)>,
    /// A party said that the connection has failed or is closed, ns.
    pub over: Option<u64>,
}

impl Closing {
    /// Whether the end has begun.
    pub fn has_begun(&self) -> bool {
        self.close_sent.is_some()
            || self.close_arrived.is_some()
            || self.nak_sent.is_some()
            || self.nak_arrived.is_some()
            || self.over.is_some()
    }
}

/// A connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Whether the judged side is the initiator.
    pub initiator: bool,
    /// Parameters of the judged side.
    pub own: Params,
    /// Parameters of its peer.
    pub peer: Params,
    /// What the two have agreed: the acceptor's parameters.
    pub agreed: Params,
    /// CONFIRM_ACK, at this tap.
    pub established: Option<Moment>,
    /// Paths on which the judged side sends.
    pub out: BTreeMap<u8, OutPath>,
    /// Paths on which it receives.
    pub inward: BTreeMap<u8, InPath>,
    /// Streams.
    pub streams: BTreeMap<u16, Stream>,
    /// Its end.
    pub closing: Closing,
    /// New data packets that the judged side has sent on it.
    pub new_packets: u64,
    /// Messages of the peer of which a packet came damaged, as far as its headers can be believed: stream and position.
    pub damaged: BTreeSet<(u16, u64)>,
    /// Probes delivered: transaction, path, what had arrived before.
    pub(super) probes: VecDeque<(u32, u8, Option<Arrival>)>,
}

impl Connection {
    pub(super) fn new(initiator: bool, own: Params, peer: Params, agreed: Params) -> Self {
        Self {
            initiator,
            own,
            peer,
            agreed,
            established: None,
            out: BTreeMap::new(),
            inward: BTreeMap::new(),
            streams: BTreeMap::new(),
            closing: Closing::default(),
            new_packets: 0,
            damaged: BTreeSet::new(),
            probes: VecDeque::new(),
        }
    }

    /// Payload bytes of a full packet, P.
    pub fn payload_size(&self) -> u32 {
        u32::from(self.agreed.payload_size)
    }

    /// Packets of a message of `len` bytes.
    pub fn packets_of(&self, len: u32) -> u32 {
        len.div_ceil(self.payload_size().max(1)).max(1)
    }

    pub(super) fn out_path(&mut self, path: u8) -> &mut OutPath {
        let isn = self.own.isn;
        self.out.entry(path).or_insert_with(|| OutPath::new(isn))
    }

    pub(super) fn in_path(&mut self, path: u8) -> &mut InPath {
        let isn = self.peer.isn;
        self.inward.entry(path).or_insert_with(|| InPath::new(isn))
    }
}

/// A stream of a connection.
#[derive(Debug, Clone)]
pub struct Stream {
    /// STREAM_OPEN_ACK with status 0, at this tap.
    pub open: Option<Moment>,
    /// Whether the judged side has asked for it: it then takes data that overtake the answer.
    pub asked: bool,
    /// First MSN of both directions.
    pub first_msn: Msn,
    /// First RQSN of both directions.
    pub first_rqsn: Rqsn,
    /// First receive that the peer has not told to be posted, the latest that was delivered.
    pub limit: Option<Rqsn>,
    /// Messages of the judged side.
    pub out: BTreeMap<u64, OutMessage>,
    /// Position of its lowest message that is not wholly acknowledged.
    pub lowest_open: u64,
    /// Position of the message whose first packet it sent last.
    pub last_begun: Option<u64>,
    /// RQSN of the Send that it began last.
    pub last_rqsn: Option<u16>,
    /// Sends that it has begun.
    pub sends_begun: u64,
    /// Messages of the peer.
    pub inward: BTreeMap<u64, InMessage>,
    /// Position below which all messages of the peer have arrived.
    pub complete_below: u64,
}

impl Stream {
    pub(super) fn new(first_msn: Msn, first_rqsn: Rqsn) -> Self {
        Self {
            open: None,
            asked: false,
            first_msn,
            first_rqsn,
            limit: None,
            out: BTreeMap::new(),
            lowest_open: 0,
            last_begun: None,
            last_rqsn: None,
            sends_begun: 0,
            inward: BTreeMap::new(),
            complete_below: 0,
        }
    }

    /// Position of a message in the stream. Numbers behind the first one count as being far ahead.
    pub fn index(&self, msn: Msn) -> u64 {
        u64::from(msn.distance_from(self.first_msn))
    }

    pub(super) fn note_limit(&mut self, limit: Rqsn) {
        if self.limit.is_none_or(|known| known.precedes(limit)) {
            self.limit = Some(limit);
        }
    }

    /// Counts a piece of a message as arrived although it should not be.
    pub(super) fn concede(&mut self, msgh: &Msgh, send: bool, packets: u32, piece: u32) {
        let index = self.index(msgh.msn);
        if index < self.complete_below {
            return;
        }
        let message = self
            .inward
            .entry(index)
            .or_insert_with(|| InMessage::new(*msgh, send, packets));
        if piece < message.packets {
            message.arrived.insert(piece);
        }
        self.complete();
    }

    /// Moves on past the peer's messages that have arrived in whole.
    pub(super) fn complete(&mut self) {
        while self
            .inward
            .get(&self.complete_below)
            .is_some_and(InMessage::is_complete)
        {
            self.complete_below += 1;
        }
    }

    /// Forgets messages that are done with when there are too many; tells whether one had to go that was not.
    pub(super) fn prune(&mut self) -> bool {
        let mut lost = false;
        while self.out.len() > MESSAGES {
            let gone = self.out.pop_first();
            lost |= gone.is_some_and(|(_, message)| !message.is_acknowledged());
        }
        while self.inward.len() > MESSAGES {
            let gone = self.inward.pop_first();
            lost |= gone.is_some_and(|(index, _)| index >= self.complete_below);
        }
        lost
    }
}

/// A message of the judged side.
#[derive(Debug, Clone)]
pub struct OutMessage {
    /// Opcode of its first packet.
    pub opcode: Opcode,
    /// Message header of its first packet.
    pub msgh: Msgh,
    /// Tagged header of its first packet.
    pub tagh: Option<Tagh>,
    /// Frame of its first packet.
    pub frame: u64,
    /// Packets that it takes.
    pub packets: u32,
    /// Pieces that were sent.
    pub sent: Bits,
    /// Pieces that were reported as arrived.
    pub acknowledged: u32,
}

impl OutMessage {
    /// Whether every packet of it was reported as arrived.
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged >= self.packets
    }
}

/// A message of the peer.
#[derive(Debug, Clone)]
pub struct InMessage {
    /// Message header of the first packet that arrived.
    pub msgh: Msgh,
    /// Whether it is a Send.
    pub send: bool,
    /// Packets that it takes.
    pub packets: u32,
    /// Pieces that arrived, packets in doubt included.
    pub arrived: Bits,
    /// Whether a packet of it came twice.
    pub duplicated: bool,
}

impl InMessage {
    pub(super) fn new(msgh: Msgh, send: bool, packets: u32) -> Self {
        Self {
            msgh,
            send,
            packets,
            arrived: Bits::default(),
            duplicated: false,
        }
    }

    /// Whether every packet of it has arrived.
    pub fn is_complete(&self) -> bool {
        self.arrived.len() >= self.packets
    }
}
