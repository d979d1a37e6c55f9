//! Paths that are given up and opened again: retirement, what moves elsewhere, and revival.

use metaroce_wire::metaroce::{
    Body, Cbh, Features, Opcode, PathRetire, PathRetired, RetireReason, U24,
};
use metaroce_wire::serial::Psn;

use super::config::Misuse;
use super::connection::{Connection, LINGER, NEVER, Shared};
use super::control::Purpose;
use super::event::{Event, Status};
use super::transitions::{PathEvent, PathState, step, step_to};
use super::tx_path::{Carried, TxPath};

/// First pause before a path that rests is asked, ns; it doubles (PATH-038).
const FIRST_REVIVAL: u64 = 1_000_000_000;
const MOST_REVIVAL: u64 = 60_000_000_000;
/// Epochs come round.
const EPOCHS: u8 = 16;

/// A packet of a retired epoch that the peer has not got.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub carried: Carried,
    /// It waits after an RNR until then, ns.
    pub not_before: u64,
    from: u16,
}

/// What is kept of a path that was retired.
#[derive(Debug)]
pub(super) struct Past {
    /// First PSN of the next epoch.
    first: Psn,
    /// When the numbers of epochs were retired; those that have rested are forgotten.
    retired: Vec<(u8, u64)>,
    /// Packets that still have to be moved.
    to_move: u32,
    pause: u64,
    /// When it is asked next, or the question is given up.
    due: u64,
    asked_at: u64,
}

impl Connection {
    /// Whether another path than this one carries data.
    pub(super) fn has_another(&self, path: u16) -> bool {
        let mut all = (0u16..).zip(&self.tx);
        all.any(|(other, tx)| other != path && tx.state.is_alive() && self.is_open(other))
    }

    /// Gives a path up: PATH_RETIRE asks the peer what has arrived, for good. `on` is the reason in the state table.
    pub(super) fn give_up(&mut self, now: u64, path: u16, reason: RetireReason, on: PathEvent) {
        let tx = &mut self.tx[usize::from(path)];
        step_to(&mut tx.state, on, PathState::Retiring);
        let (epoch, highest_psn) = (tx.epoch, tx.highest_sent());
        self.on_path(now, path, TxPath::give_up);
        self.congestion.retire(usize::from(path));
        let id = self.next_transaction();
        let cbh = Cbh {
            path: path as u8,
            epoch,
            ..self.header(now, Opcode::PATH_RETIRE, id)
        };
        let body = PathRetire {
            highest_psn,
            reason,
            rsvd: U24::new(0),
        };
        let route = self.route_that_lives();
        self.request_by(
            now,
            Purpose::Retire(path),
            route,
            cbh,
            Body::PathRetire(body),
        );
    }

    /// Port and plane of the path that was heard of last: the first of the connection may be what has failed.
    fn route_that_lives(&self) -> (u16, u8) {
        let alive = (0u16..).zip(&self.tx).filter(|(_, tx)| tx.state.is_alive());
        let open = alive.filter(|(path, _)| self.is_open(*path));
        let latest = open.max_by_key(|(_, tx)| tx.acked_at);
        latest.map_or((self.settings.port(0), 0), |(_, tx)| (tx.port, tx.plane))
    }

    /// The application gives a path up.
    pub(super) fn retire_path(
        &mut self,
        now: u64,
        path: u16,
        shared: &mut Shared<'_>,
    ) -> Result<(), Misuse> {
        if !self.is_up() {
            return Err(Misuse::Closing);
        }
        if !self.has(Features::RETIRE) {
            return Err(Misuse::NotPossible("retirement of paths was not agreed"));
        }
        let tx = self.tx.get(usize::from(path)).ok_or(Misuse::NoPath(path))?;
        if !tx.state.is_alive() || !self.has_another(path) {
            return Err(Misuse::NotPossible("no other path is alive"));
        }
        self.give_up(now, path, RetireReason::LOCAL, PathEvent::Retire);
        self.tell_alive(path, false, shared);
        Ok(())
    }

    /// The application wants a path back: the pause is the first one again (PATH-038).
    pub(super) fn reopen_path(&mut self, path: u16) -> Result<(), Misuse> {
        let tx = self.tx.get(usize::from(path)).ok_or(Misuse::NoPath(path))?;
        let rests = matches!(tx.state, PathState::Retired | PathState::Resting);
        let past = self.past.get_mut(&path).filter(|_| rests);
        let past = past.ok_or(Misuse::NotPossible("the path does not rest"))?;
        past.due = (past.due.saturating_sub(past.pause) + FIRST_REVIVAL).min(past.due);
        past.pause = FIRST_REVIVAL;
        let due = past.due;
        self.arm(due);
        Ok(())
    }

