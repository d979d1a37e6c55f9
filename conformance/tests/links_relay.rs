//! The relay over real loopback sockets. Everything is driven by arrival, nothing by sleeping.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod links;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use links::traffic::{Maker, Sent};
use links::{Party, isolated_relay, read_capture};
use metaroce_conformance::inject::Injector;
use metaroce_conformance::link::relay::{Relay, RelayAddresses, RelaySetup};
use metaroce_conformance::trace::Side;
use metaroce_conformance::trace::pcapng::TraceReader;
use metaroce_wire::crc;
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

/// Sends a made-up packet of a party to where it says.
fn send(party: &Party, sent: &Sent) {
    party.send(sent.dst, sent.ecn, &sent.bytes);
}

/// The makers of both parties, as each knows the other.
fn makers(addresses: &RelayAddresses) -> [Maker; 2] {
    [
        Maker::new(Side::A, addresses.a, addresses.near),
        Maker::new(Side::B, addresses.b, addresses.far),
    ]
}

#[test]
fn a_right_trailer_stays_right_and_a_wrong_one_stays_wrong() {
    let relay = isolated_relay(2, Vec::new(), 0);
    let addresses = relay.addresses;
    let [a, b] = makers(&addresses);
    let mut parties = [Party::bind(addresses.a), Party::bind(addresses.b)];
    for (from, maker, seen_from, at) in [
        (0, a, addresses.far, addresses.b),
        (1, b, addresses.near, addresses.a),
    ] {
        for damage in [None, Some(0), Some(100), Some(307)] {
            let mut sent = maker.write(1, 7, false);
            if let Some(byte) = damage {
                sent.bytes[byte] ^= 0x10;
            }
            let here = crc::verify(&sent.frame().pseudo_header(), &sent.bytes);
            send(&parties[from], &sent);
            let (_, _, bytes) = parties[1 - from].receive();
            let pseudo = crc::PseudoHeader::new(seen_from.ip(), at);
            let there = crc::verify(&pseudo, &bytes);
            assert_eq!(
                (here.is_ok(), there.is_ok()),
                (damage.is_none(), damage.is_none())
            );
            assert_eq!(bytes[..bytes.len() - 4], sent.bytes[..sent.bytes.len() - 4]);
        }
    }
    let (report, capture) = relay.finish();
    assert_eq!((report.held, report.strangers), ([0, 0], 0));
    // The capture shows at each tap what the party next to it sees: half of the packets of each tap are sound there.
    for tap in Side::BOTH {
        let sound =
            read_capture(&capture)
                .iter()
                .filter(|o| o.tap == tap)
                .fold([0, 0], |mut count, o| {
                    let frame = parse_ip(&o.frame).unwrap();
                    count[usize::from(
                        crc::verify(&frame.pseudo_header(), frame.payload).is_ok(),
                    )] += 1;
                    count
                });
        assert_eq!(sound, [6, 2]);
    }
}

#[test]
fn whatever_is_no_packet_passes_unchanged() {
    let relay = isolated_relay(3, Vec::new(), 0);
    let a = Party::bind(relay.addresses.a);
    let mut b = Party::bind(relay.addresses.b);
    for len in [0, 1, 3, 15, 40_000] {
        let bytes = vec![0xaa; len];
        a.send(relay.addresses.near, Ecn::Ect1, &bytes);
        let (_, ecn, seen) = b.receive();
        assert_eq!((ecn, seen.len()), (Ecn::Ect1, len));
        // Where a trailer could be, it is carried over.
        let kept = len - len.min(4);
        assert_eq!(seen[..kept], bytes[..kept]);
    }
}

#[test]
fn strangers_are_counted_and_not_carried() {
    let relay = isolated_relay(4, Vec::new(), 0);
    let stranger = Party::bind(SocketAddr::new(Ipv4Addr::new(127, 254, 254, 9).into(), 0));
    let a = Party::bind(relay.addresses.a);
    let mut b = Party::bind(relay.addresses.b);
    stranger.send(relay.addresses.near, Ecn::Ce, &[1; 30]);
    a.send(relay.addresses.near, Ecn::Ce, &[2; 30]);
    assert_eq!(b.receive().2[..20], [2; 20]);
    let (report, capture) = relay.finish();
    assert_eq!((report.strangers, read_capture(&capture).len()), (1, 2));
}

#[test]
fn what_goes_to_another_port_is_seen_too() {
    let relay = isolated_relay(5, Vec::new(), 0);
    let addresses = relay.addresses;
    let [a, b] = makers(&addresses);
    let first = a.write(2, 0, false);
    let mut party_a = Party::bind(SocketAddr::new(addresses.a.ip(), first.src.port()));
    let mut party_b = Party::bind(addresses.b);
    send(&party_a, &first);
    let (from, _, _) = party_b.receive();
    assert_eq!(from, SocketAddr::new(addresses.far.ip(), first.src.port()));
    // B answers to the source port, which no implementation should.
    let wrong = Maker::new(Side::B, b.local, from).ack(2, 1);
    send(&party_b, &wrong);
    let (from, _, bytes) = party_a.receive();
    assert_eq!(from, addresses.near);
    let at = SocketAddr::new(addresses.a.ip(), first.src.port());
    let pseudo = crc::PseudoHeader::new(from.ip(), at);
    assert_eq!(crc::verify(&pseudo, &bytes), Ok(()));
    let (_, capture) = relay.finish();
    let ports: Vec<u16> = read_capture(&capture)
        .iter()
        .map(|o| parse_ip(&o.frame).unwrap().dst.port())
        .collect();
    let (service, source) = (49_200, first.src.port());
    assert_eq!(ports, [service, service, source, source]);
}

