//! Credit: which receives the peer has posted, and which it is told of.

use metaroce_wire::metaroce::{Body, NakCode, Opcode, RqCredit};
use metaroce_wire::serial::{Psn, Rqsn};

use super::connection::{Connection, NEVER, Shared};
use super::control::Purpose;
use super::nak::WITHOUT_LIMIT;
use super::stream::Stream;
use super::transitions::StreamState;

/// Pause between an answer that has brought no credit and the next question, ns (RCV-006).
const CREDIT_PAUSE: u64 = 50_000_000;
const ASK: u8 = 0;
const TELL: u8 = 1;

impl Connection {
    /// Takes the limit that a packet with this timestamp reports for a stream.
    pub(super) fn on_credit(&mut self, now: u64, timestamp: u32, id: u16, limit: Rqsn) {
        let unit = u64::from(self.theirs.ts_unit);
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.state != StreamState::Open || !stream.tx.on_credit(now, timestamp, unit, limit) {
            return;
        }
        if let Some(rare) = stream.rare_mut() {
            rare.starving = false;
            rare.credit_tries = 0;
        }
        self.requests.cancel(|p| p == Purpose::Credit(id));
        self.activate(id);
    }

    pub(super) fn on_rq_credit(
        &mut self,
        now: u64,
        plane: u8,
        (id, timestamp): (Psn, u32),
        credit: &RqCredit,
        shared: &mut Shared<'_>,
    ) {
        let known = |stream: &Stream| {
            matches!(stream.state, StreamState::Open | StreamState::Opening)
                || stream.state.is_reset()
        };
        let named = self.streams.get(credit.stream).filter(|s| known(s));
        if named.is_none() || self.state.is_over() {
            shared.counters.misdirected += 1;
            return;
        }
        if credit.kind == ASK {
            let tell = RqCredit {
                kind: TELL,
                rq_limit: self.report_credit(credit.stream, shared),
                ..*credit
            };
            let body = Body::RqCredit(tell);
            return self.respond(now, Opcode::RQ_CREDIT, (id, plane), body);
        }
        let purpose = Purpose::Credit(credit.stream);
        let asked = self.requests.answered(id.value(), |p| p == purpose);
        self.on_credit(now, timestamp, credit.stream, credit.rq_limit);
        if asked.is_some() {
            self.no_credit(now, credit.stream, shared);
        }
    }

    /// A question for credit was answered, or never will be. If that has brought none, it is asked again after the pause,
    /// until the retries are used up (RCV-007).
    pub(super) fn no_credit(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) {
        let retries = self.service.rnr_retries;
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let Some(rare) = stream.rare_mut().filter(|rare| rare.starving) else {
            return;
        };
        rare.credit_tries += 1;
        rare.ask_credit_at = now + CREDIT_PAUSE;
        let used_up = retries < WITHOUT_LIMIT && rare.credit_tries > u32::from(retries);
        self.arm(now + CREDIT_PAUSE);
        if used_up && let Some(msn) = self.starving_message(id) {
            self.out_of_retries(now, id, (NakCode(0), msn), shared);
        }
    }

    /// The message that waits for credit.
    fn starving_message(&self, id: u16) -> Option<metaroce_wire::serial::Msn> {
        self.streams.get(id)?.tx.fresh().map(|message| message.msn)
    }

    /// Tells the peer of receives that it does not know of and may be waiting for (RCV-005, RCV-017).
    pub(super) fn tell_credit(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) {
        let open = |stream: &&Stream| stream.state == StreamState::Open;
        if self.streams.get(id).filter(open).is_none() || !self.is_up() {
            return;
        }
        let tell = RqCredit {
            stream: id,
            kind: TELL,
            rsvd_a: 0,
            rq_limit: self.report_credit(id, shared),
            rsvd_b: 0,
        };
        let transaction = self.next_transaction();
        let cbh = self.header(now, Opcode::RQ_CREDIT, transaction);
        self.tell(cbh, Body::RqCredit(tell), 0);
    }

    /// Notes that a stream has no credit for its next message, and asks for some unless that was done a moment ago
    /// (STRM-030).
    pub(super) fn starve(&mut self, now: u64, id: u16) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let rare = stream.make_rare();
        rare.starving = true;
        let at = rare.ask_credit_at;
        if self.requests.asks_credit(id) {
            return;
        }
        if now < at {
            return self.arm(at);
        }
        let ask = RqCredit {
            stream: id,
            kind: ASK,
            rsvd_a: 0,
            rq_limit: Rqsn::new(0),
            rsvd_b: 0,
        };
        let transaction = self.next_transaction();
        let cbh = self.header(now, Opcode::RQ_CREDIT, transaction);
        self.request(now, Purpose::Credit(id), cbh, Body::RqCredit(ask));
    }

    fn starving(&self) -> impl Iterator<Item = (u16, u64)> {
        let rare = self.streams.iter().filter_map(|s| Some((s.id, s.rare()?)));
        let starving = rare.filter(|(_, rare)| rare.starving);
        let waits = starving.filter(|(id, _)| !self.requests.asks_credit(*id));
        waits.map(|(id, rare)| (id, rare.ask_credit_at))
    }

    /// When a stream without credit asks again.
    pub(super) fn credit_deadline(&self) -> u64 {
        if !self.is_up() {
            return NEVER;
        }
        self.starving().map(|(_, at)| at).min().unwrap_or(NEVER)
    }

    /// Lets the streams without credit ask again whose pause is over.
    pub(super) fn on_credit_timer(&mut self, now: u64) {
        if now < self.credit_deadline() {
            return;
        }
        let due: Vec<u16> = self
            .starving()
            .filter(|(_, at)| *at <= now)
            .map(|(id, _)| id)
            .collect();
        due.into_iter().for_each(|id| self.starve(now, id));
    }
}
