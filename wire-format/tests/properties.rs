//! What holds of every packet, for any values.

#[path = "properties/packets.rs"]
mod packets;

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::metaroce::{
    Body, MFlags, Opcode, Packet, Unknown, VERSION, parse, parse_lax, parse_unsealed,
};
use metaroce_wire::{EmitError, Error};
use packets::{Numbers, any, legal};
use proptest::collection::vec;
use proptest::prelude::*;

/// Numbers with more than their share of limits.
fn numbers() -> impl Strategy<Value = Vec<u64>> {
    let number = prop_oneof![
        4 => any_u64(),
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => (0u32..64).prop_map(|bit| 1 << bit),
    ];
    vec(number, 70)
}

fn any_u64() -> impl Strategy<Value = u64> {
    proptest::num::u64::ANY
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => vec(proptest::num::u8::ANY, 0..70),
        1 => vec(proptest::num::u8::ANY, 4090..4100),
        1 => vec(proptest::num::u8::ANY, 8192),
    ]
}

fn short_payload() -> impl Strategy<Value = Vec<u8>> {
    vec(proptest::num::u8::ANY, 0..24)
}

fn pseudo() -> impl Strategy<Value = PseudoHeader> {
    let address = proptest::array::uniform16(proptest::num::u8::ANY);
    (address, address, proptest::num::u16::ANY).prop_map(|(src, dst, dst_port)| PseudoHeader {
        src: src.into(),
        dst: dst.into(),
        dst_port,
    })
}

/// The packet's bytes, written onto a dirty buffer that is larger.
fn bytes(packet: &Packet<'_>, pseudo: &PseudoHeader) -> Vec<u8> {
    let len = packet.wire_len();
    let mut out = vec![0xa5; len + 5];
    assert_eq!(packet.emit(&mut out, pseudo), Ok(len));
    assert_eq!(out[len..], [0xa5; 5]);
    out.truncate(len);
    out
}

fn unknown_opcodes() -> impl Strategy<Value = Opcode> {
    let unknown: Vec<_> = (0..=255)
        .map(Opcode)
        .filter(|opcode| opcode.name().is_none())
        .collect();
    assert_eq!(unknown.len() + Opcode::ALL.len(), 256);
    proptest::sample::select(unknown)
}

/// Every data packet, and no other, has a message header that can be asked for; and what is said of opcodes fits the
/// headers.
#[test]
fn headers_of_data_can_be_asked_for() {
    for &opcode in Opcode::ALL {
        let packet = any(opcode, &mut Numbers(&[]), &[]);
        let body = packet.body;
        assert_eq!(body.msgh().is_some(), opcode.is_data(), "{opcode:?}");
        let mut layers = std::collections::BTreeSet::new();
        packet.visit(&mut |layer, _, _| {
            layers.insert(layer);
        });
        assert_eq!(body.msgh().is_some(), layers.contains("MSGH"), "{opcode:?}");
        assert_eq!(body.tagh().is_some(), layers.contains("TAGH"), "{opcode:?}");
        assert_eq!(
            body.payload().is_some(),
            layers.contains("payload"),
            "{opcode:?}"
        );
        let kinds = [
            opcode.is_data(),
            opcode.is_ack(),
            opcode.is_control(),
            opcode == Opcode::NAK,
        ];
        assert_eq!(kinds.iter().filter(|&&kind| kind).count(), 1, "{opcode:?}");
    }
}

