//! Chapter 2, packet formats.

use metaroce_wire::crc;
use metaroce_wire::metaroce::{
    Accept, AckHeader, AtomicResp, Body, Cbh, Close, CloseAck, CmpSwap, Confirm, ConfirmAck,
    FetchAdd, Fill, Flags, MFlags, Nak, Opcode, Open, PathChange, PathProbe, PathProbeAck,
    PathRetire, PathRetired, RateHint, ReadReq, Reject, RqCredit, Sack, StreamOpen, StreamOpenAck,
    StreamReset, StreamResetAck, VERSION,
};
use metaroce_wire::serial::Psn;

use super::check::{Found, ack, data, equal, holds, rules, sent};
use super::conventions::Silence;
use super::panel::Make;
use crate::model::{Model, Sighting, reserved_bits};

rules! { "packets.rs":
    "PKT-001" "version 1 everywhere" => Make::Rule(|s, _| sent(s, |cbh| equal("version", VERSION, cbh.version)));
    "PKT-002" "the trailer is right as the packet enters the link" => Make::Rule(|s, _| {
        if !s.sent { return Found::Skip; }
        holds(s.crc_ok, "the CRC-32C of pseudo-header and packet", || "another trailer".into())
    });
    "PKT-003" "reserved bits and fields are zero" => Make::Rule(|s, _| sent(s, |cbh| match reserved_bits(cbh, s.body.as_ref()) {
        None => Found::Held,
        Some(field) => Found::Broken("zero in reserved fields".into(), field),
    }));
    "PKT-004" "AR, RTX and SE on data alone" => Make::Rule(|s, _| sent(s, |cbh| {
        if cbh.opcode.is_data() { return Found::Skip; }
        holds(!cbh.flags.has(Flags::AR.with(Flags::RTX).with(Flags::SE)), "no AR, RTX or SE", || flags(cbh))
    }));
    "PKT-005" "RTXE on acknowledgments alone" => Make::Rule(|s, _| sent(s, |cbh| {
        if cbh.opcode.is_ack() { return Found::Skip; }
        holds(!cbh.flags.has(Flags::RTXE), "no RTXE", || flags(cbh))
    }));
    "PKT-006" "the pad count of data is the smallest that fills a word" => Make::Rule(|s, model| sent(s, |cbh| pad_count(s, cbh, model)));
    "PKT-007" "padding bytes are zero" => Make::Rule(|s, _| sent(s, |cbh| {
        let pad = usize::from(cbh.pad);
        let end = s.payload.len().saturating_sub(crc::LEN);
        match s.payload.get(end.saturating_sub(pad)..end) {
            Some(bytes) if cbh.opcode.is_data() && pad > 0 => holds(bytes.iter().all(|byte| *byte == 0), "zero padding", || format!("{bytes:02x?}")),
            _ => Found::Skip,
        }
    }));
    "PKT-008" "pad count 0 on what is not data" => Make::Rule(|s, _| sent(s, |cbh| {
        if cbh.opcode.is_data() { return Found::Skip; }
        equal("pad count", 0, cbh.pad)
    }));
    "PKT-009" "packets without payload have the length of their table" => Make::Rule(|s, _| sent(s, |cbh| match fixed_len(cbh.opcode) {
        Some(len) => equal("bytes", len, s.payload.len()),
        None => Found::Skip,
    }));
    "PKT-010" "control names no path, probes excepted" => Make::Rule(|s, _| sent(s, |cbh| {
        if cbh.opcode.names_path() { return Found::Skip; }
        holds(cbh.path == 0 && cbh.epoch == 0, "path 0, epoch 0", || format!("path {}, epoch {}", cbh.path, cbh.epoch))
    }));
    "PKT-011" "DCID is the id that the peer has named" => Make::Rule(|s, model| sent(s, |cbh| {
        if matches!(cbh.opcode, Opcode::OPEN | Opcode::NAK) { return Found::Skip; }
        named_id(s, cbh, model)
    }));
    "PKT-012" "acknowledgments carry no hint" => Make::Rule(|s, model| ack(s, |_, ack| {
        if model.connection(s).is_none_or(|connection| connection.own.hint_support != 0) { return Found::Skip; }
        let (epoch, hint) = (ack.header.hint_epoch, ack.header.rate_hint.value());
        holds(epoch == 0 && hint == 0xff_ffff, "hint epoch 0, rate hint ffffff", || format!("hint epoch {epoch}, rate hint {hint:06x}"))
    }));
    "PKT-013" "a WRITE carries no immediate data" => Make::Rule(|s, _| sent(s, |_| match s.body {
        Some(Body::Write(write)) => equal("immediate data", 0, write.tagh.imm),
        _ => Found::Skip,
    }));
    "PKT-014" "SEND and WRITE have no IMM, INV or RESP" => Make::Rule(|s, _| sent(s, |_| match s.headers() {
        Some((msgh, _)) if matches!(s.opcode(), Some(Opcode::SEND | Opcode::WRITE)) => holds(
            !msgh.mflags.has(MFlags::IMM.with(MFlags::INV).with(MFlags::RESP)),
            "no IMM, INV or RESP",
            || format!("message flags {:#04x}", msgh.mflags.0),
        ),
        _ => Found::Skip,
    }));
    "PKT-015" "no NAK answers an acknowledgment, a NAK, control or a short packet" => Make::Monitor(|| Box::new(Silence::without_nak()));
    "PKT-016" "a NAK names the packet that it refuses" => Make::Rule(|s, model| sent(s, |cbh| match s.body {
        Some(Body::Nak(nak)) => nak_names(s, cbh, &nak, model),
        _ => Found::Skip,
    }));
    "PKT-017" "timestamps of a path do not go back" => Make::Rule(|s, _| data(s, |cbh, data| match data.last_stamp {
        // The clause leaves out 2^30 units; a unit is 1 ns or longer.
        Some((stamp, frame, time)) if s.time - time < 1 << 30 => {
            if Psn::new(cbh.timestamp).precedes(Psn::new(stamp)) {
                Found::BrokenWith(vec![frame], format!("timestamp {stamp:08x} or later"), format!("timestamp {:08x}", cbh.timestamp))
            } else {
                Found::Held
            }
        }
        _ => Found::Skip,
    }));
}

