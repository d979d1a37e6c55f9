//! A device: the endpoint, everything that was made on it, and what becomes of the events of the core.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use super::cm::Connections;
use super::cq::CqRecord;
use super::error::Error;
use super::memory::{MrRecord, SrqRecord};
use super::qp::{Attach, QpRecord};
use super::types::{
    AsyncEvent, Cq, DeviceAttr, Limits, Pd, Qp, QpInit, QpState, Srq, Wc, WcOpcode,
};
use crate::core::{Completion, Config, Ecn, Endpoint, Event, Status, Transmit};

/// A device of the verbs. See the [module](super) for how it is used and driven.
pub struct Device {
    pub(super) endpoint: Endpoint,
    pub(super) limits: Limits,
    max_mr: usize,
    max_connections: usize,
    pub(super) pds: BTreeSet<Pd>,
    pub(super) mrs: HashMap<u32, MrRecord>,
    /// Local keys of the regions by their addresses; regions do not overlap.
    pub(super) mrs_by_addr: BTreeMap<u64, u32>,
    pub(super) cqs: BTreeMap<Cq, CqRecord>,
    pub(super) srqs: BTreeMap<Srq, SrqRecord>,
    pub(super) qps: BTreeMap<Qp, QpRecord>,
    /// Queue pairs by connection and stream.
    pub(super) by_stream: HashMap<(u32, u16), Qp>,
    pub(super) connections: Connections,
    /// Queue pairs in SQD with work under way.
    pub(super) draining: BTreeSet<Qp>,
    /// Completion queues that have overrun, and the queue pairs of which go on all the same.
    pub(super) overruns: Vec<Cq>,
    pub(super) events: VecDeque<AsyncEvent>,
    pub(super) notifications: VecDeque<Cq>,
    next: u32,
}

impl Device {
    /// A device with the default limits.
    ///
    /// # Errors
    /// [`Error::Core`] when a setting is outside its range.
    pub fn new(config: Config) -> Result<Self, Error> {
        Self::with_limits(config, Limits::default())
    }

    /// A device with limits of its own.
    ///
    /// # Errors
    /// [`Error::Core`] when a setting is outside its range.
    pub fn with_limits(config: Config, limits: Limits) -> Result<Self, Error> {
        Ok(Self {
            limits,
            max_mr: config.max_regions,
            max_connections: config.max_connections,
            endpoint: Endpoint::new(config)?,
            pds: BTreeSet::new(),
            mrs: HashMap::new(),
            mrs_by_addr: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            by_stream: HashMap::new(),
            connections: Connections::default(),
            draining: BTreeSet::new(),
            overruns: Vec::new(),
            events: VecDeque::new(),
            notifications: VecDeque::new(),
            next: 1,
        })
    }

    /// What the device can do.
    pub fn query(&self) -> DeviceAttr {
        DeviceAttr {
            limits: self.limits,
            max_mr: self.max_mr,
            max_mr_size: u32::MAX as usize,
            max_msg_size: 1 << 31,
            max_recv_sge: 1,
            max_connections: self.max_connections,
        }
    }

    // ---- the five verbs of the core -----------------------------------------------------------------------------

