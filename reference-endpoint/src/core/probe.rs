//! Probes: questions about a path, a plane, a hint or the peer as such, and their answers.

use metaroce_wire::metaroce::{Body, Cbh, Opcode, PathProbe, PathProbeAck, Sack};
use metaroce_wire::serial::Psn;

use super::connection::{Connection, NEVER, Shared};
use super::control::Control;
use super::emit::emit;
use super::event::Status;
use super::tx_path::Report;

/// Probes that are remembered: what is older has been answered or is lost.
const REMEMBERED: usize = 1024;
/// A connection from which nothing has come for so long is probed, ns (CONN-046).
const IDLE: u64 = 60_000_000_000;
/// First pause between two probes for the idle time or of a plane, ns; it doubles (CONN-054).
pub(super) const FIRST_PAUSE: u64 = 100_000_000;
/// Longest such pause, ns.
pub(super) const MOST_PAUSE: u64 = 2_000_000_000;
/// Unanswered probes in a row that fail an idle connection (CONN-051).
const MOST_IDLE_PROBES: u32 = 7;

/// A probe that has been sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    id: u32,
    path: u16,
    epoch: u8,
    plane: u8,
    /// When it was sent. The timestamp is the low half of it, which says too little when the answer is very late.
    stamp: u64,
    /// Whether a hint of 0 was the reason.
    hint: bool,
}

impl Connection {
    /// Sends PATH_PROBE on a path, in its current epoch and from its port (PATH-004).
    pub(super) fn send_probe(&mut self, now: u64, path: u16, hint: bool, shared: &mut Shared<'_>) {
        let tx = &self.tx[usize::from(path)];
        let (epoch, highest) = (tx.epoch, tx.highest_sent());
        self.send_probe_of(now, path, (epoch, highest), hint, shared);
    }

    /// Sends PATH_PROBE on a path in an epoch, with the highest PSN sent in it (REL-036).
    pub(super) fn send_probe_of(
        &mut self,
        now: u64,
        path: u16,
        (epoch, highest_psn): (u8, Psn),
        hint: bool,
        shared: &mut Shared<'_>,
    ) {
        shared.counters.probes += 1;
        let id = self.next_transaction();
        let tx = &mut self.tx[usize::from(path)];
        let stamp = tx.send_probe(now);
        let (port, plane) = (tx.port, tx.plane);
        let cbh = Cbh {
            path: path as u8,
            epoch,
            timestamp: stamp as u32,
            ..self.header(now, Opcode::PATH_PROBE, id)
        };
        let body = Body::PathProbe(PathProbe { highest_psn });
        let bytes = emit(cbh, body, self.settings.local.ip(), self.peer);
        self.control.push_back(Control {
            bytes,
            port,
            plane,
            request: None,
        });
        if self.asked.len() == REMEMBERED {
            self.asked.pop_front();
        }
        self.asked.push_back(Asked {
            id,
            path,
            epoch,
            plane,
            stamp,
            hint,
        });
    }

    /// Answers PATH_PROBE at once, in its plane (REL-037, PATH-037).
    pub(super) fn on_probe(
        &mut self,
        now: u64,
        plane: u8,
        cbh: &Cbh,
        probe: &PathProbe,
        shared: &mut Shared<'_>,
    ) {
        let path = usize::from(cbh.path);
        let Some(rx) = self.rx.get(path).filter(|rx| rx.epoch == cbh.epoch) else {
            shared.counters.misdirected += 1;
            return;
        };
        if self.state.is_over() {
            return;
        }
        let (cum_psn, sack) = (rx.cum, rx.sack());
        shared.shares.on_paused_probe(self.handle, now);
        let (hint_epoch, rate_hint) = self.own_hint(shared);
        let body = Body::PathProbeAck(PathProbeAck {
            timestamp_echo: cbh.timestamp,
            cum_psn,
            highest_psn: probe.highest_psn,
            hint_epoch,
            rate_hint,
            sack,
        });
        let header = Cbh {
            path: cbh.path,
            epoch: cbh.epoch,
            ..self.header(now, Opcode::PATH_PROBE_ACK, cbh.psn.value())
        };
        self.tell(header, body, plane);
    }

