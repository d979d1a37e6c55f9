//! The golden packets, and packets made from them.

use std::path::Path;
use std::process::Command;

use metaroce_wire::crc;
use metaroce_wire::metaroce::parse;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::packets::{Datagram, asked, compare, write};
use crate::tshark;

/// Every golden packet.
fn golden() -> Vec<Datagram> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/packets");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut datagrams = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for vector in json["vectors"].as_array().unwrap() {
            let pseudo = &vector["pseudo_header"];
            let address = |name: &str| pseudo[name].as_str().unwrap().parse().unwrap();
            let port = pseudo["destination_port"].as_u64().unwrap();
            let kind = vector["invalid"]["error"]["kind"].as_str();
            assert_eq!(kind.is_none(), vector["valid"].is_object());
            datagrams.push(Datagram {
                id: vector["id"].as_str().unwrap().to_owned(),
                src: address("source"),
                dst: (address("destination"), port.try_into().unwrap()).into(),
                bytes: unhex(vector["datagram"].as_str().unwrap()),
                kind: kind.map(str::to_owned),
            });
        }
    }
    datagrams
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect()
}

/// The golden packets that a strict parser takes.
fn valid() -> Vec<Datagram> {
    let mut all = golden();
    all.retain(|datagram| datagram.kind.is_none());
    all
}

#[test]
#[ignore = "needs tshark"]
fn golden_packets_show_their_fields_and_their_errors() {
    let mut datagrams = golden();
    // One golden packet has no bytes at all, and Wireshark hands such to no dissector.
    let all = datagrams.len();
    datagrams.retain(|datagram| !datagram.bytes.is_empty());
    assert!(all - datagrams.len() <= 1 && all > 200, "{all}");
    let found = compare(&tshark::script(), &datagrams);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Valid packets with bits flipped, cut and made longer, each with the trailer set right again, so that the rules
/// decide: malformed to the dissector is exactly what is malformed to the parser.
#[test]
#[ignore = "needs tshark"]
fn changed_packets_are_malformed_exactly_where_the_parser_says_so() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut datagrams = Vec::new();
    for (index, datagram) in valid().into_iter().enumerate() {
        let mut add = |bytes: Vec<u8>, what: String, seal: bool| {
            let mut changed = Datagram {
                id: format!("{} {what}", datagram.id),
                bytes,
                ..datagram.clone()
            };
            if seal && changed.bytes.len() >= crc::LEN {
                crc::seal(&datagram.pseudo(), &mut changed.bytes).unwrap();
            }
            datagrams.push(changed);
        };
        let whole = &datagram.bytes;
        for len in (1..whole.len()).filter(|len| *len < 80 || len % 16 == index % 16) {
            add(whole[..len].to_vec(), format!("cut to {len}"), len % 2 == 0);
        }
        let mut longer = whole.clone();
        longer.extend([0; 8]);
        add(longer, "made longer".to_owned(), true);
        let headers = whole.len().min(100) - crc::LEN;
        for bit in 0..headers * 8 {
            // Every third bit, another third for each packet.
            if (bit + index) % 3 == 0 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
                add(bytes, format!("bit {bit}"), true);
            }
        }
        for round in 0..24 {
            let mut bytes = whole.clone();
            for _ in 0..=random.next_u32() % 4 {
                let at = random.next_u32() as usize % (headers + crc::LEN);
                bytes[at] = random.next_u32() as u8;
            }
            add(bytes, format!("round {round}"), round % 4 != 0);
        }
    }
    let wrong = datagrams
        .iter()
        .filter(|d| parse(&d.bytes, &d.pseudo()).is_err())
        .count();
    assert!(wrong > 1000 && datagrams.len() - wrong > 1000, "{wrong}");
    let found = compare(&tshark::script(), &datagrams);
    assert!(
        found.is_empty(),
        "{}: {}",
        found.len(),
        found[..20.min(found.len())].join("\n")
    );
}

