//! The programs at both sides: they carry out what is planned.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::chance::Chance;
use crate::oracle::{Half, HalfId, Receive};
use crate::plan::{Action, Planned, S};
use crate::shadow::Fill;
use crate::work::LOCAL;
use crate::world::{Conn, PORT, What, World, address, endpoint, note};
use metaroce_endpoint::core::{Buffer, Event, Features, Status, StreamConfig};

impl World {
    // ---- connections --------------------------------------------------------------------------------------------

    /// Sets up the connections one after the other.
    pub fn start(&mut self) {
        let restarts = self.plan.theme == "restart";
        let first = if restarts { 1 } else { self.plan.conns.len() };
        for n in 0..first {
            self.connect(n);
        }
        let begin = self.now;
        self.net.plan.outages.clone_from(&self.plan.link.outages);
        for outage in &mut self.net.plan.outages {
            outage.from += begin;
            outage.until += begin;
        }
        self.net.plan.heal_at = self.net.plan.heal_at.saturating_add(begin);
        self.schedule(first);
    }

    /// Has the actions on the connections up to `n` happen from now on.
    fn schedule(&mut self, n: usize) {
        let (begin, known) = (self.now, self.scheduled);
        for planned in self.plan.actions.clone() {
            if (known..n).contains(&planned.conn) {
                self.at(begin + planned.at, What::Acts(planned));
            }
        }
        self.scheduled = n;
    }

    /// Sets up the connections that wait for the end of those before.
    pub fn start_again(&mut self) {
        let n = self.scheduled;
        if n < self.plan.conns.len() {
            self.run(300 * S, "the connection does not end", |w| {
                w.conns[0].over == [true; 2]
            });
            self.connect(n);
            self.schedule(n + 1);
            self.pass(self.plan.stop + self.plan.stop / 2 + 1);
        }
    }

    fn connect(&mut self, n: usize) {
        let plan = self.plan.conns[n].clone();
        let mut services = plan.services;
        for (side, service) in services.iter_mut().enumerate() {
            if plan.srq[side] {
                service.stream.srq = Some(self.ends[plan.ends[side]].create_srq());
            }
        }
        self.ends[plan.ends[1]].listen(services[1]).unwrap();
        let peer = SocketAddr::new(address(plan.ends[1], 0, self.plan.ipv6), PORT);
        let handle = self.ends[plan.ends[0]]
            .connect(self.now, peer, services[0])
            .unwrap();
        self.oracle.ends.push(plan.ends);
        self.conns.push(Conn {
            ends: plan.ends,
            handles: [Some(handle), None],
            up: [false; 2],
            over: [false; 2],
            closing: false,
            opening: BTreeSet::new(),
            streams: Vec::new(),
            srqs: [services[0].stream.srq, services[1].stream.srq],
        });
        if services[0].rnr_retries < 7 || services[1].rnr_retries < 7 {
            self.oracle.allow(n, None, None, Status::RnrRetryExcErr);
            self.oracle.allow(n, None, None, Status::WrFlushErr);
        }
        if self.plan.theme == "severed" || self.plan.theme == "restart" && n == 0 {
            self.oracle.allow(n, None, None, Status::RetryExcErr);
            self.oracle.allow(n, None, None, Status::WrFlushErr);
        }
        self.drain(plan.ends[0]);
        if self.plan.theme == "hasty" {
            return self.connect_in_haste(n);
        }
        self.run(60 * S, "the connection is not established", |w| {
            w.conns[n].up == [true; 2]
        });
    }

    /// A connection that need not come about: it may be closed before, or what sets it up is lost.
    fn connect_in_haste(&mut self, n: usize) {
        for status in [Status::RetryExcErr, Status::WrFlushErr] {
            self.oracle.allow(n, None, None, status);
        }
        let mut chance = Chance::new(self.plan.seed, 3);
        for _ in 0..chance.below(3) {
            let at = self.now + chance.below(12 * self.plan.link.delay);
            let action = chance.pick(&[Action::Close, Action::Abort]);
            let side = chance.below(2) as usize;
            let (conn, pick) = (n, 0);
            let planned = Planned {
                at,
                conn,
                side,
                pick,
                action,
            };
            self.at(at, What::Acts(planned));
        }
        let limit = self.now + 200 * S;
        while self.conns[n].up != [true; 2] && self.next_time().is_some_and(|at| at < limit) {
            self.step();
        }
        let conn = &mut self.conns[n];
        if conn.up != [true; 2] {
            assert!(conn.over[0], "neither up nor over: {conn:?}");
            // The acceptor may never have heard of it.
            conn.over[1] |= conn.handles[1].is_none();
            assert!(conn.over[1], "over at one side only: {conn:?}");
        }
    }

