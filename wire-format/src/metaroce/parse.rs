//! One UDP payload to a packet, strict and lax, and back.

use super::field::{Visitor, Writer};
use super::headers::{Cbh, Flags};
use super::packets::{Body, rule};
use crate::crc::{self, PseudoHeader};
use crate::{EmitError, Error};

/// The version of the wire format that this module reads and writes.
pub const VERSION: u8 = 1;

/// A packet: the base header and a body that borrows from the bytes it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The common base header.
    pub cbh: Cbh,
    /// What follows it.
    pub body: Body<'a>,
}

/// What could be read of bytes that may be malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lax<'a> {
    /// The base header, when at least it is there.
    pub cbh: Option<Cbh>,
    /// The body, when its headers are all there.
    pub body: Option<Body<'a>>,
    /// The first thing that is wrong, the trailer aside.
    pub error: Option<Error>,
}

/// Reads one UDP payload strictly: trailer, lengths, reserved bits and the rules that a packet keeps on its own.
/// Unknown opcodes are kept as [`Body::Unknown`]; what to do with them is the caller's decision.
///
/// # Errors
/// [`Error::Crc`] first, then the first malformation in wire order.
pub fn parse<'a>(udp_payload: &'a [u8], pseudo: &PseudoHeader) -> Result<Packet<'a>, Error> {
    crc::verify(pseudo, udp_payload)?;
    parse_unsealed(udp_payload)
}

/// [`parse`] without the check of the trailer, for callers that have made it, or cannot.
///
/// # Errors
/// The first malformation in wire order.
pub fn parse_unsealed(udp_payload: &[u8]) -> Result<Packet<'_>, Error> {
    let (cbh, bytes) = split(udp_payload)?;
    check_base(&cbh)?;
    let body = Body::read_checked(bytes, &cbh)?;
    check_padding(bytes, &cbh)?;
    Ok(Packet { cbh, body })
}

/// Reads as much as there is. The trailer is not checked.
pub fn parse_lax(udp_payload: &[u8]) -> Lax<'_> {
    let (cbh, rest) = match split(udp_payload) {
        Ok(parts) => parts,
        Err(error) => {
            let cbh = Cbh::read(udp_payload).ok().map(|(cbh, _)| cbh);
            return Lax {
                cbh,
                body: None,
                error: Some(error),
            };
        }
    };
    let base = check_base(&cbh).err();
    match Body::read(rest, &cbh) {
        Ok(body) => Lax {
            cbh: Some(cbh),
            body: Some(body),
            error: base.or(body
                .check(&cbh)
                .and_then(|()| check_padding(rest, &cbh))
                .err()),
        },
        Err(error) => Lax {
            cbh: Some(cbh),
            body: None,
            error: base.or(Some(error)),
        },
    }
}

impl Packet<'_> {
    /// Bytes of the whole UDP payload, padding and trailer included.
    pub fn wire_len(&self) -> usize {
        let body = self.body.len();
        Cbh::LEN + body + usize::from(self.pad()) + crc::LEN
    }

    /// Zero bytes that the payload needs to end on a multiple of four.
    fn pad(&self) -> u8 {
        // The headers are multiples of four, so the payload alone decides.
        self.body
            .payload()
            .map_or(0, |payload| (4 - payload.len() % 4) as u8 % 4)
    }

    /// Writes the packet to the front of `out`, with padding and trailer; returns its length. The pad count of the
    /// base header is computed, whatever `cbh.pad` says, but for an unknown code point, whose padding is part of its
    /// bytes; everything else is written as it stands, right or wrong.
    ///
    /// # Errors
    /// [`EmitError::NoRoom`] when `out` is too small, [`EmitError::TooLong`] when no UDP packet could carry it.
    pub fn emit(&self, out: &mut [u8], pseudo: &PseudoHeader) -> Result<usize, EmitError> {
        let len = self.wire_len();
        if len > usize::from(u16::MAX) - 8 {
            return Err(EmitError::TooLong { len });
        }
        let available = out.len();
        let out = out.get_mut(..len).ok_or(EmitError::NoRoom {
            needed: len,
            available,
        })?;
        let pad = self.pad();
        let count = match self.body {
            Body::Unknown(_) => self.cbh.pad,
            _ => pad,
        };
        let mut writer = Writer::new(out);
        Cbh {
            pad: count,
            ..self.cbh
        }
        .put(&mut writer);
        self.body.put(&mut writer);
        writer.put(&[0; 3][..usize::from(pad)]);
        writer.put(&[0; crc::LEN]);
        writer.finish()?;
        crc::seal(pseudo, out).map_err(|_| EmitError::NoRoom {
            needed: len,
            available,
        })?;
        Ok(len)
    }

    /// Shows every header's fields in wire order.
    pub fn visit(&self, f: &mut Visitor<'_>) {
        self.cbh.visit(f);
        self.body.visit(f);
    }
}

