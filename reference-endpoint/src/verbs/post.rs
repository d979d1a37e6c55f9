//! Posting: work requests become work of the core, or wait until it can take them.

use super::cq::limit;
use super::device::Device;
use super::error::{Error, PostError};
use super::memory::one_entry;
use super::qp::{Attach, Held, opcode_of};
use super::types::{
    Qp, QpCap, QpState, RecvWr, SendData, SendFlags, SendWr, Sge, WcOpcode, WrOpcode,
};
use crate::core::{Buffer, Data, Op, Remote, Status, Work};

/// The longest message, bytes (STRM-012).
const LONGEST: u64 = 1 << 31;
/// The state of a stream on which messages flow.
const OPEN: &str = "open";

impl Device {
    /// Posts work in the order of the list. In ERR it is flushed (VERB-007). What names memory that is not there completes
    /// in its turn with [`Status::LocProtErr`], an atomic operation that is not on a multiple of 8 or has not 8 bytes, and
    /// what the peer has not agreed to, with [`Status::LocQpOpErr`]; the queue pair goes to ERR with it.
    ///
    /// Several entries of a Send or Write are put together when it is posted. A Read and an atomic operation take one.
    ///
    /// # Errors
    /// [`PostError`], with the place in the list: [`Error::NotFound`]; [`Error::WrongState`] but in RTS, SQD and ERR;
    /// [`Error::Limit`]; [`Error::Invalid`] for too many entries or bytes, or when the memory at the peer would reach past
    /// the end of all addresses; [`Error::Core`] with `Misuse::Closing` on a connection that is being closed.
    pub fn post_send(&mut self, now: u64, qp: Qp, list: &[SendWr]) -> Result<(), PostError> {
        let result = list.iter().enumerate().try_for_each(|(index, wr)| {
            let posted = self.post_one_send(now, qp, wr);
            posted.map_err(|error| PostError { index, error })
        });
        self.drive(now);
        result
    }

