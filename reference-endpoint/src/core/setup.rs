//! The set-up of a connection: the initiator's answers to the acceptor, and the streams of both.

use metaroce_wire::metaroce::{
    Accept, Body, Confirm, Features, Opcode, Open, Params, Planes, Reject, StreamOpen,
    StreamOpenAck, StreamStatus, U24, VERSION,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::answers::Opened;
use super::config::{Config, Misuse, StreamConfig};
use super::connection::{Connection, Shared, State};
use super::control::Purpose;
use super::event::{Event, Status};
use super::handshake::is_acceptable;
use super::plane::{are_named, joinable};
use super::stream::Stream;
use super::transitions::{Event as Change, StreamEvent, StreamState, step};

impl Connection {
    /// Sends OPEN.
    pub(super) fn open(&mut self, now: u64, planes: &Planes<'_>) {
        self.initiator = true;
        step(&mut self.state, Change::Connect);
        let id = self.next_transaction();
        let cbh = self.header(now, Opcode::OPEN, id);
        let open = Open {
            params: self.mine,
            planes: *planes,
            padding: [0; 32],
        };
        self.request(now, Purpose::Open, cbh, Body::Open(open));
    }

    pub(super) fn on_accept(
        &mut self,
        now: u64,
        id: Psn,
        accept: &Accept,
        config: &Config,
        shared: &mut Shared<'_>,
    ) {
        let opening = self.state == State::Opening;
        let asked = |purpose| purpose == Purpose::Open;
        if !opening || self.requests.answered(id.value(), asked).is_none() {
            shared.counters.stray += 1;
            return;
        }
        let (offered, agreed) = (self.mine, &accept.params);
        let planes = are_named(&accept.planes, agreed.extra_planes)
            && joinable(&accept.planes, &config.planes) >= agreed.extra_planes;
        if !is_offered(&offered, agreed) || !planes {
            let message = "the peer accepted what was not offered";
            return self.fail(now, Status::RetryExcErr, message, shared);
        }
        self.theirs = *agreed;
        self.join_planes(&config.planes, &accept.planes, agreed.extra_planes);
        step(&mut self.state, Change::Accept);
        let own = Planes::bytes_of(&config.planes[..usize::from(offered.extra_planes)]);
        let confirm = Confirm {
            params: self.mine,
            planes: Planes(&own),
            cookie: accept.cookie,
            accepted: accept.params,
            accepted_planes: accept.planes,
        };
        let id = self.next_transaction();
        let cbh = self.header(now, Opcode::CONFIRM, id);
        self.request(now, Purpose::Confirm, cbh, Body::Confirm(confirm));
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
        } else {
            shared.counters.stray += 1;
        }
    }

    pub(super) fn on_confirm_ack(
        &mut self,
        now: u64,
        id: Psn,
        nonce: u64,
        shared: &mut Shared<'_>,
    ) {
        let confirming = self.state == State::Confirming && nonce == self.mine.nonce;
        let asked = |purpose| purpose == Purpose::Confirm;
        if !confirming || self.requests.answered(id.value(), asked).is_none() {
            shared.counters.stray += 1;
            return;
        }
        self.connect(now, Change::ConfirmAck);
        let config = self.service.stream;
        for _ in 0..self.first_streams() {
            if self.ask_stream(now, config, shared).is_none() {
                break;
            }
        }
        self.establish(shared);
    }

    /// Streams without which the connection is not established.
    fn first_streams(&self) -> u16 {
        self.service.first_streams.min(self.agreed().streams)
    }

    /// Whether the connection waits for a stream of this number: one that the initiator opens, before it is established.
    fn waits_for(&self, id: u16) -> bool {
        self.state == State::Connected && id.is_multiple_of(2)
    }

    // ---- streams ------------------------------------------------------------------------------------------------

    /// Streams that count for the agreed number; those that this side has asked for only where `own` says so.
    fn counted(&self, own: bool) -> usize {
        let counts = |stream: &&Stream| match stream.state {
            StreamState::Opening => own,
            state => state.counts(),
        };
        self.streams.iter().filter(counts).count()
    }

    /// The application opens a further stream.
    pub(super) fn open_stream(
        &mut self,
        now: u64,
        config: StreamConfig,
        shared: &mut Shared<'_>,
    ) -> Result<u16, Misuse> {
        if !matches!(self.state, State::Connected | State::Established) || self.peer_closed {
            return Err(Misuse::Closing);
        }
        let limit = usize::from(self.agreed().streams);
        self.ask_stream(now, config, shared).ok_or(Misuse::Limit {
            what: "streams",
            limit,
        })
    }

    /// Sends STREAM_OPEN for the lowest free number of this side, if one more stream is agreed (STRM-001, STRM-041).
    fn ask_stream(
        &mut self,
        now: u64,
        config: StreamConfig,
        shared: &mut Shared<'_>,
    ) -> Option<u16> {
        let count = self.streams.iter().filter(|s| s.state.counts()).count();
        if count >= usize::from(self.agreed().streams) {
            return None;
        }
        let parity = u16::from(!self.initiator);
        let mut numbers = (0..32_768u16).map(|n| 2 * n + parity);
        let free = |id: &u16| {
            self.streams
                .get(*id)
                .is_none_or(|stream| stream.state == StreamState::Void)
        };
        let id = numbers.find(free)?;
        let mut stream = Stream::new(id, config, Msn::new(0), Rqsn::new(0));
        step(&mut stream.state, StreamEvent::Ask);
        self.add_stream(stream, shared);
        let open = StreamOpen {
            stream: id,
            status: 0,
            rsvd_a: 0,
            first_msn: Msn::new(0),
            first_rqsn: Rqsn::new(0),
            rq_limit: self.report_credit(id, shared),
            rsvd_b: 0,
            src_qpn: U24::new(u32::from(id) + 1),
            rsvd_c: 0,
            dst_qpn: U24::new(0),
        };
        let transaction = self.next_transaction();
        let cbh = self.header(now, Opcode::STREAM_OPEN, transaction);
        let body = Body::StreamOpen(open);
        self.request(now, Purpose::StreamOpen(id), cbh, body);
        Some(id)
    }

    fn add_stream(&mut self, stream: Stream, shared: &mut Shared<'_>) {
        if let Some(srq) = stream.config.srq {
            shared.srqs.attach(srq);
        }
        self.streams.insert(stream);
    }

    /// Answers to STREAM_OPEN and STREAM_RESET that are remembered at a time: within the answer time a number rests several
    /// times between two streams, and a few are asked for in vain.
    pub(super) fn most_answers(&self) -> usize {
        1024 + 16 * usize::from(self.agreed().streams)
    }

    pub(super) fn on_stream_open(
        &mut self,
        now: u64,
        (id, plane, timestamp): (Psn, u8, u32),
        open: &StreamOpen,
        shared: &mut Shared<'_>,
    ) {
        if !self.is_up() {
            shared.counters.stray += 1;
            return;
        }
        if self.answers.answers_again(now, id) {
            if let Some(mut before) = self.answers.opened(id, open.stream) {
                // The rest of the answer is that of the first time, but no limit goes back (CONN-025, STRM-031).
                let stream = self.streams.get(open.stream);
                if before.status == 0 && stream.is_some_and(Stream::is_open) {
                    before.rq_limit = self.report_credit(open.stream, shared);
                }
                let body = Body::StreamOpenAck(answer_to(open, before));
                self.respond(now, Opcode::STREAM_OPEN_ACK, (id, plane), body);
            }
            return;
        }
        if self.answers.is_overtaken(now, id, open.stream) {
            shared.counters.misdirected += 1;
            return;
        }
        let most = self.most_answers();
        if !self.answers.has_room(now, most) {
            shared.counters.unanswered += 1;
            return;
        }
        let number = open.stream;
        // Even numbers are for the initiator to open, odd ones for the acceptor.
        let theirs = number.is_multiple_of(2) != self.initiator;
        let known = self.streams.get(number).map(|stream| stream.state);
        let room = self.counted(self.initiator) < usize::from(self.agreed().streams);
        let status = match known {
            Some(StreamState::Void | StreamState::None) | None if theirs && room => 0,
            Some(StreamState::Void | StreamState::None) | None if theirs => {
                StreamStatus::NO_RESOURCE.0
            }
            _ => StreamStatus::IN_USE.0,
        };
        let mut limit = Rqsn::new(0);
        if status == 0 {
            let config = self.service.stream;
            let mut stream = Stream::new(number, config, open.first_msn, open.first_rqsn);
            step(&mut stream.state, StreamEvent::StreamOpen);
            self.add_stream(stream, shared);
            self.on_credit(now, timestamp, number, open.rq_limit);
            limit = self.report_credit(number, shared);
        }
        let rq_limit = limit;
        let answer = answer_to(open, Opened { status, rq_limit });
        self.answers.add_open(now, id, &answer);
        let body = Body::StreamOpenAck(answer);
        self.respond(now, Opcode::STREAM_OPEN_ACK, (id, plane), body);
        if status == 0 {
            self.stream_opened(number, shared);
        }
    }

    pub(super) fn on_stream_open_ack(
        &mut self,
        now: u64,
        (id, timestamp): (Psn, u32),
        ack: &StreamOpenAck,
        shared: &mut Shared<'_>,
    ) {
        let purpose = Purpose::StreamOpen(ack.stream);
        let asked = self.requests.answered(id.value(), |p| p == purpose);
        if asked.is_none() {
            shared.counters.stray += 1;
            return;
        }
        let Some(stream) = self.streams.get_mut(ack.stream) else {
            return;
        };
        if ack.status != 0 {
            step(&mut stream.state, StreamEvent::Refused);
            return self.stream_refused(now, ack.stream, shared);
        }
        step(&mut stream.state, StreamEvent::StreamOpenAck);
        let news = stream.rx.has_news(stream.config.srq.is_some());
        self.on_credit(now, timestamp, ack.stream, ack.rq_limit);
        self.activate(ack.stream);
        if news {
            self.tell_credit(now, ack.stream, shared);
        }
        self.stream_opened(ack.stream, shared);
    }

    /// A stream does not come about. Without the first ones there is no connection.
    fn stream_refused(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) {
        if self.waits_for(id) {
            let message = "the peer refused a stream";
            return self.fail(now, Status::RetryExcErr, message, shared);
        }
        self.flush_stream(id, None, Status::RemInvReqErr, shared);
        self.settle(now, shared);
    }

    /// A STREAM_OPEN has stayed without answer.
    pub(super) fn stream_unanswered(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) {
        if self.waits_for(id) || !self.has(Features::RESET) {
            let message = "the peer gave no answer";
            return self.fail(now, Status::RetryExcErr, message, shared);
        }
        self.reset_unanswered(now, id, shared);
    }

    /// One of the first streams has ended before it was known to be open: nobody waits for it any more.
    pub(super) fn first_has_ended(&mut self, id: u16, shared: &mut Shared<'_>) {
        if self.waits_for(id) {
            self.first_opened += 1;
            self.establish(shared);
        }
    }

    fn stream_opened(&mut self, id: u16, shared: &mut Shared<'_>) {
        if self.waits_for(id) {
            self.first_opened += 1;
            return self.establish(shared);
        }
        shared.events.push_back(Event::StreamOpened {
            conn: self.handle,
            stream: id,
        });
    }

    /// Reports the connection once its first streams are open.
    pub(super) fn establish(&mut self, shared: &mut Shared<'_>) {
        // One that has ended meanwhile was open all the same.
        if self.state == State::Connected && self.first_opened >= self.first_streams() {
            step(&mut self.state, Change::StreamsOpen);
            let (paths, streams) = (self.agreed().paths, self.agreed().streams);
            shared.events.push_back(Event::Established {
                conn: self.handle,
                paths,
                streams,
            });
        }
    }
}