    /// PATH_RETIRE has stayed without answer.
    pub(super) fn path_given_up(&mut self, path: u16) {
        if let Some(tx) = self.tx.get_mut(usize::from(path)) {
            step(&mut tx.state, PathEvent::NoAnswer);
        }
    }

    pub(super) fn tell_alive(&mut self, path: u16, alive: bool, shared: &mut Shared<'_>) {
        shared.events.push_back(Event::PathAlive {
            conn: self.handle,
            path,
            alive,
        });
    }

    /// Answers PATH_RETIRE: the epoch is over, and nothing of it is placed any more (PATH-025 to PATH-029).
    pub(super) fn on_path_retire(
        &mut self,
        now: u64,
        plane: u8,
        cbh: &Cbh,
        shared: &mut Shared<'_>,
    ) {
        let path = usize::from(cbh.path);
        if !self.has(Features::RETIRE) || self.state.is_over() {
            shared.counters.misdirected += 1;
            return;
        }
        let Some(rx) = self.rx.get_mut(path) else {
            shared.counters.misdirected += 1;
            return;
        };
        let before = rx.retired.as_deref().copied();
        let report = if rx.epoch == cbh.epoch {
            rx.retire()
        } else if let Some(before) = before.filter(|before| before.epoch == cbh.epoch) {
            before
        } else {
            shared.counters.misdirected += 1;
            return;
        };
        let body = PathRetired {
            cum_psn: report.cum,
            sack: report.sack,
        };
        let header = Cbh {
            path: cbh.path,
            epoch: cbh.epoch,
            ..self.header(now, Opcode::PATH_RETIRED, cbh.psn.value())
        };
        self.answer(header, Body::PathRetired(body), plane);
    }

    /// Takes the final report of an epoch: what it lacks moves to other paths, and nothing else (PATH-031).
    pub(super) fn on_path_retired(
        &mut self,
        now: u64,
        cbh: &Cbh,
        report: &PathRetired,
        shared: &mut Shared<'_>,
    ) {
        let path = u16::from(cbh.path);
        let epoch = self.tx.get(usize::from(path)).map(|tx| tx.epoch);
        let asked = |purpose| purpose == Purpose::Retire(path);
        if epoch != Some(cbh.epoch) || self.requests.answered(cbh.psn.value(), asked).is_none() {
            shared.counters.bad_acks += 1;
            return;
        }
        let mut newly = std::mem::take(&mut self.newly);
        let mut missing = Vec::new();
        let (cum, sack) = (report.cum_psn, &report.sack);
        let sound = self.on_path(now, path, |tx| {
            tx.end_epoch(cum, sack, &mut newly, &mut missing)
        });
        if !sound {
            self.newly = newly;
            let message = "the peer reports of a path what cannot be true";
            return self.fail(now, Status::RetryExcErr, message, shared);
        }
        let tx = &mut self.tx[usize::from(path)];
        step(&mut tx.state, PathEvent::PathRetired);
        let past = self.past.entry(path).or_insert(Past {
            first: cum,
            retired: Vec::new(),
            to_move: 0,
            pause: FIRST_REVIVAL,
            due: NEVER,
            asked_at: 0,
        });
        past.retired.retain(|(_, at)| now < at + LINGER);
        past.retired.push((cbh.epoch, now));
        past.first = cum.add(257);
        past.pause = FIRST_REVIVAL;
        past.due = now + FIRST_REVIVAL;
        past.to_move = 0;
        for (carried, not_before) in missing {
            let Some(stream) = self.streams.get_mut(carried.stream) else {
                continue;
            };
            // No PSN of it is left in this epoch; a stream that was reset needs nothing in its place (PATH-042).
            stream.psns -= 1;
            if !stream.state.is_reset() {
                past.to_move += 1;
                self.moved.push_back(Moved {
                    carried,
                    not_before,
                    from: path,
                });
            }
        }
        if past.to_move == 0 {
            step(&mut tx.state, PathEvent::Moved);
        }
        let due = past.due;
        self.arm(due);
        self.complete(now, &newly, shared);
        newly.clear();
        self.newly = newly;
    }

    /// Takes the next packet that is to be moved and may go now.
    pub(super) fn next_moved(&mut self, now: u64) -> Option<Carried> {
        let at = self
            .moved
            .iter()
            .position(|moved| moved.not_before <= now)?;
        let moved = self.moved.remove(at)?;
        self.count_moved(moved.from);
        Some(moved.carried)
    }

