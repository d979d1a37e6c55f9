//! NAKs: those that come and what they end, and those that go out until somebody has reacted.

use metaroce_wire::metaroce::{Body, Cbh, Features, Msgh, Nak, NakCode, NakScope, Opcode};
use metaroce_wire::serial::{Msn, Psn};

use super::connection::{Connection, NEVER, Shared};
use super::event::Status;
use super::stream::Refusal;
use super::transitions::StreamState;

/// Pause between repetitions of a NAK, ns (ERR-004), and how often it is repeated.
const NAK_PAUSE: u64 = 100_000_000;
const MOST_REPETITIONS: u32 = 7;
/// Pause between NAKs of a message of which further packets come, ns (ERR-003).
const NAK_AGAIN: u64 = 10_000_000;
/// Time that a NAK RNR asks the sender to wait, us.
const RNR_WAIT_US: u32 = 640;
/// Longest time that a NAK RNR is obeyed for, us (RCV-010).
const MOST_RNR_WAIT_US: u32 = 1_000_000;
/// Retries without limit, as in the verbs.
pub(super) const WITHOUT_LIMIT: u8 = 7;
/// Messages of a stream that are refused and remembered, at most.
const MOST_REFUSALS: usize = 64;

/// What a NAK names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    pub stream: u16,
    pub msn: Msn,
    /// It is the answer to a request.
    pub response: bool,
    /// Path, epoch and PSN of the packet.
    pub origin: (u8, u8, Psn),
}

impl Named {
    pub(super) fn new(cbh: &Cbh, msgh: &Msgh) -> Self {
        Self {
            stream: msgh.stream,
            msn: msgh.msn,
            response: cbh.opcode.is_response(),
            origin: (cbh.path, cbh.epoch, cbh.psn),
        }
    }
}

/// The status that a refusal gives the work that it names.
fn status_of(code: NakCode) -> Status {
    match code {
        NakCode::REM_ACCESS => Status::RemAccessErr,
        NakCode::REM_INV_REQ | NakCode::LENGTH => Status::RemInvReqErr,
        _ => Status::RemOpErr,
    }
}

/// Whether a code is a hint from which nothing follows (ERR-022).
fn is_hint(code: NakCode) -> bool {
    matches!(
        code,
        NakCode::PSN_OOW
            | NakCode::BAD_EPOCH
            | NakCode::UNKNOWN_CID
            | NakCode::CLOSING
            | NakCode::VERSION
    )
}

impl Connection {
    // ---- refusing -----------------------------------------------------------------------------------------------

    fn send_nak(
        &mut self,
        now: u64,
        (named, plane): (&Named, u8),
        (code, scope, detail): (NakCode, NakScope, u32),
        shared: &mut Shared<'_>,
    ) {
        let (path, epoch, offending_psn) = named.origin;
        let nak = Nak {
            code,
            scope,
            stream: named.stream,
            msn: named.msn,
            rsvd: 0,
            offending_psn,
            detail,
        };
        let cbh = Cbh {
            path,
            epoch,
            ..self.header(now, Opcode::NAK, 0)
        };
        shared.counters.naks_sent += 1;
        self.tell(cbh, Body::Nak(nak), plane);
    }

    /// A refusal for good ends a stream, or the connection where streams cannot end alone (ERR-002).
    fn scope(&self) -> NakScope {
        if self.has(Features::RESET) {
            NakScope::STREAM
        } else {
            NakScope::CONNECTION
        }
    }

    /// Refuses a message for good: its packets are not acknowledged, and the NAK is repeated until somebody has reacted.
    pub(super) fn refuse(
        &mut self,
        now: u64,
        named: &Named,
        plane: u8,
        code: NakCode,
        shared: &mut Shared<'_>,
    ) {
        let scope = self.scope();
        let Some(stream) = self.streams.get_mut(named.stream) else {
            return;
        };
        let rare = stream.make_rare();
        // One that is repeated is enough to end the stream. Those beyond are refused anew with each of their packets.
        if rare.refusals.len() < MOST_REFUSALS {
            rare.refusals.push(Refusal {
                msn: named.msn,
                response: named.response,
                code,
                origin: named.origin,
                sent: now,
                due: now + NAK_PAUSE,
                repeated: 0,
            });
            self.arm(now + NAK_PAUSE);
        }
        self.send_nak(now, (named, plane), (code, scope, 0), shared);
    }

