//! Chapter 3, connections: the set-up.

use metaroce_wire::metaroce::{Body, Confirm, Features, Opcode, Params, VERSION};

use super::check::{Found, equal, holds, rules, sent};
use super::conventions::PATIENCE;
use super::due::{Due, Dues};
use super::panel::{Make, Monitor, Tally};
use crate::model::{Control, Model, Sighting};

rules! { "handshake.rs":
    "CONN-001" "OPEN has DCID 0" => Make::Rule(|s, _| sent(s, |cbh| match s.body {
        Some(Body::Open(_)) => equal("DCID", 0, cbh.dcid.value()),
        _ => Found::Skip,
    }));
    "CONN-002" "OPEN is filled up with zeros" => Make::Rule(|s, _| sent(s, |_| match s.body {
        Some(Body::Open(open)) => holds(open.padding == [0; 32], "32 zero bytes", || format!("{:02x?}", open.padding)),
        _ => Found::Skip,
    }));
    "CONN-003" "parameters lie within their limits" => Make::Rule(|s, _| sent(s, |_| match own_params(s) {
        Some(params) => match beyond_limits(&params) {
            None => Found::Held,
            Some(what) => Found::Broken("parameters within the limits".into(), what),
        },
        None => Found::Skip,
    }));
    "CONN-004" "no connection id 0" => Make::Rule(|s, _| sent(s, |_| match own_params(s) {
        Some(params) => holds(params.scid.value() != 0, "a connection id other than 0", || "0".into()),
        None => Found::Skip,
    }));
    "CONN-005" "an acceptable OPEN is answered by ACCEPT under its transaction id" => Make::Monitor(|| Box::<Accepts>::default());
    "CONN-006" "no answer is longer than its question" => Make::Rule(|s, model| sent(s, |cbh| {
        if !matches!(cbh.opcode, Opcode::ACCEPT | Opcode::REJECT) { return Found::Skip; }
        match question(model, cbh.psn.value()) {
            Some(asked) if s.payload.len() <= asked.bytes.len() => Found::Held,
            Some(asked) => Found::BrokenWith(vec![asked.frame], format!("at most {} bytes", asked.bytes.len()), format!("{} bytes", s.payload.len())),
            None => Found::Skip,
        }
    }));
    "CONN-007" "ACCEPT agrees to no more than was offered" => Make::Rule(|s, model| accept(s, model, |offer, accepted| {
        let pairs = [
            ("paths", offer.paths, accepted.paths),
            ("streams", offer.streams, accepted.streams),
            ("message window", offer.msg_window, accepted.msg_window),
            ("payload size", offer.payload_size, accepted.payload_size),
        ];
        match pairs.into_iter().find(|(_, offered, agreed)| agreed > offered) {
            None => Found::Held,
            Some((what, offered, agreed)) => Found::Broken(format!("{what} of at most {offered}"), format!("{what} {agreed}")),
        }
    }));
    "CONN-008" "ACCEPT names one version out of the range" => Make::Rule(|s, model| accept(s, model, |offer, accepted| {
        let (low, high) = (accepted.ver_min, accepted.ver_max);
        holds(low == high && (offer.ver_min..=offer.ver_max).contains(&low), format!("one version from {} to {}", offer.ver_min, offer.ver_max), || format!("{low} to {high}"))
    }));
    "CONN-009" "versions that are not spoken are refused with reason 1" => Make::Monitor(|| Box::new(Refuses::new(1)));
    "CONN-010" "a service that is not offered is refused with reason 2" => Make::Monitor(|| Box::new(Refuses::new(2)));
    "CONN-011" "REJECT echoes transaction id and nonce" => Make::Rule(|s, model| sent(s, |cbh| match s.body {
        Some(Body::Reject(reject)) => {
            let nonce = question(model, cbh.psn.value()).and_then(asked_params).map(|params| params.nonce);
            holds(nonce == Some(reject.nonce), "transaction id and nonce of a request", || format!("transaction {}, nonce {:016x}", cbh.psn, reject.nonce))
        }
        _ => Found::Skip,
    }));
    "CONN-012" "CONFIRM repeats the parameters of OPEN" => Make::Rule(|s, model| confirm(s, |confirm| {
        let opens: Vec<Params> = model.control.of(true, Opcode::OPEN).filter_map(asked_params).collect();
        holds(opens.contains(&confirm.params), "the parameters of an OPEN that was sent", || format!("{:?}", confirm.params))
    }));
    "CONN-013" "CONFIRM repeats parameters and cookie of ACCEPT" => Make::Rule(|s, model| confirm(s, |confirm| {
        let known = model.control.of(false, Opcode::ACCEPT).any(|control| {
            matches!(control.read().body, Some(Body::Accept(accept)) if accept.params == confirm.accepted && accept.cookie == confirm.cookie)
        });
        holds(known, "parameters and cookie of an ACCEPT that was received", || "others".into())
    }));
    "CONN-015" "CONFIRM_ACK echoes transaction id and nonce" => Make::Rule(|s, model| sent(s, |cbh| match s.body {
        Some(Body::ConfirmAck(answer)) => {
            let nonce = model.control.find(false, Opcode::CONFIRM, cbh.psn.value()).and_then(asked_params).map(|params| params.nonce);
            holds(nonce == Some(answer.nonce), "transaction id and nonce of a CONFIRM", || format!("transaction {}, nonce {:016x}", cbh.psn, answer.nonce))
        }
        _ => Found::Skip,
    }));
    "CONN-016" "no CONFIRM_ACK for a cookie that does not fit" => Make::Monitor(|| Box::<WrongCookies>::default());
    "CONN-017" "a cookie that does not fit is refused with reason 5" => Make::Monitor(|| Box::new(Refuses::new(5)));
    "CONN-018" "a repeated CONFIRM is answered again" => Make::Monitor(|| Box::<ConfirmsAgain>::default());
    "CONN-019" "the initiator sends no data before CONFIRM_ACK" => Make::Rule(|s, model| before_data(s, model, true));
    "CONN-020" "the acceptor sends no data before CONFIRM_ACK" => Make::Rule(|s, model| before_data(s, model, false));
}

