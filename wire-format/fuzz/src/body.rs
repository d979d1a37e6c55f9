//! What must hold of any bytes whatever. The fuzz target runs it, and so do the ordinary tests.

use std::net::{IpAddr, SocketAddr};

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::metaroce::{Packet, Value, parse, parse_lax, parse_unsealed};
use metaroce_wire::{Error, frame};

/// Reads `data` as a UDP payload, as an IP packet and as an Ethernet frame.
///
/// # Panics
/// When a parser disagrees with another one or with the emitter.
pub fn run(data: &[u8]) {
    payload(data);
    frames(data);
}

fn pseudo(last: u8) -> PseudoHeader {
    let address = |last| IpAddr::from([192, 0, 2, last]);
    PseudoHeader::new(address(1), SocketAddr::new(address(last), 49200))
}

fn payload(data: &[u8]) {
    let strict = parse(data, &pseudo(2));
    let unsealed = parse_unsealed(data);
    let lax = parse_lax(data);

    // The three parsers tell one story.
    assert_eq!(lax.error, unsealed.err());
    match strict {
        Ok(packet) => assert_eq!(unsealed, Ok(packet)),
        Err(Error::Crc { found, computed }) => assert_ne!(found, computed),
        Err(error) if data.len() < crc::LEN => assert!(matches!(error, Error::Short { .. })),
        Err(error) => assert_eq!(unsealed, Err(error)),
    }
    if let Ok(packet) = unsealed {
        assert_eq!((lax.cbh, lax.body), (Some(packet.cbh), Some(packet.body)));
    }

    if let (Some(cbh), Some(body)) = (lax.cbh, lax.body) {
        let packet = Packet { cbh, body };
        let (mut fields, mut bytes) = (0, 0);
        packet.visit(&mut |_, _, value| {
            fields += 1;
            if let Value::Bytes(value) = value {
                bytes += value.len();
            }
        });
        assert!(fields >= 10 && bytes <= data.len());
        // Data has a message header, and so room for the payload it shows.
        if let Some(msgh) = body.msgh() {
            assert!(cbh.opcode.is_data());
            let payload = body.payload().map_or(0, <[u8]>::len);
            assert!(
                unsealed.is_err() || u64::from(msgh.offset) + payload as u64 <= u64::from(msgh.len)
            );
        } else {
            assert!(body.payload().is_none() && body.tagh().is_none());
        }
        rewrite(data, &packet, unsealed.is_ok());
    }
    if data.len() >= crc::LEN {
        trailer(data);
    }
}

/// A packet that was read can be written; a right one comes out byte for byte, the trailer aside.
fn rewrite(data: &[u8], packet: &Packet<'_>, right: bool) {
    let mut out = vec![0xa5; packet.wire_len()];
    let Ok(len) = packet.emit(&mut out, &pseudo(2)) else {
        assert!(packet.wire_len() > 65527);
        return;
    };
    assert_eq!(len, out.len());
    if right {
        let body = data.len() - crc::LEN;
        assert_eq!(out[..body], data[..body]);
        assert_eq!(parse(&out, &pseudo(2)), Ok(*packet));
    } else {
        // A wrong one is at least sealed rightly.
        assert_eq!(crc::verify(&pseudo(2), &out), Ok(()));
    }
}

/// Sealing makes a trailer right, and translating keeps it so.
fn trailer(data: &[u8]) {
    let mut sealed = data.to_vec();
    assert_eq!(crc::seal(&pseudo(2), &mut sealed), Ok(()));
    assert_eq!(crc::verify(&pseudo(2), &sealed), Ok(()));
    assert_eq!(
        parse(&sealed, &pseudo(2)).err(),
        parse_unsealed(&sealed).err()
    );
    assert_eq!(crc::translate(&pseudo(2), &pseudo(3), &mut sealed), Ok(()));
    assert_eq!(crc::verify(&pseudo(3), &sealed), Ok(()));
}

fn frames(data: &[u8]) {
    for frame in [frame::parse_ip(data), frame::parse_ethernet(data)]
        .into_iter()
        .flatten()
    {
        assert!(frame.payload.len() <= data.len());
        let mut out = vec![0xa5; frame.ip_len()];
        let len = out.len();
        assert_eq!(frame.emit(&mut out), Ok(len));
        assert_eq!(frame::parse_ip(&out), Ok(frame));
        let _ = parse(frame.payload, &frame.pseudo_header());
    }
}
