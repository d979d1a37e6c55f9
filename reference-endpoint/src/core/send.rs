//! What goes out next: control, acknowledgments, repairs, and new packets spread over the paths.

use metaroce_wire::metaroce::Flags;
use metaroce_wire::serial::Msn;

use super::config::Transmit;
use super::connection::{Connection, NEVER, Shared};
use super::data::Under;
use super::event::{Status, WorkKind};
use super::outbox::{Blocked, Bounds};
use super::stream::Stream;
use super::tx_path::Carried;

impl Connection {
    /// Adds the next datagram to send to `out`.
    pub(super) fn append_transmit(
        &mut self,
        now: u64,
        shared: &mut Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some(transmit) = self.poll_control(now, out) {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_ack(now, shared, out) {
            return Some(transmit);
        }
        if !self.is_up() {
            return None;
        }
        // Who looks for data may find that there is something to ask or to end, which does not wait for the next event.
        self.poll_lost(now, shared, out)
            .or_else(|| self.poll_new(now, shared, out))
            .or_else(|| self.poll_control(now, out))
    }

    /// Ends the stream of a packet that would have to go out again after the program has taken its memory away: whatever
    /// stood in for it would be placed as the program's.
    fn is_without_memory(&mut self, now: u64, carried: &Carried, shared: &mut Shared<'_>) -> bool {
        let stream = self
            .streams
            .get(carried.stream)
            .filter(|s| s.is_open() && !carried.response);
        let message = stream.and_then(|stream| stream.tx.message(carried.msn));
        let gone = message.is_some_and(|message| message.is_gone(shared));
        if gone {
            let cause = (carried.msn, Status::LocProtErr);
            self.fail_stream(now, carried.stream, Some(cause), shared);
        }
        gone
    }

    /// Notes what a data packet has cost, and when its path wants attention next.
    fn data_sent(&mut self, now: u64, path: u16, bytes: usize) {
        self.hint
            .on_sent(now, (bytes + self.over_datagram()) as u32);
        let tx = &mut self.tx[usize::from(path)];
        tx.totals.bytes += bytes as u64;
        let due = tx.deadline().unwrap_or(NEVER);
        self.arm(due);
    }

    fn poll_lost(
        &mut self,
        now: u64,
        shared: &mut Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        while let Some(&path) = self.repairs.front() {
            // What it has to repair waits until its plane has answered (PLN-012).
            if !self.is_proven(path) {
                self.repairs.pop_front();
                continue;
            }
            let tx = &self.tx[usize::from(path)];
            let room = self.congestion.path_room(usize::from(path), tx.in_flight());
            let Some((psn, carried)) = tx.next_lost(now, room) else {
                self.repairs.pop_front();
                let due = self.tx[usize::from(path)].deadline().unwrap_or(NEVER);
                self.arm(due);
                continue;
            };
            if self.is_without_memory(now, &carried, shared) {
                // STREAM_RESET goes before what fills the places of its stream (ERR-014).
                match self.poll_control(now, out) {
                    None => continue,
                    transmit => return transmit,
                }
            }
            let stamp = self.on_path(now, path, |tx| tx.send_again(now, psn));
            shared.counters.retransmissions += 1;
            let flags = Flags::RTX.with(Flags::AR);
            let under = Under {
                path,
                psn,
                stamp,
                flags,
            };
            let before = out.len();
            let transmit = self.put_data(under, &carried, shared, out);
            self.data_sent(now, path, out.len() - before);
            return Some(transmit);
        }
        None
    }

    fn poll_new(
        &mut self,
        now: u64,
        shared: &mut Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.active.is_empty() && self.moved.is_empty() {
            return None;
        }
        if let Err(at) = self.hint.may_send(now) {
            self.arm(at);
            self.arm(self.hint_deadline());
            return None;
        }
        let turn = (self.current_path, self.run_left);
        let path = self.pick_path(now)?;
        let Some(carried) = self.next_packet(now, shared) else {
            // It is still the turn of the same path.
            (self.current_path, self.run_left) = turn;
            return None;
        };
        let at = usize::from(path);
        let tx = &self.tx[at];
        let all_used_up = self.congestion.uses_up_all(self.in_flight);
        let used_up = all_used_up || self.congestion.uses_up(at, tx.in_flight());
        // Nothing may follow on some of the paths, so that the last packets ask for their acknowledgment themselves.
        let asks = used_up || tx.fills_vector() || self.is_near_end(&carried);
        let flags = if asks { Flags::AR } else { Flags(0) };
        if all_used_up {
            self.used_up_at = Some(now);
        }
        let (psn, stamp) = self.on_path(now, path, |tx| tx.send_new(now, carried, used_up));
        let srtt = self.tx[at].rtt.smoothed();
        self.congestion.on_sent(at, now, srtt);
        self.note_origin(path, psn, &carried);
        let under = Under {
            path,
            psn,
            stamp,
            flags,
        };
        let before = out.len();
        let transmit = self.put_data(under, &carried, shared, out);
        self.data_sent(now, path, out.len() - before);
        if carried.response {
            self.answer_sent(now, &carried, shared);
        }
        Some(transmit)
    }

    /// Whether fewer packets follow in the message than there are paths.
    fn is_near_end(&self, carried: &Carried) -> bool {
        let Some(stream) = self.streams.get(carried.stream) else {
            return true;
        };
        let packets = if carried.response {
            let answers = stream.rare().map(|rare| &rare.answers);
            let answer = answers.and_then(|all| all.iter().find(|a| a.msn == carried.msn));
            answer.map_or(0, |answer| answer.packets)
        } else {
            stream.tx.message(carried.msn).map_or(0, |m| m.packets)
        };
        (packets.saturating_sub(carried.index)) as usize <= self.tx.len()
    }

    // ---- paths --------------------------------------------------------------------------------------------------

    fn has_room(&self, path: u16, now: u64) -> bool {
        let tx = &self.tx[usize::from(path)];
        tx.takes_new()
            && self.is_open(path)
            && self.congestion.room(
                usize::from(path),
                now,
                tx.in_flight(),
                self.in_flight,
                tx.rtt.smoothed(),
            )
    }

    fn is_hot(&self, path: u16, now: u64) -> bool {
        let srtt = self.tx[usize::from(path)].rtt.smoothed();
        self.congestion.is_hot(usize::from(path), now, srtt)
    }

    /// The path for the next new packet: in turn, some in a row if that is set, and one that has just reported congestion
    /// only when no other has room (CC-012).
    fn pick_path(&mut self, now: u64) -> Option<u16> {
        let count = self.tx.len() as u16;
        let current = self.current_path;
        if self.run_left > 0 && !self.is_hot(current, now) && self.has_room(current, now) {
            self.run_left -= 1;
            return Some(self.current_path);
        }
        let next = (1..=count).map(|i| (self.current_path + i) % count);
        let mut hot = None;
        let mut found = None;
        for path in next {
            if !self.has_room(path, now) {
                continue;
            }
            if !self.is_hot(path, now) {
                found = Some(path);
                break;
            }
            hot = hot.or(Some(path));
        }
        let path = found.or(hot);
        match path {
            Some(path) => {
                self.current_path = path;
                self.run_left = self.settings.run - 1;
            }
            // A window below one packet opens by itself.
            None => self.arm(self.pacing_deadline(now)),
        }
        path
    }

    /// When a path that is paced takes the next packet.
    pub(super) fn pacing_deadline(&self, now: u64) -> u64 {
        let alive = self.tx.iter().enumerate().filter(|(_, tx)| tx.takes_new());
        let next = alive.filter_map(|(i, tx)| self.congestion.next_room(i, tx.rtt.smoothed()));
        next.filter(|&at| at > now).min().unwrap_or(NEVER)
    }

    // ---- streams ------------------------------------------------------------------------------------------------

    /// What goes out next for the first time on a path, or what is moved from a path that is gone.
    fn next_packet(&mut self, now: u64, shared: &mut Shared<'_>) -> Option<Carried> {
        // What is moved takes turns with the streams: it can be much, and all of one of them (STRM-045).
        self.moved_turn = !self.moved_turn;
        if self.moved_turn || self.active.is_empty() {
            let carried = self.next_that_moved(now, shared);
            if carried.is_some() {
                return carried;
            }
        }
        while let Some(id) = self.active.pop_front() {
            let Some(carried) = self.next_of(now, id, shared) else {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.active = false;
                }
                continue;
            };
            // It may have more, and gets its turn again behind the others (STRM-045).
            self.active.push_back(id);
            if let Some(stream) = self.streams.get_mut(id) {
                stream.psns += 1;
            }
            return Some(carried);
        }
        let carried = self.next_that_moved(now, shared);
        if carried.is_none() {
            self.arm(self.moved_deadline(now));
        }
        carried
    }

