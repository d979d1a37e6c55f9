//! Knows all that was posted, and so what memory must hold and which completions may come.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::{mix, payload_of};
use crate::shadow::{Fill, Shadow};
use crate::words::{Attempt, Word};
use metaroce_endpoint::core::{Completion, Endpoint, Event, Status, WorkKind};

/// A place in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    pub end: usize,
    pub mr: u32,
    pub offset: usize,
}

/// Whether the peer has to refuse a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doom {
    No,
    Sure,
    /// It depends on what comes first.
    Maybe,
}

/// Work that was posted.
#[derive(Debug, Clone)]
pub struct Msg {
    pub wr_id: u64,
    pub kind: WorkKind,
    pub len: usize,
    /// Names the payload.
    pub key: u64,
    pub signalled: bool,
    pub solicited: bool,
    pub imm: Option<u32>,
    /// Key and region that it makes invalid.
    pub invalidates: Option<u32>,
    /// Where its bytes are read, unless they came with it.
    pub source: Option<Spot>,
    /// Where they go, unless a receive says so.
    pub target: Option<Spot>,
    pub consumes: bool,
    pub doom: Doom,
    /// Its target is still to be read.
    pub pinned: bool,
    /// Its target is the application's again.
    pub given: bool,
    /// The word that it changes, and its place among the attempts on it.
    pub word: Option<(usize, usize)>,
}

/// A receive that was posted.
#[derive(Debug, Clone)]
pub struct Receive {
    pub wr_id: u64,
    pub spot: Spot,
    pub len: usize,
    pub over: bool,
    /// The message of the peer that comes into it.
    pub bound: Option<usize>,
}

/// One side of a stream.
#[derive(Debug, Default)]
pub struct Half {
    pub tx: Vec<Msg>,
    /// First work that is not complete.
    pub done: usize,
    /// Messages that consume a receive of the peer.
    pub consuming: Vec<usize>,
    pub rx: Vec<Receive>,
    /// Receives by their number; none where one was withdrawn.
    pub slots: Vec<Option<usize>>,
    pub consumed: usize,
    pub srq: Option<u32>,
    /// Posting is possible.
    pub open: bool,
    /// Both sides know of it.
    pub opened: bool,
    pub failed: bool,
    pub rx_failed: bool,
    pub ended: bool,
}

impl Half {
    /// Work that has neither completed nor need not say so.
    pub fn outstanding(&self) -> usize {
        let left = &self.tx[self.done..];
        left.iter()
            .rposition(|m| m.signalled || self.failed)
            .map_or(0, |last| last + 1)
    }
}

pub type HalfId = (usize, usize, u16);

pub struct Oracle {
    seed: u64,
    pub regions: BTreeMap<(usize, u32), Shadow>,
    pub halves: BTreeMap<HalfId, Half>,
    pub srqs: BTreeMap<(usize, u32), Vec<Receive>>,
    pub words: Vec<Word>,
    /// Which end is which side of a connection.
    pub ends: Vec<[usize; 2]>,
    /// What may go wrong: by connection, stream (none for all) and side (none for both).
    allowed: BTreeSet<(usize, Option<u16>, Option<usize>, &'static str)>,
    /// Memory is given new contents as soon as it is the application's again.
    pub scrub: bool,
    pub successes: u64,
    pub failures: u64,
}

pub type Checked = Result<(), String>;

fn name(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocLenErr => "loc_len",
        Status::LocQpOpErr => "loc_qp_op",
        Status::LocProtErr => "loc_prot",
        Status::WrFlushErr => "flush",
        Status::RemInvReqErr => "rem_inv_req",
        Status::RemAccessErr => "rem_access",
        Status::RemOpErr => "rem_op",
        Status::RetryExcErr => "retry",
        Status::RnrRetryExcErr => "rnr",
    }
}

impl Oracle {
    pub fn new(seed: u64, scrub: bool) -> Self {
        Self {
            seed,
            regions: BTreeMap::new(),
            halves: BTreeMap::new(),
            srqs: BTreeMap::new(),
            words: Vec::new(),
            ends: Vec::new(),
            allowed: BTreeSet::new(),
            scrub,
            successes: 0,
            failures: 0,
        }
    }

    pub fn allow(&mut self, conn: usize, stream: Option<u16>, side: Option<usize>, status: Status) {
        self.allowed.insert((conn, stream, side, name(status)));
    }

    pub fn allows(&self, conn: usize, stream: Option<u16>, side: usize, status: Status) -> bool {
        let has = |stream, side| self.allowed.contains(&(conn, stream, side, name(status)));
        [stream, None]
            .into_iter()
            .any(|s| has(s, Some(side)) || has(s, None))
    }

