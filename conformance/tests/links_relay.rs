//! The relay over real loopback sockets. Everything is driven by arrival, nothing by sleeping.

mod links;

use std::net::UdpSocket;

use links::{Party, isolated_relay, read_capture};
use metaroce_conformance::trace::Side;
use metaroce_wire::frame::{Ecn, parse_ip};

#[test]
fn the_mark_of_every_packet_of_a_burst_survives() {
    let relay = isolated_relay(1, Vec::new(), 0);
    let socket = UdpSocket::bind((relay.addresses.a.ip(), 50_000)).unwrap();
    let state = quinn_udp::UdpSocketState::new((&socket).into()).unwrap();
    let mut b = Party::bind(relay.addresses.b);
    // One call, sixteen datagrams of 100 bytes: what a sender with segmentation offload does.
    let (each, count) = (100, state.max_gso_segments().min(16));
    for ecn in [Ecn::Ce, Ecn::Ect0, Ecn::Ce] {
        let contents = vec![0x11; each * count];
        let transmit = quinn_udp::Transmit {
            destination: relay.addresses.near,
            ecn: quinn_udp::EcnCodepoint::from_bits(ecn.bits()),
            contents: &contents,
            segment_size: Some(each),
            src_ip: None,
        };
        state.send((&socket).into(), &transmit).unwrap();
        for _ in 0..count {
            let (from, seen, bytes) = b.receive();
            assert_eq!((seen, bytes.len()), (ecn, each));
            assert_eq!((from.ip(), from.port()), (relay.addresses.far.ip(), 50_000));
        }
    }
    let (_, capture) = relay.finish();
    let marked = read_capture(&capture)
        .iter()
        .filter(|o| o.tap == Side::A && parse_ip(&o.frame).unwrap().ecn == Ecn::Ce)
        .count();
    assert_eq!(marked, 2 * count);
}
