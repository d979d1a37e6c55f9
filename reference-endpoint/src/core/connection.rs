//! One connection: its state, its paths and streams, and the control that opens and closes them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use metaroce_wire::metaroce::{
    Accept, Body, Cbh, Close, CloseAck, Confirm, Opcode, Open, Params, Reject, RqCredit,
    StreamOpen, StreamOpenAck, U24, VERSION,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::config::{Ecn, Misuse, Transmit};
use super::control::{Purpose, Requests, Turn};
use super::counters::Counters;
use super::emit::emit;
use super::event::{Event, Status, WorkKind};
use super::rx_path::RxPath;
use super::stream::Stream;
use super::tx_path::TxPath;

/// Reasons of CLOSE.
const DONE: u16 = 0;
const ERROR: u16 = 1;
/// How long a closed connection still answers, ns: three times the largest retransmission timeout, so that the peer's
/// repetitions of CLOSE find somebody.
const LINGER: u64 = 3 * super::tx_path::MOST_RTO;

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
        rsvd_b: 0,
    }
}

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// OPEN is sent.
    Opening,
    /// CONFIRM is sent.
    Confirming,
    /// Both sides keep state; streams are being opened.
    Connected,
    /// All streams are open.
    Established,
    /// No new work; CLOSE goes out once the work is done.
    Closing,
    /// Over; repeated packets of the peer are still answered.
    Closed,
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
    close_sent: bool,
    close_answered: bool,
    pub peer_closed: bool,
    linger_until: Option<u64>,
    reason: u16,
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
        connection.request(
            now,
            Purpose::Open,
            Opcode::OPEN,
            Body::Open(Open {
                params: mine,
                padding: [0; 32],
            }),
        );
        connection
    }

    /// An acceptor's connection, after a valid CONFIRM.
    pub(super) fn accepted(
        handle: u32,
        addresses: (SocketAddr, SocketAddr, u16),
        mine: Params,
        theirs: Params,
        transaction: u32,
    ) -> Self {
        let mut connection = Self::blank(handle, addresses, mine, theirs, transaction);
        connection.connect(&mine.clone());
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
            state: State::Opening,
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
            linger_until: None,
            reason: DONE,
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

    fn connect(&mut self, agreed: &Params) {
        let peer_ack_delay = u64::from(self.theirs.ack_delay) * 1000;
        for path in 0..agreed.paths {
            self.tx.push(TxPath::new(
                self.mine.isn,
                self.first_port + path,
                peer_ack_delay,
            ));
            self.rx.push(RxPath::new(self.theirs.isn));
        }
        self.state = State::Connected;
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

    // ---- set-up -------------------------------------------------------------------------------------------------

    pub(super) fn on_accept(
        &mut self,
        now: u64,
        id: Psn,
        accept: &Accept,
        shared: &mut Shared<'_>,
    ) {
        if self.state != State::Opening
            || self
                .requests
                .answered(id.value(), |p| p == Purpose::Open)
                .is_none()
        {
            return;
        }
        let (offered, agreed) = (&self.mine, &accept.params);
        let sound = agreed.ver_min == VERSION
            && agreed.ver_max == VERSION
            && (1..=offered.paths).contains(&agreed.paths)
            && (1..=offered.streams).contains(&agreed.streams)
            && (1..=offered.msg_window).contains(&agreed.msg_window)
            && (256..=offered.payload_size).contains(&agreed.payload_size)
            && agreed.payload_size.is_power_of_two()
            && agreed.scid.value() != 0;
        if !sound {
            self.fail(
                now,
                Status::RetryExcErr,
                "the peer accepted what was not offered",
                shared,
            );
            return;
        }
        self.theirs = accept.params;
        self.state = State::Confirming;
        let confirm = Confirm {
            params: self.mine,
            cookie: accept.cookie,
            accepted: accept.params,
        };
        self.request(
            now,
            Purpose::Confirm,
            Opcode::CONFIRM,
            Body::Confirm(confirm),
        );
    }

    pub(super) fn on_reject(
        &mut self,
        now: u64,
        id: Psn,
        reject: &Reject,
        shared: &mut Shared<'_>,
    ) {
        let asked = |purpose| matches!(purpose, Purpose::Open | Purpose::Confirm);
        if reject.nonce == self.mine.nonce && self.requests.answered(id.value(), asked).is_some() {
            let message = format!(
                "the peer refused the connection with reason {}",
                reject.reason
            );
            self.fail(now, Status::RetryExcErr, &message, shared);
        }
    }

    pub(super) fn on_confirm_ack(&mut self, now: u64, id: Psn, nonce: u64) {
        let confirming = self.state == State::Confirming && nonce == self.mine.nonce;
        if !confirming
            || self
                .requests
                .answered(id.value(), |p| p == Purpose::Confirm)
                .is_none()
        {
            return;
        }
        let agreed = self.theirs;
        self.connect(&agreed);
        for stream in (0..agreed.streams).map(|n| n * 2) {
            self.streams
                .insert(stream, Stream::new(stream, Msn::new(0), Rqsn::new(0)));
            let open = StreamOpen {
                stream,
                status: 0,
                rsvd_a: 0,
                first_msn: Msn::new(0),
                first_rqsn: Rqsn::new(0),
                rq_limit: Rqsn::new(0),
                rsvd_b: 0,
                src_qpn: U24::new(u32::from(stream) + 1),
                rsvd_c: 0,
                dst_qpn: U24::new(0),
            };
            self.request(
                now,
                Purpose::StreamOpen(stream),
                Opcode::STREAM_OPEN,
                Body::StreamOpen(open),
            );
        }
    }

    pub(super) fn on_stream_open(
        &mut self,
        now: u64,
        id: Psn,
        open: &StreamOpen,
        shared: &mut Shared<'_>,
    ) {
        if self.initiator || matches!(self.state, State::Opening | State::Confirming) {
            return;
        }
        let known = self.streams.contains_key(&open.stream);
        let fits =
            open.stream.is_multiple_of(2) && self.streams.len() < usize::from(self.mine.streams);
        let status = if known || fits { 0 } else { 1 };
        if !known && fits {
            let mut stream = Stream::new(open.stream, open.first_msn, open.first_rqsn);
            stream.open = true;
            stream.on_credit(open.rq_limit);
            self.streams.insert(open.stream, stream);
        }
        let answer = StreamOpenAck {
            stream: open.stream,
            status,
            rsvd_a: 0,
            first_msn: open.first_msn,
            first_rqsn: open.first_rqsn,
            // What was posted when the stream was opened: none. Every repetition says the same.
            rq_limit: open.first_rqsn,
            rsvd_b: 0,
            src_qpn: U24::new(u32::from(open.stream) + 1),
            rsvd_c: 0,
            dst_qpn: open.src_qpn,
        };
        self.respond(
            now,
            Opcode::STREAM_OPEN_ACK,
            id,
            Body::StreamOpenAck(answer),
        );
        self.establish(shared);
    }

    pub(super) fn on_stream_open_ack(
        &mut self,
        now: u64,
        id: Psn,
        ack: &StreamOpenAck,
        shared: &mut Shared<'_>,
    ) {
        let purpose = Purpose::StreamOpen(ack.stream);
        if self
            .requests
            .answered(id.value(), |p| p == purpose)
            .is_none()
        {
            return;
        }
        if ack.status != 0 {
            self.fail(
                now,
                Status::RetryExcErr,
                "the peer refused a stream",
                shared,
            );
        } else if let Some(stream) = self.streams.get_mut(&ack.stream) {
            stream.open = true;
            stream.on_credit(ack.rq_limit);
            self.establish(shared);
        }
    }

    fn establish(&mut self, shared: &mut Shared<'_>) {
        let streams = self.agreed().streams;
        let open = self.streams.values().filter(|stream| stream.open).count();
        if self.state == State::Connected && open == usize::from(streams) {
            self.state = State::Established;
            let paths = self.agreed().paths;
            shared.events.push_back(Event::Established {
                conn: self.handle,
                paths,
                streams,
            });
        }
    }

    // ---- credit -------------------------------------------------------------------------------------------------

    pub(super) fn on_rq_credit(&mut self, now: u64, id: Psn, credit: &RqCredit) {
        let Some(stream) = self
            .streams
            .get_mut(&credit.stream)
            .filter(|stream| stream.open)
        else {
            return;
        };
        if credit.kind == 0 {
            let tell = RqCredit {
                kind: 1,
                rq_limit: stream.rq_limit(),
                ..*credit
            };
            self.respond(now, Opcode::RQ_CREDIT, id, Body::RqCredit(tell));
        } else {
            stream.on_credit(credit.rq_limit);
            let purpose = Purpose::Credit(credit.stream);
            self.requests.answered(id.value(), |p| p == purpose);
            self.end_starvation(credit.stream);
        }
    }

    /// Stops asking for credit that has come, by whatever packet.
    pub(super) fn end_starvation(&mut self, id: u16) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let next = stream
            .queue
            .iter()
            .find(|message| message.sent < message.packets);
        if next.is_none_or(|message| stream.has_credit(message)) {
            self.requests
                .cancel(|purpose| purpose == Purpose::Credit(id));
        }
    }

    /// Tells the peer of receives that it does not know of.
    pub(super) fn tell_credit(&mut self, now: u64, id: u16) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let tell = RqCredit {
            stream: id,
            kind: 1,
            rsvd_a: 0,
            rq_limit: stream.rq_limit(),
            rsvd_b: 0,
        };
        let transaction = Psn::new(self.next_transaction());
        self.respond(now, Opcode::RQ_CREDIT, transaction, Body::RqCredit(tell));
    }

    // ---- end ----------------------------------------------------------------------------------------------------

    pub(super) fn close(&mut self, now: u64) -> Result<(), Misuse> {
        match self.state {
            State::Established | State::Connected => {
                self.state = State::Closing;
                self.advance_close(now);
                Ok(())
            }
            State::Closing => Ok(()),
            _ => Err(Misuse::Closing),
        }
    }

    /// Sends CLOSE once all work is done.
    pub(super) fn advance_close(&mut self, now: u64) {
        let idle = self.streams.values().all(|stream| stream.queue.is_empty());
        if self.state == State::Closing && idle && !self.close_sent && !self.peer_closed {
            self.close_sent = true;
            self.request(
                now,
                Purpose::Close,
                Opcode::CLOSE,
                Body::Close(Close {
                    reason: self.reason,
                    rsvd: 0,
                }),
            );
        }
    }

    pub(super) fn on_close(&mut self, now: u64, id: Psn, close: &Close, shared: &mut Shared<'_>) {
        if matches!(self.state, State::Opening | State::Confirming) {
            return;
        }
        let answer = CloseAck {
            reason: close.reason,
            rsvd: 0,
        };
        self.respond(now, Opcode::CLOSE_ACK, id, Body::CloseAck(answer));
        if !self.peer_closed {
            self.peer_closed = true;
            self.reason = close.reason;
            self.drop_unstarted(shared);
        }
        self.settle(now, shared);
    }

    pub(super) fn on_close_ack(&mut self, now: u64, id: Psn, shared: &mut Shared<'_>) {
        if self
            .requests
            .answered(id.value(), |p| p == Purpose::Close)
            .is_some()
        {
            self.close_answered = true;
            self.settle(now, shared);
        }
    }

    /// Ends the connection once either side has closed it and no work is under way.
    pub(super) fn settle(&mut self, now: u64, shared: &mut Shared<'_>) {
        self.advance_close(now);
        let idle = self.streams.values().all(|stream| stream.queue.is_empty());
        if self.state != State::Closed && idle && (self.peer_closed || self.close_answered) {
            self.finish(now, shared);
            shared.events.push_back(Event::Closed {
                conn: self.handle,
                reason: self.reason,
            });
        }
    }

    fn finish(&mut self, now: u64, shared: &mut Shared<'_>) {
        self.state = State::Closed;
        self.linger_until = Some(now + LINGER);
        self.requests.cancel(|purpose| purpose != Purpose::Close);
        self.flush(None, shared);
    }

    /// Ends the connection with an error: the work that `cause` names gets `status`, the rest is flushed in order.
    pub(super) fn fail_work(
        &mut self,
        now: u64,
        (status, message): (Status, &str),
        cause: Option<(u16, Msn)>,
        shared: &mut Shared<'_>,
    ) {
        if self.state == State::Closed {
            return;
        }
        let connected = !self.tx.is_empty();
        self.requests.clear();
        let cause = cause.or_else(|| self.oldest_work());
        self.flush(cause.map(|(stream, msn)| (stream, msn, status)), shared);
        let message = message.to_owned();
        shared.events.push_back(Event::Failed {
            conn: self.handle,
            status,
            message,
        });
        self.reason = ERROR;
        if connected && !self.close_sent {
            self.close_sent = true;
            self.request(
                now,
                Purpose::Close,
                Opcode::CLOSE,
                Body::Close(Close {
                    reason: ERROR,
                    rsvd: 0,
                }),
            );
        }
        self.finish(now, shared);
    }

    pub(super) fn fail(
        &mut self,
        now: u64,
        status: Status,
        message: &str,
        shared: &mut Shared<'_>,
    ) {
        self.fail_work(now, (status, message), None, shared);
    }

    fn oldest_work(&self) -> Option<(u16, Msn)> {
        let fronts = self
            .streams
            .values()
            .filter_map(|stream| Some((stream.id, stream.queue.front()?)));
        fronts
            .min_by_key(|(_, message)| message.order)
            .map(|(stream, message)| (stream, message.msn))
    }

    /// Completes all work and all receives in the order in which they were posted.
    fn flush(&mut self, cause: Option<(u16, Msn, Status)>, shared: &mut Shared<'_>) {
        let mut ended = Vec::new();
        for stream in self.streams.values_mut() {
            for message in stream.queue.drain(..) {
                let is_cause = cause.filter(|(id, msn, _)| *id == stream.id && *msn == message.msn);
                let status = is_cause.map_or(Status::WrFlushErr, |(_, _, status)| status);
                ended.push((
                    message.order,
                    stream.id,
                    message.wr_id,
                    message.kind,
                    status,
                ));
            }
            for receive in stream.take_receives() {
                ended.push((
                    receive.order,
                    stream.id,
                    receive.wr_id,
                    WorkKind::Recv,
                    Status::WrFlushErr,
                ));
            }
        }
        ended.sort_by_key(|(order, ..)| *order);
        for (_, stream, wr_id, kind, status) in ended {
            let conn = self.handle;
            shared.events.push_back(Event::Completion {
                conn,
                stream,
                wr_id,
                kind,
                status,
                byte_len: 0,
            });
        }
    }

    /// After a CLOSE of the peer no message is begun any more.
    fn drop_unstarted(&mut self, shared: &mut Shared<'_>) {
        for stream in self.streams.values_mut() {
            let started = stream
                .queue
                .iter()
                .take_while(|message| message.sent > 0)
                .count();
            for message in stream.queue.drain(started..) {
                shared.events.push_back(Event::Completion {
                    conn: self.handle,
                    stream: stream.id,
                    wr_id: message.wr_id,
                    kind: message.kind,
                    status: Status::WrFlushErr,
                    byte_len: 0,
                });
            }
        }
    }

    // ---- timers and control out ---------------------------------------------------------------------------------

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.state == State::Closed && self.linger_until.is_some_and(|until| until <= now)
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let acks = self.rx.iter().filter_map(|path| path.ack_due);
        let paths = self
            .tx
            .iter()
            .filter(|_| self.state != State::Closed)
            .filter_map(TxPath::deadline);
        acks.chain(paths)
            .chain(self.requests.deadline())
            .chain(self.linger_until)
            .min()
    }

    pub(super) fn on_request_timers(&mut self, now: u64, shared: &mut Shared<'_>) {
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
