//! The files of golden packets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use metaroce_wire::crc::PseudoHeader;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A file of golden packets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(rename = "$schema")]
    pub schema: String,
    pub format: String,
    pub packet: String,
    pub opcode: Option<u8>,
    pub vectors: Vec<Vector>,
}

/// One packet, right or wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    pub id: String,
    pub shows: String,
    pub pseudo_header: Pseudo,
    pub datagram: String,
    pub valid: Option<Valid>,
    pub invalid: Option<Invalid>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pseudo {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub destination_port: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Valid {
    pub fields: Fields,
}

/// Values by header and field.
pub type Fields = BTreeMap<String, BTreeMap<String, Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invalid {
    pub base: String,
    pub change: Vec<Value>,
    pub error: Expected,
}

/// The error that a strict parser gives, without the words of any implementation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub kind: String,
    pub layer: Option<String>,
    pub field: Option<String>,
    pub found: Option<Value>,
    pub offset: Option<usize>,
    pub needed: Option<usize>,
    pub available: Option<usize>,
    pub extra: Option<usize>,
}

impl Vector {
    /// What the trailer covers besides the datagram.
    pub fn pseudo(&self) -> PseudoHeader {
        let Pseudo {
            source,
            destination,
            destination_port,
        } = self.pseudo_header;
        PseudoHeader::new(source, SocketAddr::new(destination, destination_port))
    }

    /// The UDP payload.
    pub fn bytes(&self) -> Vec<u8> {
        unhex(&self.datagram)
    }
}

/// The folder of the golden packets.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../vectors")
}

/// Every file by its name without ending, with its text.
pub fn files() -> BTreeMap<String, (File, String)> {
    let entries = std::fs::read_dir(folder().join("packets")).unwrap();
    let files: BTreeMap<_, _> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            assert_eq!(path.extension().unwrap(), "json", "{}", path.display());
            let text = std::fs::read_to_string(&path).unwrap();
            let file: File =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, (file, text))
        })
        .collect();
    assert!(!files.is_empty());
    files
}

/// Bytes out of lower-case hex.
pub fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "{hex}");
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect()
}

/// Lower-case hex out of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