    /// A further packet of a message that was refused: it is not placed (ERR-005), and the NAK goes out again unless the
    /// latest one has only just left (ERR-003). False when the message was not refused.
    pub(super) fn refuse_again(
        &mut self,
        now: u64,
        named: &Named,
        plane: u8,
        shared: &mut Shared<'_>,
    ) -> bool {
        let scope = self.scope();
        let Some(stream) = self.streams.get_mut(named.stream) else {
            return false;
        };
        let Some(refusal) = stream.refusal_mut(named.msn, named.response) else {
            return false;
        };
        // Repetitions name the packet that was refused last: the sender may have given up the path of an earlier one.
        refusal.origin = named.origin;
        if now >= refusal.sent + NAK_AGAIN {
            refusal.sent = now;
            let code = refusal.code;
            self.send_nak(now, (named, plane), (code, scope, 0), shared);
        }
        true
    }

    /// Refuses a packet for which a promised receive is not there (RCV-009).
    pub(super) fn refuse_not_ready(
        &mut self,
        now: u64,
        named: &Named,
        plane: u8,
        shared: &mut Shared<'_>,
    ) {
        let what = (NakCode::RNR, NakScope::PACKET, RNR_WAIT_US);
        self.send_nak(now, (named, plane), what, shared);
    }

    fn refusing(&self) -> impl Iterator<Item = (u16, &Refusal)> {
        let open = self
            .streams
            .iter()
            .filter(|stream| matches!(stream.state, StreamState::Open | StreamState::Opening));
        open.filter_map(|stream| Some((stream.id, stream.rare()?)))
            .flat_map(|(id, rare)| rare.refusals.iter().map(move |refusal| (id, refusal)))
    }

    pub(super) fn nak_deadline(&self) -> u64 {
        if !self.is_up() {
            return NEVER;
        }
        let due = self.refusing().map(|(_, refusal)| refusal.due);
        due.min().unwrap_or(NEVER)
    }

    /// Repeats NAKs whose pause is over, and ends what nobody has reacted to (ERR-004, ERR-028, ERR-032).
    pub(super) fn on_nak_timer(&mut self, now: u64, shared: &mut Shared<'_>) {
        if now < self.nak_deadline() {
            return;
        }
        let scope = self.scope();
        let due = self.refusing().filter(|(_, refusal)| refusal.due <= now);
        let due: Vec<(u16, Refusal)> = due.map(|(id, refusal)| (id, *refusal)).collect();
        for (id, refusal) in due {
            if refusal.repeated == MOST_REPETITIONS {
                if scope == NakScope::STREAM {
                    self.fail_stream(now, id, None, shared);
                } else {
                    let message = "the peer does not react to a refusal";
                    self.fail(now, Status::RetryExcErr, message, shared);
                }
                continue;
            }
            let named = Named {
                stream: id,
                msn: refusal.msn,
                response: refusal.response,
                origin: refusal.origin,
            };
            if let Some(stream) = self.streams.get_mut(id)
                && let Some(kept) = stream.refusal_mut(refusal.msn, refusal.response)
            {
                kept.repeated += 1;
                kept.sent = now;
                kept.due = now + NAK_PAUSE;
            }
            self.send_nak(now, (&named, 0), (refusal.code, scope, 0), shared);
        }
    }

    // ---- being refused ------------------------------------------------------------------------------------------

