//! One connection: its state, its paths and streams, and the control that opens and closes them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use metaroce_wire::metaroce::{Body, Cbh, Features, Opcode, Open, Params, Planes, U24, VERSION};
use metaroce_wire::serial::Psn;

use super::config::{Ecn, Transmit};
use super::control::{Purpose, Requests, Turn};
use super::counters::Counters;
use super::emit::emit;
use super::event::{Event, Status};
use super::rx_path::RxPath;
use super::stream::Stream;
pub(super) use super::transitions::State;
use super::transitions::{Event as Change, StreamEvent, StreamState, step};
use super::tx_path::TxPath;

/// Reason of CLOSE: all is done.
pub(super) const DONE: u16 = 0;

/// How long an acceptor waits for the streams of a connection, ns. A CONFIRM that was held back in the network, from a
/// connection that is over, would otherwise hold memory for ever.
const IDLE: u64 = 30_000_000_000;

/// Parameters of this version, with everything that is negotiated zero.
pub(super) const fn blank_params() -> Params {
    Params {
        ver_min: VERSION,
        ver_max: VERSION,
        paths: 0,
        rsvd_a: 0,
        scid: U24::new(0),
        nonce: 0,
        isn: Psn::new(0),
        service_id: 0,
        streams: 0,
        msg_window: 0,
        payload_size: 0,
        vector_width: 256,
        ts_unit: 1,
        ack_delay: 0,
        hint_interval: 0,
        hint_support: 0,
        extra_planes: 0,
        read_depth: 0,
        atomic_depth: 0,
        features: Features(0),
    }
}

/// What a connection shares with its endpoint while it works.
pub(super) struct Shared<'e> {
    pub memory: &'e mut super::memory::Memory,
    pub counters: &'e mut Counters,
    pub events: &'e mut VecDeque<Event>,
}

/// One connection.
pub(super) struct Connection {
    pub handle: u32,
    pub state: State,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub first_port: u16,
    pub initiator: bool,
    /// Own parameters, as offered or as accepted.
    pub mine: Params,
    /// The peer's parameters.
    pub theirs: Params,
    pub streams: BTreeMap<u16, Stream>,
    pub tx: Vec<TxPath>,
    pub rx: Vec<RxPath>,
    pub requests: Requests,
    pub control: VecDeque<(u16, Vec<u8>)>,
    pub next_path: usize,
    pub next_stream: u16,
    pub order: u64,
    transaction: u32,
    pub close_sent: bool,
    pub close_answered: bool,
    pub peer_closed: bool,
    /// The peer's latest CLOSE, transaction and reason, while it has no answer.
    pub close_to_answer: Option<(Psn, u16)>,
    pub linger_until: Option<u64>,
    pub reason: u16,
    /// When an acceptor stops waiting for the streams.
    streams_due: Option<u64>,
}

impl Connection {
    /// An initiator's connection; OPEN is on its way.
    pub(super) fn open(
        now: u64,
        handle: u32,
        (local, peer, first_port): (SocketAddr, SocketAddr, u16),
        mine: Params,
        transaction: u32,
    ) -> Self {
        let mut connection = Self::blank(
            handle,
            (local, peer, first_port),
            mine,
            blank_params(),
            transaction,
        );
        connection.initiator = true;
        step(&mut connection.state, Change::Connect);
        connection.request(
            now,
            Purpose::Open,
            Opcode::OPEN,
            Body::Open(Open {
                params: mine,
                planes: Planes::NONE,
                padding: [0; 32],
            }),
        );
        connection
    }

    /// An acceptor's connection, after a valid CONFIRM.
    pub(super) fn accepted(
        now: u64,
        handle: u32,
        addresses: (SocketAddr, SocketAddr, u16),
        mine: Params,
        theirs: Params,
        transaction: u32,
    ) -> Self {
        let mut connection = Self::blank(handle, addresses, mine, theirs, transaction);
        connection.connect(&mine, Change::ValidConfirm);
        connection.streams_due = Some(now + IDLE);
        connection
    }