    /// Takes the answer to a probe.
    pub(super) fn on_probe_ack(
        &mut self,
        now: u64,
        cbh: &Cbh,
        ack: &PathProbeAck,
        shared: &mut Shared<'_>,
    ) {
        let (id, path) = (cbh.psn.value(), u16::from(cbh.path));
        let fits = |asked: &Asked| {
            asked.id == id
                && asked.path == path
                && asked.epoch == cbh.epoch
                && asked.stamp as u32 == ack.timestamp_echo
        };
        let Some(at) = self.asked.iter().position(fits) else {
            shared.counters.bad_acks += 1;
            return;
        };
        let Some(asked) = self.asked.remove(at) else {
            return;
        };
        if self.state.is_over() {
            return;
        }
        let (epoch, stamp) = (self.tx[usize::from(path)].epoch, asked.stamp);
        if epoch != cbh.epoch {
            self.revive(now, path, stamp, (ack.cum_psn, &ack.sack), shared);
            self.take_hint(now, cbh, ack, asked.hint);
            return self.prove(asked.plane);
        }
        let report = Report {
            cum: ack.cum_psn,
            sack: &ack.sack,
            trigger: None,
            probe: Some(stamp),
            used_up_at: self.used_up_at,
            duplicate: false,
        };
        if self.take_report(now, path, &report, (stamp, 0), None, shared) {
            self.take_hint(now, cbh, ack, asked.hint);
            self.prove(asked.plane);
        } else {
            shared.counters.bad_acks += 1;
        }
    }

    /// Takes the hint of an answer that has been taken (REL-044).
    fn take_hint(&mut self, now: u64, cbh: &Cbh, ack: &PathProbeAck, asked: bool) {
        let rate = ack.rate_hint.value();
        self.on_hint(now, cbh.timestamp, ack.hint_epoch, rate);
        if asked {
            self.hint.on_probe_answered();
        }
    }

    /// The answer of the other side to what it was never asked: a path of a retired epoch opens again.
    fn revive(
        &mut self,
        now: u64,
        path: u16,
        stamp: u64,
        (cum, sack): (Psn, &Sack),
        shared: &mut Shared<'_>,
    ) {
        if sack.is_empty() {
            self.on_revived(now, path, stamp, cum, shared);
        } else {
            shared.counters.bad_acks += 1;
        }
    }

    // ---- idle connections ---------------------------------------------------------------------------------------

    /// Notes that something has come from the peer, and from which port.
    pub(super) fn hear(&mut self, now: u64, from: u16) {
        self.heard = now;
        self.heard_from = from;
        self.idle_probes = 0;
        self.wake();
    }

    pub(super) fn idle_deadline(&self) -> u64 {
        if !self.is_up() || self.tx.is_empty() {
            NEVER
        } else if self.idle_probes == 0 {
            self.heard + IDLE
        } else {
            self.idle_due
        }
    }

    /// Asks a peer from which nothing has come for long, and gives it up after seven questions.
    pub(super) fn on_idle_timer(&mut self, now: u64, shared: &mut Shared<'_>) {
        if now < self.idle_deadline() {
            return;
        }
        if self.idle_probes == MOST_IDLE_PROBES {
            return self.fail(now, Status::RetryExcErr, "the peer is gone", shared);
        }
        let paths = self.tx.len();
        let from = self.idle_probes as usize;
        let mut order = (0..paths).map(|i| (from + i) % paths);
        let Some(path) = order.find(|&path| self.tx[path].state.is_alive()) else {
            self.idle_due = now + FIRST_PAUSE;
            return;
        };
        let pause = FIRST_PAUSE << self.idle_probes;
        self.idle_probes += 1;
        self.idle_due = now + pause;
        self.send_probe(now, path as u16, false, shared);
    }
}
