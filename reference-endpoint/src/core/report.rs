//! Acknowledgments and what follows from them: repairs, windows, credit, hints and completions.

use metaroce_wire::metaroce::{AckFlags, AckHeader, Cbh, Features, RetireReason, Sack};

use super::connection::{Connection, NEVER, Shared};
use super::event::{Completion, Event, Status};
use super::transitions::{PathEvent, PathState, StreamState};
use super::tx_path::{Carried, Due, Report, Shown};

/// Timeouts in a row after which a path has failed while others are acknowledged (PATH-020).
const SUSPECT: u32 = 3;

impl Connection {
    pub(super) fn on_ack(
        &mut self,
        now: u64,
        cbh: &Cbh,
        header: &AckHeader,
        sack: &Sack,
        shared: &mut Shared<'_>,
    ) {
        let path = u16::from(cbh.path);
        let known = self.tx.get(usize::from(path)).filter(|tx| {
            tx.epoch == cbh.epoch && (tx.state.is_alive() || tx.state == PathState::Retiring)
        });
        let Some(tx) = known else {
            shared.counters.bad_acks += 1;
            return;
        };
        let echo =
            Some(header.timestamp_echo).filter(|_| header.ack_flags & AckFlags::ECHO_VALID.0 != 0);
        let trigger = echo.and_then(|echo| tx.transmission(echo));
        let report = Report {
            cum: cbh.psn,
            sack,
            trigger,
            probe: None,
            used_up_at: self.used_up_at,
            duplicate: header.ack_flags & AckFlags::DUPLICATE_SEEN.0 != 0,
        };
        let held = u64::from(header.ack_delay) * 64;
        let sample = trigger.filter(|_| header.ack_delay != u16::MAX);
        let sample = sample.map_or((NEVER, 0), |stamp| (stamp, held));
        let counts = Some((header.ce_count, header.ect_count));
        if !self.take_report(now, path, &report, sample, counts, shared) {
            shared.counters.bad_acks += 1;
            return;
        }
        self.on_credit(now, cbh.timestamp, header.stream, header.rq_limit);
        let rate = header.rate_hint.value();
        self.on_hint(now, cbh.timestamp, header.hint_epoch, rate);
    }

    /// Takes a report of a path, from an acknowledgment or the answer to a probe. `sample` is the transmission that dates
    /// the round trip, and how long its answer was held back; the time [`NEVER`] is none. False when the report cannot be
    /// true.
    pub(super) fn take_report(
        &mut self,
        now: u64,
        path: u16,
        report: &Report<'_>,
        (sent, held): (u64, u64),
        counts: Option<(u32, u32)>,
        shared: &mut Shared<'_>,
    ) -> bool {
        let mut newly = std::mem::take(&mut self.newly);
        let at = usize::from(path);
        let shown = self.on_path(now, path, |tx| {
            let shown = tx.on_report(now, report, &mut newly)?;
            if sent != NEVER {
                tx.rtt.sample(now, sent, held);
            }
            let marked = counts.map_or(0, |(ce, ect)| tx.on_counts(report, ce, ect));
            Some((shown, marked))
        });
        let Some((shown, marked)) = shown else {
            self.newly = newly;
            return false;
        };
        let tx = &self.tx[at];
        if tx.state.is_alive() {
            let srtt = tx.rtt.smoothed();
            let Shown {
                newly: count,
                tested,
                ..
            } = shown;
            self.congestion
                .on_acked(at, now, (count, tested), marked, srtt);
            self.after_loss(now, path, shown);
        }
        self.complete(now, &newly, shared);
        newly.clear();
        self.newly = newly;
        if !self.state.is_over() {
            self.check_suspects(now, shared);
        }
        true
    }

    /// What follows from losses that were found on a path.
    fn after_loss(&mut self, now: u64, path: u16, shown: Shown) {
        let tx = &self.tx[usize::from(path)];
        if shown.gap && tx.ecn.is_off() {
            let srtt = tx.rtt.smoothed();
            self.congestion
                .on_gap_without_ecn(usize::from(path), now, srtt);
        }
        self.repair(path);
        let due = self.tx[usize::from(path)].deadline().unwrap_or(NEVER);
        self.arm(due);
    }

