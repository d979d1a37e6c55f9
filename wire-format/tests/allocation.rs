//! Reading and writing packets takes no memory from the heap.

use std::net::SocketAddr;

use allocation_counter::measure;
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::frame::{self, Ecn, Frame};
use metaroce_wire::metaroce::{parse, parse_lax, parse_unsealed};
use serde_json::Value;

#[test]
fn nothing_is_allocated() {
    let control = measure(|| drop(std::hint::black_box(vec![0u8; 100])));
    assert_eq!(control.count_total, 1, "the counter counts");

    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/packets");
    let (mut right, mut wrong) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        for vector in file["vectors"].as_array().unwrap() {
            let hex = vector["datagram"].as_str().unwrap();
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
                .collect();
            let address = |name| vector["pseudo_header"][name].as_str().unwrap();
            let port = vector["pseudo_header"]["destination_port"]
                .as_u64()
                .unwrap();
            let src = address("source").parse().unwrap();
            let dst = SocketAddr::new(address("destination").parse().unwrap(), port as u16);
            let pseudo = PseudoHeader::new(src, dst);
            let frame = Frame {
                src: SocketAddr::new(src, 50000),
                dst,
                ecn: Ecn::Ect0,
                ttl: 64,
                payload: &bytes,
            };
            let mut out = vec![0; 2000];
            let used = measure(|| {
                let strict = parse(&bytes, &pseudo);
                let mut fields = 0;
                if let Ok(packet) = strict {
                    right += 1;
                    packet.visit(&mut |_, _, _| fields += 1);
                    assert!(fields > 10);
                    assert_eq!(packet.emit(&mut out, &pseudo), Ok(bytes.len()));
                } else {
                    wrong += 1;
                }
                let _ = std::hint::black_box((parse_unsealed(&bytes), parse_lax(&bytes)));
                let len = frame.emit(&mut out).unwrap_or(0);
                assert_eq!(frame::parse_ip(&out[..len]), Ok(frame));
            });
            assert_eq!(used.count_total, 0, "{}", vector["id"]);
        }
    }
    assert!(right >= 150 && wrong >= 400, "{right} and {wrong}");
}
