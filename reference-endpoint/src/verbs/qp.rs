//! Queue pairs: their states, and what becomes of their work when a state is left.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::cq::limit;
use super::device::Device;
use super::error::Error;
use super::states::STEPS;
use super::types::{AsyncEvent, Qp, QpAttr, QpInit, QpState, Wc, WcOpcode};
use crate::core::{Buffer, Op, Service, Status, StreamConfig, Work};

/// What a queue pair has of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attach {
    None,
    /// The connection is not up yet.
    Waiting(u32),
    /// The next stream that the peer opens is for it.
    Accepting,
    /// STREAM_OPEN is sent.
    Opening(u32, u16),
    Open(u32, u16),
}

/// Work that waits here, and what it is to fail with.
pub(super) struct Held {
    pub work: Work,
    pub fails: Option<Status>,
}

/// A queue pair.
pub(super) struct QpRecord {
    pub init: QpInit,
    /// The state that the program has asked for; with RTS the stream may still have to be opened.
    pub state: QpState,
    pub attach: Attach,
    /// The connection that it has been on last.
    pub link: Option<u32>,
    /// Work and receives that the core does not have yet.
    pub sends: VecDeque<Held>,
    pub receives: VecDeque<(u64, Buffer)>,
    /// Where it is to be connected, and how often that has come to nothing for want of a free stream.
    pub target: Option<(SocketAddr, Service)>,
    pub refused: u32,
    /// The program itself ends the stream.
    pub ending: bool,
}

/// Where the stream of a queue pair comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// It is opened: on a connection to this peer and service that has room, or on a new one.
    Connect {
        /// Address of the peer and its service port. IPv6 link-local addresses are not supported: the core keeps no scope
        /// id.
        peer: SocketAddr,
        /// What a new connection asks for. `stream` and `first_streams` are not looked at.
        service: Service,
    },
    /// The next one that the peer opens to the service of the listener.
    Accept,
}

/// A change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modify {
    /// To RESET: the stream is ended and its work flushed, as in ERR.
    Reset,
    /// To INIT: receives can be posted.
    Init,
    /// To RTR: the stream is asked for.
    Rtr(Destination),
    /// To RTS: work can be posted. What is posted before the stream is open waits for it.
    Rts,
    /// To SQD: work that is posted from now on waits until the queue pair goes back to RTS. What is under way goes on, and
    /// [`AsyncEvent::SqDrained`] tells when it is complete.
    Sqd,
    /// To ERR: the stream is ended and its work flushed.
    Err,
}

impl Modify {
    fn state(self) -> QpState {
        match self {
            Self::Reset => QpState::Reset,
            Self::Init => QpState::Init,
            Self::Rtr(_) => QpState::Rtr,
            Self::Rts => QpState::Rts,
            Self::Sqd => QpState::Sqd,
            Self::Err => QpState::Err,
        }
    }
}

impl QpInit {
    pub(super) fn stream_config(&self, srq: Option<u32>) -> StreamConfig {
        StreamConfig {
            domain: self.pd.0,
            srq,
            max_rd_atomic: Some(self.max_rd_atomic),
        }
    }
}

impl Device {
    /// Makes a queue pair, in RESET.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Overrun`] for a completion queue that has overrun; [`Error::Limit`].
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qp, Error> {
        self.check_init(&init)?;
        if self.qps.len() >= self.limits.max_qp {
            return Err(limit("queue pairs", self.limits.max_qp));
        }
        Ok(self.add_qp(init))
    }

    pub(super) fn add_qp(&mut self, init: QpInit) -> Qp {
        let qp = Qp(self.next_number());
        let record = QpRecord {
            init,
            state: QpState::Reset,
            attach: Attach::None,
            link: None,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            target: None,
            refused: 0,
            ending: false,
        };
        self.qps.insert(qp, record);
        qp
    }

    pub(super) fn check_init(&mut self, init: &QpInit) -> Result<(), Error> {
        self.check_pd(init.pd)?;
        self.check_cqs(init)?;
        if let Some(srq) = init.srq {
            self.srq(srq)?;
        }
        let (cap, limits) = (init.cap, self.limits);
        if cap.max_send_wr.max(cap.max_recv_wr) > limits.max_qp_wr {
            return Err(limit("requests of a queue pair", limits.max_qp_wr));
        }
        if cap.max_send_sge > limits.max_sge {
            return Err(limit("entries of a request", limits.max_sge));
        }
        if cap.max_inline_data > limits.max_inline_data {
            return Err(limit("bytes inline", limits.max_inline_data));
        }
        Ok(())
    }

