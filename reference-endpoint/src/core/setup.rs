//! The set-up of a connection: the initiator's answers to the acceptor, and the streams of both.

use metaroce_wire::metaroce::{
    Accept, Body, Confirm, Opcode, Planes, Reject, StreamOpen, StreamOpenAck, U24, VERSION,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::connection::{Connection, Shared, State};
use super::control::Purpose;
use super::event::{Event, Status};
use super::stream::Stream;
use super::transitions::{Event as Change, StreamEvent, step};

/// Statuses of STREAM_OPEN_ACK.
const OPEN: u16 = 0;
const NO_RESOURCE: u16 = 1;
const IN_USE: u16 = 2;

impl Connection {
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
            && agreed.vector_width == offered.vector_width
            && agreed.ts_unit >= 1
            && agreed.extra_planes == 0
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
        step(&mut self.state, Change::Accept);
        let confirm = Confirm {
            params: self.mine,
            planes: Planes::NONE,
            cookie: accept.cookie,
            accepted: accept.params,
            accepted_planes: accept.planes,
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
        self.connect(&agreed, Change::ConfirmAck);
        for stream in (0..agreed.streams).map(|n| n * 2) {
            let mut asked = Stream::new(stream, Msn::new(0), Rqsn::new(0));
            step(&mut asked.state, StreamEvent::Ask);
            self.streams.insert(stream, asked);
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
        let known = self.streams.get(&open.stream);
        // Odd ids are for this side to open.
        let theirs = open.stream.is_multiple_of(2);
        let fits = theirs && self.streams.len() < usize::from(self.mine.streams);
        let status = match known {
            Some(stream) if stream.opened_by == Some(id) => OPEN,
            Some(_) => IN_USE,
            None if !theirs => IN_USE,
            None if fits => OPEN,
            None => NO_RESOURCE,
        };
        if known.is_none() && fits {
            let mut stream = Stream::new(open.stream, open.first_msn, open.first_rqsn);
            step(&mut stream.state, StreamEvent::StreamOpen);
            if self.state.is_over() {
                step(&mut stream.state, StreamEvent::ConnectionOver);
            }
            stream.opened_by = Some(id);
            stream.on_credit(open.rq_limit);
            self.streams.insert(open.stream, stream);
        }
        let opened = status == OPEN;
        let answer = StreamOpenAck {
            stream: open.stream,
            status,
            rsvd_a: 0,
            first_msn: open.first_msn,
            first_rqsn: open.first_rqsn,
            // What was posted when the stream was opened: none. Every repetition says the same.
            rq_limit: if opened {
                open.first_rqsn
            } else {
                Rqsn::new(0)
            },
            rsvd_b: 0,
            src_qpn: U24::new(if opened {
                u32::from(open.stream) + 1
            } else {
                0
            }),
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
            if let Some(stream) = self.streams.get_mut(&ack.stream) {
                step(&mut stream.state, StreamEvent::Refused);
            }
            self.fail(
                now,
                Status::RetryExcErr,
                "the peer refused a stream",
                shared,
            );
        } else if let Some(stream) = self.streams.get_mut(&ack.stream) {
            step(&mut stream.state, StreamEvent::StreamOpenAck);
            stream.on_credit(ack.rq_limit);
            self.establish(shared);
        }
    }

    fn establish(&mut self, shared: &mut Shared<'_>) {
        let streams = self.agreed().streams;
        let open = self
            .streams
            .values()
            .filter(|stream| stream.is_known())
            .count();
        if self.state == State::Connected && open == usize::from(streams) {
            step(&mut self.state, Change::StreamsOpen);
            let paths = self.agreed().paths;
            shared.events.push_back(Event::Established {
                conn: self.handle,
                paths,
                streams,
            });
        }
    }
}