#[test]
fn a_source_port_that_is_taken_is_an_error_of_the_relay() {
    let relay = isolated_relay(6, Vec::new(), 0);
    let addresses = relay.addresses;
    let _taken = UdpSocket::bind((addresses.far.ip(), 50_001)).unwrap();
    let a = Party::bind(SocketAddr::new(addresses.a.ip(), 50_001));
    a.send(addresses.near, Ecn::NotEct, &[0; 30]);
    // The relay gives its addresses back when it has failed.
    let patience = Instant::now() + Duration::from_secs(20);
    while UdpSocket::bind(addresses.near).is_err() {
        assert!(Instant::now() < patience);
        std::thread::yield_now();
    }
    let error = relay.relay.finish().unwrap_err().to_string();
    let place = format!("cannot bind {}:50001", addresses.far.ip());
    assert!(error.contains(&place), "{error}");
}

#[test]
fn an_address_that_is_taken_is_an_error_at_the_start() {
    let addresses = RelayAddresses::find(49_200, u64::from(std::process::id()) << 8 | 7).unwrap();
    let _taken = UdpSocket::bind(addresses.far).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let setup = RelaySetup {
        addresses,
        delay_ns: 0,
        injector: Injector::new(Vec::new(), 1),
        capture: folder.path().join("x.pcapng"),
        start: Instant::now(),
    };
    let error = Relay::start(setup).err().unwrap().to_string();
    assert!(error.contains(&addresses.far.to_string()), "{error}");
}

#[test]
fn a_packet_is_never_early_and_what_is_inside_at_the_end_is_told() {
    let delay = Duration::from_millis(20);
    let relay = isolated_relay(8, Vec::new(), 20_000_000);
    let a = Party::bind(relay.addresses.a);
    let mut b = Party::bind(relay.addresses.b);
    for _ in 0..5 {
        let sent = Instant::now();
        a.send(relay.addresses.near, Ecn::Ect0, &[3; 100]);
        b.receive();
        assert!(sent.elapsed() >= delay);
    }
    // Three more, sent before the end, have entered and not left.
    for _ in 0..3 {
        a.send(relay.addresses.near, Ecn::Ect0, &[3; 100]);
    }
    let (report, capture) = relay.finish();
    let taps: Vec<Side> = read_capture(&capture).iter().map(|o| o.tap).collect();
    let at = |side| taps.iter().filter(|tap| **tap == side).count() as u64;
    assert_eq!(at(Side::A), 8);
    assert_eq!(at(Side::A), at(Side::B) + report.held[0]);
}

#[test]
fn a_run_that_is_killed_leaves_what_it_has_seen() {
    let relay = isolated_relay(9, Vec::new(), 0);
    let a = Party::bind(relay.addresses.a);
    let mut b = Party::bind(relay.addresses.b);
    for _ in 0..10 {
        a.send(relay.addresses.near, Ecn::Ect0, &[3; 100]);
        b.receive();
    }
    // The relay still runs; its capture follows within a short time.
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let copy = relay.capture().with_extension("copy");
        std::fs::copy(relay.capture(), &copy).unwrap();
        let items: Vec<_> = TraceReader::open(&copy).map_or(Vec::new(), Iterator::collect);
        let frames = items.iter().filter(|item| item.is_ok()).count();
        if frames == 20 {
            let cut = items.last().unwrap().as_ref().unwrap_err().to_string();
            assert!(cut.contains("after frame 20"), "{cut}");
            break;
        }
        assert!(Instant::now() < patience, "{frames} frames");
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_relay_is_gone() {
    let relay = isolated_relay(10, Vec::new(), 0);
    let addresses = relay.addresses;
    assert!(UdpSocket::bind(addresses.near).is_err());
    drop(relay);
    UdpSocket::bind(addresses.near).unwrap();
    UdpSocket::bind(addresses.far).unwrap();
}

/// Not a check but a measurement: `cargo test --release --test links_relay -- --ignored --nocapture`.
#[test]
#[ignore = "measures how fast the relay is"]
fn speed() {
    for (delay_ns, window) in [(0, 128), (200_000, 128), (1_000_000, 128), (1_000_000, 1)] {
        let relay = isolated_relay(20, Vec::new(), delay_ns);
        let count = if window == 1 { 500 } else { 60_000 };
        let start = Instant::now();
        let turns = [Side::A, Side::B].map(|side| {
            let (own, other) = match side {
                Side::A => (relay.addresses.a, relay.addresses.near),
                Side::B => (relay.addresses.b, relay.addresses.far),
            };
            let party = Party::bind(own);
            // Each packet received allows one more: a constant number under way in both directions.
            std::thread::spawn(move || {
                let mut party = party;
                for _ in 0..window {
                    party.send(other, Ecn::Ect0, &[side.index() as u8; 1100]);
                }
                for received in 0..count {
                    party.receive();
                    if received < count - window {
                        party.send(other, Ecn::Ect0, &[side.index() as u8; 1100]);
                    }
                }
            })
        });
        turns.into_iter().for_each(|turn| turn.join().unwrap());
        let took = start.elapsed();
        let (report, capture) = relay.finish();
        eprintln!(
            "delay {delay_ns} ns, window {window}: {:.0} packets/s each way, lateness {} us, capture {} MB",
            f64::from(count) / took.as_secs_f64(),
            report.jitter_ns / 1000,
            capture.len() >> 20
        );
    }
}