    fn post_one_send(&mut self, now: u64, qp: Qp, wr: &SendWr) -> Result<(), Error> {
        let record = self.record(qp)?;
        let (state, cap) = (record.state, record.init.cap);
        let waits = record.sends.len();
        // Behind work that waits, more work waits too: it completes in the order of posting (STRM-028).
        let open = matches!(record.attach, Attach::Open(..));
        let ready = state == QpState::Rts && open && waits == 0;
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            let what = "work";
            return Err(Error::WrongState { state, what });
        }
        let held = self.prepare(qp, wr)?;
        if state == QpState::Err {
            let opcode = opcode_of(&held.work.op);
            self.flush(qp, (wr.wr_id, opcode), Status::WrFlushErr);
            return Ok(());
        }
        if waits + self.under_way(qp) >= cap.max_send_wr {
            return Err(limit("work requests of the queue pair", cap.max_send_wr));
        }
        if ready {
            return self.hand_over(now, qp, held);
        }
        self.record_mut(qp)?.sends.push_back(held);
        Ok(())
    }

    /// Gives work to the core.
    fn hand_over(&mut self, now: u64, qp: Qp, held: Held) -> Result<(), Error> {
        let Some((conn, stream)) = self.place(qp) else {
            let opcode = opcode_of(&held.work.op);
            self.flush(qp, (held.work.wr_id, opcode), Status::WrFlushErr);
            return Ok(());
        };
        let stats = self.endpoint.stream_stats(conn, stream);
        if stats.is_none_or(|stats| stats.state != OPEN) {
            // It has just ended, by work before this one: with the news of that it is flushed.
            self.record_mut(qp)?.sends.push_back(held);
            return Ok(());
        }
        match held.fails {
            Some(status) => self
                .endpoint
                .post_failed(now, conn, stream, held.work, status)?,
            None => self.endpoint.post(now, conn, stream, held.work)?,
        }
        Ok(())
    }

    /// Gives the core what waits for it, as far as it can take it now.
    pub(super) fn post_held(&mut self, now: u64, qp: Qp) {
        let Some((conn, stream)) = self.place(qp) else {
            return;
        };
        let Some(record) = self.qps.get_mut(&qp) else {
            return;
        };
        if !matches!(record.attach, Attach::Open(..)) {
            return;
        }
        let mut receives = std::mem::take(&mut record.receives);
        while let Some((wr_id, buffer)) = receives.pop_front() {
            let posted = self.endpoint.post_recv(now, conn, stream, wr_id, buffer);
            if posted.is_err() {
                // The region is gone since.
                self.lost_receive(now, qp, wr_id);
                for (wr_id, _) in receives.drain(..) {
                    self.flush(qp, (wr_id, WcOpcode::Recv), Status::WrFlushErr);
                }
            }
        }
        let closing = self.connections.is_closing(conn);
        let Some(record) = self.qps.get_mut(&qp) else {
            return;
        };
        // A connection that is being closed takes no more work: what waits is flushed when it has ended, behind what is
        // under way (VERB-008).
        if record.state != QpState::Rts || closing {
            return;
        }
        for mut held in std::mem::take(&mut record.sends) {
            // The region may be gone since.
            if let Data::Buffer(buffer) = &held.work.data
                && buffer.len > 0
                && self.endpoint.memory(buffer.mr).is_none()
            {
                held.fails = Some(held.fails.unwrap_or(Status::LocProtErr));
            }
            let (wr_id, op) = (held.work.wr_id, held.work.op);
            if self.hand_over(now, qp, held).is_err() {
                // What else the core may have against it: it fails in its turn.
                let work = Work::new(wr_id, op, Data::Buffer(Buffer::default()));
                let fails = Some(Status::LocQpOpErr);
                if self.hand_over(now, qp, Held { work, fails }).is_err() {
                    self.flush(qp, (wr_id, opcode_of(&op)), Status::LocQpOpErr);
                }
            }
        }
    }

    /// Makes work of a request.
    fn prepare(&self, qp: Qp, wr: &SendWr) -> Result<Held, Error> {
        let init = self.record(qp)?.init;
        let op = op_of(&wr.opcode);
        let places = matches!(op, Op::Read(_) | Op::CmpSwap { .. } | Op::FetchAdd { .. });
        let inline = matches!(wr.data, SendData::Inline(_)) || wr.flags.has(SendFlags::INLINE);
        if places && inline {
            return Err(Error::Invalid("an answer needs memory to be placed in"));
        }
        let total = match &wr.data {
            SendData::Inline(bytes) => bytes.len(),
            SendData::Sges(sges) => check_entries(sges, places, &init.cap)?,
        };
        if inline && total > init.cap.max_inline_data {
            return Err(Error::Invalid(
                "more bytes inline than the queue pair takes",
            ));
        }
        if let Some(remote) = remote_of(&op)
            && remote.va.checked_add(total as u64).is_none()
        {
            return Err(Error::Invalid(
                "the memory at the peer reaches past the end of all addresses",
            ));
        }
        let data = match &wr.data {
            SendData::Inline(bytes) => Some(Data::Inline(bytes.as_slice().into())),
            SendData::Sges(sges) if places => self
                .locate(init.pd, &one_entry(sges)?, true)
                .map(Data::Buffer),
            SendData::Sges(sges) => match sges.as_slice() {
                [one] if !inline => self.locate(init.pd, one, false).map(Data::Buffer),
                all => {
                    let pd = (!inline).then_some(init.pd);
                    let bytes = self.gather(pd, all);
                    bytes.map(|bytes| Data::Inline(bytes.into()))
                }
            },
        };
        let fails = data.is_none().then_some(Status::LocProtErr);
        let work = Work {
            wr_id: wr.wr_id,
            op,
            data: data.unwrap_or(Data::Buffer(Buffer::default())),
            signalled: init.sq_sig_all || wr.flags.has(SendFlags::SIGNALED),
            solicited: wr.flags.has(SendFlags::SOLICITED),
            fence: wr.flags.has(SendFlags::FENCE),
        };
        Ok(Held { work, fails })
    }

    /// Posts receives in the order of the list. In ERR they are flushed. One that names memory that is not there completes
    /// with [`Status::LocProtErr`], and the queue pair goes to ERR with it.
    ///
    /// # Errors
    /// [`PostError`], with the place in the list: [`Error::NotFound`]; [`Error::WrongState`] in RESET; [`Error::Limit`];
    /// [`Error::Invalid`] for more than one entry, or when the queue pair takes from a shared queue.
    pub fn post_recv(&mut self, now: u64, qp: Qp, list: &[RecvWr]) -> Result<(), PostError> {
        let result = list.iter().enumerate().try_for_each(|(index, wr)| {
            let posted = self.post_one_recv(now, qp, wr);
            posted.map_err(|error| PostError { index, error })
        });
        self.drive(now);
        result
    }

    fn post_one_recv(&mut self, now: u64, qp: Qp, wr: &RecvWr) -> Result<(), Error> {
        let record = self.record(qp)?;
        let (state, init) = (record.state, record.init);
        if init.srq.is_some() {
            return Err(Error::Invalid("the queue pair takes from a shared queue"));
        }
        if state == QpState::Reset {
            let what = "receives";
            return Err(Error::WrongState { state, what });
        }
        let sge = one_entry(&wr.sg_list)?;
        if state == QpState::Err {
            self.flush(qp, (wr.wr_id, WcOpcode::Recv), Status::WrFlushErr);
            return Ok(());
        }
        if self.query_qp(qp)?.recv_posted >= init.cap.max_recv_wr {
            return Err(limit("receives of the queue pair", init.cap.max_recv_wr));
        }
        let Some(buffer) = self.locate(init.pd, &sge, true) else {
            self.lost_receive(now, qp, wr.wr_id);
            return Ok(());
        };
        match self.record(qp)?.attach {
            Attach::Open(conn, stream) => Ok(self
                .endpoint
                .post_recv(now, conn, stream, wr.wr_id, buffer)?),
            _ => {
                let receives = &mut self.record_mut(qp)?.receives;
                receives.push_back((wr.wr_id, buffer));
                Ok(())
            }
        }
    }

    /// A receive has no memory: it fails behind those before it, and its queue pair with it.
    fn lost_receive(&mut self, now: u64, qp: Qp, wr_id: u64) {
        self.fail_qp(now, qp);
        self.flush(qp, (wr_id, WcOpcode::Recv), Status::LocProtErr);
    }
}

