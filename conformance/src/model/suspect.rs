//! Packets that must not be answered, or not be taken as arrived.

use metaroce_wire::Error;
use metaroce_wire::metaroce::{AckFlags, AckHeader, Body, Cbh, Flags, MFlags, Msgh, VERSION};

/// Why a delivered packet is none that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SuspectClass {
    /// The trailer does not match.
    BadCrc,
    /// An opcode that this version does not define.
    UnknownOpcode,
    /// Another version, OPEN and REJECT left out.
    OtherVersion,
    /// Too short or too long for its opcode, or a reserved bit set.
    Malformed,
    /// Another rule of one packet broken.
    Senseless,
    /// From an address that is not the peer's.
    OtherAddress,
    /// For a connection that does not exist.
    UnknownConnection,
    /// Data on a path or of an epoch that does not exist.
    NoPath,
    /// Data of a stream that is not open.
    NoStream,
    /// Data more than 256 past the cumulative PSN.
    OutOfWindow,
    /// A Write that no region lets in.
    AccessDenied,
    /// A Send longer than its receive.
    TooLong,
    /// An acknowledgment, or answer to a probe, that cannot be true.
    FalseReport,
}

/// A delivered packet that does not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    /// Frame.
    pub frame: u64,
    /// When it was delivered, ns.
    pub time: u64,
    /// Why it does not arrive.
    pub class: SuspectClass,
    /// Its base header, as far as it can be trusted.
    pub cbh: Cbh,
    /// Bytes of the UDP payload.
    pub len: usize,
    /// Message header, of data where it could be read.
    pub msgh: Option<Msgh>,
}

/// A suspect that the judged side has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// The packet answered.
    pub suspect: Suspect,
    /// Whether it shows only in that the packet is reported as arrived; otherwise in what the answer echoes.
    pub claimed: bool,
}

/// What one packet says about itself, without any state.
pub(super) fn of_itself(
    cbh: &Cbh,
    body: Option<&Body<'_>>,
    error: Option<&Error>,
) -> Option<SuspectClass> {
    if cbh.version != VERSION && !cbh.opcode.is_version_independent() {
        return Some(SuspectClass::OtherVersion);
    }
    if cbh.opcode.name().is_none() {
        return Some(SuspectClass::UnknownOpcode);
    }
    if matches!(error, Some(Error::Short { .. } | Error::Long { .. }))
        || reserved_bits(cbh, body).is_some()
    {
        return Some(SuspectClass::Malformed);
    }
    error.map(|_| SuspectClass::Senseless)
}

/// The first reserved bit or field that is not zero: header and field.
pub fn reserved_bits(cbh: &Cbh, body: Option<&Body<'_>>) -> Option<String> {
    if cbh.rsvd != 0 {
        return Some(format!("CBH.rsvd {:#04x}", cbh.rsvd));
    }
    if cbh.flags.has(Flags::RESERVED) {
        return Some(format!("CBH.flags {:#04x}", cbh.flags.0));
    }
    let ack = |header: &AckHeader| {
        AckFlags(header.ack_flags)
            .has(AckFlags::RESERVED)
            .then(|| format!("ACK.ack_flags {:#06x}", header.ack_flags))
    };
    let mflags = |flags: MFlags| {
        flags
            .has(MFlags::RESERVED)
            .then(|| format!("MSGH.mflags {:#04x}", flags.0))
    };
    let named = |result: Result<(), Error>| match result {
        Err(Error::Value { layer, field, .. }) => Some(format!("{layer}.{field}")),
        _ => None,
    };
    let body = body?;
    if let Some(msgh) = body.msgh() {
        return mflags(msgh.mflags);
    }
    match body {
        Body::Ack(body) => ack(&body.header),
        Body::AckSack(body) => ack(&body.header),
        Body::Nak(body) => named(body.check_reserved()),
        Body::Open(body) => named(body.params.check_reserved()),
        Body::Accept(body) => named(body.params.check_reserved()),
        Body::Reject(body) => named(body.check_reserved()),
        Body::Confirm(body) => {
            let first = named(body.params.check_reserved());
            first.or_else(|| named(body.accepted.check_reserved()))
        }
        Body::Close(body) => named(body.check_reserved()),
        Body::CloseAck(body) => named(body.check_reserved()),
        Body::RqCredit(body) => named(body.check_reserved()),
        Body::StreamOpen(body) => named(body.check_reserved()),
        Body::StreamOpenAck(body) => named(body.check_reserved()),
        Body::PathChange(body) => named(body.check_reserved()),
        Body::PathRetire(body) => named(body.check_reserved()),
        Body::StreamReset(body) => named(body.check_reserved()),
        Body::StreamResetAck(body) => named(body.check_reserved()),
        // Data was looked at above; the others have nothing reserved.
        _ => None,
    }
}