    fn count_moved(&mut self, path: u16) {
        let Some(past) = self.past.get_mut(&path) else {
            return;
        };
        past.to_move = past.to_move.saturating_sub(1);
        let tx = &mut self.tx[usize::from(path)];
        if past.to_move == 0 && tx.state == PathState::Retired {
            step(&mut tx.state, PathEvent::Moved);
        }
    }

    /// Forgets what waits to be moved of a stream that has been reset.
    pub(super) fn forget_moved(&mut self, stream: u16) {
        let mut from = Vec::new();
        self.moved.retain(|moved| {
            let gone = moved.carried.stream == stream;
            if gone {
                from.push(moved.from);
            }
            !gone
        });
        from.into_iter().for_each(|path| self.count_moved(path));
    }

    /// When the first packet that waits to be moved may go, ns.
    pub(super) fn moved_deadline(&self, now: u64) -> u64 {
        // What may go already waits for room and not for a time.
        let waiting = self.moved.iter().map(|moved| moved.not_before);
        waiting.filter(|&at| at > now).min().unwrap_or(NEVER)
    }

    // ---- revival ------------------------------------------------------------------------------------------------

    pub(super) fn revival_deadline(&self) -> u64 {
        if !self.is_up() {
            return NEVER;
        }
        let rests = |path: u16| {
            let state = self.tx[usize::from(path)].state;
            matches!(
                state,
                PathState::Retired | PathState::Resting | PathState::Reviving
            )
        };
        let due = self.past.iter().filter(|(path, _)| rests(**path));
        due.map(|(_, past)| past.due).min().unwrap_or(NEVER)
    }

    /// Asks paths that rest whether they work again.
    pub(super) fn on_revival_timer(&mut self, now: u64, shared: &mut Shared<'_>) {
        if now < self.revival_deadline() {
            return;
        }
        for path in 0..self.tx.len() as u16 {
            let Some(past) = self.past.get_mut(&path).filter(|past| past.due <= now) else {
                continue;
            };
            let tx = &mut self.tx[usize::from(path)];
            match tx.state {
                PathState::Reviving => {
                    step(&mut tx.state, PathEvent::NoAnswer);
                    past.pause = (2 * past.pause).min(MOST_REVIVAL);
                    past.due = past.asked_at + past.pause;
                }
                PathState::Retired | PathState::Resting => self.ask_again(now, path, shared),
                _ => {}
            }
        }
    }

    /// Sends a probe of the next epoch from a new source port, once the number of that epoch has rested (PATH-035).
    fn ask_again(&mut self, now: u64, path: u16, shared: &mut Shared<'_>) {
        let port = self.another_port(path);
        let home = (usize::from(path) % self.planes.len()) as u8;
        let plane = if self.planes[usize::from(home)].is_usable() {
            home
        } else {
            self.another_plane(path)
        };
        let Some(past) = self.past.get_mut(&path) else {
            return;
        };
        let tx = &mut self.tx[usize::from(path)];
        let epoch = (tx.epoch + 1) % EPOCHS;
        let rests = past.retired.iter().find(|(number, _)| *number == epoch);
        if let Some((_, at)) = rests.filter(|(_, at)| now < at + LINGER) {
            past.due = at + LINGER;
            return;
        }
        step(&mut tx.state, PathEvent::RevivalDue);
        tx.port = port;
        tx.plane = plane;
        past.asked_at = now;
        // The question is open until the timeout; that is never longer than the pause.
        past.due = now + tx.rtt.timeout(0).min(past.pause);
        let highest = past.first.sub(1);
        self.send_probe_of(now, path, (epoch, highest), false, shared);
    }

    /// Opens a path in its next epoch: the probe has been answered (PATH-036).
    pub(super) fn on_revived(
        &mut self,
        now: u64,
        path: u16,
        stamp: u64,
        cum: Psn,
        shared: &mut Shared<'_>,
    ) {
        let peer_ack_delay = self.peer_ack_delay();
        let tx = &mut self.tx[usize::from(path)];
        let (past, waits) = (self.past.get(&path), tx.state == PathState::Reviving);
        let Some(past) = past.filter(|past| waits && cum == past.first.sub(1)) else {
            shared.counters.bad_acks += 1;
            return;
        };
        let epoch = (tx.epoch + 1) % EPOCHS;
        tx.begin_epoch(now, epoch, past.first, peer_ack_delay);
        tx.rtt.sample(now, stamp, 0);
        step(&mut tx.state, PathEvent::Report);
        self.congestion.reopen(usize::from(path));
        self.tell_alive(path, true, shared);
    }
}