    /// The endpoint forgets everything: only the peer still knows of the connection.
    fn restart(&mut self, n: usize, side: usize) {
        let conn = &mut self.conns[n];
        let end = conn.ends[side];
        conn.over[side] = true;
        conn.closing = true;
        conn.handles[side] = None;
        self.ends[end] = endpoint(&self.plan, end, 1);
        self.oracle.forget(end);
        self.arenas.retain(|class, _| class.0 != end);
    }

    pub fn program(&mut self, n: usize, side: usize, event: &Event) {
        match event {
            Event::Established { .. } => {
                self.conns[n].up[side] = true;
                let services = &self.plan.conns[n].services;
                let agreed = services[0].streams.min(services[1].streams);
                let first = services[0].first_streams.min(agreed);
                for stream in (0..first).map(|i| 2 * i) {
                    self.opened(n, side, stream);
                }
            }
            Event::StreamOpened { stream, .. } => {
                if usize::from(stream % 2) == side {
                    self.conns[n].opening.remove(stream);
                }
                self.opened(n, side, *stream);
            }
            Event::StreamEnded { stream, .. } => {
                if usize::from(stream % 2) == side {
                    self.conns[n].opening.remove(stream);
                }
            }
            Event::Closed { .. } | Event::Failed { .. } => self.conns[n].over[side] = true,
            Event::Completion(_) | Event::PathAlive { .. } => {}
        }
    }

    fn opened(&mut self, n: usize, side: usize, stream: u16) {
        let srq = self.conns[n].srqs[side];
        let half = self.oracle.half((n, side, stream));
        assert!(
            !half.opened && !half.ended,
            "stream {stream} is opened twice"
        );
        (half.open, half.opened) = (true, true);
        half.srq = srq;
        if !self.conns[n].streams.contains(&stream) {
            self.conns[n].streams.push(stream);
        }
    }

    fn agreed(&self, n: usize, feature: Features) -> bool {
        self.plan.conns[n].agreed().has(feature)
    }

    /// The stream, or without RESET the connection, may end; work on it may be flushed.
    pub fn allow_end(&mut self, n: usize, stream: u16) {
        let of = self.agreed(n, Features::RESET).then_some(stream);
        self.oracle.allow(n, of, None, Status::WrFlushErr);
    }

    // ---- actions ------------------------------------------------------------------------------------------------

    pub fn act(&mut self, planned: &Planned) {
        let (n, side, now) = (planned.conn, planned.side, self.now);
        match planned.action {
            Action::Jump(by) => {
                self.now += by;
                return;
            }
            Action::Deregister(mr) => {
                let end = self.conns[n].ends[side];
                self.ends[end].deregister(mr).ok();
                self.oracle.regions.remove(&(end, mr));
                return;
            }
            _ => {}
        }
        let conn = &self.conns[n];
        if conn.over[side] || conn.handles[side].is_none() {
            return;
        }
        let ends_it = matches!(planned.action, Action::Close | Action::Abort);
        if conn.streams.is_empty() {
            if ends_it {
                self.end(n, side, planned.action);
            }
            return;
        }
        let (end, handle) = (conn.ends[side], conn.handles[side].unwrap());
        let stream = conn.streams[planned.pick as usize % conn.streams.len()];
        let id = (n, side, stream);
        match planned.action {
            Action::Post(post) => {
                if self.oracle.half(id).open {
                    self.post(id, post, planned.pick);
                }
            }
            Action::Receive { short } => {
                if self.oracle.half(id).open {
                    self.receive(id, short);
                }
            }
            Action::Withdraw => self.withdraw(id, planned.pick),
            Action::Open => self.open_stream(n, side),
            Action::Reset => {
                if self.agreed(n, Features::RESET)
                    && self.oracle.half(id).open
                    && !self.oracle.half(id).ended
                {
                    self.allow_end(n, stream);
                    self.ends[end].reset_stream(now, handle, stream).unwrap();
                }
            }
            Action::Move { path, port, plane } => {
                self.ends[end]
                    .move_path(now, handle, path, Some(port), plane)
                    .ok();
            }
            Action::Retire { path } => {
                self.ends[end].retire_path(now, handle, path).ok();
            }
            Action::Plane { plane, up } => {
                self.ends[end].set_plane(now, handle, plane, up).ok();
            }
            Action::Close | Action::Abort => self.end(n, side, planned.action),
            Action::Restart => self.restart(n, side),
            Action::Jump(_) | Action::Deregister(_) => {}
        }
    }

