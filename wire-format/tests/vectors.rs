//! The golden packets in `vectors/`, read and written by this crate, and their files checked for form and number.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "vectors/files.rs"]
mod files;

use std::collections::BTreeSet;
use std::process::Command;

use files::{Expected, Fields, Vector, files, folder, hex};
use metaroce_wire::Error;
use metaroce_wire::metaroce::{Opcode, Packet, Value, parse, parse_lax, parse_unsealed};

/// The rules of the strict parser and the names that the vectors have for them.
const KINDS: [(&str, &str); 27] = [
    ("unknown_version", "this is version 1"),
    ("reserved_nonzero", "a reserved field is zero"),
    ("reserved_flags", "reserved flags are zero"),
    ("padding_nonzero", "padding is zero"),
    ("misaligned", "payload and padding fill whole words"),
    ("unexpected_pad", "only payload is padded"),
    ("path_nonzero", "control names no path"),
    ("epoch_nonzero", "control names no epoch"),
    ("limit", "the field keeps the limits of its table"),
    ("fixed_value", "a message of one packet has offset 0"),
    ("fixed_value", "an atomic operation is about 8 bytes"),
    ("fixed_value", "a FETCH_ADD compares nothing"),
    ("fixed_value", "a FILL names no message"),
    ("fixed_value", "a reset without a NAK names no message"),
    (
        "dcid_nonzero",
        "who sends OPEN or NAK UNKNOWN_CID knows no connection id",
    ),
    ("dcid_zero", "only a NAK UNKNOWN_CID names no connection"),
    ("sack_bit_zero", "bit 0 of the vector is zero"),
    ("flag_not_allowed", "IMM, INV and RESP match the opcode"),
    ("message_too_long", "a message is at most 2^31 bytes"),
    ("outside_message", "the payload lies inside the message"),
    ("empty_payload", "only an empty message has an empty packet"),
    ("wrong_som", "SOM stands at offset 0 and nowhere else"),
    (
        "wrong_eom",
        "EOM stands at the message's end and nowhere else",
    ),
    (
        "rqsn_nonzero",
        "only what consumes a receive has its number",
    ),
    (
        "immediate_nonzero",
        "only a Write with immediate data has any",
    ),
    ("address_wraps", "address and length do not wrap"),
    (
        "unaligned_address",
        "the address of an atomic operation is a multiple of 8",
    ),
];

#[test]
fn every_packet_type_has_a_file_with_enough_in_it() {
    let files = files();
    let names: BTreeSet<_> = files.keys().cloned().collect();
    let known = Opcode::ALL.iter().map(|opcode| opcode.name().unwrap());
    let wanted: BTreeSet<_> = known
        .chain(["UNKNOWN"])
        .map(|name| name.to_lowercase())
        .collect();
    assert_eq!(names, wanted);
    let count: usize = files.values().map(|(file, _)| file.vectors.len()).sum();
    assert!(count >= 600, "{count}");
    let mut ids = BTreeSet::new();
    for (name, (file, _)) in &files {
        assert_eq!(file.format, "metaroce-vectors/1", "{name}");
        assert_eq!(file.schema, "../schema.json", "{name}");
        assert_eq!(file.packet.to_lowercase(), *name);
        let opcode = file.opcode.map(Opcode);
        match opcode {
            Some(opcode) => assert_eq!(opcode.name(), Some(file.packet.as_str())),
            None => assert_eq!(file.packet, "UNKNOWN"),
        }
        let valid: BTreeSet<_> = file
            .vectors
            .iter()
            .filter(|vector| vector.valid.is_some())
            .map(|vector| vector.id.as_str())
            .collect();
        let invalid: Vec<_> = file
            .vectors
            .iter()
            .filter_map(|vector| vector.invalid.as_ref())
            .collect();
        assert_eq!(valid.len() + invalid.len(), file.vectors.len(), "{name}");
        let kinds: BTreeSet<_> = invalid.iter().map(|i| i.error.kind.as_str()).collect();
        assert!(file.vectors.len() >= 12, "{name}");
        assert!(valid.len() >= 2 && kinds.len() >= 3, "{name}: {kinds:?}");
        for broken in invalid {
            assert!(valid.contains(broken.base.as_str()), "{}", broken.base);
            assert!(!broken.change.is_empty(), "{name}");
        }
        for vector in &file.vectors {
            assert!(!vector.shows.is_empty(), "{}", vector.id);
            assert!(
                ids.insert(vector.id.clone()),
                "{} is there twice",
                vector.id
            );
        }
    }
}

#[test]
fn every_kind_of_error_has_a_packet() {
    let files = files();
    let used: BTreeSet<_> = files
        .values()
        .flat_map(|(file, _)| &file.vectors)
        .filter_map(|vector| vector.invalid.as_ref())
        .map(|invalid| invalid.error.kind.clone())
        .collect();
    let named = KINDS.iter().map(|(kind, _)| *kind);
    let all: BTreeSet<_> = named
        .chain(["bad_crc", "truncated", "overlong"])
        .map(str::to_owned)
        .collect();
    assert_eq!(used, all);
    // Some kinds stand for several rules: each of them is broken somewhere.
    let broken: BTreeSet<_> = files
        .values()
        .flat_map(|(file, _)| &file.vectors)
        .filter_map(|vector| match parse(&vector.bytes(), &vector.pseudo()) {
            Err(Error::Value { rule, .. }) => Some(rule),
            _ => None,
        })
        .collect();
    assert_eq!(broken, KINDS.iter().map(|(_, rule)| *rule).collect());
}

