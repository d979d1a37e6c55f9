//! tshark with the dissector, and what it says about each frame.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use metaroce_spec::{FieldSpec, Table, codes, tables};
use metaroce_wire::metaroce::{Packet, Value};

/// Values of one frame by the name of the field; a field that stands there several times has several.
pub type Shown = BTreeMap<String, Vec<String>>;

/// What stands between two values of one field. No value holds it.
const BETWEEN: char = '\u{1f}';

/// The dissector as it is in the tree.
pub fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/dissector/metaroce.lua")
}

/// Runs tshark over `capture` in two passes, so that links to later frames are known, and shows `fields` of every
/// frame. `ports` are decoded besides the one that the dissector has by default.
///
/// Fails when tshark does, or when a word of Lua shows up in what it says.
pub fn read(script: &Path, capture: &Path, ports: &[u16], fields: &[String]) -> Vec<Shown> {
    let said = run(script, capture, ports, &{
        let mut arguments = vec!["-T".to_owned(), "fields".to_owned()];
        arguments.push("-Eoccurrence=a".to_owned());
        arguments.push(format!("-Eaggregator={BETWEEN}"));
        for field in fields {
            arguments.extend(["-e".to_owned(), field.clone()]);
        }
        arguments
    });
    said.lines()
        .map(|line| {
            let values: Vec<&str> = line.split('\t').collect();
            assert_eq!(values.len(), fields.len(), "{line}");
            let split = |text: &str| text.split(BETWEEN).map(str::to_owned).collect();
            fields
                .iter()
                .zip(values)
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| (name.clone(), split(text)))
                .collect()
        })
        .collect()
}

/// Runs tshark with more arguments; returns what it prints.
pub fn run(script: &Path, capture: &Path, ports: &[u16], arguments: &[String]) -> String {
    // No settings, plugins or names of this machine.
    let settings = tempfile::tempdir().unwrap();
    let mut command = Command::new("tshark");
    command.env("WIRESHARK_CONFIG_DIR", settings.path());
    command.env("HOME", settings.path());
    command.arg("-Xlua_script:".to_owned() + script.to_str().unwrap());
    for port in ports {
        command.arg(format!("-dudp.port=={port},metaroce"));
    }
    command
        .args(["-n", "-2", "-r"])
        .arg(capture)
        .args(arguments);
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("tshark, which this test needs: {e}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert!(!complaint.to_lowercase().contains("lua"), "{complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// The field of the dissector for a layer and field of the wire crate.
pub fn name(layer: &str, field: &str) -> String {
    match layer {
        "payload" => "metaroce.payload".to_owned(),
        _ => format!("metaroce.{}.{field}", layer.to_lowercase()),
    }
}

/// Every field that a packet can show, out of the tables.
pub fn all_fields() -> Vec<String> {
    let all = tables().unwrap();
    let by_name: BTreeMap<&str, &Table> = all.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut names = vec![name("payload", "payload"), name("UNKNOWN", "bytes")];
    let mut add = |layer: &str, field: &FieldSpec| {
        let name = name(layer, &field.name);
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for table in &all {
        for field in &table.fields {
            match &field.table {
                Some(inner) => by_name[inner.as_str()]
                    .fields
                    .iter()
                    .for_each(|inner| add(&field.name, inner)),
                None if ["PARAMS", "PLANES"].contains(&table.name.as_str()) => {}
                None => add(&table.name, field),
            }
        }
    }
    names
}

/// The bits of flags: name of the whole field, name of the bit, and its mask.
pub fn all_bits() -> Vec<(String, String, u64)> {
    let codes = codes().unwrap();
    let flags = codes
        .iter()
        .filter(|space| space.kind == metaroce_spec::CodeSpaceKind::Flags);
    flags
        .flat_map(|space| {
            let (layer, field) = space.field.split_once('.').unwrap();
            let whole = name(layer, field);
            space.entries.iter().map(move |entry| {
                let bit = format!("{whole}.{}", entry.name.to_lowercase());
                (whole.clone(), bit, entry.code)
            })
        })
        .collect()
}

/// What is different between the fields of a packet and what tshark shows of it.
pub fn differences(packet: &Packet<'_>, shown: &Shown, fields: &[String]) -> Vec<String> {
    let mut wanted = BTreeMap::new();
    packet.visit(&mut |layer, field, value| {
        let value = match value {
            Value::Int(number) => Ok(number),
            Value::Bytes(bytes) => Err(bytes.to_vec()),
        };
        wanted.insert(name(layer, field), value);
    });
    // What is empty is not shown.
    wanted.retain(|_, value| *value != Err(Vec::new()));
    let mut found = Vec::new();
    for field in wanted.keys() {
        if !fields.contains(field) {
            found.push(format!("{field}: not asked for"));
        }
    }
    for field in fields {
        let values = shown.get(field).map_or(&[][..], Vec::as_slice);
        let same = match (wanted.get(field), values) {
            (None, []) => true,
            (Some(Ok(number)), [text]) => integer(text) == Some(*number),
            (Some(Err(bytes)), [text]) => octets(text).as_deref() == Some(bytes),
            _ => false,
        };
        if !same {
            found.push(format!(
                "{field}: {:?}, shown {values:?}",
                wanted.get(field)
            ));
        }
    }
    for (whole, bit, mask) in all_bits() {
        let value = wanted.get(&whole).and_then(|value| value.as_ref().ok());
        let expected = value.map(|value| if value & mask != 0 { "1" } else { "0" });
        let values = shown.get(&bit).map_or(&[][..], Vec::as_slice);
        // One version of Wireshark says True where another says 1.
        let shown: Vec<_> = values
            .iter()
            .map(|text| text.replace("True", "1").replace("False", "0"))
            .collect();
        if shown != expected.into_iter().collect::<Vec<_>>() {
            found.push(format!("{bit}: {expected:?}, shown {values:?}"));
        }
    }
    found
}

/// A number as tshark writes it.
pub fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Bytes as tshark writes them: hex, or an address.
fn octets(text: &str) -> Option<Vec<u8>> {
    if text.contains(':') {
        let address: std::net::Ipv6Addr = text.parse().ok()?;
        return Some(address.octets().to_vec());
    }
    let digit = |i| text.get(i..i + 2);
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(digit(i)?, 16).ok())
        .collect()
}