fn own_params(s: &Sighting<'_>) -> Option<Params> {
    match s.body? {
        Body::Open(open) => Some(open.params),
        Body::Accept(accept) => Some(accept.params),
        _ => None,
    }
}

fn beyond_limits(params: &Params) -> Option<String> {
    let limits = [
        (
            "lowest version",
            params.ver_min >= 1,
            u32::from(params.ver_min),
        ),
        (
            "highest version",
            params.ver_max >= params.ver_min,
            u32::from(params.ver_max),
        ),
        (
            "paths",
            (1..=256).contains(&params.paths),
            u32::from(params.paths),
        ),
        ("streams", params.streams >= 1, u32::from(params.streams)),
        (
            "message window",
            (1..=32767).contains(&params.msg_window),
            u32::from(params.msg_window),
        ),
        (
            "payload size",
            (256..=8192).contains(&params.payload_size) && params.payload_size.is_power_of_two(),
            u32::from(params.payload_size),
        ),
        (
            "vector width",
            params.vector_width == 256,
            u32::from(params.vector_width),
        ),
        (
            "timestamp unit",
            (1..=1000).contains(&params.ts_unit),
            u32::from(params.ts_unit),
        ),
        (
            "acknowledgment delay",
            params.ack_delay <= 50_000,
            u32::from(params.ack_delay),
        ),
        (
            "hint support",
            params.hint_support <= 1,
            u32::from(params.hint_support),
        ),
        (
            "extra planes",
            params.extra_planes <= 7,
            u32::from(params.extra_planes),
        ),
        (
            "features",
            !params.features.has(Features::RESERVED),
            u32::from(params.features.0),
        ),
    ];
    let wrong = limits.into_iter().find(|(_, inside, _)| !inside);
    wrong.map(|(what, _, value)| format!("{what} {value}"))
}

/// The OPEN or CONFIRM delivered under a transaction id.
fn question(model: &Model, transaction: u32) -> Option<&Control> {
    let open = model.control.find(false, Opcode::OPEN, transaction);
    open.or_else(|| model.control.find(false, Opcode::CONFIRM, transaction))
}

/// The initiator's parameters in an OPEN or CONFIRM.
fn asked_params(control: &Control) -> Option<Params> {
    match control.read().body? {
        Body::Open(open) => Some(open.params),
        Body::Confirm(confirm) => Some(confirm.params),
        _ => None,
    }
}

fn accept(s: &Sighting<'_>, model: &Model, rule: impl FnOnce(&Params, &Params) -> Found) -> Found {
    sent(s, |cbh| match s.body {
        Some(Body::Accept(accept)) => {
            let open = model.control.find(false, Opcode::OPEN, cbh.psn.value());
            let offer = open.and_then(asked_params);
            offer.map_or(Found::Skip, |offer| rule(&offer, &accept.params))
        }
        _ => Found::Skip,
    })
}