#[inline]
fn split(udp_payload: &[u8]) -> Result<(Cbh, &[u8]), Error> {
    let (cbh, rest) = Cbh::read(udp_payload)?;
    let short = Error::Short {
        layer: "CRC",
        offset: Cbh::LEN,
        needed: crc::LEN,
        available: rest.len(),
    };
    let body = rest
        .len()
        .checked_sub(crc::LEN)
        .and_then(|end| rest.get(..end))
        .ok_or(short)?;
    Ok((cbh, body))
}

#[inline]
fn check_base(cbh: &Cbh) -> Result<(), Error> {
    let version_ok = cbh.version == VERSION || cbh.opcode.is_version_independent();
    rule(
        version_ok,
        Cbh::LAYER,
        "version",
        u64::from(cbh.version),
        "this is version 1",
    )?;
    rule(
        cbh.rsvd == 0,
        Cbh::LAYER,
        "rsvd",
        u64::from(cbh.rsvd),
        "a reserved field is zero",
    )?;
    let flags = u64::from(cbh.flags.0);
    rule(
        !cbh.flags.has(Flags::RESERVED),
        Cbh::LAYER,
        "flags",
        flags,
        "reserved flags are zero",
    )
}

/// The bytes that fill the last word are zero. Packets without payload have none: their pad count is 0.
#[inline]
fn check_padding(bytes: &[u8], cbh: &Cbh) -> Result<(), Error> {
    let start = bytes.len().saturating_sub(usize::from(cbh.pad));
    let found = bytes
        .get(start..)
        .into_iter()
        .flatten()
        .find(|&&byte| byte != 0);
    rule(
        found.is_none(),
        "pad",
        "pad",
        u64::from(found.copied().unwrap_or(0)),
        "padding is zero",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use std::string::String;
    use std::vec::Vec;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
            .collect()
    }

    fn pseudo() -> PseudoHeader {
        PseudoHeader::new(
            [192, 0, 2, 1].into(),
            SocketAddr::new([192, 0, 2, 2].into(), 49200),
        )
    }

    #[test]
    fn the_two_golden_packets_read_and_write() {
        let write = "10048003c000abcdfffffffe0102030400070000c0000001000000000000000500007f00000010001122334400000000\
                     68656c6c6f000000158eb35f";
        let ack = "1041000300001234fffffffd010209990102030400640000000000010000000205030d400007001060000000000000000000\
                   00000000000000000000000000000000000000000000564e9365";
        for hex in [write, ack].map(|hex| hex.replace(char::is_whitespace, "")) {
            let golden = bytes(&hex);
            let packet = parse(&golden, &pseudo()).unwrap();
            let mut out = [0xa5; 200];
            let len = packet.emit(&mut out, &pseudo()).unwrap();
            assert_eq!(
                out[..len]
                    .iter()
                    .map(|b| std::format!("{b:02x}"))
                    .collect::<String>(),
                hex
            );
        }
    }
}