/// Noise instead of packets: nothing to compare but that the dissector gets through.
#[test]
#[ignore = "needs tshark"]
fn noise_is_no_error_of_the_dissector() {
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let like = &valid()[0];
    let datagrams: Vec<_> = (0..3000)
        .map(|round| {
            let mut bytes = vec![0; 1 + random.next_u32() as usize % 400];
            random.fill_bytes(&mut bytes);
            if let Some(first) = bytes.first_mut() {
                *first = 0x10 | *first & 0x0f;
            }
            Datagram {
                id: format!("noise {round}"),
                bytes,
                ..like.clone()
            }
        })
        .collect();
    let found = compare(&tshark::script(), &datagrams);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A frame of which the capture holds a part is cut and not malformed, and its CRC is not judged.
#[test]
#[ignore = "needs tshark"]
fn frames_cut_by_the_capture_are_not_malformed() {
    let mut datagrams = valid();
    datagrams.retain(|datagram| datagram.dst.is_ipv4() && datagram.dst.port() == 49200);
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    write(&whole, &datagrams);
    let (_, asked) = asked();
    let mut cuts = 0;
    // The IP and UDP headers take 28 bytes.
    for keep in [29, 40, 44, 45, 50, 61, 77, 91, 150, 300] {
        let mut editcap = Command::new("editcap");
        editcap.args(["-s", &keep.to_string()]).args([&whole, &cut]);
        assert!(editcap.status().unwrap().success());
        let shown = tshark::read(&tshark::script(), &cut, &[], &asked);
        assert_eq!(shown.len(), datagrams.len());
        for (datagram, shown) in datagrams.iter().zip(&shown) {
            let has = |name: &str| shown.contains_key(name);
            let is_cut = datagram.bytes.len() + 28 > keep;
            let id = &datagram.id;
            assert_eq!(has("metaroce.cut"), is_cut, "{id} to {keep}");
            assert_eq!(has("metaroce.crc.status"), !is_cut, "{id} to {keep}");
            assert!(!has("metaroce.malformed"), "{id} to {keep}");
            assert!(!has("_ws.lua.error"), "{id} to {keep}");
            // The base header is compared where it is there.
            assert_eq!(has("metaroce.cbh.timestamp"), keep >= 44, "{id}");
            cuts += usize::from(is_cut);
        }
    }
    assert!(cuts > 100, "{cuts}");
}

/// The comparison notices a dissector that is wrong.
#[test]
#[ignore = "needs tshark"]
fn doctored_dissectors_are_noticed() {
    let sound = std::fs::read_to_string(tshark::script()).unwrap();
    let mut datagrams = golden();
    datagrams.retain(|datagram| !datagram.bytes.is_empty());
    assert!(compare(&tshark::script(), &datagrams).is_empty());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctored.lua");
    let cases = [
        // A field in the wrong place, of a wrong width, under another's bit.
        (r#""rqsn", offset = 16"#, r#""rqsn", offset = 0"#),
        (
            r#""offending_psn", offset = 64, width = 32"#,
            r#""offending_psn", offset = 64, width = 24"#,
        ),
        (
            r#""hint_epoch", offset = 128"#,
            r#""hint_epoch", offset = 144"#,
        ),
        (r#"code = 0x20, name = "SE""#, r#"code = 0x10, name = "SE""#),
        // The polynomial, the pseudo-header, a trailer that nobody looks at.
        ("0x82f63b78", "0xedb88320"),
        ("udp_length % 256", "(udp_length + 1) % 256"),
        ("found == computed and 1 or 0", "1"),
        // Rules: one that is not there, and one too many. Whatever `type` is given, it does nothing.
        (r#"fault(p, "sack_bit_zero""#, r#"type(p, "sack_bit_zero""#),
        (r#"value_fault(p, "wrong_eom""#, r#"type(p, "wrong_eom""#),
        (r#"fault(p, "overlong""#, r#"type(p, "overlong""#),
        (
            r#"fault(p, "padding_nonzero""#,
            r#"type(p, "padding_nonzero""#,
        ),
        (
            r#"width = 6, allowed = { 0 }"#,
            r#"width = 6, allowed = { 0, 32 }"#,
        ),
        (
            r#""scope", offset = 8, width = 8"#,
            r#""scope", offset = 8, width = 8, max = 3"#,
        ),
    ];
    for (old, new) in cases {
        let doctored = sound.replace(old, new);
        assert_ne!(doctored, sound, "{old}");
        std::fs::write(&file, doctored).unwrap();
        let found = compare(&file, &datagrams);
        assert!(!found.is_empty(), "{new} is not noticed");
    }
}
