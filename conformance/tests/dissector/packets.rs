//! Packets for tshark, and what it says of them whole.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use metaroce_conformance::trace::pcapng::TraceWriter;
use metaroce_conformance::trace::{Observation, Side};
use metaroce_wire::Error;
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::frame::{Ecn, Frame};
use metaroce_wire::metaroce::{Lax, Packet, parse, parse_lax};

use crate::tshark::{self, Shown};

/// A UDP payload with the addresses that its trailer covers.
#[derive(Clone)]
pub struct Datagram {
    /// What to call it in a message.
    pub id: String,
    /// Source address.
    pub src: IpAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
    /// The kind of error that it has to show, in the words of the golden packets.
    pub kind: Option<String>,
}

impl Datagram {
    pub fn pseudo(&self) -> PseudoHeader {
        PseudoHeader::new(self.src, self.dst)
    }
}

/// Fields about the packet as a whole.
const OF_THE_WHOLE: [&str; 6] = [
    "metaroce.crc.status",
    "metaroce.malformed",
    "metaroce.malformed.kind",
    "metaroce.crc.bad",
    "metaroce.cut",
    "_ws.lua.error",
];

/// Every field that the comparison looks at, of the tables first.
pub fn asked() -> (Vec<String>, Vec<String>) {
    let fields = tshark::all_fields();
    let mut all = fields.clone();
    all.extend(tshark::all_bits().into_iter().map(|(_, bit, _)| bit));
    all.extend(OF_THE_WHOLE.map(str::to_owned));
    (fields, all)
}

/// Writes the datagrams into a capture, each with the headers that its trailer covers.
pub fn write(path: &Path, datagrams: &[Datagram]) {
    let mut writer = TraceWriter::create(path, "headers are made up").unwrap();
    for (time, datagram) in datagrams.iter().enumerate() {
        let frame = Frame {
            src: SocketAddr::new(datagram.src, 50_000),
            dst: datagram.dst,
            ecn: Ecn::NotEct,
            ttl: 64,
            payload: &datagram.bytes,
        };
        let mut bytes = vec![0; frame.ip_len()];
        frame.emit(&mut bytes).unwrap();
        let observation = Observation {
            time_ns: time as u64 * 1000,
            tap: Side::A,
            from: Side::A,
            frame: bytes,
            notes: Vec::new(),
        };
        writer.write(&observation).unwrap();
    }
    writer.finish().unwrap();
}

/// The ports of datagrams that the dissector does not have by default.
fn ports(datagrams: &[Datagram]) -> Vec<u16> {
    let ports: std::collections::BTreeSet<u16> = datagrams.iter().map(|d| d.dst.port()).collect();
    ports.into_iter().filter(|port| *port != 49200).collect()
}

/// Has tshark read the datagrams, and tells what is not as the parser has it.
pub fn compare(script: &Path, datagrams: &[Datagram]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("packets.pcapng");
    write(&capture, datagrams);
    let (fields, asked) = asked();
    let shown = tshark::read(script, &capture, &ports(datagrams), &asked);
    assert_eq!(shown.len(), datagrams.len());
    let mut found = Vec::new();
    for (datagram, shown) in datagrams.iter().zip(&shown) {
        let said = judge(&datagram.bytes, &datagram.pseudo(), shown, &fields);
        let missed = datagram.kind.as_ref().filter(|kind| !names(shown, kind));
        let missed = missed.map(|kind| format!("no {kind}"));
        let said = said.into_iter().chain(missed);
        found.extend(said.map(|said| format!("{}: {said}", datagram.id)));
    }
    found
}

/// Whether the dissector has found an error of this kind, among others it may be.
fn names(shown: &Shown, kind: &str) -> bool {
    match kind {
        "bad_crc" => shown.contains_key("metaroce.crc.bad"),
        _ => shown
            .get("metaroce.malformed.kind")
            .is_some_and(|kinds| kinds.iter().any(|found| found == kind)),
    }
}

/// Whether the tables have a packet that the parser does not know.
fn is_unread(lax: &Lax<'_>) -> bool {
    let opcode = lax.cbh.map(|cbh| cbh.opcode);
    let unknown = opcode.filter(|opcode| opcode.name().is_none());
    unknown.is_some_and(|opcode| {
        let tables = metaroce_spec::tables().unwrap();
        tables.iter().any(|table| table.opcode == Some(opcode.0))
    })
}

/// What is wrong about one packet: fields, the CRC, and whether it is malformed.
pub fn judge(bytes: &[u8], pseudo: &PseudoHeader, shown: &Shown, fields: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    if bytes.is_empty() {
        // Wireshark hands no empty payload to any dissector.
        return found;
    }
    let lax = parse_lax(bytes);
    if is_unread(&lax) {
        // Nothing to compare with: the parser does not read this packet of the tables.
        return found;
    }
    let mut expect = |holds: bool, what: String| {
        if !holds {
            found.push(what);
        }
    };
    let has = |name: &str| shown.contains_key(name);
    expect(!has("_ws.lua.error"), "an error of Lua".to_owned());
    expect(!has("metaroce.cut"), "shown as cut".to_owned());
    let strict = parse(bytes, pseudo).err();
    let bad_crc = matches!(strict, Some(Error::Crc { .. }));
    let status = match bytes.len() {
        0..4 => None,
        _ => Some(if bad_crc { "0" } else { "1" }),
    };
    let crc = shown
        .get("metaroce.crc.status")
        .map(|values| values.join(","));
    expect(
        crc.as_deref() == status,
        format!("CRC {crc:?}, not {status:?}"),
    );
    expect(
        has("metaroce.crc.bad") == bad_crc,
        "bad CRC not marked".to_owned(),
    );
    let malformed = has("metaroce.malformed");
    let error = lax.error.or(strict.filter(|_| !bad_crc));
    expect(
        malformed == error.is_some(),
        format!(
            "{error:?}, shown {:?}",
            shown.get("metaroce.malformed.kind")
        ),
    );
    expect(
        malformed == has("metaroce.malformed.kind"),
        "a rule without a name".to_owned(),
    );
    match (lax.cbh, lax.body) {
        (Some(cbh), Some(body)) => {
            let packet = Packet { cbh, body };
            found.extend(tshark::differences(&packet, shown, fields));
        }
        (Some(cbh), None) => {
            // Of what is cut short the base header is compared; the other headers that are whole are shown besides.
            cbh.visit(&mut |layer, field, value| {
                let name = tshark::name(layer, field);
                let values = shown.get(&name).map_or(&[][..], Vec::as_slice);
                let number = match values {
                    [text] => tshark::integer(text),
                    _ => None,
                };
                if !matches!(value, metaroce_wire::metaroce::Value::Int(n) if Some(n) == number) {
                    found.push(format!("{name}: {value:?}, shown {values:?}"));
                }
            });
        }
        (None, _) => {}
    }
    found
}