    /// Whether work that is done with this can complete (VERB-006).
    pub(super) fn check_cqs(&self, init: &QpInit) -> Result<(), Error> {
        self.check_cq(init.send_cq)?;
        self.check_cq(init.recv_cq)
    }

    /// Removes a queue pair in whatever state. Its stream ends, and what was posted to it is flushed first. With the last
    /// queue pair on it a connection that was opened from here is closed.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn destroy_qp(&mut self, now: u64, qp: Qp) -> Result<(), Error> {
        self.record(qp)?;
        self.detach(now, qp);
        self.qps.remove(&qp);
        self.draining.remove(&qp);
        self.drive(now);
        Ok(())
    }

    /// What a queue pair is like now.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn query_qp(&self, qp: Qp) -> Result<QpAttr, Error> {
        let record = self.record(qp)?;
        let stats = self
            .place(qp)
            .and_then(|(conn, stream)| self.endpoint.stream_stats(conn, stream));
        let (work, receives) = stats.map_or((0, 0), |stats| (stats.work, stats.receives));
        let open = matches!(record.attach, Attach::Open(..));
        Ok(QpAttr {
            state: match record.state {
                QpState::Rts | QpState::Sqd if !open => QpState::Rtr,
                state => state,
            },
            init: record.init,
            send_posted: work + record.sends.len(),
            recv_posted: receives + record.receives.len(),
        })
    }

    /// Changes the state of a queue pair.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Transition`] where no step leads there; [`Error::Overrun`] for a queue pair in RESET one of
    /// whose completion queues has overrun; [`Error::Invalid`] for a queue pair that is to
    /// accept and has another protection domain or shared queue than the listener; what [`Self::connect`] refuses.
    pub fn modify_qp(&mut self, now: u64, qp: Qp, to: Modify) -> Result<(), Error> {
        let from = self.record(qp)?.state;
        if !STEPS.contains(&(from, to.state())) {
            let to = to.state();
            return Err(Error::Transition { from, to });
        }
        match to {
            Modify::Rtr(Destination::Connect { peer, service }) => {
                self.start(now, qp, peer, service)?;
            }
            Modify::Rtr(Destination::Accept) => self.wait_for_stream(qp)?,
            Modify::Err if from != QpState::Err => {
                self.fail_by_program(now, qp);
                self.tell_last_receive(qp);
            }
            Modify::Err => {}
            Modify::Reset => self.detach(now, qp),
            Modify::Init => self.check_cqs(&self.record(qp)?.init)?,
            Modify::Rts | Modify::Sqd => {}
        }
        // In ERR it stays that way: the stream may have ended while it was asked for.
        let record = self.record_mut(qp)?;
        if record.state == from {
            record.state = to.state();
        }
        match to {
            Modify::Rts => self.post_held(now, qp),
            Modify::Sqd if from == QpState::Rts => {
                self.draining.insert(qp);
            }
            _ => {}
        }
        self.drive(now);
        Ok(())
    }

    // ---- the end of a stream ------------------------------------------------------------------------------------

    /// Ends the stream of a queue pair at the program's wish, and puts it in ERR.
    pub(super) fn fail_by_program(&mut self, now: u64, qp: Qp) {
        let Some(record) = self.qps.get_mut(&qp) else {
            return;
        };
        record.ending = true;
        if let Some((conn, stream)) = self.place(qp) {
            // Where the connection is over already, its end stands among the events.
            let _ = self.endpoint.reset_stream(now, conn, stream);
            while let Some(event) = self.endpoint.poll_event() {
                self.on_event(now, event);
            }
        }
        if self.qps.get(&qp).is_some_and(|r| r.state != QpState::Err) {
            self.ended(qp, Status::WrFlushErr, None);
        }
        if let Some(record) = self.qps.get_mut(&qp) {
            record.ending = false;
        }
    }

    /// Puts a queue pair in ERR for a reason that the program has to be told.
    pub(super) fn fail_qp(&mut self, now: u64, qp: Qp) {
        let over = |state| matches!(state, QpState::Reset | QpState::Err);
        if self.qps.get(&qp).is_some_and(|record| !over(record.state)) {
            self.fail_by_program(now, qp);
            self.tell_disconnected(qp, Status::WrFlushErr);
        }
    }

    /// Tells the program of a queue pair that is in ERR without its doing.
    fn tell_disconnected(&mut self, qp: Qp, status: Status) {
        self.events
            .push_back(AsyncEvent::Disconnected { qp, status });
        self.tell_last_receive(qp);
    }

    /// Tells of a queue pair in ERR that it leaves its shared queue alone from now on.
    fn tell_last_receive(&mut self, qp: Qp) {
        if self.qps.get(&qp).is_some_and(|r| r.init.srq.is_some()) {
            self.events.push_back(AsyncEvent::LastWqeReached { qp });
        }
    }

    /// The stream of a queue pair is over, or never comes: what waits here is flushed, the oldest work with `first`.
    pub(super) fn ended(&mut self, qp: Qp, status: Status, first: Option<Status>) {
        self.flush_held_sends(qp, first);
        self.unlink(qp);
        let Some(record) = self.qps.get_mut(&qp) else {
            return;
        };
        record.state = QpState::Err;
        let receives = std::mem::take(&mut record.receives);
        let ending = record.ending;
        for (wr_id, _) in receives {
            self.flush(qp, (wr_id, WcOpcode::Recv), Status::WrFlushErr);
        }
        if !ending {
            self.tell_disconnected(qp, status);
        }
    }

    /// Flushes the work that waits here, the oldest of it with `first`.
    pub(super) fn flush_held_sends(&mut self, qp: Qp, mut first: Option<Status>) {
        let Some(record) = self.qps.get_mut(&qp) else {
            return;
        };
        for held in std::mem::take(&mut record.sends) {
            let status = first.take().unwrap_or(Status::WrFlushErr);
            self.flush(qp, (held.work.wr_id, opcode_of(&held.work.op)), status);
        }
    }

    /// Completes work that has failed here.
    pub(super) fn flush(&mut self, qp: Qp, (wr_id, opcode): (u64, WcOpcode), status: Status) {
        let Some(record) = self.qps.get(&qp) else {
            return;
        };
        let cq = if opcode.is_receive() {
            record.init.recv_cq
        } else {
            record.init.send_cq
        };
        let wc = Wc {
            wr_id,
            status,
            opcode,
            byte_len: 0,
            qp,
            imm_data: None,
            invalidated_rkey: None,
        };
        self.complete(cq, wc, false);
    }

    /// Takes a queue pair back to RESET.
    fn detach(&mut self, now: u64, qp: Qp) {
        if self.qps.get(&qp).is_some_and(|r| r.state != QpState::Reset) {
            if self.qps.get(&qp).is_some_and(|r| r.state != QpState::Err) {
                self.fail_by_program(now, qp);
            }
            if let Some(record) = self.qps.get_mut(&qp) {
                record.state = QpState::Reset;
                record.target = None;
                record.refused = 0;
                let link = record.link.take();
                self.release(now, link);
            }
        }
    }

    // ---- look-up ------------------------------------------------------------------------------------------------

    pub(super) fn record(&self, qp: Qp) -> Result<&QpRecord, Error> {
        let (what, id) = ("queue pair", qp.0);
        self.qps.get(&qp).ok_or(Error::NotFound { what, id })
    }

    pub(super) fn record_mut(&mut self, qp: Qp) -> Result<&mut QpRecord, Error> {
        let (what, id) = ("queue pair", qp.0);
        self.qps.get_mut(&qp).ok_or(Error::NotFound { what, id })
    }
}

/// The opcode under which work completes.
pub(super) fn opcode_of(op: &Op) -> WcOpcode {
    match op {
        Op::Send | Op::SendImm(_) | Op::SendInv(_) => WcOpcode::Send,
        Op::Write(_) | Op::WriteImm(..) => WcOpcode::RdmaWrite,
        Op::Read(_) => WcOpcode::RdmaRead,
        Op::CmpSwap { .. } => WcOpcode::CompSwap,
        Op::FetchAdd { .. } => WcOpcode::FetchAdd,
    }
}
