//! One connection: what it consists of, and what all of its parts need.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::metaroce::{Body, Cbh, Features, Opcode, Params, U24, VERSION};
use metaroce_wire::serial::Psn;

use super::answers::Answers;
use super::config::{Config, Ecn, Service, Transmit};
use super::congestion::Congestion;
use super::control::{Control, Purpose, Requests};
use super::counters::Counters;
use super::emit::emit;
use super::event::Event;
use super::hint::Hint;
use super::plane::Plane;
use super::probe::Asked;
use super::retire::{Moved, Past};
use super::rtt::MOST_RTO;
use super::rx_path::RxPath;
use super::shares::Shares;
use super::srq::Srqs;
use super::stats::Tally;
use super::stream::Stream;
use super::streams::Streams;
pub(super) use super::transitions::State;
use super::transitions::{Event as Change, PathEvent, PathState, StreamEvent, StreamState, step};
use super::tx_path::{Carried, TxPath};

/// Reason of CLOSE: all is done.
pub(super) const DONE: u16 = 0;
/// A time that does not come.
pub(super) const NEVER: u64 = u64::MAX;
/// How long numbers rest, and how long a connection that is over still answers, ns: three times the largest
/// retransmission timeout.
pub(super) const LINGER: u64 = 3 * MOST_RTO;

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

/// Answers and the like that wait to be sent, at most.
pub(super) const MOST_WAITING: usize = 1024;

/// What a connection shares with its endpoint while it works.
pub(super) struct Shared<'e> {
    pub memory: &'e mut super::memory::Memory,
    pub srqs: &'e mut Srqs,
    pub shares: &'e mut Shares,
    pub counters: &'e mut Counters,
    pub events: &'e mut VecDeque<Event>,
}

/// What is set for all connections of an endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Own address and service port.
    pub local: SocketAddr,
    /// First source port of this connection and of all, and how many there are.
    pub offset: u16,
    pub first_port: u16,
    pub ports: u16,
    /// New packets in a row on one path.
    pub run: u8,
    /// Whether this side gives hints.
    pub hints: bool,
}

impl Settings {
    pub(super) fn new(config: &Config, offset: u16) -> Self {
        let ports = config.source_ports.len() as u16;
        Self {
            local: config.local,
            offset: offset % ports.max(1),
            first_port: config.source_ports.start,
            ports,
            run: config.spray_run,
            hints: config.capacity_mbps.is_some(),
        }
    }

    /// The port so many after the first one of the connection.
    pub(super) fn port(&self, shift: u16) -> u16 {
        let place = (u32::from(self.offset) + u32::from(shift)) % u32::from(self.ports.max(1));
        self.first_port + place as u16
    }
}

/// One connection.
pub(super) struct Connection {
    pub handle: u32,
    pub state: State,
    pub settings: Settings,
    pub peer: SocketAddr,
    pub planes: Vec<Plane>,
    pub initiator: bool,
    pub service: Service,
    /// Own parameters, as offered or as accepted.
    pub mine: Params,
    /// The peer's parameters.
    pub theirs: Params,
    pub tally: Tally,

    pub streams: Streams,
    /// Streams with something new to send, in turn.
    pub active: VecDeque<u16>,
    /// Streams whose next operation waits for one of another stream to be answered.
    pub waiting: Vec<u16>,
    /// Reads and atomic operations under way, and those of the peer that are held.
    pub reads: u32,
    pub atomics: u32,
    pub reads_held: u32,
    pub atomics_held: u32,
    /// Streams of the initiator that have come to be open, until the connection is established.
    pub first_opened: u16,
    /// Order of posting.
    pub order: u64,

    pub tx: Vec<TxPath>,
    pub congestion: Congestion,
    pub hint: Hint,
    /// Packets in flight on all paths.
    pub in_flight: u32,
    /// When the window of the connection was used up last.
    pub used_up_at: Option<u64>,
    /// When nothing was in flight any more.
    pub idle_from: u64,
    /// Paths with something to send again, in turn.
    pub repairs: VecDeque<u16>,
    /// Packets of retired paths that go elsewhere, and whether the latest turn was theirs.
    pub moved: VecDeque<Moved>,
    pub moved_turn: bool,
    pub current_path: u16,
    pub run_left: u8,
    /// Packets that a report has newly acknowledged; empty between reports, and kept for its memory.
    pub newly: Vec<Carried>,