fn confirm(s: &Sighting<'_>, rule: impl FnOnce(&Confirm) -> Found) -> Found {
    sent(s, |_| match s.body {
        Some(Body::Confirm(confirm)) => rule(&confirm),
        _ => Found::Skip,
    })
}

/// Data and STREAM_OPEN come after CONFIRM_ACK.
fn before_data(s: &Sighting<'_>, model: &Model, initiator: bool) -> Found {
    sent(s, |cbh| {
        let data = cbh.opcode.is_data() || cbh.opcode == Opcode::STREAM_OPEN;
        match model.connection(s) {
            Some(connection) if data && connection.initiator == initiator => holds(
                connection.established.is_some(),
                "CONFIRM_ACK before it",
                || format!("{} without", cbh.opcode.name().unwrap_or("data")),
            ),
            _ => Found::Skip,
        }
    })
}

/// Whether this version is in a range.
fn is_spoken(params: &Params) -> bool {
    (params.ver_min..=params.ver_max).contains(&VERSION)
}

/// The last moment by which an answer must be there, when it is due without a time of its own.
fn patience(s: &Sighting<'_>, model: &Model) -> u64 {
    s.time + 4 * PATIENCE + model.context.allowance_ns
}

/// Acceptable OPENs wait for an ACCEPT, or for a refusal for a reason that cannot be seen from outside.
#[derive(Default)]
struct Accepts {
    dues: Dues<u32>,
}

impl Monitor for Accepts {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let Some(cbh) = s.cbh else { return };
        let transaction = cbh.psn.value();
        match s.body {
            Some(Body::Open(open)) if !s.sent && s.is_sound() => {
                // Whoever opens is no acceptor, whatever comes back to it.
                let opens = model.control.of(true, Opcode::OPEN).next().is_some();
                let acceptable =
                    !opens && is_spoken(&open.params) && beyond_limits(&open.params).is_none();
                if acceptable && !self.dues.any(|waiting| *waiting == transaction) {
                    self.dues.add(Due {
                        key: transaction,
                        since: s.time,
                        sure: patience(s, model),
                        deadline: patience(s, model),
                        frames: vec![s.frame],
                        expected: format!("ACCEPT under transaction {transaction}"),
                    });
                }
            }
            Some(Body::Accept(_)) if s.sent => {
                if model
                    .control
                    .find(false, Opcode::OPEN, transaction)
                    .is_some()
                {
                    self.dues
                        .settle(s.time, s.frame, tally, |waiting| *waiting == transaction);
                } else if !model.control.is_partial() {
                    let expected = "the transaction id of an OPEN";
                    tally.broken(vec![s.frame], expected, format!("{transaction}"));
                }
            }
            Some(Body::Reject(_)) if s.sent => {
                self.dues.met(|waiting| *waiting == transaction);
            }
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.dues.expire(model.now, tally, |_| true);
    }
}

/// Requests that must be refused with a reason.
struct Refuses {
    reason: u8,
    /// Transaction, frame, whether there was time to answer, the reasons of its refusals, whether it was accepted.
    asked: Vec<(u32, u64, u64, Option<u8>, bool, u32)>,
}

impl Refuses {
    fn new(reason: u8) -> Self {
        Self {
            reason,
            asked: Vec::new(),
        }
    }

    /// Whether a request must be refused for this reason, as far as can be known when it comes.
    fn concerns(&self, s: &Sighting<'_>, model: &Model) -> Option<u32> {
        match (self.reason, s.body?) {
            (1, Body::Open(open)) if !is_spoken(&open.params) => Some(0),
            (2, Body::Open(open)) if is_spoken(&open.params) => Some(open.params.service_id),
            (5, Body::Confirm(confirm)) if is_wrong_cookie(&confirm, model) => Some(0),
            _ => None,
        }
    }
}

/// A CONFIRM that agrees with an ACCEPT of the judged side in everything but the cookie.
fn is_wrong_cookie(confirm: &Confirm, model: &Model) -> bool {
    let mut same_offer = false;
    for control in model.control.of(true, Opcode::ACCEPT) {
        if let Some(Body::Accept(accept)) = control.read().body
            && accept.params == confirm.accepted
        {
            if accept.cookie == confirm.cookie {
                return false;
            }
            same_offer = true;
        }
    }
    same_offer && !model.control.is_partial()
}