/// The bytes that entries name together.
fn check_entries(sges: &[Sge], places: bool, cap: &QpCap) -> Result<usize, Error> {
    if sges.len() > cap.max_send_sge {
        return Err(Error::Invalid("more entries than the queue pair takes"));
    }
    if places {
        one_entry(sges)?;
    }
    let total: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
    if total > LONGEST {
        return Err(Error::Invalid("a message has 2^31 bytes at most"));
    }
    Ok(total as usize)
}

/// The memory of the peer that an operation names.
fn remote_of(op: &Op) -> Option<Remote> {
    match *op {
        Op::Write(remote) | Op::WriteImm(remote, _) | Op::Read(remote) => Some(remote),
        Op::CmpSwap { at, .. } | Op::FetchAdd { at, .. } => Some(at),
        Op::Send | Op::SendImm(_) | Op::SendInv(_) => None,
    }
}

fn op_of(opcode: &WrOpcode) -> Op {
    match *opcode {
        WrOpcode::Send => Op::Send,
        WrOpcode::SendWithImm(imm) => Op::SendImm(imm),
        WrOpcode::SendWithInv(rkey) => Op::SendInv(rkey),
        WrOpcode::RdmaWrite(remote) => Op::Write(remote),
        WrOpcode::RdmaWriteWithImm(remote, imm) => Op::WriteImm(remote, imm),
        WrOpcode::RdmaRead(remote) => Op::Read(remote),
        WrOpcode::AtomicCmpAndSwp {
            remote,
            compare,
            swap,
        } => Op::CmpSwap {
            at: remote,
            compare,
            swap,
        },
        WrOpcode::AtomicFetchAndAdd { remote, add } => Op::FetchAdd { at: remote, add },
    }
}
