//! The wire tables of the specification against the parser: every bit of every field, and every code point.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;

use metaroce_spec::{FieldSpec, Table, codes, tables};
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{
    AckFlags, Body, Flags, Lax, MFlags, NakCode, NakScope, Opcode, Packet, RejectReason, Value,
    parse_lax,
};

/// A field of a packet: where the table puts it, counted from the start of the packet.
struct Place {
    layer: String,
    field: String,
    offset: usize,
    width: usize,
}

/// The places of all fields of a packet in wire order, and the bytes of its headers.
fn places(packet: &Table, tables: &BTreeMap<&str, &Table>) -> (Vec<Place>, usize) {
    let mut places = Vec::new();
    let mut start = 0;
    for part in &packet.layout {
        let Some(header) = tables.get(part.as_str()) else {
            continue;
        };
        for field in &header.fields {
            let offset = start * 8 + field.offset as usize;
            match &field.table {
                // A header inside a header goes by the name of the field that holds it.
                Some(inner) => places.extend(
                    tables[inner.as_str()]
                        .fields
                        .iter()
                        .map(|inner| place(&field.name, inner, offset + inner.offset as usize)),
                ),
                None => places.push(place(&header.name, field, offset)),
            }
        }
        start += header.length as usize;
    }
    (places, start)
}

fn place(layer: &str, field: &FieldSpec, offset: usize) -> Place {
    Place {
        layer: layer.to_owned(),
        field: field.name.clone(),
        offset,
        width: field.width as usize,
    }
}

/// What the parser shows of a packet, in order: header, field, and the value with the bits of a field as a number or
/// as bytes.
fn visited(lax: &Lax<'_>) -> Vec<(String, String, Vec<u8>)> {
    let mut seen = Vec::new();
    let packet = Packet {
        cbh: lax.cbh.unwrap(),
        body: lax.body.unwrap(),
    };
    packet.visit(&mut |layer, field, value| {
        let bytes = match value {
            Value::Int(number) => number.to_be_bytes().to_vec(),
            Value::Bytes(bytes) => bytes.to_vec(),
        };
        seen.push((layer.to_owned(), field.to_owned(), bytes));
    });
    seen
}

/// The bytes that a field shows when all its bits are zero but `bit`, counted from its most significant one.
fn one_bit(place: &Place, bit: usize) -> Vec<u8> {
    let mut bytes = vec![0; if place.width > 64 { place.width / 8 } else { 8 }];
    let from_the_right = place.width - 1 - bit;
    let index = bytes.len() - 1 - from_the_right / 8;
    bytes[index] = 1 << (from_the_right % 8);
    bytes
}

/// Sets single bits of a packet that is otherwise zero: the field that the table puts there must show that bit at that
/// place, every other field must show what it did, and the emitter must write the bit back.
#[test]
fn every_bit_of_every_field_is_read_where_its_table_puts_it() {
    let all = tables().unwrap();
    let by_name: BTreeMap<_, _> = all.iter().map(|t| (t.name.as_str(), t)).collect();
    let (mut fields, mut bits) = (0, 0);
    for table in &all {
        let Some(opcode) = table.opcode else { continue };
        let (places, headers) = places(table, &by_name);
        let has_payload = table.layout.iter().any(|part| part == "payload");
        let mut zero = vec![0; headers + if has_payload { 4 } else { 0 } + 4];
        zero[1] = opcode;
        let base = visited(&parse_lax(&zero));

        let names: Vec<_> = base.iter().map(|(l, f, _)| format!("{l}.{f}")).collect();
        let mut wanted: Vec<_> = places
            .iter()
            .map(|p| format!("{}.{}", p.layer, p.field))
            .collect();
        if has_payload {
            wanted.push("payload.payload".to_owned());
        }
        assert_eq!(names, wanted, "fields of {}", table.name);
        let total: usize = places.iter().map(|p| p.width).sum();
        assert_eq!(total, headers * 8, "{}", table.name);

        for (index, place) in places.iter().enumerate() {
            let name = &names[index];
            fields += 1;
            for bit in 0..place.width {
                let at = place.offset + bit;
                let mut bytes = zero.clone();
                if name == "CBH.opcode" {
                    // Another opcode is another packet: only its own field is looked at.
                    bytes[1] = 0x80 >> bit;
                    let seen = parse_lax(&bytes).cbh.unwrap().opcode;
                    assert_eq!(seen, Opcode(0x80 >> bit), "bit {bit} of {name}");
                    continue;
                }
                bytes[at / 8] |= 0x80 >> (at % 8);
                let lax = parse_lax(&bytes);
                let mut wanted = base.clone();
                wanted[index].2 = one_bit(place, bit);
                if name == "CBH.pad" && has_payload {
                    // The one field that says how long another one is.
                    let padding = usize::from(lax.cbh.unwrap().pad);
                    wanted[places.len()].2.truncate(4 - padding);
                }
                assert_eq!(visited(&lax), wanted, "bit {bit} of {name}, {}", table.name);
                if name != "CBH.pad" {
                    assert_eq!(emitted(&lax), bytes[..bytes.len() - 4], "{name}");
                }
                bits += 1;
            }
        }
    }
    assert!(fields >= 300, "only {fields} fields");
    assert!(bits >= 8 * fields, "only {bits} bits of {fields} fields");
}