    pub fn half(&mut self, id: HalfId) -> &mut Half {
        self.halves.entry(id).or_default()
    }

    // ---- posting ------------------------------------------------------------------------------------------------

    pub fn posted(&mut self, id: HalfId, msg: Msg, fill: &Fill) {
        if let Some(spot) = msg.target.filter(|_| msg.doom != Doom::Sure)
            && let Some(shadow) = self.shadow(spot)
        {
            shadow.open(spot.offset, msg.len, fill);
        }
        let half = self.half(id);
        let index = half.tx.len();
        if msg.consumes {
            half.consuming.push(index);
        }
        half.tx.push(msg);
        self.bind(id);
    }

    pub fn receive_posted(&mut self, id: HalfId, receive: Receive) {
        let half = self.half(id);
        let index = half.rx.len();
        half.rx.push(receive);
        match half.slots.iter().position(Option::is_none) {
            Some(free) => half.slots[free] = Some(index),
            None => half.slots.push(Some(index)),
        }
        self.bind((id.0, 1 - id.1, id.2));
    }

    /// The receive is taken away.
    pub fn withdrawn(&mut self, id: HalfId, wr_id: u64, ends: &[Endpoint]) -> Checked {
        let half = self.half(id);
        let index = half
            .rx
            .iter()
            .position(|r| r.wr_id == wr_id)
            .ok_or("harness: no such receive")?;
        half.rx[index].over = true;
        let (spot, bound) = (half.rx[index].spot, half.rx[index].bound.take());
        for slot in &mut half.slots {
            if *slot == Some(index) {
                *slot = None;
            }
        }
        while half.slots.last() == Some(&None) {
            half.slots.pop();
        }
        if bound.is_some() {
            self.with(spot, ends, |s, memory| {
                s.shut_untouched(spot.offset, memory)
            })?;
        }
        Ok(())
    }

    /// Messages of this half and the receives that wait for them meet.
    fn bind(&mut self, id: HalfId) {
        let peer = (id.0, 1 - id.1, id.2);
        let (Some(half), Some(other)) = (self.halves.get(&id), self.halves.get(&peer)) else {
            return;
        };
        if other.ended {
            return;
        }
        let mut met = Vec::new();
        for (number, &message) in half.consuming.iter().enumerate().skip(other.consumed) {
            let Some(Some(receive)) = other.slots.get(number) else {
                continue;
            };
            if other.rx[*receive].bound.is_none() {
                met.push((message, *receive));
            }
        }
        for (message, receive) in met {
            let msg = &self.halves[&id].tx[message];
            let (kind, len, key, doom) = (msg.kind, msg.len, msg.key, msg.doom);
            let place = &mut self.half(peer).rx[receive];
            place.bound = Some(message);
            let (spot, room) = (place.spot, place.len);
            let comes = kind == WorkKind::Send && len <= room && doom != Doom::Sure;
            if let Some(shadow) = self.shadow(spot).filter(|_| comes) {
                shadow.open(spot.offset, len, &Fill::Payload(key, 0));
            }
        }
    }

    /// What the region must hold, if it is still there.
    pub fn shadow(&mut self, spot: Spot) -> Option<&mut Shadow> {
        self.regions.get_mut(&(spot.end, spot.mr))
    }

    /// Does something with what a region must hold and what it holds; nothing if it is gone.
    pub fn with(
        &mut self,
        spot: Spot,
        ends: &[Endpoint],
        check: impl FnOnce(&mut Shadow, &[u8]) -> Checked,
    ) -> Checked {
        let Some(shadow) = self.regions.get_mut(&(spot.end, spot.mr)) else {
            return Ok(());
        };
        let memory = ends[spot.end].memory(spot.mr);
        let memory =
            memory.ok_or_else(|| format!("region {} of end {} is gone", spot.mr, spot.end))?;
        check(shadow, memory).map_err(|e| format!("region {} of end {}: {e}", spot.mr, spot.end))
    }

    // ---- events -------------------------------------------------------------------------------------------------