impl Monitor for Refuses {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, _: &mut Tally) {
        let Some(cbh) = s.cbh else { return };
        let transaction = cbh.psn.value();
        if !s.sent && s.is_sound() {
            if let Some(service) = self.concerns(s, model)
                && self.asked.len() < 256
                && self.asked.iter().all(|asked| asked.0 != transaction)
            {
                let by = patience(s, model);
                self.asked
                    .push((transaction, s.frame, by, None, false, service));
            }
            return;
        }
        for asked in self.asked.iter_mut().filter(|asked| asked.0 == transaction) {
            match s.body {
                Some(Body::Reject(reject)) if s.sent => asked.3 = Some(reject.reason),
                Some(Body::Accept(_) | Body::ConfirmAck(_)) if s.sent => asked.4 = true,
                _ => {}
            }
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let offered: Vec<u32> = model
            .connections
            .iter()
            .filter(|connection| connection.established.is_some())
            .flat_map(|connection| [connection.agreed.service_id, connection.peer.service_id])
            .collect();
        for (_, frame, by, reason, accepted, service) in &self.asked {
            // Which services are offered shows in the connection that was made.
            if self.reason == 2 && (offered.is_empty() || offered.contains(service)) {
                continue;
            }
            let expected = format!("REJECT with reason {}", self.reason);
            match reason {
                Some(reason) if *reason == self.reason => tally.held(),
                Some(reason) => tally.broken(vec![*frame], expected, format!("reason {reason}")),
                None if *accepted => tally.broken(vec![*frame], expected, "it was accepted"),
                None if *by < model.now => tally.broken(vec![*frame], expected, "no answer"),
                None => {}
            }
        }
    }
}

/// CONFIRMs whose cookie, or what it vouches for, is not that of any ACCEPT.
#[derive(Default)]
struct WrongCookies {
    /// Transaction, frame, and until when silence must last to count.
    wrong: Vec<(u32, u64, u64)>,
    right: Vec<u32>,
}

impl Monitor for WrongCookies {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let Some(cbh) = s.cbh else { return };
        let transaction = cbh.psn.value();
        match s.body {
            Some(Body::Confirm(confirm)) if !s.sent && s.is_sound() => {
                let fits = model.control.of(true, Opcode::ACCEPT).any(|control| {
                    matches!(control.read().body, Some(Body::Accept(accept))
                        if accept.params == confirm.accepted && accept.cookie == confirm.cookie)
                });
                let offered = model
                    .control
                    .of(false, Opcode::OPEN)
                    .any(|open| asked_params(open) == Some(confirm.params));
                if fits && offered {
                    self.right.push(transaction);
                } else if self.wrong.len() < 256 && !model.control.is_partial() {
                    self.wrong.push((transaction, s.frame, patience(s, model)));
                }
            }
            Some(Body::ConfirmAck(_)) if s.sent && !self.right.contains(&transaction) => {
                let at = self.wrong.iter().position(|wrong| wrong.0 == transaction);
                if let Some(at) = at {
                    let (_, frame, _) = self.wrong.swap_remove(at);
                    let expected = "no CONFIRM_ACK";
                    tally.broken(vec![frame, s.frame], expected, "CONFIRM_ACK");
                }
            }
            Some(Body::Reject(_)) if s.sent => {
                let known = self.wrong.len();
                self.wrong.retain(|wrong| wrong.0 != transaction);
                (self.wrong.len()..known).for_each(|_| tally.held());
            }
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let silent = self.wrong.iter().filter(|(_, _, by)| *by < model.now);
        silent.for_each(|_| tally.held());
    }
}

/// CONFIRMs that come again after the first answer.
#[derive(Default)]
struct ConfirmsAgain {
    dues: Dues<u32>,
}

impl Monitor for ConfirmsAgain {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let Some(cbh) = s.cbh else { return };
        let transaction = cbh.psn.value();
        match s.body {
            Some(Body::Confirm(_)) if !s.sent && s.is_sound() => {
                let answered = model
                    .control
                    .find(true, Opcode::CONFIRM_ACK, transaction)
                    .is_some();
                let alive = model
                    .connection(s)
                    .is_some_and(|connection| !connection.closing.has_begun());
                if answered && alive {
                    self.dues.add(Due {
                        key: transaction,
                        since: s.time,
                        sure: patience(s, model),
                        deadline: patience(s, model),
                        frames: vec![s.frame],
                        expected: "CONFIRM_ACK again".into(),
                    });
                }
            }
            Some(Body::ConfirmAck(_)) if s.sent => {
                self.dues
                    .settle(s.time, s.frame, tally, |waiting| *waiting == transaction);
            }
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.dues.expire(model.now, tally, |_| true);
    }
}