/// The packet written again, without its trailer.
fn emitted(lax: &Lax<'_>) -> Vec<u8> {
    let packet = Packet {
        cbh: lax.cbh.unwrap(),
        body: lax.body.unwrap(),
    };
    let pseudo = PseudoHeader::new(
        [192, 0, 2, 1].into(),
        (std::net::Ipv4Addr::new(192, 0, 2, 2), 49200).into(),
    );
    let mut out = vec![0xa5; packet.wire_len()];
    let len = packet.emit(&mut out, &pseudo).unwrap();
    out.truncate(len - 4);
    out
}

#[test]
fn a_packet_of_the_tables_length_is_read_and_no_other() {
    let all = tables().unwrap();
    let by_name: BTreeMap<_, _> = all.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut packets = 0;
    for table in &all {
        let Some(opcode) = table.opcode else { continue };
        let (_, headers) = places(table, &by_name);
        let has_payload = table.layout.iter().any(|part| part == "payload");
        for len in 20..headers + 40 {
            let mut bytes = vec![0; len];
            bytes[1] = opcode;
            let read = parse_lax(&bytes).body.is_some();
            let right = len == headers + 4 || has_payload && len >= headers + 4;
            assert_eq!(read, right, "{} of {len} bytes", table.name);
        }
        packets += 1;
    }
    assert_eq!(packets, Opcode::ALL.len());
}

#[test]
fn every_code_point_has_one_number() {
    let spaces = codes().unwrap();
    let space = |name: &str| {
        let space = spaces.iter().find(|s| s.name == name).unwrap();
        let entries: BTreeMap<_, _> = space
            .entries
            .iter()
            .map(|e| (e.name.as_str(), e.code))
            .collect();
        assert_eq!(entries.len(), space.entries.len());
        (entries, space.reserved)
    };

    let (opcodes, _) = space("opcodes");
    let known: BTreeMap<_, _> = Opcode::ALL
        .iter()
        .map(|o| (o.name().unwrap(), u64::from(o.0)))
        .collect();
    assert_eq!(opcodes, known);
    for code in 0..=255 {
        let mut bytes = [0; 20];
        bytes[1] = code;
        let unknown = matches!(parse_lax(&bytes).body, Some(Body::Unknown(_)));
        let listed = opcodes.values().any(|&c| c == u64::from(code));
        assert_ne!(unknown, listed, "{code:#04x}");
    }

    let flags = [
        ("AR", Flags::AR),
        ("RTX", Flags::RTX),
        ("SE", Flags::SE),
        ("RTXE", Flags::RTXE),
    ];
    let flags = flags.map(|(name, flag)| (name, u64::from(flag.0)));
    let reserved = u64::from(Flags::RESERVED.0);
    assert_eq!(space("flags"), (flags.into(), reserved));

    let mflags = [
        ("SOM", MFlags::SOM),
        ("EOM", MFlags::EOM),
        ("IMM", MFlags::IMM),
        ("INV", MFlags::INV),
        ("RESP", MFlags::RESP),
    ];
    let mflags = mflags.map(|(name, flag)| (name, u64::from(flag.0)));
    let reserved = u64::from(MFlags::RESERVED.0);
    assert_eq!(space("mflags"), (mflags.into(), reserved));

    let ack_flags = [
        ("ECHO_VALID", AckFlags::ECHO_VALID),
        ("DUPLICATE_SEEN", AckFlags::DUPLICATE_SEEN),
        ("OUT_OF_WINDOW_SEEN", AckFlags::OUT_OF_WINDOW_SEEN),
    ];
    let ack_flags = ack_flags.map(|(name, flag)| (name, u64::from(flag.0)));
    let reserved = u64::from(AckFlags::RESERVED.0);
    assert_eq!(space("ack_flags"), (ack_flags.into(), reserved));

    let nak_codes = [
        ("PSN_OOW", NakCode::PSN_OOW),
        ("RNR", NakCode::RNR),
        ("NO_RESOURCE", NakCode::NO_RESOURCE),
        ("REM_INV_REQ", NakCode::REM_INV_REQ),
        ("REM_ACCESS", NakCode::REM_ACCESS),
        ("REM_OP", NakCode::REM_OP),
        ("LENGTH", NakCode::LENGTH),
        ("VERSION", NakCode::VERSION),
        ("UNKNOWN_CID", NakCode::UNKNOWN_CID),
        ("CLOSING", NakCode::CLOSING),
        ("BAD_EPOCH", NakCode::BAD_EPOCH),
    ];
    let nak_codes = nak_codes.map(|(name, code)| (name, u64::from(code.0)));
    assert_eq!(space("nak_codes").0, nak_codes.into());

    let scopes = [
        ("PACKET", NakScope::PACKET),
        ("STREAM", NakScope::STREAM),
        ("PATH", NakScope::PATH),
        ("CONNECTION", NakScope::CONNECTION),
    ];
    let scopes = scopes.map(|(name, scope)| (name, u64::from(scope.0)));
    assert_eq!(space("nak_scopes").0, scopes.into());

    let reasons = [
        ("VERSION", RejectReason::VERSION),
        ("NO_SERVICE", RejectReason::NO_SERVICE),
        ("NO_RESOURCE", RejectReason::NO_RESOURCE),
        ("BAD_PARAMETERS", RejectReason::BAD_PARAMETERS),
        ("BAD_COOKIE", RejectReason::BAD_COOKIE),
    ];
    let reasons = reasons.map(|(name, reason)| (name, u64::from(reason.0)));
    assert_eq!(space("reject_reasons").0, reasons.into());
}