    /// Takes an event of one side of a connection.
    pub fn event(
        &mut self,
        conn: usize,
        side: usize,
        event: &Event,
        ends: &mut [Endpoint],
    ) -> Checked {
        match event {
            Event::Completion(done) => {
                let id = (conn, side, done.stream);
                match done.kind {
                    WorkKind::Recv | WorkKind::RecvWrite => self.received(id, done, ends)?,
                    _ => self.sent(id, done, ends)?,
                }
                self.check_end(self.ends[conn][side], ends)
            }
            Event::StreamEnded { stream, .. } => {
                self.may_flush(conn, Some(*stream), side)?;
                self.over((conn, side, *stream), ends)
            }
            Event::Failed {
                status, message, ..
            } => {
                if !self.allows(conn, None, side, *status)
                    && !self.allows(conn, None, side, Status::WrFlushErr)
                {
                    return Err(format!("the connection has failed: {status:?} {message}"));
                }
                self.all_over(conn, side, ends)
            }
            Event::Closed { .. } => {
                self.may_flush(conn, None, side)?;
                self.all_over(conn, side, ends)
            }
            _ => Ok(()),
        }
    }

    fn may_flush(&self, conn: usize, stream: Option<u16>, side: usize) -> Checked {
        if self.allows(conn, stream, side, Status::WrFlushErr) {
            Ok(())
        } else {
            Err(format!(
                "stream {stream:?} of connection {conn} has ended for no reason"
            ))
        }
    }

    fn sent(&mut self, id: HalfId, done: &Completion, ends: &mut [Endpoint]) -> Checked {
        let status_allowed = self.allows(id.0, Some(id.2), id.1, done.status);
        let half = self.half(id);
        let place = half.tx[half.done..]
            .iter()
            .position(|m| m.wr_id == done.wr_id);
        let index =
            half.done + place.ok_or_else(|| format!("{done:?}: no such work is under way"))?;
        let first = half.done;
        let passed = &half.tx[first..index];
        let msg = &half.tx[index];
        if msg.kind != done.kind {
            return Err(format!("{done:?}: the work is {:?}", msg.kind));
        }
        if half.ended {
            // Work posted to a stream that has ended still has to be given back.
            if done.status == Status::Success {
                return Err(format!("{done:?}: after the end of the stream"));
            }
        }
        if passed.iter().any(|m| m.signalled || half.failed) {
            return Err(format!("{done:?}: before {} (STRM-028)", passed[0].wr_id));
        }
        if done.status == Status::Success {
            if half.failed {
                return Err(format!("{done:?}: success after an error"));
            }
            if !msg.signalled {
                return Err(format!("{done:?}: nobody asked for it"));
            }
            if msg.doom == Doom::Sure {
                return Err(format!("{done:?}: it had to be refused"));
            }
            if done.byte_len as usize != msg.len {
                return Err(format!("{done:?}: it has {} bytes", msg.len));
            }
            self.successes += 1;
        } else {
            if !status_allowed {
                return Err(format!("{done:?}: nothing was wrong"));
            }
            if done.byte_len != 0 {
                return Err(format!("{done:?}: bytes of what has failed"));
            }
            half.failed = true;
            self.failures += 1;
        }
        let half = self.half(id);
        half.done = index + 1;
        let success = done.status == Status::Success;
        for i in first..index + usize::from(success) {
            self.landed(id, i, ends)?;
            self.finished(id, i, true, ends)?;
        }
        if !success {
            self.finished(id, index, false, ends)?;
        }
        Ok(())
    }

    /// All bytes of the message must be where they go.
    pub fn landed(&mut self, id: HalfId, index: usize, ends: &[Endpoint]) -> Checked {
        let msg = &self.halves[&id].tx[index];
        let wr_id = msg.wr_id;
        let spot = match msg.kind {
            WorkKind::Send => {
                let peer = self.halves.get(&(id.0, 1 - id.1, id.2));
                let receive = peer.and_then(|p| p.rx.iter().find(|r| r.bound == Some(index)));
                if receive.is_none() && peer.is_none_or(|p| p.srq.is_none()) {
                    return Err(format!("message {wr_id} is complete without a receive"));
                }
                receive.map(|r| r.spot)
            }
            WorkKind::CmpSwap | WorkKind::FetchAdd => None,
            _ => msg.target,
        };
        if let Some(spot) = spot {
            let landed = self.with(spot, ends, |s, memory| s.land(spot.offset, memory));
            landed.map_err(|e| format!("message {wr_id}: {e}"))?;
        }
        Ok(())
    }

    /// The buffers of work are the application's again.
    fn finished(
        &mut self,
        id: HalfId,
        index: usize,
        success: bool,
        ends: &mut [Endpoint],
    ) -> Checked {
        let msg = self.halves[&id].tx[index].clone();
        let own = matches!(
            msg.kind,
            WorkKind::Read | WorkKind::CmpSwap | WorkKind::FetchAdd
        );
        if let (true, Some(spot)) = (own, msg.target) {
            let memory = memory(ends, spot)?;
            if let Some((word, attempt)) = msg.word {
                let bytes: [u8; 8] = memory[spot.offset..spot.offset + 8].try_into().unwrap();
                let old = success.then(|| u64::from_ne_bytes(bytes));
                self.words[word].attempts[attempt].old = old;
            }
            self.with(spot, ends, |s, memory| s.freeze(spot.offset, memory))?;
            self.scrub(spot, msg.len, ends);
        }
        if let Some(spot) = msg.source {
            self.scrub(spot, msg.len, ends);
        }
        Ok(())
    }

