//! Credit: which receives the peer has posted, and which it is told of.

use metaroce_wire::metaroce::{Body, Opcode, RqCredit};
use metaroce_wire::serial::{Psn, Rqsn};

use super::connection::Connection;
use super::control::Purpose;

/// Pause between two requests for credit, ns.
pub(super) const CREDIT_PAUSE: u64 = 50_000_000;

impl Connection {
    pub(super) fn on_rq_credit(&mut self, now: u64, id: Psn, credit: &RqCredit) {
        let Some(stream) = self
            .streams
            .get_mut(&credit.stream)
            .filter(|stream| stream.is_known())
        else {
            return;
        };
        if credit.kind == 0 {
            let tell = RqCredit {
                kind: 1,
                rq_limit: stream.rq_limit(),
                ..*credit
            };
            self.respond(now, Opcode::RQ_CREDIT, id, Body::RqCredit(tell));
        } else {
            stream.on_credit(credit.rq_limit);
            let purpose = Purpose::Credit(credit.stream);
            self.requests.answered(id.value(), |p| p == purpose);
            self.end_starvation(credit.stream);
        }
    }

    /// Stops asking for credit that has come, by whatever packet.
    pub(super) fn end_starvation(&mut self, id: u16) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let next = stream.queue.iter().find(|message| message.has_more());
        if next.is_none_or(|message| stream.has_credit(message)) {
            self.requests
                .cancel(|purpose| purpose == Purpose::Credit(id));
        }
    }

    /// Tells the peer of receives that it does not know of.
    pub(super) fn tell_credit(&mut self, now: u64, id: u16) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let tell = RqCredit {
            stream: id,
            kind: 1,
            rsvd_a: 0,
            rq_limit: stream.rq_limit(),
            rsvd_b: 0,
        };
        let transaction = Psn::new(self.next_transaction());
        self.respond(now, Opcode::RQ_CREDIT, transaction, Body::RqCredit(tell));
    }

    pub(super) fn ask_credit(&mut self, now: u64, id: u16) {
        if self.requests.has(Purpose::Credit(id)) {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.asked_at = Some(now);
        }
        let ask = RqCredit {
            stream: id,
            kind: 0,
            rsvd_a: 0,
            rq_limit: Rqsn::new(0),
            rsvd_b: 0,
        };
        self.request(
            now,
            Purpose::Credit(id),
            Opcode::RQ_CREDIT,
            Body::RqCredit(ask),
        );
    }

    /// When a stream without credit asks again.
    pub(super) fn credit_deadline(&self) -> Option<u64> {
        // Without room nothing could be sent whatever the credit, and an acknowledgment wakes the connection anyway.
        if !self.tx.iter().any(super::tx_path::TxPath::has_room) {
            return None;
        }
        let window = usize::from(self.agreed().msg_window);
        let waiting = self.streams.values().filter(|stream| {
            stream
                .queue
                .iter()
                .take(window)
                .find(|message| message.has_more())
                .is_some_and(|message| !stream.has_credit(message))
        });
        let asked = waiting.filter(|stream| !self.requests.has(Purpose::Credit(stream.id)));
        asked
            .filter_map(|stream| stream.asked_at)
            .map(|asked| asked + CREDIT_PAUSE)
            .min()
    }
}