fn flags(cbh: &Cbh) -> String {
    let name = cbh.opcode.name().unwrap_or("a packet");
    format!("flags {:#04x} on {name}", cbh.flags.0)
}

/// Bytes of the UDP payload of packets without payload of their own, trailer included.
pub(super) fn fixed_len(opcode: Opcode) -> Option<usize> {
    let body = match opcode {
        Opcode::ACK => AckHeader::LEN,
        Opcode::ACK_SACK => AckHeader::LEN + (Sack::BITS / 8) as usize,
        Opcode::NAK => Nak::LEN,
        Opcode::OPEN => Open::LEN,
        Opcode::ACCEPT => Accept::LEN,
        Opcode::REJECT => Reject::LEN,
        Opcode::CONFIRM => Confirm::LEN,
        Opcode::CONFIRM_ACK => ConfirmAck::LEN,
        Opcode::CLOSE => Close::LEN,
        Opcode::CLOSE_ACK => CloseAck::LEN,
        Opcode::PATH_PROBE => PathProbe::LEN,
        Opcode::PATH_PROBE_ACK => PathProbeAck::LEN,
        Opcode::RQ_CREDIT => RqCredit::LEN,
        Opcode::STREAM_OPEN => StreamOpen::LEN,
        Opcode::STREAM_OPEN_ACK => StreamOpenAck::LEN,
        Opcode::READ_REQ => ReadReq::HEADERS,
        Opcode::CMP_SWAP => CmpSwap::HEADERS,
        Opcode::FETCH_ADD => FetchAdd::HEADERS,
        Opcode::FILL => Fill::HEADERS,
        Opcode::ATOMIC_RESP => AtomicResp::HEADERS,
        Opcode::PATH_CHANGE => PathChange::LEN,
        Opcode::PATH_RETIRE => PathRetire::LEN,
        Opcode::PATH_RETIRED => PathRetired::LEN,
        Opcode::RATE_HINT => RateHint::LEN,
        Opcode::STREAM_RESET => StreamReset::LEN,
        Opcode::STREAM_RESET_ACK => StreamResetAck::LEN,
        _ => return None,
    };
    Some(Cbh::LEN + body + crc::LEN)
}