    pub fn scrub(&mut self, spot: Spot, len: usize, ends: &mut [Endpoint]) {
        if self.scrub && len > 0 {
            let bytes = payload_of(mix(self.seed ^ spot.offset as u64 ^ 0x5c), 0, len);
            if let Some(shadow) = self.shadow(spot) {
                shadow.set(spot.offset, &bytes);
            }
            if let Some(memory) = ends[spot.end].memory_mut(spot.mr) {
                memory[spot.offset..spot.offset + len].copy_from_slice(&bytes);
            }
        }
    }

    /// Nothing of the stream is placed here any more, and all that was posted has been given back.
    fn over(&mut self, id: HalfId, ends: &mut [Endpoint]) -> Checked {
        let half = self.half(id);
        half.ended = true;
        if let Some(left) = half.tx[half.done..]
            .iter()
            .find(|m| m.signalled || half.failed)
        {
            return Err(format!(
                "stream {} is over, but work {} has no completion",
                id.2, left.wr_id
            ));
        }
        if let Some(left) = half.rx.iter().find(|r| !r.over) {
            return Err(format!(
                "stream {} is over, but receive {} has no completion",
                id.2, left.wr_id
            ));
        }
        let peer = (id.0, 1 - id.1, id.2);
        let count = self.halves.get(&peer).map_or(0, |p| p.tx.len());
        for i in 0..count {
            let msg = &self.halves[&peer].tx[i];
            let placed_here = msg.kind == WorkKind::Write;
            if let Some(spot) = msg.target.filter(|_| placed_here) {
                self.with(spot, ends, |s, memory| s.freeze(spot.offset, memory))?;
            }
        }
        Ok(())
    }

    fn all_over(&mut self, conn: usize, side: usize, ends: &mut [Endpoint]) -> Checked {
        let ids: Vec<HalfId> = self
            .halves
            .keys()
            .copied()
            .filter(|id| (id.0, id.1) == (conn, side))
            .collect();
        for id in ids {
            if !self.halves[&id].ended {
                self.over(id, ends)?;
            }
        }
        self.check_end(self.ends[conn][side], ends)
    }

    /// An endpoint has lost its memory, and whatever it knew.
    pub fn forget(&mut self, end: usize) {
        self.regions.retain(|(of, _), _| *of != end);
        self.srqs.retain(|(of, _), _| *of != end);
        for word in self.words.iter_mut().filter(|word| word.spot.end == end) {
            word.gone = true;
        }
        let ends = &self.ends;
        for (id, half) in &mut self.halves {
            for msg in &mut half.tx {
                msg.target = msg.target.filter(|spot| spot.end != end);
            }
            if ends[id.0][id.1] == end {
                // What it had sent may still arrive.
                (half.ended, half.done) = (true, half.tx.len());
                for receive in &mut half.rx {
                    (receive.over, receive.spot.mr) = (true, u32::MAX);
                }
            }
        }
    }

    /// Compares all memory of an end.
    pub fn check_end(&self, end: usize, ends: &[Endpoint]) -> Checked {
        for ((_, mr), shadow) in self.regions.range((end, 0)..(end + 1, 0)) {
            if let Some(memory) = ends[end].memory(*mr) {
                shadow
                    .check(memory)
                    .map_err(|e| format!("end {end}, region {mr}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Everything is over: compares all memory, and the history of every word.
    pub fn finish(&self, ends: &[Endpoint]) -> Checked {
        for end in 0..ends.len() {
            self.check_end(end, ends)?;
        }
        for word in self.words.iter().filter(|word| !word.gone) {
            word.check(word.value(memory(ends, word.spot)?))?;
        }
        Ok(())
    }

    pub fn attempt(&mut self, word: usize, attempt: Attempt) -> usize {
        self.words[word].attempts.push(attempt);
        self.words[word].attempts.len() - 1
    }
}

pub fn memory(ends: &[Endpoint], spot: Spot) -> Result<&[u8], String> {
    ends[spot.end]
        .memory(spot.mr)
        .ok_or_else(|| format!("harness: region {} is gone", spot.mr))
}
