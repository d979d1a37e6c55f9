//! Opening the connection and its stream.

use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{
    Accept, Body, Confirm, Opcode, Open, Params, Planes, StreamOpen, U24,
};
use metaroce_wire::serial::{Msn, Rqsn};

use super::{Connection, Outbox, SetUp};
use crate::tester::script::OpenStep;

impl Connection {
    /// Sends whatever the set-up lacks next.
    pub(super) fn advance_set_up(&mut self, now: u64, out: &mut Outbox) -> Result<(), String> {
        if self.confirmed {
            return self.send_stream_open(now, out);
        }
        match (self.set_up, self.confirm.clone()) {
            (SetUp::Connect, Some(confirm)) => self.resend_control(Some(confirm), out),
            _ => {
                self.set_up = SetUp::Connect;
                self.confirm = None;
                self.send_open(now, self.params, out)
            }
        }
    }

    pub(super) fn send_open(
        &mut self,
        now: u64,
        params: Params,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let body = Body::Open(Open {
            params,
            planes: Planes::NONE,
            padding: [0; 32],
        });
        let bytes = self.control(now, body, Opcode::OPEN)?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    /// An OPEN that makes no connection: its own connection id and nonce keep it apart from the one that does.
    pub(super) fn send_other_open(
        &mut self,
        now: u64,
        open: &OpenStep,
        out: &mut Outbox,
    ) -> Result<(), String> {
        self.set_up = SetUp::Other;
        let other = Params {
            ver_min: open.ver_min,
            ver_max: open.ver_max,
            scid: U24::new(self.params.scid.value() ^ 2),
            nonce: !self.params.nonce,
            service_id: self.params.service_id ^ u32::from(open.unknown_service),
            ..self.params
        };
        self.send_open(now, other, out)
    }

    pub(super) fn on_accept(
        &mut self,
        now: u64,
        accept: &Accept,
        out: &mut Outbox,
    ) -> Result<(), String> {
        if self.set_up == SetUp::Other || self.confirm.is_some() {
            return Ok(());
        }
        let mut cookie = accept.cookie;
        if self.set_up == SetUp::BadCookie {
            cookie[0] ^= 1;
        }
        self.accepted = Some(accept.params);
        let body = Body::Confirm(Confirm {
            params: self.params,
            planes: Planes::NONE,
            cookie,
            accepted: accept.params,
            accepted_planes: accept.planes,
        });
        let bytes = self.control(now, body, Opcode::CONFIRM)?;
        self.confirm = Some(bytes.clone());
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    pub(super) fn send_stream_open(&mut self, now: u64, out: &mut Outbox) -> Result<(), String> {
        if self.stream_open.is_none() {
            let body = Body::StreamOpen(StreamOpen {
                stream: 0,
                status: 0,
                rsvd_a: 0,
                first_msn: Msn::new(0),
                first_rqsn: Rqsn::new(0),
                rq_limit: Rqsn::new(0),
                rsvd_b: 0,
                src_qpn: U24::new(1),
                rsvd_c: 0,
                dst_qpn: U24::new(0),
            });
            self.stream_open = Some(self.control(now, body, Opcode::STREAM_OPEN)?);
        }
        self.resend_control(self.stream_open.clone(), out)
    }
}
