//! Packet formats: what every packet that a judged side sends must look like.

use metaroce_wire::Error;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{Body, Cbh, Flags, MFlags, Opcode};
use metaroce_wire::serial::Psn;

use super::check::{Check, Outcome, equal, holds};
use super::entries;
use crate::model::Sighting;

entries! { "packets":
    "CONV-003" => Check(|s, c| sent(s, |_| equal("destination port", c.declaration.party(c.side).peer.port(), s.dst.port()))),
    "PKT-001" => Check(|s, _| sent(s, |cbh| equal("version", 1, cbh.version))),
    "PKT-002" => Check(|s, _| sent(s, |_| holds(s.crc_ok, "a right CRC", || "a wrong one".into()))),
    "PKT-003" => Check(|s, _| sent(s, |_| reserved(s))),
    "PKT-004" => Check(|s, _| sent(s, |cbh| not_data(cbh, |cbh| {
        let data_only = Flags::AR.with(Flags::RTX).with(Flags::SE);
        holds(!cbh.flags.has(data_only), "no AR, RTX or SE", || format!("flags {:#04x}", cbh.flags.0))
    }))),
    "PKT-005" => Check(|s, _| sent(s, |cbh| {
        if cbh.opcode.is_ack() { return Outcome::Skip; }
        holds(!cbh.flags.has(Flags::RTXE), "no RTXE", || format!("flags {:#04x}", cbh.flags.0))
    })),
    "PKT-006" => Check(|s, _| data(s, |cbh| {
        holds(s.bytes.len().is_multiple_of(4), "a multiple of 4 bytes", || format!("{} bytes, pad {}", s.bytes.len(), cbh.pad))
    })),
    "PKT-007" => Check(|s, _| data(s, |cbh| {
        if cbh.pad == 0 { return Outcome::Skip; }
        let end = s.bytes.len().saturating_sub(4);
        let pad = s.bytes.get(end.saturating_sub(cbh.pad.into())..end).unwrap_or_default();
        holds(pad.iter().all(|&b| b == 0), "zero padding", || format!("{pad:02x?}"))
    })),
    "PKT-008" => Check(|s, _| sent(s, |cbh| not_data(cbh, |cbh| equal("pad count", 0, cbh.pad)))),
    "PKT-009" => Check(|s, _| sent(s, |cbh| not_data(cbh, |_| {
        let length = matches!(s.lax.error, Some(Error::Short { .. } | Error::Long { .. }));
        holds(!length, "the length of its table", || format!("{} bytes", s.bytes.len()))
    }))),
    "PKT-010" => Check(|s, _| sent(s, |cbh| {
        let of_path = matches!(cbh.opcode, Opcode::PATH_PROBE | Opcode::PATH_PROBE_ACK);
        if !cbh.opcode.is_control() || of_path { return Outcome::Skip; }
        equal("path and epoch", (0, 0), (cbh.path, cbh.epoch))
    })),
    "PKT-011" => Check(|s, c| sent(s, |cbh| {
        if matches!(cbh.opcode, Opcode::OPEN | Opcode::NAK) || c.view.peer_ids.is_empty() { return Outcome::Skip; }
        let named = c.view.peer_ids.contains(&cbh.dcid.value());
        holds(named, "a connection id that the peer has named", || format!("{:#08x}", cbh.dcid.value()))
    })),
    "PKT-012" => Check(|s, c| sent(s, |_| {
        let header = match s.lax.body {
            Some(Body::Ack(ack)) => ack.header,
            Some(Body::AckSack(ack)) => ack.header,
            _ => return Outcome::Skip,
        };
        if c.view.mine.is_none_or(|mine| mine.hint_support != 0) { return Outcome::Skip; }
        equal("hint epoch and rate", (0, 0x00ff_ffff), (header.hint_epoch, header.rate_hint.value()))
    })),
    "PKT-013" => Check(|s, _| data(s, |_| match s.lax.body {
        Some(Body::Write(write)) => equal("immediate data", 0, write.tagh.imm),
        _ => Outcome::Skip,
    })),
    "PKT-014" => Check(|s, _| data(s, |_| match s.data() {
        Some((msgh, _)) => {
            let foreign = MFlags::IMM.with(MFlags::INV).with(MFlags::RESP);
            holds(!msgh.mflags.has(foreign), "no IMM, INV or RESP", || format!("mflags {:#04x}", msgh.mflags.0))
        }
        None => Outcome::Skip,
    })),
    "PKT-017" => Check(|s, c| data(s, |cbh| {
        let Some(last) = c.view.tx.get(&cbh.path).and_then(|tx| tx.stamp) else { return Outcome::Skip };
        let back = Psn::new(cbh.timestamp).precedes(Psn::new(last));
        holds(!back, "a timestamp not before the path's last", || format!("{} after {last}", cbh.timestamp))
    })),
    "ECN-001" => Check(|s, _| data(s, |_| equal("mark", Ecn::Ect0, s.ecn))),
    "ECN-002" => Check(|s, _| sent(s, |cbh| not_data(cbh, |_| equal("mark", Ecn::NotEct, s.ecn)))),
}

/// A rule for every packet that the judged side sends.
pub(super) fn sent(s: &Sighting<'_>, rule: impl FnOnce(&Cbh) -> Outcome) -> Outcome {
    match s.cbh() {
        Some(cbh) if s.sent => rule(cbh),
        _ => Outcome::Skip,
    }
}

/// A rule for every data packet that the judged side sends.
pub(super) fn data(s: &Sighting<'_>, rule: impl FnOnce(&Cbh) -> Outcome) -> Outcome {
    sent(s, |cbh| {
        if cbh.opcode.is_data() {
            rule(cbh)
        } else {
            Outcome::Skip
        }
    })
}

fn not_data(cbh: &Cbh, rule: impl FnOnce(&Cbh) -> Outcome) -> Outcome {
    if cbh.opcode.is_data() {
        Outcome::Skip
    } else {
        rule(cbh)
    }
}

fn reserved(s: &Sighting<'_>) -> Outcome {
    match s.lax.error {
        Some(Error::Value {
            layer,
            field,
            found,
            rule,
        }) if rule.contains("reserved") => {
            Outcome::Broken(rule.into(), format!("{layer}.{field} {found:#x}"))
        }
        _ => Outcome::Held,
    }
}