    fn next_that_moved(&mut self, now: u64, shared: &mut Shared<'_>) -> Option<Carried> {
        loop {
            let carried = self.next_moved(now)?;
            if self.is_without_memory(now, &carried, shared) {
                continue;
            }
            if let Some(stream) = self.streams.get_mut(carried.stream) {
                stream.psns += 1;
            }
            return Some(carried);
        }
    }

    fn bounds_of(&self, stream: &Stream) -> Bounds {
        Bounds {
            window: self.agreed().msg_window,
            answered: stream.config.max_rd_atomic.unwrap_or(u32::MAX),
            read: self.reads < u32::from(self.theirs.read_depth),
            atomic: self.atomics < u32::from(self.theirs.atomic_depth),
        }
    }

    /// Whether the next message of a stream could go if the peer had a receive for it.
    pub(super) fn lacks_credit(&self, id: u16) -> bool {
        let open = self.streams.get(id).filter(|stream| stream.is_open());
        open.is_some_and(|stream| {
            let next = stream.tx.sendable(self.bounds_of(stream));
            self.is_up() && matches!(next, Err(Blocked::Credit))
        })
    }

    /// The next packet of a stream: of an answer first, which the peer waits for, then of its own work.
    fn next_of(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) -> Option<Carried> {
        if let Some(carried) = self.next_answer(now, id, shared) {
            return Some(carried);
        }
        let bounds = self.bounds_of(self.streams.get(id)?);
        let stream = self.streams.get_mut(id)?;
        if stream.state != super::transitions::StreamState::Open {
            return None;
        }
        match stream.tx.sendable(bounds) {
            Ok(message) if message.is_gone(shared) => {
                let msn = message.msn;
                if let Some(message) = stream.tx.message_mut(msn) {
                    message.failed = Some(Status::LocProtErr);
                }
                self.report_ended(now, id, shared);
                return None;
            }
            Ok(_) => {}
            Err(Blocked::Nothing) => return None,
            Err(Blocked::Credit) => {
                self.starve(now, id);
                return None;
            }
            Err(Blocked::ReadDepth | Blocked::AtomicDepth) => {
                if !std::mem::replace(&mut stream.waiting, true) {
                    self.waiting.push(id);
                }
                return None;
            }
        }
        let (msn, index, asks) = stream.tx.send_next()?;
        if asks {
            let kind = stream.tx.message(msn).map(|m| m.work.op.kind());
            if kind == Some(WorkKind::Read) {
                self.reads += 1;
            } else {
                self.atomics += 1;
            }
        }
        Some(Carried {
            stream: id,
            msn,
            index,
            response: false,
        })
    }