    /// Counts packets that have been acknowledged, and reports the work that ends with them.
    pub(super) fn complete(&mut self, now: u64, newly: &[Carried], shared: &mut Shared<'_>) {
        if newly.is_empty() {
            return;
        }
        for (i, carried) in newly.iter().enumerate() {
            let Some(stream) = self.streams.get_mut(carried.stream) else {
                continue;
            };
            stream.psns = stream.psns.saturating_sub(1);
            if stream.state == StreamState::Open {
                if carried.response {
                    self.tally.bytes_sent += stream.on_answer_acked(carried.msn, carried.index);
                } else if let Some(kind) = stream.tx.on_acked(carried.msn) {
                    self.operation_over(kind);
                }
            }
            let last = newly
                .get(i + 1)
                .is_none_or(|next| next.stream != carried.stream);
            if last {
                self.report_ended(now, carried.stream, shared);
                self.activate(carried.stream);
            }
        }
        self.settle(now, shared);
    }

    /// Reports the work of a stream that has ended, in order. Work that has failed ends its stream.
    pub(super) fn report_ended(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) {
        while self.report_one(now, id, shared) {}
    }

    /// Reports the oldest work of a stream if it has ended. False when there is no more to report.
    pub(super) fn report_one(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) -> bool {
        let Some(stream) = self.streams.get_mut(id) else {
            return false;
        };
        let Some(front) = stream.tx.front() else {
            return false;
        };
        let flushed = front.failed == Some(Status::WrFlushErr);
        if let Some(status) = front.failed.filter(|_| !flushed) {
            let msn = front.msn;
            self.fail_stream(now, id, Some((msn, status)), shared);
            return false;
        }
        // What was sent of memory that is gone was not all of the program's bytes.
        if front.is_done() && !flushed && front.is_gone(shared) {
            let cause = (front.msn, Status::LocProtErr);
            self.fail_stream(now, id, Some(cause), shared);
            return false;
        }
        let Some(message) = stream.tx.pop_ended() else {
            return false;
        };
        let status = message.failed.unwrap_or(Status::Success);
        if status == Status::Success {
            // What an operation with an answer asks for is sent by the peer.
            let answered = message.work.op.is_answered();
            let bytes = if answered { 0 } else { u64::from(message.len) };
            stream.succeeded = stream.succeeded.wrapping_add(1);
            stream.bytes_sent += bytes;
            self.tally.messages_sent += 1;
            self.tally.bytes_sent += bytes;
        }
        if message.work.signalled || status != Status::Success {
            let byte_len = if status == Status::Success {
                message.len
            } else {
                0
            };
            shared.events.push_back(Event::Completion(Completion {
                conn: self.handle,
                stream: id,
                wr_id: message.work.wr_id,
                kind: message.work.op.kind(),
                status,
                byte_len,
                imm: None,
                invalidated: None,
                solicited: false,
            }));
        }
        true
    }

    // ---- timers of the paths ------------------------------------------------------------------------------------

    /// Does what the timers of the paths ask for.
    pub(super) fn on_path_timers(&mut self, now: u64, shared: &mut Shared<'_>) {
        for path in 0..self.tx.len() as u16 {
            let at = usize::from(path);
            if self.state.is_over() {
                return;
            }
            if self.tx[at].deadline().is_none_or(|due| now < due) {
                continue;
            }
            let mut shown = Shown::default();
            let due = self.on_path(now, path, |tx| tx.on_timer(now, &mut shown));
            match due {
                Some(Due::Probe) => self.send_probe(now, path, false, shared),
                Some(Due::Timeout) => self.on_timeout(now, path, shared),
                None => {}
            }
            self.after_loss(now, path, shown);
            if self.tx[at].is_exhausted() && self.tx[at].state.is_alive() {
                self.path_failed(now, path, shared);
            }
        }
        if !self.state.is_over() {
            self.check_suspects(now, shared);
        }
    }

    /// A timeout: the window falls to one packet, and the next packet takes another port or plane (PATH-019).
    fn on_timeout(&mut self, now: u64, path: u16, shared: &mut Shared<'_>) {
        shared.counters.timeouts += 1;
        self.congestion.on_timeout(usize::from(path));
        if self.in_flight == 0 {
            self.idle_from = NEVER;
        }
        let tx = &self.tx[usize::from(path)];
        let plane = if tx.timeouts > 1 && self.planes.len() > 1 && !self.has(Features::RETIRE) {
            self.another_plane(path)
        } else {
            tx.plane
        };
        let port = self.another_port(path);
        let (silent, timeouts) = (tx.plane, tx.timeouts);
        self.change_route(now, path, port, plane);
        if let Some(other) = self.path_to_ask(path, silent, timeouts) {
            self.send_probe(now, other, false, shared);
        }
    }

