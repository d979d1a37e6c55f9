//! What a connection does with a control packet, and when its time has come.

use metaroce_wire::metaroce::{Body, Features, Opcode, Packet, RateHint, Sack};

use super::config::Config;
use super::connection::{Connection, NEVER, Shared};

impl Connection {
    /// Takes a packet that is no data.
    pub(super) fn on_control(
        &mut self,
        now: u64,
        plane: u8,
        packet: &Packet<'_>,
        config: &Config,
        shared: &mut Shared<'_>,
    ) {
        let cbh = &packet.cbh;
        let id = cbh.psn;
        match &packet.body {
            Body::Ack(ack) => self.on_ack(now, cbh, &ack.header, &Sack::EMPTY, shared),
            Body::AckSack(ack) => self.on_ack(now, cbh, &ack.header, &ack.sack, shared),
            Body::Nak(nak) => self.on_nak(now, cbh, nak, shared),
            Body::Accept(accept) => self.on_accept(now, id, accept, config, shared),
            Body::Reject(reject) => self.on_reject(now, id, reject, shared),
            Body::ConfirmAck(ack) => self.on_confirm_ack(now, id, ack.nonce, shared),
            Body::StreamOpen(open) => {
                self.on_stream_open(now, (id, plane, cbh.timestamp), open, shared);
            }
            Body::StreamOpenAck(ack) => {
                self.on_stream_open_ack(now, (id, cbh.timestamp), ack, shared);
            }
            Body::StreamReset(reset) => self.on_stream_reset(now, (id, plane), reset, shared),
            Body::StreamResetAck(ack) => self.on_stream_reset_ack(now, id, ack, shared),
            Body::RqCredit(credit) => {
                self.on_rq_credit(now, plane, (id, cbh.timestamp), credit, shared);
            }
            Body::PathProbe(probe) => self.on_probe(now, plane, cbh, probe, shared),
            Body::PathProbeAck(ack) => self.on_probe_ack(now, cbh, ack, shared),
            Body::PathRetire(_) => self.on_path_retire(now, plane, cbh, shared),
            Body::PathRetired(report) => self.on_path_retired(now, cbh, report, shared),
            Body::RateHint(hint) if self.is_up() => {
                let rate = hint.rate_hint.value();
                self.on_hint(now, cbh.timestamp, hint.hint_epoch, rate);
            }
            Body::Close(close) => self.on_close(now, (id, plane), close, shared),
            Body::CloseAck(_) => self.on_close_ack(now, id, shared),
            // A notice of another route changes nothing for the receiver (PATH-016).
            Body::PathChange(_) if self.has(Features::CHANGE) => {}
            _ => shared.counters.stray += 1,
        }
    }

    /// Does what is due.
    pub(super) fn on_timer(&mut self, now: u64, shared: &mut Shared<'_>) {
        self.on_request_timers(now, shared);
        self.on_ack_timer(now);
        if self.is_up() {
            self.on_path_timers(now, shared);
            self.on_idle_timer(now, shared);
            self.on_credit_timer(now);
            self.on_nak_timer(now, shared);
            self.on_plane_timer(now, shared);
            self.on_revival_timer(now, shared);
            self.on_hint_timer(now, shared);
            self.on_pause_timer(now);
            self.on_rest_timer(now);
            self.on_free_timer(now);
            self.tell_hint(now, shared);
        }
        self.due = self.deadline(now);
    }

    /// When the next of all timers is due, ns.
    fn deadline(&self, now: u64) -> u64 {
        let mut due = self.requests.deadline().unwrap_or(NEVER);
        due = due.min(self.linger_until.unwrap_or(NEVER));
        if self.state.is_over() {
            return due;
        }
        due = due.min(self.ack_deadline());
        if !self.is_up() {
            return due;
        }
        let paths = self.tx.iter().filter_map(super::tx_path::TxPath::deadline);
        let pacing = if self.active.is_empty() && self.moved.is_empty() {
            NEVER
        } else {
            let hint = self.hint.may_send(now).err().unwrap_or(NEVER);
            hint.min(self.pacing_deadline(now))
        };
        [
            paths.min().unwrap_or(NEVER),
            self.idle_deadline(),
            self.credit_deadline(),
            self.nak_deadline(),
            self.plane_deadline(),
            self.revival_deadline(),
            self.hint_deadline(),
            self.pause_deadline(),
            self.rest_deadline(),
            self.free_deadline(),
            self.moved_deadline(now),
            self.hint_owed,
            pacing,
        ]
        .into_iter()
        .fold(due, u64::min)
    }

    // ---- own hints ----------------------------------------------------------------------------------------------

    /// Notes that the peer's share has changed, and that it has to know by `at` (HINT-007).
    pub(super) fn owe_hint(&mut self, at: u64) {
        if self.is_up() {
            self.hint_owed = self.hint_owed.min(at);
            self.arm(at);
        }
    }

    /// Sends RATE_HINT when no acknowledgment has told the change in time.
    fn tell_hint(&mut self, now: u64, shared: &mut Shared<'_>) {
        if now < self.hint_owed || !self.is_up() {
            return;
        }
        let (hint_epoch, rate_hint) = self.own_hint(shared);
        let id = self.next_transaction();
        let cbh = self.header(now, Opcode::RATE_HINT, id);
        let body = RateHint {
            hint_epoch,
            rate_hint,
        };
        self.tell(cbh, Body::RateHint(body), 0);
    }
}