#[test]
fn valid_packets_read_as_told_and_write_the_same_bytes() {
    let mut checked = 0;
    for (file, _) in files().values() {
        for vector in &file.vectors {
            let Some(valid) = &vector.valid else { continue };
            let (bytes, pseudo) = (vector.bytes(), vector.pseudo());
            let packet = parse(&bytes, &pseudo).unwrap_or_else(|e| panic!("{}: {e}", vector.id));
            let opcode = packet.cbh.opcode;
            match file.opcode {
                Some(code) => assert_eq!(opcode, Opcode(code), "{}", vector.id),
                None => assert_eq!(opcode.name(), None, "{}", vector.id),
            }
            assert_eq!(fields(&packet), valid.fields, "{}", vector.id);
            // A dirty buffer with room behind: what is not written shows.
            let mut out = vec![0xa5; bytes.len() + 8];
            assert_eq!(packet.emit(&mut out, &pseudo), Ok(bytes.len()));
            assert_eq!(hex(&out[..bytes.len()]), vector.datagram, "{}", vector.id);
            assert_eq!(out[bytes.len()..], [0xa5; 8], "{}", vector.id);
            checked += 1;
        }
    }
    assert!(checked >= 5 * Opcode::ALL.len(), "{checked}");
}

#[test]
fn invalid_packets_give_exactly_the_error_named() {
    let mut checked = 0;
    for (file, _) in files().values() {
        for vector in &file.vectors {
            let Some(invalid) = &vector.invalid else {
                continue;
            };
            let bytes = vector.bytes();
            let error = parse(&bytes, &vector.pseudo())
                .err()
                .unwrap_or_else(|| panic!("{} is accepted", vector.id));
            assert_eq!(neutral(&error), invalid.error, "{}: {error}", vector.id);
            match error {
                Error::Crc { .. } => assert!(parse_unsealed(&bytes).is_ok(), "{}", vector.id),
                _ => assert_beside_the_trailer(vector, &bytes),
            }
            checked += 1;
        }
    }
    assert!(checked >= 9 * Opcode::ALL.len(), "{checked}");
}

/// A packet that is wrong for another reason than its trailer is wrong to the other parsers for the same one.
fn assert_beside_the_trailer(vector: &Vector, bytes: &[u8]) {
    let named = &vector.invalid.as_ref().unwrap().error;
    let lax = parse_lax(bytes).error;
    assert_eq!(lax, parse_unsealed(bytes).err(), "{}", vector.id);
    // Below a base header each parser names the first thing that it misses: one the trailer, the others the header.
    if bytes.len() >= 16 {
        assert_eq!(neutral(&lax.unwrap()), *named, "{}", vector.id);
    }
}

#[test]
fn files_keep_their_schema() {
    let text = std::fs::read_to_string(folder().join("schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, (_, text)) in files() {
        let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<_> = validator
            .iter_errors(&file)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        file["vectors"][0]["surprise"] = true.into();
        assert!(!validator.is_valid(&file), "{name} with an unknown key");
    }
}

/// The same files, checked by a program that shares no code with this crate.
#[test]
#[ignore = "needs python3"]
fn a_second_implementation_agrees() {
    let out = Command::new("python3")
        .arg(folder().join("check.py"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let count: usize = files().values().map(|(file, _)| file.vectors.len()).sum();
    assert!(said.starts_with(&format!("{count} vectors")), "{said}");
}

/// The fields in the form of the vectors.
fn fields(packet: &Packet<'_>) -> Fields {
    let mut fields = Fields::new();
    packet.visit(&mut |layer, field, value| {
        let value = match value {
            Value::Int(number) if WIDE.contains(&field) => wide(number),
            Value::Int(number) => number.into(),
            Value::Bytes(bytes) => hex(bytes).into(),
        };
        let twice = fields
            .entry(layer.to_owned())
            .or_default()
            .insert(field.to_owned(), value);
        assert_eq!(twice, None, "{layer}.{field} twice");
    });
    fields
}

/// The only numbers above 32 bits.
const WIDE: [&str; 5] = ["va", "nonce", "swap_or_add", "compare", "original"];

fn wide(number: u64) -> serde_json::Value {
    format!("{number:#018x}").into()
}

/// An error in the words of the vectors.
fn neutral(error: &Error) -> Expected {
    let expected = |kind: &str| Expected {
        kind: kind.to_owned(),
        ..Expected::default()
    };
    match *error {
        Error::Crc { .. } => expected("bad_crc"),
        Error::Short {
            layer,
            offset,
            needed,
            available,
        } => Expected {
            layer: Some(layer.to_owned()),
            offset: Some(offset),
            needed: Some(needed),
            available: Some(available),
            ..expected("truncated")
        },
        Error::Long {
            layer,
            offset,
            extra,
        } => Expected {
            layer: Some(layer.to_owned()),
            offset: Some(offset),
            extra: Some(extra),
            ..expected("overlong")
        },
        Error::Value {
            layer,
            field,
            found,
            rule,
        } => {
            let kind = KINDS.iter().find(|(_, text)| *text == rule);
            let (kind, _) = kind.unwrap_or_else(|| panic!("a rule without a name: {rule}"));
            let found = if WIDE.contains(&field) {
                wide(found)
            } else {
                found.into()
            };
            Expected {
                layer: Some(layer.to_owned()),
                field: Some(field.to_owned()),
                found: Some(found),
                ..expected(kind)
            }
        }
    }
}