    /// The path to probe when another one has had its timeout number `timeouts` in a row in plane `silent`: whether the
    /// others live shows only when something is sent on them (PATH-044). Each timeout asks the next one of those without
    /// packets under way, in other planes first: that plane may be what has failed.
    fn path_to_ask(&self, path: u16, silent: u8, timeouts: u32) -> Option<u16> {
        if !self.has(Features::RETIRE) || self.has_heard_elsewhere(path) {
            return None;
        }
        let idle = |(other, tx): (u16, &super::tx_path::TxPath)| {
            (other != path && tx.state.is_alive() && tx.is_idle()).then_some(other)
        };
        let mut others: Vec<u16> = (0u16..).zip(&self.tx).filter_map(idle).collect();
        others.sort_by_key(|&other| self.tx[usize::from(other)].plane == silent);
        let turn = timeouts.saturating_sub(1) as usize % others.len().max(1);
        others.get(turn).copied()
    }

    /// Whether another path that is alive was acknowledged since this one has had the first of its timeouts in a row.
    fn has_heard_elsewhere(&self, path: u16) -> bool {
        let since = self.tx[usize::from(path)].first_timeout;
        (0u16..).zip(&self.tx).any(|(other, tx)| {
            other != path
                && tx.state.is_alive()
                && self.is_open(other)
                && tx.acked_at.is_some_and(|at| at >= since)
        })
    }

    /// Gives up paths that are silent while others are acknowledged.
    fn check_suspects(&mut self, now: u64, shared: &mut Shared<'_>) {
        if !self.has(Features::RETIRE) {
            return;
        }
        for path in 0..self.tx.len() as u16 {
            let tx = &self.tx[usize::from(path)];
            if tx.timeouts < SUSPECT || !tx.state.is_alive() {
                continue;
            }
            if self.has_heard_elsewhere(path) {
                self.path_failed(now, path, shared);
            }
        }
    }

    /// A path has failed: it is retired while another one is alive, and ends the connection otherwise.
    fn path_failed(&mut self, now: u64, path: u16, shared: &mut Shared<'_>) {
        if self.has(Features::RETIRE) && self.has_another(path) {
            self.give_up(now, path, RetireReason::FAILED, PathEvent::Exhausted);
            self.tell_alive(path, false, shared);
        } else {
            self.tx[usize::from(path)].fail();
            self.fail(now, Status::RetryExcErr, "a path has failed", shared);
        }
    }

    // ---- hints --------------------------------------------------------------------------------------------------

    /// Takes a hint of the peer.
    pub(super) fn on_hint(&mut self, now: u64, timestamp: u32, epoch: u8, rate: u32) {
        self.hint.expire(now, self.largest_rto());
        self.hint.on_hint(now, timestamp, epoch, rate);
        self.arm(self.hint_deadline());
    }

    fn live_paths(&self) -> impl Iterator<Item = &super::tx_path::TxPath> {
        self.tx.iter().filter(|tx| tx.state.is_alive())
    }

    /// The round trip that counts for hints: the smallest of the live paths, ns.
    fn hint_rtt(&self) -> u64 {
        let all = self.live_paths().map(|tx| tx.rtt.smoothed_or_half());
        all.min().unwrap_or(NEVER)
    }

    pub(super) fn hint_deadline(&self) -> u64 {
        if !self.is_up() {
            return NEVER;
        }
        let wants = self.wants_to_send();
        let due = self
            .hint
            .deadline(wants, self.hint_rtt(), self.largest_rto());
        due.unwrap_or(NEVER)
    }

    fn wants_to_send(&self) -> bool {
        !self.active.is_empty() || !self.moved.is_empty()
    }

    /// The largest retransmission timeout of the live paths, ns.
    fn largest_rto(&self) -> u64 {
        let all = self.live_paths().map(|tx| tx.rtt.timeout(tx.timeouts));
        all.max().unwrap_or(NEVER)
    }

    /// Asks a peer that has paused this side, each time on another path (HINT-013).
    pub(super) fn on_hint_timer(&mut self, now: u64, shared: &mut Shared<'_>) {
        if now < self.hint_deadline() {
            return;
        }
        let rto = self.largest_rto();
        if self.hint.expire(now, rto) {
            return;
        }
        let rtt = self.hint_rtt();
        if self.wants_to_send() && self.hint.probe_due(now, rtt) {
            let count = self.tx.len() as u16;
            let mut next = (1..=count).map(|i| (self.current_path + i) % count);
            if let Some(path) = next.find(|&p| self.tx[usize::from(p)].state.is_alive()) {
                self.current_path = path;
                self.send_probe(now, path, true, shared);
                let tx = &self.tx[usize::from(path)];
                let rto = tx.rtt.timeout(tx.timeouts);
                self.hint.on_probe_sent(now, rto);
            }
        }
    }
}
