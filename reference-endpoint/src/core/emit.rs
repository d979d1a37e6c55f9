//! Packets to bytes.

use std::net::SocketAddr;

use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{Body, Cbh, Packet};

/// Writes a packet from `local` to `peer` into `out`, which is cleared first.
pub(super) fn emit_into(
    out: &mut Vec<u8>,
    cbh: Cbh,
    body: Body<'_>,
    local: SocketAddr,
    peer: SocketAddr,
) {
    let packet = Packet { cbh, body };
    let pseudo = PseudoHeader::new(local.ip(), peer);
    out.clear();
    out.resize(packet.wire_len(), 0);
    // The buffer has the packet's length, and no payload exceeds 8192 bytes: it always fits.
    let written = packet.emit(out, &pseudo);
    debug_assert!(written.is_ok(), "{written:?}");
}

/// [`emit_into`] into a buffer of its own.
pub(super) fn emit(cbh: Cbh, body: Body<'_>, local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let mut out = Vec::new();
    emit_into(&mut out, cbh, body, local, peer);
    out
}