/// Whether an acceptor has agreed to no more than was offered, and within the limits (CONN-003, CONN-039).
fn is_offered(offered: &Params, agreed: &Params) -> bool {
    agreed.ver_min == VERSION
        && agreed.ver_max == VERSION
        && (1..=offered.paths).contains(&agreed.paths)
        && (1..=offered.streams).contains(&agreed.streams)
        && (1..=offered.msg_window).contains(&agreed.msg_window)
        && (256..=offered.payload_size).contains(&agreed.payload_size)
        && agreed.payload_size.is_power_of_two()
        && is_acceptable(agreed)
        && agreed.vector_width == offered.vector_width
        && agreed.ts_unit >= 1
        && agreed.hint_support <= 1
        && agreed.extra_planes <= offered.extra_planes
        && agreed.features.0 & !offered.features.0 == 0
        && agreed.scid.value() != 0
}

/// The answer to a STREAM_OPEN.
fn answer_to(open: &StreamOpen, opened: Opened) -> StreamOpenAck {
    let accepted = opened.status == 0;
    StreamOpenAck {
        stream: open.stream,
        status: opened.status,
        rsvd_a: 0,
        first_msn: open.first_msn,
        first_rqsn: open.first_rqsn,
        rq_limit: opened.rq_limit,
        rsvd_b: 0,
        src_qpn: U24::new(if accepted {
            u32::from(open.stream) + 1
        } else {
            0
        }),
        rsvd_c: 0,
        dst_qpn: open.src_qpn,
    }
}