    pub rx: Vec<RxPath>,
    /// Paths with an acknowledgment to send at once.
    pub acks: VecDeque<u16>,

    pub requests: Requests,
    pub control: VecDeque<Control>,
    transaction: u32,
    /// STREAM_OPEN and STREAM_RESET that were answered not long ago (CONN-055).
    pub answers: Answers,
    /// Control told so far, which chooses its source port.
    told: u16,
    /// The request that was answered last, the port that it came from, and how often before.
    last_answer: (u32, u16, u16),
    /// When anything came from the peer, and from which port.
    pub heard: u64,
    pub heard_from: u16,
    /// Probes that can still be answered, oldest first.
    pub asked: VecDeque<Asked>,
    /// Paths that were retired.
    pub past: BTreeMap<u16, Past>,
    /// Unanswered probes for the idle time, and when the next one is due.
    pub idle_probes: u32,
    pub idle_due: u64,
    /// When CLOSE was sent for the first time, and whether it has been answered.
    pub close_sent: Option<u64>,
    pub close_answered: bool,
    pub peer_closed: bool,
    /// The peer's latest CLOSE, transaction and reason, while it has no answer, with the plane that it came in.
    pub close_to_answer: Option<(Psn, u16, u8)>,
    pub linger_until: Option<u64>,
    pub reason: u16,
    /// When a hint that has changed is told in a packet of its own, if no acknowledgment has told it before.
    pub hint_owed: u64,
    /// Memory that is not in use has been given back since anything was heard.
    pub rests: bool,
    /// Requests that were passed over since too many answers waited, until the endpoint counts them.
    pub unanswered: u64,
    /// Nothing is due before this time.
    pub due: u64,
}