    /// Closes a connection in order, or not.
    pub fn end(&mut self, n: usize, side: usize, how: Action) {
        let conn = &mut self.conns[n];
        conn.closing = true;
        let (end, handle) = (conn.ends[side], conn.handles[side].unwrap());
        self.oracle.allow(n, None, None, Status::WrFlushErr);
        // It may be over already, which the program has still to be told.
        if matches!(how, Action::Abort) {
            self.ends[end].abort(self.now, handle).ok();
        } else {
            self.ends[end].close(self.now, handle).ok();
        }
    }

    fn open_stream(&mut self, n: usize, side: usize) {
        let conn = &self.conns[n];
        let (end, handle, srq) = (
            conn.ends[side],
            conn.handles[side].unwrap(),
            conn.srqs[side],
        );
        let config = StreamConfig {
            srq,
            ..StreamConfig::default()
        };
        let Ok(stream) = self.ends[end].open_stream(self.now, handle, config) else {
            return;
        };
        self.conns[n].opening.insert(stream);
        // The peer may have no room for it, or not be done with the stream before under the same id.
        self.oracle
            .allow(n, Some(stream), Some(side), Status::WrFlushErr);
        for of in 0..2 {
            let half = self.oracle.half((n, of, stream));
            let free = half.ended || !half.open;
            assert!(free, "a stream that is open is opened again");
            *half = Half::default();
        }
        // Work can be posted before the peer has answered.
        let half = self.oracle.half((n, side, stream));
        (half.open, half.srq) = (true, srq);
        if !self.conns[n].streams.contains(&stream) {
            self.conns[n].streams.push(stream);
        }
    }

    fn withdraw(&mut self, id: HalfId, pick: u64) {
        let conn = &self.conns[id.0];
        let (end, handle) = (conn.ends[id.1], conn.handles[id.1].unwrap());
        let half = self.oracle.half(id);
        let waiting: Vec<u64> = half
            .rx
            .iter()
            .filter(|r| !r.over)
            .map(|r| r.wr_id)
            .collect();
        if half.srq.is_some() || waiting.is_empty() || !half.open || half.ended {
            return;
        }
        let wr_id = waiting[pick as usize % waiting.len()];
        if self.ends[end].withdraw_recv(handle, id.2, wr_id) == Ok(true) {
            note(|| format!("withdrawn: receive {wr_id}"));
            self.oracle
                .withdrawn(id, wr_id, &self.ends)
                .unwrap_or_else(|e| panic!("withdrawn receive {wr_id}: {e}"));
        }
    }

    pub fn receive(&mut self, id: HalfId, short: bool) {
        let conn = &self.conns[id.0];
        let (end, handle, now) = (conn.ends[id.1], conn.handles[id.1].unwrap(), self.now);
        let len = if short {
            1
        } else {
            self.plan.conns[id.0].receive
        };
        let wr_id = self.wr_id();
        let spot = self.place(end, len, LOCAL);
        let buffer = Buffer {
            mr: spot.mr,
            offset: spot.offset,
            len,
        };
        let receive = Receive {
            wr_id,
            spot,
            len,
            over: false,
            bound: None,
        };
        if let Some(srq) = self.oracle.half(id).srq {
            self.ends[end]
                .post_srq_recv(now, srq, wr_id, buffer)
                .unwrap();
            self.oracle.regions.get_mut(&(end, spot.mr)).unwrap().open(
                spot.offset,
                len,
                &Fill::Any,
            );
            self.oracle
                .srqs
                .entry((end, srq))
                .or_default()
                .push(receive);
        } else {
            match self.ends[end].post_recv(now, handle, id.2, wr_id, buffer) {
                Ok(()) => self.oracle.receive_posted(id, receive),
                Err(e) => self.refused(id, &e.to_string()),
            }
        }
        note(|| format!("{now:>12} receive {wr_id} of {len} on {id:?}"));
        if short {
            // Any stream of a shared queue may get it.
            let shared = self.oracle.half(id).srq.is_some();
            let of = Some(id.2).filter(|_| !shared);
            let (n, side) = (id.0, id.1);
            self.oracle.allow(n, of, Some(side), Status::LocLenErr);
            self.oracle
                .allow(n, of, Some(1 - side), Status::RemInvReqErr);
            self.allow_end(n, id.2);
            if shared {
                self.oracle.allow(n, None, None, Status::WrFlushErr);
            }
        }
    }

    /// The core takes no work: something must have ended.
    pub fn refused(&mut self, id: HalfId, why: &str) {
        let conn = &self.conns[id.0];
        let over = conn.closing || conn.over != [false; 2] || self.oracle.half(id).ended;
        let may = self
            .oracle
            .allows(id.0, Some(id.2), id.1, Status::WrFlushErr);
        assert!(over || may, "work is refused on {id:?}: {why}");
    }
}