    fn blank(
        handle: u32,
        (local, peer, first_port): (SocketAddr, SocketAddr, u16),
        mine: Params,
        theirs: Params,
        transaction: u32,
    ) -> Self {
        Self {
            handle,
            state: State::None,
            local,
            peer,
            first_port,
            initiator: false,
            mine,
            theirs,
            streams: BTreeMap::new(),
            tx: Vec::new(),
            rx: Vec::new(),
            requests: Requests::default(),
            control: VecDeque::new(),
            next_path: 0,
            next_stream: 0,
            order: 0,
            transaction,
            close_sent: false,
            close_answered: false,
            peer_closed: false,
            close_to_answer: None,
            linger_until: None,
            reason: DONE,
            streams_due: None,
        }
    }

    /// The values that both sides have agreed on: those of the acceptor.
    pub(super) fn agreed(&self) -> &Params {
        if self.initiator {
            &self.theirs
        } else {
            &self.mine
        }
    }

    /// Makes the paths; `on` is what has come to connect the sides.
    pub(super) fn connect(&mut self, agreed: &Params, on: Change) {
        let peer_ack_delay = u64::from(self.theirs.ack_delay) * 1000;
        for path in 0..agreed.paths {
            self.tx.push(TxPath::new(
                self.mine.isn,
                self.first_port + path,
                peer_ack_delay,
            ));
            self.rx.push(RxPath::new(self.theirs.isn));
        }
        step(&mut self.state, on);
    }

    pub(super) fn next_transaction(&mut self) -> u32 {
        self.transaction = self.transaction.wrapping_add(1);
        self.transaction
    }

    fn control_header(&self, now: u64, opcode: Opcode, transaction: u32) -> Cbh {
        Cbh {
            psn: Psn::new(transaction),
            timestamp: now as u32,
            ..Cbh::new(opcode, self.theirs.scid)
        }
    }

    pub(super) fn request(&mut self, now: u64, purpose: Purpose, opcode: Opcode, body: Body<'_>) {
        let id = self.next_transaction();
        let bytes = emit(
            self.control_header(now, opcode, id),
            body,
            self.local,
            self.peer,
        );
        self.control.push_back((self.first_port, bytes.clone()));
        self.requests.add(now, id, purpose, bytes);
    }

    pub(super) fn respond(&mut self, now: u64, opcode: Opcode, transaction: Psn, body: Body<'_>) {
        let cbh = self.control_header(now, opcode, transaction.value());
        let bytes = emit(cbh, body, self.local, self.peer);
        self.control.push_back((self.first_port, bytes));
    }

    /// Whether the connection may be forgotten; from then on it is nothing.
    pub(super) fn is_forgotten(&mut self, now: u64) -> bool {
        let rested = self.state.is_over() && self.linger_until.is_some_and(|until| until <= now);
        if rested {
            step(&mut self.state, Change::Rested);
        }
        rested
    }

    /// Ends the connection, and its streams with it.
    pub(super) fn end(&mut self, on: Change) {
        step(&mut self.state, on);
        let alive = |stream: &&mut Stream| stream.state != StreamState::Void;
        for stream in self.streams.values_mut().filter(alive) {
            step(&mut stream.state, StreamEvent::ConnectionOver);
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let acks = self.rx.iter().filter_map(|path| path.ack_due);
        let paths = self
            .tx
            .iter()
            .filter(|_| !self.state.is_over())
            .filter_map(TxPath::deadline);
        let streams_due = self.streams_due.filter(|_| self.state == State::Connected);
        acks.chain(paths)
            .chain(self.requests.deadline())
            .chain(streams_due)
            .chain(self.linger_until)
            .min()
    }

    pub(super) fn on_request_timers(&mut self, now: u64, shared: &mut Shared<'_>) {
        if self.state == State::Connected && self.streams_due.is_some_and(|due| due <= now) {
            self.fail(
                now,
                Status::RetryExcErr,
                "the initiator opens no streams",
                shared,
            );
        }
        for turn in self.requests.on_timer(now) {
            match turn {
                Turn::Repeat(bytes) => self.control.push_back((self.first_port, bytes)),
                Turn::GiveUp(Purpose::Close) => {
                    self.close_answered = true;
                    self.settle(now, shared);
                }
                Turn::GiveUp(_) => {
                    self.fail(now, Status::RetryExcErr, "the peer gave no answer", shared)
                }
            }
        }
    }

    pub(super) fn transmit(&self, src_port: u16, ecn: Ecn) -> Transmit {
        Transmit {
            src_port,
            dst: self.peer,
            ecn,
        }
    }
}