    /// The message that a NAK names, if it names one that is under way (ERR-007), and whether that is an answer.
    fn named_by(&self, cbh: &Cbh, nak: &Nak) -> Option<bool> {
        let tx = self.tx.get(usize::from(cbh.path))?;
        if tx.epoch == cbh.epoch
            && let Some(carried) = tx.outstanding(nak.offending_psn)
        {
            let named = carried.stream == nak.stream && carried.msn == nak.msn;
            return named.then_some(carried.response);
        }
        let message = self.streams.get(nak.stream)?.tx.message(nak.msn)?;
        let origin = Some((cbh.path, cbh.epoch, nak.offending_psn));
        (message.waits_for_answer() && message.origin == origin).then_some(false)
    }

    pub(super) fn on_nak(&mut self, now: u64, cbh: &Cbh, nak: &Nak, shared: &mut Shared<'_>) {
        shared.counters.naks_received += 1;
        if is_hint(nak.code) || self.state.is_over() {
            return;
        }
        let named = self.named_by(cbh, nak);
        let is_open = |stream: &super::stream::Stream| stream.state == StreamState::Open;
        let open = self.streams.get(nak.stream).is_some_and(is_open);
        let Some(response) = named.filter(|_| open) else {
            shared.counters.bad_acks += 1;
            return;
        };
        let path = u16::from(cbh.path);
        if nak.code == NakCode::RNR {
            if nak.scope == NakScope::PACKET && !response {
                self.on_not_ready(now, path, (cbh.timestamp, nak), shared);
            }
            return;
        }
        let ends_stream = nak.scope == NakScope::STREAM && self.has(Features::RESET);
        if ends_stream {
            let psn = nak.offending_psn;
            if self.tx[usize::from(path)].epoch == cbh.epoch {
                self.on_path(now, path, |tx| tx.on_refused(psn));
            }
            let cause = (!response).then(|| (nak.msn, status_of(nak.code)));
            self.reset_stream(now, nak.stream, (nak.code, nak.msn), cause, shared);
        } else if matches!(nak.scope, NakScope::STREAM | NakScope::CONNECTION) {
            if response {
                // That is nobody's work here: what is left is flushed.
                let what = (Status::WrFlushErr, "the peer refused an answer");
                return self.fail_work(now, what, None, shared);
            }
            let what = (status_of(nak.code), "the peer refused a message");
            self.fail_work(now, what, Some((nak.stream, nak.msn)), shared);
        }
    }

    /// The peer has no receive for a message after all: the packet waits, and the work fails when that has happened too
    /// often (RCV-007, RCV-012).
    fn on_not_ready(
        &mut self,
        now: u64,
        path: u16,
        (timestamp, nak): (u32, &Nak),
        shared: &mut Shared<'_>,
    ) {
        let wait = u64::from(nak.detail.clamp(1, MOST_RNR_WAIT_US)) * 1000;
        let psn = nak.offending_psn;
        let stream = self.streams.get_mut(nak.stream);
        let message = stream.and_then(|stream| stream.tx.message_mut(nak.msn));
        let counts = message.is_some_and(|message| message.is_news(timestamp));
        let times = self.on_path(now, path, |tx| tx.on_not_ready(psn, now + wait, counts));
        let retries = self.service.rnr_retries;
        if retries < WITHOUT_LIMIT && times > retries {
            let code = (NakCode::RNR, nak.msn);
            return self.out_of_retries(now, nak.stream, code, shared);
        }
        let due = self.tx[usize::from(path)].deadline().unwrap_or(NEVER);
        self.arm(due);
    }

    /// The retries of a message without receive are used up: it fails, and its stream with it (RCV-018).
    pub(super) fn out_of_retries(
        &mut self,
        now: u64,
        stream: u16,
        (code, msn): (NakCode, Msn),
        shared: &mut Shared<'_>,
    ) {
        let status = Status::RnrRetryExcErr;
        if self.has(Features::RESET) {
            let named = if code == NakCode::RNR {
                msn
            } else {
                Msn::new(0)
            };
            self.reset_stream(now, stream, (code, named), Some((msn, status)), shared);
        } else {
            let message = "the peer has no receive";
            self.fail_work(now, (status, message), Some((stream, msn)), shared);
        }
    }
}