    /// Takes one UDP payload that came from `from` to the own address in plane 0, with the mark `ecn`.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.endpoint.handle_datagram(now, from, ecn, bytes);
        self.drive(now);
    }

    /// Takes one UDP payload that came from `from` to the own address `to`, with the mark `ecn`.
    pub fn handle_datagram_at(
        &mut self,
        now: u64,
        to: IpAddr,
        from: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        self.endpoint.handle_datagram_at(now, to, from, ecn, bytes);
        self.drive(now);
    }

    /// Does what is due at `now`, ns.
    pub fn handle_timeout(&mut self, now: u64) {
        self.endpoint.handle_timeout(now);
        self.drive(now);
    }

    /// Fills `out` with the next datagram to send at `now`, if there is one.
    pub fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        out.clear();
        self.append_transmit(now, out)
    }

    /// Adds the next datagram to send at `now` to the end of `out`, if there is one.
    pub fn append_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.endpoint.append_transmit(now, out);
        self.drive(now);
        transmit
    }

    /// When [`Self::handle_timeout`] is next wanted, ns. It may lie in the past.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.endpoint.poll_timeout()
    }

    /// The next thing that has happened beside completions.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    // ---- what the core reports ----------------------------------------------------------------------------------

    /// Takes what the core reports, and does what follows from it.
    pub(super) fn drive(&mut self, now: u64) {
        loop {
            if let Some(event) = self.endpoint.poll_event() {
                self.on_event(now, event);
            } else if let Some(cq) = self.overruns.pop() {
                self.fail_users(now, cq);
            } else {
                break;
            }
        }
        if !self.draining.is_empty() {
            self.look_for_drained();
        }
    }

    pub(super) fn on_event(&mut self, now: u64, event: Event) {
        match event {
            Event::Completion(done) => self.on_completion(&done),
            Event::Established { conn, streams, .. } => self.on_established(now, conn, streams),
            Event::StreamOpened { conn, stream } => self.on_stream_opened(now, conn, stream),
            Event::StreamEnded {
                conn,
                stream,
                status,
            } => self.on_stream_ended(now, (conn, stream), status),
            Event::Closed { conn, reason } => self.on_closed(now, conn, reason),
            Event::Failed { conn, status, .. } => self.on_failed(conn, status),
            Event::PathAlive { conn, path, alive } => {
                self.events
                    .push_back(AsyncEvent::PathAlive { conn, path, alive });
            }
        }
    }

    fn on_completion(&mut self, done: &Completion) {
        let Some(&qp) = self.by_stream.get(&(done.conn, done.stream)) else {
            return;
        };
        let opcode = WcOpcode::from(done.kind);
        if opcode.is_receive() && done.status != Status::Success {
            // Work is flushed before receives, and what waits here is the latest work.
            self.flush_held_sends(qp, None);
        }
        let Some(record) = self.qps.get(&qp) else {
            return;
        };
        let (cq, srq) = if opcode.is_receive() {
            (record.init.recv_cq, record.init.srq)
        } else {
            (record.init.send_cq, None)
        };
        let wc = Wc {
            wr_id: done.wr_id,
            status: done.status,
            opcode,
            byte_len: done.byte_len,
            qp,
            imm_data: done.imm,
            invalidated_rkey: done.invalidated,
        };
        self.complete(cq, wc, done.solicited);
        if let Some(srq) = srq {
            self.srq_consumed(srq);
        }
    }

    /// Moves the queue pairs to ERR of which completions have been lost.
    fn fail_users(&mut self, now: u64, cq: Cq) {
        let uses = |record: &QpRecord| record.init.send_cq == cq || record.init.recv_cq == cq;
        let users = self.qps.iter().filter(|(_, record)| uses(record));
        let users: Vec<Qp> = users.map(|(qp, _)| *qp).collect();
        for qp in users {
            self.fail_qp(now, qp);
        }
    }

    /// Tells of the queue pairs in SQD that have no work under way any more.
    pub(super) fn look_for_drained(&mut self) {
        let waiting: Vec<Qp> = self.draining.iter().copied().collect();
        for qp in waiting {
            let in_sqd = self.qps.get(&qp).is_some_and(|r| r.state == QpState::Sqd);
            if !in_sqd {
                self.draining.remove(&qp);
            } else if self.under_way(qp) == 0 {
                self.draining.remove(&qp);
                self.events.push_back(AsyncEvent::SqDrained { qp });
            }
        }
    }

    // ---- what several parts need --------------------------------------------------------------------------------

    pub(super) fn next_number(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// What still needs something: the queue pairs or the listener, of which `uses` says whether they do.
    pub(super) fn user(&self, uses: impl Fn(&QpInit) -> bool) -> Option<&'static str> {
        if self.qps.values().any(|record| uses(&record.init)) {
            return Some("a queue pair");
        }
        let listener = self.connections.listener.as_ref();
        listener
            .is_some_and(|listener| uses(&listener.template))
            .then_some("the listener")
    }

    /// Where the stream of a queue pair is, once it has been asked for.
    pub(super) fn place(&self, qp: Qp) -> Option<(u32, u16)> {
        match self.qps.get(&qp)?.attach {
            Attach::Opening(conn, stream) | Attach::Open(conn, stream) => Some((conn, stream)),
            Attach::None | Attach::Waiting(_) | Attach::Accepting => None,
        }
    }

    /// Work of a queue pair that the core has.
    pub(super) fn under_way(&self, qp: Qp) -> usize {
        let stats = self
            .place(qp)
            .and_then(|(conn, stream)| self.endpoint.stream_stats(conn, stream));
        stats.map_or(0, |stats| stats.work)
    }
}
