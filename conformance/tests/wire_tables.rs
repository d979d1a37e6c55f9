//! The wire tables of the specification against the parser: every bit of every field, and every code point.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use metaroce_spec::{CodeSpaceKind, FieldSpec, Table, codes, tables};
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{
    AckFlags, Body, CloseReason, CreditKind, Features, Flags, Lax, MFlags, NakCode, NakScope,
    Opcode, Packet, RejectReason, RetireReason, StreamStatus, Value as Shown, parse_lax,
    parse_unsealed,
};
use serde_json::Value;

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
            Shown::Int(number) => number.to_be_bytes().to_vec(),
            Shown::Bytes(bytes) => bytes.to_vec(),
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
    assert!(fields >= 600, "only {fields} fields");
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

    let flags = Flags::ALL
        .iter()
        .map(|(name, flag)| (*name, u64::from(flag.0)));
    assert_eq!(space("flags"), (flags.collect(), Flags::RESERVED.0.into()));
    let flags = MFlags::ALL
        .iter()
        .map(|(name, flag)| (*name, u64::from(flag.0)));
    assert_eq!(
        space("mflags"),
        (flags.collect(), MFlags::RESERVED.0.into())
    );
    let flags = AckFlags::ALL
        .iter()
        .map(|(name, flag)| (*name, u64::from(flag.0)));
    assert_eq!(
        space("ack_flags"),
        (flags.collect(), AckFlags::RESERVED.0.into())
    );
    let flags = Features::ALL
        .iter()
        .map(|(name, flag)| (*name, u64::from(flag.0)));
    assert_eq!(
        space("features"),
        (flags.collect(), Features::RESERVED.0.into())
    );

    let codes = NakCode::ALL
        .iter()
        .map(|(name, code)| (*name, u64::from(code.0)));
    assert_eq!(space("nak_codes").0, codes.collect());
    let codes = NakScope::ALL
        .iter()
        .map(|(name, code)| (*name, u64::from(code.0)));
    assert_eq!(space("nak_scopes").0, codes.collect());
    let codes = RejectReason::ALL
        .iter()
        .map(|(name, code)| (*name, u64::from(code.0)));
    assert_eq!(space("reject_reasons").0, codes.collect());
    let codes = CloseReason::ALL
        .iter()
        .map(|(name, code)| (*name, u64::from(code.0)));
    assert_eq!(space("close_reasons").0, codes.collect());
    let codes = CreditKind::ALL
        .iter()
        .map(|(name, code)| (*name, u64::from(code.0)));
    assert_eq!(space("credit_kinds").0, codes.collect());
    let codes = StreamStatus::ALL
        .iter()
        .map(|(name, code)| (*name, u64::from(code.0)));
    assert_eq!(space("stream_statuses").0, codes.collect());
    let codes = RetireReason::ALL
        .iter()
        .map(|(name, code)| (*name, u64::from(code.0)));
    assert_eq!(space("retire_reasons").0, codes.collect());

    let compared = [
        "opcodes",
        "flags",
        "mflags",
        "ack_flags",
        "features",
        "nak_codes",
        "nak_scopes",
        "reject_reasons",
        "close_reasons",
        "credit_kinds",
        "stream_statuses",
        "retire_reasons",
    ];
    let all: BTreeSet<_> = spaces.iter().map(|space| space.name.as_str()).collect();
    assert_eq!(all, compared.into(), "a space that is not compared");
}

/// The golden packets: name of the packet, id, bytes, and the fields of a valid one.
fn vectors() -> Vec<(String, String, Vec<u8>, Option<Value>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/packets");
    let mut vectors = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        for vector in file["vectors"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let hex = text(&vector["datagram"]);
            let bytes = (0..hex.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
            let fields = vector.get("valid").map(|valid| valid["fields"].clone());
            vectors.push((
                text(&file["packet"]),
                text(&vector["id"]),
                bytes.collect(),
                fields,
            ));
        }
    }
    vectors
}

#[test]
fn every_code_point_is_in_a_valid_packet() {
    let vectors = vectors();
    let mut points = 0;
    for space in codes().unwrap() {
        let (table, field) = space.field.split_once('.').unwrap();
        // Parameters stand under the names of the fields that hold them.
        let layers = if table == "PARAMS" {
            vec!["params", "accepted"]
        } else {
            vec![table]
        };
        let seen: BTreeSet<u64> = vectors
            .iter()
            .filter_map(|(.., fields)| fields.as_ref())
            .flat_map(|fields| {
                layers
                    .iter()
                    .filter_map(|layer| fields[*layer][field].as_u64())
            })
            .collect();
        for entry in &space.entries {
            let there = match space.kind {
                CodeSpaceKind::Flags => seen.iter().any(|value| value & entry.code != 0),
                CodeSpaceKind::Enumeration => seen.contains(&entry.code),
            };
            assert!(there, "{}: {}", space.name, entry.name);
            points += 1;
        }
    }
    assert!(points >= 75, "only {points} code points");
}