proptest! {
    #[test]
    fn legal_packets_come_back_as_written(n in numbers(), payload in payload(), pseudo in pseudo()) {
        for &opcode in Opcode::ALL {
            let packet = legal(opcode, &mut Numbers(&n), &payload);
            let wire = bytes(&packet, &pseudo);
            prop_assert_eq!(wire.len() % 4, 0);
            let read = parse(&wire, &pseudo);
            prop_assert_eq!(read, Ok(packet));
            prop_assert_eq!(parse_unsealed(&wire), Ok(packet));
            let lax = parse_lax(&wire);
            prop_assert_eq!((lax.cbh, lax.body, lax.error), (Some(packet.cbh), Some(packet.body), None));
            prop_assert_eq!(bytes(&read.unwrap(), &pseudo), wire);
        }
    }

    #[test]
    fn a_buffer_too_small_is_named_and_left_alone(n in numbers(), payload in short_payload(), pseudo in pseudo()) {
        for &opcode in Opcode::ALL {
            let packet = legal(opcode, &mut Numbers(&n), &payload);
            let needed = packet.wire_len();
            for available in 0..needed {
                let mut out = vec![0xa5; available];
                prop_assert_eq!(packet.emit(&mut out, &pseudo), Err(EmitError::NoRoom { needed, available }));
                prop_assert!(out.iter().all(|&byte| byte == 0xa5));
            }
        }
    }

    /// Without the trailer nothing tells a packet from the middle of a message that was cut by whole words from a
    /// shorter one. Every other truncation shows.
    #[test]
    fn every_truncation_is_an_error(n in numbers(), payload in short_payload(), pseudo in pseudo()) {
        for &opcode in Opcode::ALL {
            let packet = legal(opcode, &mut Numbers(&n), &payload);
            let wire = bytes(&packet, &pseudo);
            let open_ended = packet.body.msgh().is_some_and(|msgh| !msgh.mflags.has(MFlags::EOM));
            for len in 0..wire.len() {
                let cut = &wire[..len];
                prop_assert!(parse(cut, &pseudo).is_err(), "{opcode:?} cut to {len}");
                let unsealed = parse_unsealed(cut);
                prop_assert_eq!(parse_lax(cut).error, unsealed.err());
                match unsealed {
                    Err(_) => {}
                    Ok(short) => {
                        prop_assert!(open_ended, "{opcode:?} cut to {len}");
                        let left = short.body.payload().map_or(0, <[u8]>::len);
                        prop_assert!(left > 0 && left < payload.len() + 4);
                        prop_assert_eq!((wire.len() - len) % 4, 0);
                    }
                }
                // Sealed again it is refused for its length or values, if it can be told.
                if len >= crc::LEN {
                    let mut again = cut.to_vec();
                    crc::seal(&pseudo, &mut again).unwrap();
                    prop_assert_eq!(parse(&again, &pseudo).err(), parse_unsealed(&again).err());
                }
            }
        }
    }

    #[test]
    fn every_single_bit_flip_is_refused_by_the_trailer(n in numbers(), payload in short_payload(), pseudo in pseudo()) {
        for &opcode in Opcode::ALL {
            let mut wire = bytes(&legal(opcode, &mut Numbers(&n), &payload), &pseudo);
            for bit in 0..wire.len() * 8 {
                wire[bit / 8] ^= 0x80 >> (bit % 8);
                let refused = matches!(parse(&wire, &pseudo), Err(Error::Crc { .. }));
                prop_assert!(refused, "{opcode:?} with bit {bit} flipped");
                wire[bit / 8] ^= 0x80 >> (bit % 8);
            }
        }
    }

    #[test]
    fn another_address_or_port_is_refused(n in numbers(), payload in short_payload(), right in pseudo(), wrong in pseudo()) {
        prop_assume!(right != wrong);
        for &opcode in Opcode::ALL {
            let mut wire = bytes(&legal(opcode, &mut Numbers(&n), &payload), &right);
            for near in [
                PseudoHeader { src: wrong.src, ..right },
                PseudoHeader { dst: wrong.dst, ..right },
                PseudoHeader { dst_port: wrong.dst_port, ..right },
            ] {
                prop_assert_eq!(parse(&wire, &near).is_ok(), near == right);
            }
            crc::translate(&right, &wrong, &mut wire).unwrap();
            prop_assert!(parse(&wire, &wrong).is_ok() && parse(&wire, &right).is_err());
        }
    }

    /// Whatever the fields hold, a trace shows all of them, and the first fault.
    #[test]
    fn lax_keeps_what_strict_refuses(n in numbers(), payload in payload(), pseudo in pseudo()) {
        for &opcode in Opcode::ALL {
            let packet = any(opcode, &mut Numbers(&n), &payload);
            let wire = bytes(&packet, &pseudo);
            let lax = parse_lax(&wire);
            prop_assert_eq!((lax.cbh, lax.body), (Some(packet.cbh), Some(packet.body)));
            prop_assert_eq!(lax.error, parse(&wire, &pseudo).err());
        }
    }

    #[test]
    fn one_fault_in_the_base_header_is_refused_and_kept(
        n in numbers(),
        payload in short_payload(),
        pseudo in pseudo(),
        version in (0u8..16).prop_filter("the version spoken", |v| *v != VERSION),
        rsvd in 1u8..0x40,
        flags in 1u8..0x10,
    ) {
        for &opcode in Opcode::ALL {
            let right = legal(opcode, &mut Numbers(&n), &payload);
            for field in ["version", "rsvd", "flags"] {
                let mut packet = right;
                match field {
                    "version" => packet.cbh.version = version,
                    "rsvd" => packet.cbh.rsvd = rsvd,
                    _ => packet.cbh.flags.0 |= flags,
                }
                let wire = bytes(&packet, &pseudo);
                let lax = parse_lax(&wire);
                prop_assert_eq!((lax.cbh, lax.body), (Some(packet.cbh), Some(packet.body)));
                let strict = parse(&wire, &pseudo);
                if field == "version" && opcode.is_version_independent() {
                    prop_assert_eq!(strict, Ok(packet));
                } else {
                    let named = matches!(strict, Err(Error::Value { layer: "CBH", field: f, .. }) if f == field);
                    prop_assert!(named, "{opcode:?}: {strict:?}");
                }
            }
        }
    }

    /// Code points that nobody has defined yet pass through: flags, path, epoch and all bytes.
    #[test]
    fn unknown_opcodes_are_kept(
        opcode in unknown_opcodes(), n in numbers(), payload in payload(), padding in 0usize..4, pseudo in pseudo()
    ) {
        let mut payload = payload;
        payload.extend(std::iter::repeat_n(0, padding));
        let mut packet = legal(opcode, &mut Numbers(&n), &payload);
        packet.cbh.pad = padding as u8;
        let wire = bytes(&packet, &pseudo);
        let read = parse(&wire, &pseudo);
        prop_assert_eq!(read, Ok(packet));
        prop_assert_eq!(read.unwrap().body, Body::Unknown(Unknown { bytes: &payload }));
        prop_assert_eq!(bytes(&read.unwrap(), &pseudo), wire);
    }

    #[test]
    fn what_no_datagram_can_carry_is_not_written(n in numbers(), len in 65_450usize..65_600, pseudo in pseudo()) {
        let payload = vec![1; len];
        for opcode in [Opcode::SEND, Opcode::SEND_IMM, Opcode::WRITE, Opcode::WRITE_IMM, Opcode::READ_RESP] {
            let packet = legal(opcode, &mut Numbers(&n), &payload);
            let wire_len = packet.wire_len();
            let mut out = vec![0; wire_len];
            let written = packet.emit(&mut out, &pseudo);
            if wire_len <= 65_527 {
                prop_assert_eq!(written, Ok(wire_len));
                prop_assert_eq!(parse(&out, &pseudo), Ok(packet));
            } else {
                prop_assert_eq!(written, Err(EmitError::TooLong { len: wire_len }));
            }
        }
    }
}
