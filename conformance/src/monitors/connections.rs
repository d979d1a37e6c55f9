//! Connections: set-up, requests, close.

use metaroce_wire::metaroce::{Body, Opcode, Params};

use super::check::{Check, Outcome, equal, holds};
use super::entries;
use super::packets::{data, sent};
use crate::model::Sighting;

entries! { "connections":
    "CONN-001" => Check(|s, _| sent(s, |cbh| match s.lax.body {
        Some(Body::Open(_)) => equal("connection id", 0, cbh.dcid.value()),
        _ => Outcome::Skip,
    })),
    "CONN-002" => Check(|s, _| sent(s, |_| match s.lax.body {
        Some(Body::Open(open)) => holds(open.padding == [0; 32], "32 zero bytes", || format!("{:02x?}", open.padding)),
        _ => Outcome::Skip,
    })),
    "CONN-003" => Check(|s, _| parameters(s, |params| holds(in_limits(params), "parameters within their limits", || format!("{params:?}")))),
    "CONN-004" => Check(|s, _| parameters(s, |params| holds(params.scid.value() != 0, "a connection id other than 0", || "0".into()))),
    "CONN-006" => Check(|s, c| sent(s, |cbh| match (s.lax.body, c.view.opens.get(&cbh.psn.value())) {
        (Some(Body::Accept(_) | Body::Reject(_)), Some((_, len))) => {
            holds(s.bytes.len() <= *len, &format!("at most {len} bytes"), || format!("{} bytes", s.bytes.len()))
        }
        _ => Outcome::Skip,
    })),
    "CONN-007" => Check(|s, c| sent(s, |cbh| match (s.lax.body, c.view.opens.get(&cbh.psn.value())) {
        (Some(Body::Accept(accept)), Some((offered, _))) => {
            let (a, o) = (accept.params, offered);
            let within = a.paths <= o.paths && a.streams <= o.streams && a.msg_window <= o.msg_window && a.payload_size <= o.payload_size;
            holds(within, "no more than was offered", || format!("{a:?}"))
        }
        _ => Outcome::Skip,
    })),
    "CONN-008" => Check(|s, c| sent(s, |cbh| match (s.lax.body, c.view.opens.get(&cbh.psn.value())) {
        (Some(Body::Accept(accept)), Some((offered, _))) => {
            let (low, high) = (accept.params.ver_min, accept.params.ver_max);
            let one = low == high && (offered.ver_min..=offered.ver_max).contains(&low);
            holds(one, "one version of those offered", || format!("{low} to {high}"))
        }
        _ => Outcome::Skip,
    })),
    "CONN-012" => Check(|s, c| sent(s, |_| match (s.lax.body, c.view.mine) {
        (Some(Body::Confirm(confirm)), Some(mine)) => equal("the parameters of OPEN", mine, confirm.params),
        _ => Outcome::Skip,
    })),
    "CONN-013" => Check(|s, c| sent(s, |_| match (s.lax.body, c.view.theirs, c.view.cookie) {
        (Some(Body::Confirm(confirm)), Some(theirs), Some(cookie)) => {
            equal("parameters and cookie of ACCEPT", (theirs, cookie), (confirm.accepted, confirm.cookie))
        }
        _ => Outcome::Skip,
    })),
    "CONN-014" => Check(|s, c| sent(s, |cbh| match s.lax.body {
        Some(body) if crate::model::is_request(&body) => match c.view.requests.get(&cbh.psn.value()) {
            None => Outcome::Held,
            Some(earlier) if earlier.body == crate::model::control_image(s.bytes) => Outcome::Skip,
            Some(_) => Outcome::Broken("a transaction id not used before".into(), format!("{:#x} again", cbh.psn.value())),
        },
        _ => Outcome::Skip,
    })),
    "CONN-019" => Check(|s, c| before_confirmed(s, c.view.initiator, c.view.confirmed)),
    "CONN-020" => Check(|s, c| before_confirmed(s, !c.view.initiator, c.view.confirmed)),
    "CONN-023" => Check(|s, c| sent(s, |cbh| {
        let Some(earlier) = c.view.requests.get(&cbh.psn.value()) else { return Outcome::Skip };
        if !s.lax.body.is_some_and(|body| crate::model::is_request(&body)) { return Outcome::Skip; }
        // A tap sees two packets closer together than they were sent by as much as the first was late.
        let slack = c.declaration.timing.jitter_ns + c.allowance() / 10;
        let least = (2 * earlier.pause).max(50_000_000).saturating_sub(slack);
        let pause = s.time - earlier.time;
        holds(pause >= least, &format!("a pause of at least {least} ns"), || format!("{pause} ns"))
    })),
    "CONN-024" => Check(|s, c| sent(s, |cbh| {
        let Some(earlier) = c.view.requests.get(&cbh.psn.value()) else { return Outcome::Skip };
        if !s.lax.body.is_some_and(|body| crate::model::is_request(&body)) { return Outcome::Skip; }
        holds(earlier.count <= 7, "at most seven repetitions", || format!("repetition {}", earlier.count))
    })),
    "CONN-027" => Check(|s, c| begins_message(s, c.view.closed[0])),
    "CONN-028" => Check(|s, c| begins_message(s, c.view.closed[1])),
    "STRM-001" => Check(|s, c| sent(s, |_| match s.lax.body {
        Some(Body::StreamOpen(open)) => equal("parity of the stream id", u16::from(!c.view.initiator), open.stream % 2),
        _ => Outcome::Skip,
    })),
}

fn parameters(s: &Sighting<'_>, rule: impl Fn(&Params) -> Outcome) -> Outcome {
    sent(s, |_| match s.lax.body {
        Some(Body::Open(open)) => rule(&open.params),
        Some(Body::Accept(accept)) => rule(&accept.params),
        _ => Outcome::Skip,
    })
}

fn in_limits(params: &Params) -> bool {
    (1..=256).contains(&params.paths)
        && params.streams >= 1
        && (1..=32767).contains(&params.msg_window)
        && (256..=8192).contains(&params.payload_size)
        && params.payload_size.is_power_of_two()
        && params.vector_width == 256
        && params.ts_unit >= 1
        && params.ver_min <= params.ver_max
        && params.extra_planes == 0
}

fn before_confirmed(s: &Sighting<'_>, of_role: bool, confirmed: bool) -> Outcome {
    sent(s, |cbh| {
        let needs = cbh.opcode.is_data() || cbh.opcode == Opcode::STREAM_OPEN;
        if !needs || !of_role {
            return Outcome::Skip;
        }
        holds(confirmed, "CONFIRM_ACK before it", || {
            "no CONFIRM_ACK yet".into()
        })
    })
}

/// No new message after a close. It is exercised by every first packet of a message, on a connection that was closed
/// in the end or not: before the close it may be sent.
fn begins_message(s: &Sighting<'_>, closed: bool) -> Outcome {
    data(s, |_| match s.data() {
        Some((msgh, _)) if msgh.offset == 0 => {
            holds(!closed, "no new message after the close", || {
                format!("MSN {}", msgh.msn)
            })
        }
        _ => Outcome::Skip,
    })
}