/// Values of a field at its limits and just outside of them.
fn edges(field: &FieldSpec) -> (Vec<u64>, Vec<u64>) {
    let top = u64::MAX >> (64 - field.width.min(64));
    let near = |value: u64| [value.wrapping_sub(1) & top, value.wrapping_add(1) & top];
    if field.allowed.is_empty() {
        let low = field.min.filter(|min| *min > 0);
        let high = field.max.filter(|max| *max < top);
        let within = low.into_iter().chain(high).collect();
        let below = low.into_iter().flat_map(|min| [min - 1, 0]);
        let above = high.into_iter().flat_map(|max| [max + 1, top]);
        (within, below.chain(above).collect())
    } else {
        let others = field.allowed.iter().flat_map(|value| near(*value));
        let outside = others
            .chain([0, top])
            .filter(|value| !field.allowed.contains(value));
        (field.allowed.clone(), outside.collect())
    }
}

/// `bytes` with `value` in a field. Of a field beyond 64 bits it is the lowest that are set.
fn with(bytes: &[u8], place: &Place, value: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for bit in 0..place.width {
        let at = place.offset + bit;
        let from_the_right = place.width - 1 - bit;
        let set = from_the_right < 64 && value >> from_the_right & 1 == 1;
        let mask = 0x80 >> (at % 8);
        bytes[at / 8] = if set {
            bytes[at / 8] | mask
        } else {
            bytes[at / 8] & !mask
        };
    }
    bytes
}

/// PARAMS aside, which an endpoint judges and answers, a value outside the limits of a table is refused wherever the
/// field occurs, and a value at the limit is taken somewhere.
#[test]
fn the_limits_of_the_tables_are_those_of_the_parser() {
    let all = tables().unwrap();
    let by_name: BTreeMap<_, _> = all.iter().map(|t| (t.name.as_str(), t)).collect();
    let vectors = vectors();
    let (mut refused, mut taken, mut fields) = (0, 0, 0);
    for table in all.iter().filter(|table| table.name != "PARAMS") {
        for field in &table.fields {
            let (within, outside) = edges(field);
            if outside.is_empty() {
                continue;
            }
            fields += 1;
            let mut left: BTreeSet<_> = within.iter().copied().collect();
            for (packet, id, bytes, _) in vectors.iter().filter(|(.., fields)| fields.is_some()) {
                let layout = by_name.get(packet.as_str()).copied();
                // An unknown packet has the base header alone.
                let places = layout.unwrap_or(by_name["CBH"]);
                let (places, _) = if layout.is_some() {
                    self::places(places, &by_name)
                } else {
                    let base = places
                        .fields
                        .iter()
                        .map(|f| place("CBH", f, f.offset as usize));
                    (base.collect(), 16)
                };
                let found = places
                    .iter()
                    .find(|p| p.layer == table.name && p.field == field.name);
                let Some(place) = found else { continue };
                for value in &within {
                    if parse_unsealed(&with(bytes, place, *value)).is_ok() {
                        left.remove(value);
                        taken += 1;
                    }
                }
                // OPEN and REJECT are the same in every version.
                if place.field == "version" && ["OPEN", "REJECT"].contains(&packet.as_str()) {
                    continue;
                }
                for value in &outside {
                    let error = parse_unsealed(&with(bytes, place, *value)).err();
                    assert!(
                        error.is_some(),
                        "{id} with {value:#x} in {}.{}",
                        place.layer,
                        field.name
                    );
                    refused += 1;
                }
            }
            // A payload of a byte at the least ends a message of 2^31: no packet starts there.
            if (table.name.as_str(), field.name.as_str()) == ("MSGH", "offset") {
                assert_eq!(left, within.into_iter().collect());
                continue;
            }
            assert!(left.is_empty(), "{}.{}: {left:x?}", table.name, field.name);
        }
    }
    assert!(fields >= 26, "only {fields} fields");
    assert!(refused >= 1800 && taken >= 500, "{refused} and {taken}");
}