impl Connection {
    pub(super) fn blank(
        now: u64,
        handle: u32,
        (settings, peer): (Settings, SocketAddr),
        service: &Service,
        (mine, theirs): (Params, Params),
        transaction: u32,
    ) -> Self {
        Self {
            handle,
            state: State::None,
            settings,
            peer,
            planes: vec![Plane::handshake(settings.local.ip(), peer.ip())],
            initiator: false,
            service: *service,
            mine,
            theirs,
            tally: Tally::default(),
            streams: Streams::default(),
            active: VecDeque::new(),
            waiting: Vec::new(),
            reads: 0,
            atomics: 0,
            reads_held: 0,
            atomics_held: 0,
            first_opened: 0,
            order: 0,
            tx: Vec::new(),
            congestion: Congestion::new(0),
            hint: Hint::new(false, 1, 0),
            in_flight: 0,
            used_up_at: None,
            idle_from: NEVER,
            repairs: VecDeque::new(),
            moved: VecDeque::new(),
            moved_turn: false,
            current_path: 0,
            run_left: 0,
            newly: Vec::new(),
            rx: Vec::new(),
            acks: VecDeque::new(),
            requests: Requests::default(),
            control: VecDeque::new(),
            transaction,
            answers: Answers::default(),
            told: 0,
            last_answer: (0, 0, 0),
            heard: now,
            heard_from: 0,
            asked: VecDeque::new(),
            past: BTreeMap::new(),
            idle_probes: 0,
            idle_due: NEVER,
            close_sent: None,
            close_answered: false,
            peer_closed: false,
            close_to_answer: None,
            linger_until: None,
            reason: DONE,
            hint_owed: NEVER,
            rests: false,
            unanswered: 0,
            due: NEVER,
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

    /// Whether a feature has been agreed.
    pub(super) fn has(&self, feature: Features) -> bool {
        self.agreed().features.has(feature)
    }

    /// Makes the paths; `on` is what has come to connect the sides.
    pub(super) fn connect(&mut self, now: u64, on: Change) {
        let agreed = *self.agreed();
        let peer_ack_delay = self.peer_ack_delay();
        let planes = self.planes.len().max(1) as u16;
        for path in 0..agreed.paths {
            // Path p starts in plane p mod N (PLN-001).
            let plane = (path % planes) as u8;
            let port = self.settings.port(path);
            let isn = self.mine.isn;
            self.tx.push(TxPath::new(isn, port, plane, peer_ack_delay));
            self.rx.push(RxPath::new(self.theirs.isn));
        }
        self.congestion = Congestion::new(usize::from(agreed.paths));
        // The shortest full packet is that of a Send; tagged ones are a little longer.
        let full = usize::from(agreed.payload_size) + self.over_payload();
        let unit = u64::from(self.theirs.ts_unit);
        self.hint = Hint::new(self.theirs.hint_support == 1, unit, full as u32);
        self.idle_from = now;
        // The turn begins with path 0.
        self.current_path = agreed.paths.saturating_sub(1);
        step(&mut self.state, on);
        self.probe_planes(now);
        // Nothing else need ever happen to an acceptor whose peer dies at once.
        self.arm(self.idle_deadline());
        self.arm(self.rest_deadline());
    }

    /// What IP and UDP add to a datagram, bytes.
    pub(super) fn over_datagram(&self) -> usize {
        if self.peer.is_ipv4() { 28 } else { 48 }
    }

    /// What the IP packet of a Send has beside its payload, bytes: base and message header, CRC.
    pub(super) fn over_payload(&self) -> usize {
        self.over_datagram() + 36
    }

    /// Longest time by which the peer delays an acknowledgment, ns.
    pub(super) fn peer_ack_delay(&self) -> u64 {
        u64::from(self.theirs.ack_delay) * 1000
    }

    /// Whether the connection is up, or on its way down with work to finish.
    pub(super) fn is_up(&self) -> bool {
        matches!(
            self.state,
            State::Connected | State::Established | State::Closing
        )
    }

    pub(super) fn next_transaction(&mut self) -> u32 {
        self.transaction = self.transaction.wrapping_add(1);
        self.transaction
    }

    /// Notes that something is due at `at`.
    pub(super) fn arm(&mut self, at: u64) {
        self.due = self.due.min(at);
    }

    // ---- control ------------------------------------------------------------------------------------------------

    pub(super) fn header(&self, now: u64, opcode: Opcode, transaction: u32) -> Cbh {
        Cbh {
            psn: Psn::new(transaction),
            timestamp: now as u32,
            ..Cbh::new(opcode, self.theirs.scid)
        }
    }

    /// Sends a request and repeats it until it is answered.
    pub(super) fn request(&mut self, now: u64, purpose: Purpose, cbh: Cbh, body: Body<'_>) {
        let route = (self.settings.port(0), 0);
        self.request_by(now, purpose, route, cbh, body);
    }

    /// Sends a request from a port and through a plane for the first time; repetitions take others.
    pub(super) fn request_by(
        &mut self,
        now: u64,
        purpose: Purpose,
        (port, plane): (u16, u8),
        cbh: Cbh,
        body: Body<'_>,
    ) {
        let id = cbh.psn.value();
        let bytes = emit(cbh, body, self.settings.local.ip(), self.peer);
        self.control.push_back(Control {
            bytes: bytes.clone(),
            port,
            plane,
            request: Some(id),
        });
        self.requests.add(now, id, (purpose, plane), bytes);
        self.arm(self.requests.deadline().unwrap_or(NEVER));
    }

    /// Sends an answer, or control without one, in a plane (PLN-011). Beyond a bound it is as if the network had lost it:
    /// whoever asks faster than answers leave has no more of them waiting.
    pub(super) fn tell(&mut self, cbh: Cbh, body: Body<'_>, plane: u8) {
        if self.control.len() >= MOST_WAITING {
            self.unanswered += 1;
            return;
        }
        let bytes = emit(cbh, body, self.settings.local.ip(), self.peer);
        // Nobody repeats these, so that nothing shows a dead route: in turn they take them all.
        let port = self.settings.port(self.told);
        self.told = self.told.wrapping_add(1);
        self.control.push_back(Control {
            bytes,
            port,
            plane,
            request: None,
        });
    }

    /// Answers a request.
    pub(super) fn respond(
        &mut self,
        now: u64,
        opcode: Opcode,
        (id, plane): (Psn, u8),
        body: Body<'_>,
    ) {
        let cbh = self.header(now, opcode, id.value());
        self.answer(cbh, body, plane);
    }

    /// Answers the request that the header names.
    pub(super) fn answer(&mut self, cbh: Cbh, body: Body<'_>, plane: u8) {
        if self.control.len() >= MOST_WAITING {
            self.unanswered += 1;
            return;
        }
        let port = self.port_of_answer(cbh.psn);
        let bytes = emit(cbh, body, self.settings.local.ip(), self.peer);
        self.control.push_back(Control {
            bytes,
            port,
            plane,
            request: None,
        });
    }

    /// The port that the answer to a request leaves from. A repetition says that the answer before may have met a dead
    /// route (CONN-056): it comes from another port itself, or is like the request that was answered last.
    fn port_of_answer(&mut self, id: Psn) -> u16 {
        let (last, from, before) = self.last_answer;
        let same = (last, from) == (id.value(), self.heard_from);
        let before = if same { before.wrapping_add(1) } else { 0 };
        self.last_answer = (id.value(), self.heard_from, before);
        self.settings.port(self.heard_from.wrapping_add(before))
    }

    /// The next control packet.
    pub(super) fn poll_control(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let mut control = self.control.pop_front()?;
        if let Some(id) = control.request {
            self.requests.left(now, id);
        }
        let (src_ip, dst) = self.addresses(control.plane);
        if control.plane != 0 {
            let pseudo = PseudoHeader::new(src_ip, dst);
            let sealed = crc::seal(&pseudo, &mut control.bytes);
            debug_assert!(sealed.is_ok(), "it has a trailer");
        }
        out.extend_from_slice(&control.bytes);
        Some(Transmit {
            src_ip,
            src_port: control.port,
            dst,
            ecn: Ecn::NotEct,
        })
    }

    /// Own address and the peer's in a plane.
    pub(super) fn addresses(&self, plane: u8) -> (IpAddr, SocketAddr) {
        let plane = self
            .planes
            .get(usize::from(plane))
            .unwrap_or(&self.planes[0]);
        (plane.local, SocketAddr::new(plane.peer, self.peer.port()))
    }

    /// The plane of a pair of addresses.
    pub(super) fn plane_of(&self, to: IpAddr, from: IpAddr) -> Option<u8> {
        let place = self
            .planes
            .iter()
            .position(|p| p.local == to && p.peer == from);
        place.map(|plane| plane as u8)
    }

    // ---- what several parts do ----------------------------------------------------------------------------------

    /// Whether the connection may be forgotten; from then on it is nothing.
    pub(super) fn is_forgotten(&mut self, now: u64) -> bool {
        let rested = self.state.is_over() && self.linger_until.is_some_and(|until| until <= now);
        if rested {
            step(&mut self.state, Change::Rested);
        }
        rested
    }

    /// Ends the connection, and its streams and paths with it.
    pub(super) fn end(&mut self, on: Change) {
        step(&mut self.state, on);
        let done = |state| {
            matches!(
                state,
                StreamState::Void | StreamState::None | StreamState::Ended
            )
        };
        for stream in self.streams.iter_mut().filter(|stream| !done(stream.state)) {
            step(&mut stream.state, StreamEvent::ConnectionOver);
        }
        let between = |state| {
            matches!(
                state,
                PathState::Retiring | PathState::Retired | PathState::Reviving
            )
        };
        for path in self.tx.iter_mut().filter(|path| between(path.state)) {
            step(&mut path.state, PathEvent::ConnectionOver);
        }
        self.active.clear();
        self.waiting.clear();
        self.repairs.clear();
        self.moved.clear();
        self.acks.clear();
        for rx in &mut self.rx {
            rx.ack_now = false;
            rx.ack_due = None;
        }
        self.hint_owed = NEVER;
    }

    /// Puts a stream in the row of those with something new to send.
    pub(super) fn activate(&mut self, id: u16) {
        if let Some(stream) = self.streams.get_mut(id)
            && !stream.active
        {
            stream.active = true;
            self.active.push_back(id);
        }
    }

    /// Puts a path in the row of those with something to send again.
    pub(super) fn repair(&mut self, path: u16) {
        if self.tx[usize::from(path)].has_lost() && !self.repairs.contains(&path) {
            self.repairs.push_back(path);
        }
    }

    /// Lets `change` act on a path, keeps the count of what is in flight, and notes when that is nothing any more (CC-014).
    pub(super) fn on_path<R>(
        &mut self,
        now: u64,
        path: u16,
        change: impl FnOnce(&mut TxPath) -> R,
    ) -> R {
        let tx = &mut self.tx[usize::from(path)];
        let (before, all_before) = (tx.in_flight(), self.in_flight);
        let result = change(tx);
        self.in_flight = self.in_flight + tx.in_flight() - before;
        if self.in_flight > 0 {
            self.idle_from = NEVER;
        } else if all_before > 0 {
            self.idle_from = now;
            self.arm(self.pause_deadline());
        }
        result
    }

    /// The stream with this number, while its connection knows it.
    pub(super) fn stream(&mut self, id: u16) -> Option<&mut Stream> {
        self.streams.get_mut(id)
    }
}