/// What the message leaves for a packet decides how many bytes its payload has, and so its padding.
fn pad_count(s: &Sighting<'_>, cbh: &Cbh, model: &Model) -> Found {
    let Some((msgh, _, payload)) = s.message() else {
        return Found::Skip;
    };
    if !s.payload.len().is_multiple_of(4) {
        let seen = format!("{} bytes with pad count {}", s.payload.len(), cbh.pad);
        return Found::Broken("a multiple of 4 bytes".into(), seen);
    }
    let Some(connection) = model.connection(s) else {
        return Found::Held;
    };
    let left = msgh.len.saturating_sub(msgh.offset);
    let due = left.min(connection.payload_size()) as usize;
    let filled = payload.len() + usize::from(cbh.pad) == due.next_multiple_of(4);
    // Another number of words is a matter of the payload's size, not of its padding.
    if filled && payload.len() != due {
        return equal(
            "pad count",
            due.next_multiple_of(4) - due,
            usize::from(cbh.pad),
        );
    }
    Found::Held
}

fn named_id(s: &Sighting<'_>, cbh: &Cbh, model: &Model) -> Found {
    let seen = format!("{:06x}", cbh.dcid.value());
    // An answer goes to the id in its question; anything else to that of the connection.
    let question = match cbh.opcode {
        Opcode::ACCEPT | Opcode::REJECT => model
            .control
            .find(false, Opcode::OPEN, cbh.psn.value())
            .or_else(|| model.control.find(false, Opcode::CONFIRM, cbh.psn.value())),
        Opcode::CONFIRM => {
            let known = model.control.of(false, Opcode::ACCEPT).any(|accept| {
                matches!(accept.read().body, Some(Body::Accept(body)) if body.params.scid == cbh.dcid)
            });
            return holds(known, "the connection id of the ACCEPT", || seen);
        }
        _ => {
            return match model.connection(s) {
                Some(connection) => equal(
                    "DCID",
                    format!("{:06x}", connection.peer.scid.value()),
                    seen,
                ),
                None => Found::Skip,
            };
        }
    };
    match question.and_then(|question| question.read().body) {
        Some(Body::Open(open)) => equal("DCID", format!("{:06x}", open.params.scid.value()), seen),
        Some(Body::Confirm(confirm)) => {
            equal("DCID", format!("{:06x}", confirm.params.scid.value()), seen)
        }
        _ => Found::Skip,
    }
}

fn nak_names(s: &Sighting<'_>, cbh: &Cbh, nak: &Nak, model: &Model) -> Found {
    let expected = "PSN 0 in the base header, path and epoch of the packet refused";
    let seen = || {
        format!(
            "PSN {}, path {}, epoch {} for the refused PSN {}",
            cbh.psn, cbh.path, cbh.epoch, nak.offending_psn
        )
    };
    let refused = model.suspects.iter().any(|suspect| {
        let same = (suspect.cbh.psn, suspect.cbh.path, suspect.cbh.epoch)
            == (nak.offending_psn, cbh.path, cbh.epoch);
        same && suspect.cbh.opcode.is_data()
    });
    let arrived = model.connection(s).is_some_and(|connection| {
        let path = connection.inward.get(&cbh.path);
        cbh.epoch == 0
            && path
                .is_some_and(|path| path.has(crate::model::position(path.isn, nak.offending_psn)))
    });
    holds(cbh.psn.value() == 0 && (refused || arrived), expected, seen)
}