    /// Notes under which PSN a request goes out that is answered: a NAK can name it after it was acknowledged (ERR-007).
    fn note_origin(&mut self, path: u16, psn: metaroce_wire::serial::Psn, carried: &Carried) {
        // Such a request is one packet.
        if carried.response || carried.index > 0 {
            return;
        }
        let epoch = self.tx[usize::from(path)].epoch;
        let stream = self.streams.get_mut(carried.stream);
        let message = stream.and_then(|stream| stream.tx.message_mut(carried.msn));
        if let Some(message) = message.filter(|m| m.work.op.is_answered()) {
            message.origin = Some((path as u8, epoch, psn));
        }
    }

    /// Wakes the streams whose next operation waits for others to be answered.
    pub(super) fn wake_waiting(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.waiting = false;
            }
            self.activate(id);
        }
    }

    /// Notes that a Read or an atomic operation is no longer under way.
    pub(super) fn operation_over(&mut self, kind: WorkKind) {
        match kind {
            WorkKind::Read => self.reads = self.reads.saturating_sub(1),
            WorkKind::CmpSwap | WorkKind::FetchAdd => {
                self.atomics = self.atomics.saturating_sub(1);
            }
            _ => return,
        }
        self.wake_waiting();
    }

    /// The oldest work of the connection that is not complete.
    pub(super) fn oldest_work(&self) -> Option<(u16, Msn)> {
        let fronts = self
            .streams
            .iter()
            .filter_map(|stream| Some((stream.id, stream.tx.front()?)));
        fronts
            .min_by_key(|(_, message)| message.order)
            .map(|(stream, message)| (stream, message.msn))
    }

    /// When the rest after a retransmission timeout without packets in flight is due (CC-014).
    pub(super) fn pause_deadline(&self) -> u64 {
        if self.in_flight > 0 || self.idle_from == NEVER || !self.is_up() {
            return NEVER;
        }
        let timeouts = self.tx.iter().map(|tx| tx.rtt.timeout(tx.timeouts));
        self.idle_from + timeouts.max().unwrap_or(0)
    }

    /// After a pause windows go back to what they were at first.
    pub(super) fn on_pause_timer(&mut self, now: u64) {
        if now < self.pause_deadline() {
            return;
        }
        self.idle_from = NEVER;
        self.congestion.on_pause_of_all();
    }
}
