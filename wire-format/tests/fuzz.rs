//! The body of the fuzz target, run over the golden packets, thousands of changed ones, and bytes at random. The same
//! bytes every time: what libFuzzer finds beyond them becomes a vector.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "../fuzz/src/body.rs"]
mod body;

use std::net::{IpAddr, SocketAddr};

use metaroce_wire::crc;
use metaroce_wire::frame::{Ecn, Frame};
use proptest::prelude::*;
use serde_json::Value;

/// Numbers that look random and are the same every time (splitmix64).
struct Mixer(u64);

impl Mixer {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// The golden packets as they are, in IP packets, and in Ethernet frames.
fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/packets");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut seeds = Vec::new();
    for path in paths {
        let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for vector in file["vectors"].as_array().unwrap() {
            let payload = unhex(vector["datagram"].as_str().unwrap());
            let address = |name| -> IpAddr {
                let text = vector["pseudo_header"][name].as_str().unwrap();
                text.parse().unwrap()
            };
            let src = address("source");
            let frame = Frame {
                src: SocketAddr::new(src, 50000),
                dst: SocketAddr::new(address("destination"), 49200),
                ecn: Ecn::Ect0,
                ttl: 64,
                payload: &payload,
            };
            let mut ip = vec![0; frame.ip_len()];
            frame.emit(&mut ip).unwrap();
            let ether_type = if src.is_ipv4() {
                [0x08, 0x00]
            } else {
                [0x86, 0xdd]
            };
            let ethernet = [&[2; 12][..], &[0x81, 0, 0, 5], &ether_type, &ip].concat();
            seeds.extend([payload, ip, ethernet]);
        }
    }
    seeds
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect()
}

fn change(bytes: &mut Vec<u8>, mixer: &mut Mixer, other: &[u8]) {
    for _ in 0..=mixer.below(3) {
        let at = mixer.below(bytes.len());
        match mixer.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, mixer.next() as u8),
            2 => bytes.extend(other.iter().skip(mixer.below(other.len()))),
            3 if !bytes.is_empty() => bytes[at] = [0x00, 0xff, 0x7f, 0x80][mixer.below(4)],
            4 if !bytes.is_empty() => bytes[at] = mixer.next() as u8,
            _ if !bytes.is_empty() => bytes[at] ^= 1 << mixer.below(8),
            _ => {}
        }
    }
}

#[test]
fn golden_packets_and_changed_ones_hold() {
    let seeds = seeds();
    assert!(seeds.len() >= 3 * 600, "{}", seeds.len());
    let mut mixer = Mixer(1);
    let (mut runs, mut sealed) = (0, 0);
    for seed in &seeds {
        body::run(seed);
        for _ in 0..40 {
            let mut bytes = seed.clone();
            let other = &seeds[mixer.below(seeds.len())];
            change(&mut bytes, &mut mixer, other);
            body::run(&bytes);
            runs += 1;
            // A right trailer leads to what lies behind its check.
            let pseudo = crc::PseudoHeader::new(
                [192, 0, 2, 1].into(),
                SocketAddr::from(([192, 0, 2, 2], 49200)),
            );
            if crc::seal(&pseudo, &mut bytes).is_ok() {
                body::run(&bytes);
                sealed += 1;
            }
        }
    }
    assert!(runs >= 60_000 && sealed >= 60_000, "{runs} and {sealed}");
}

proptest! {
    #[test]
    fn any_bytes_hold(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        body::run(&bytes);
    }

    /// Random bytes behind an opcode and version that are known, of a length that fits.
    #[test]
    fn any_body_holds(
        opcode in proptest::sample::select(metaroce_wire::metaroce::Opcode::ALL),
        mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 20..400),
        words in proptest::bool::ANY,
    ) {
        bytes[0] = 0x10;
        bytes[1] = opcode.0;
        bytes[2] &= 0xf0;
        bytes[4] &= 0xc0;
        if words {
            bytes[4] = 0;
            bytes.truncate(bytes.len() / 4 * 4);
        }
        body::run(&bytes);
    }
}
