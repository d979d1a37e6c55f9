//! What reading one Write costs, beside the frame headers alone and beside the trailer alone.
//!
//! After the groups of criterion, the same routines are timed once more in turn, in many short rounds, so that both
//! sides of a ratio see the same machine; the medians and their ratios are printed. Under `cargo bench` the program
//! fails when a Write with its frame costs more than twice what the frame alone does.

#![expect(
    clippy::expect_used,
    reason = "without its packet the program measures nothing"
)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use etherparse::{Ethernet2Slice, Ipv4Slice, SlicedPacket, UdpSlice};
use metaroce_wire::crc;
use metaroce_wire::frame::{self, Ecn, Frame};
use metaroce_wire::metaroce::{
    Body, Cbh, MFlags, Msgh, Opcode, Packet, Tagh, U24, Write, parse, parse_unsealed,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

/// Payload sizes: a full packet on a large MTU, and the smallest one.
const SIZES: [usize; 2] = [4096, 256];

/// The most that a Write with its frame may cost, in units of the frame alone.
const LIMIT: f64 = 2.0;

const ROUNDS: usize = 401;
const PER_ROUND: u32 = 2000;

type Routine = (&'static str, fn(&[u8]));

/// Each takes the whole Ethernet frame, and has to have its result ready in memory.
const ROUTINES: [Routine; 5] = [
    ("etherparse, whole-packet slicer", |bytes| {
        black_box(&SlicedPacket::from_ethernet(black_box(bytes)));
    }),
    ("etherparse, chained slices", |bytes| {
        black_box(&chained(black_box(bytes)));
    }),
    ("frame and Write, trailer unchecked", |bytes| {
        if let Ok(frame) = black_box(&frame::parse_ethernet(black_box(bytes))) {
            black_box(&parse_unsealed(frame.payload));
        }
    }),
    ("frame and Write, trailer checked", |bytes| {
        if let Ok(frame) = black_box(&frame::parse_ethernet(black_box(bytes))) {
            black_box(&parse(frame.payload, &frame.pseudo_header()));
        }
    }),
    ("trailer alone", |bytes| {
        // Ethernet, IPv4 and UDP headers stand before the payload.
        let src = [192, 0, 2, 1].into();
        let dst = SocketAddr::new([192, 0, 2, 2].into(), 49200);
        let pseudo = crc::PseudoHeader::new(src, dst);
        black_box(&crc::verify(&pseudo, black_box(&bytes[42..])));
    }),
];

/// What the frame parser here asks of etherparse, and nothing else.
fn chained(bytes: &[u8]) -> Option<(u16, u16, &[u8])> {
    let ethernet = Ethernet2Slice::from_slice_without_fcs(bytes).ok()?;
    let ip = Ipv4Slice::from_slice(ethernet.payload_slice()).ok()?;
    let udp = UdpSlice::from_slice(ip.payload().payload).ok()?;
    Some((udp.source_port(), udp.destination_port(), udp.payload()))
}

/// A Write in the middle of a message, in an Ethernet frame.
fn ethernet_frame(size: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
    let (src, dst) = (
        SocketAddr::new([192, 0, 2, 1].into(), 50003),
        SocketAddr::new([192, 0, 2, 2].into(), 49200),
    );
    let write = Write {
        msgh: Msgh {
            stream: 7,
            rqsn: Rqsn::new(0),
            mflags: MFlags(0),
            msn: Msn::new(1),
            offset: size as u32,
            len: 1 << 20,
        },
        tagh: Tagh {
            va: 0x7f00_0000_1000,
            rkey: 0x1122_3344,
            imm: 0,
        },
        payload: &payload,
    };
    let packet = Packet {
        cbh: Cbh {
            path: 3,
            psn: Psn::new(77),
            ..Cbh::new(Opcode::WRITE, U24::new(0xabcd))
        },
        body: Body::Write(write),
    };
    let mut udp = vec![0; packet.wire_len()];
    let pseudo = crc::PseudoHeader::new(src.ip(), dst);
    packet.emit(&mut udp, &pseudo).expect("room for the packet");
    let frame = Frame {
        src,
        dst,
        ecn: Ecn::Ect0,
        ttl: 64,
        payload: &udp,
    };
    let mut ip = vec![0; frame.ip_len()];
    frame.emit(&mut ip).expect("room for the frame");
    let bytes = [&[2; 12][..], &[8, 0], &ip].concat();

    // Every routine must do its work and not stop at an error.
    let read = frame::parse_ethernet(&bytes).expect("a frame");
    assert_eq!(read, frame);
    assert_eq!(parse(read.payload, &read.pseudo_header()), Ok(packet));
    assert_eq!(parse_unsealed(read.payload), Ok(packet));
    assert_eq!(crc::verify(&pseudo, &bytes[42..]), Ok(()));
    assert!(SlicedPacket::from_ethernet(&bytes).is_ok());
    assert_eq!(chained(&bytes).map(|(.., udp)| udp), Some(&udp[..]));
    bytes
}

fn groups(criterion: &mut Criterion) {
    for size in SIZES {
        let bytes = ethernet_frame(size);
        let mut group = criterion.benchmark_group(format!("parse/{size}"));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        for (name, routine) in ROUTINES {
            group.bench_function(name, |bencher| bencher.iter(|| routine(&bytes)));
        }
        group.finish();
    }
}

/// Nanoseconds per call of each routine: the median over rounds in which all take turns.
fn medians(bytes: &[u8]) -> [f64; ROUTINES.len()] {
    let mut rounds = [(); ROUTINES.len()].map(|()| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for ((_, routine), times) in ROUTINES.iter().zip(&mut rounds) {
            let start = Instant::now();
            for _ in 0..PER_ROUND {
                routine(black_box(bytes));
            }
            times.push(start.elapsed());
        }
    }
    rounds.map(|mut times: Vec<Duration>| {
        times.sort_unstable();
        times[ROUNDS / 2].as_secs_f64() * 1e9 / f64::from(PER_ROUND)
    })
}

fn main() -> ExitCode {
    let mut criterion = Criterion::default().configure_from_args();
    groups(&mut criterion);
    criterion.final_summary();
    // `cargo test --benches` runs the program once without `--bench`: a run of unoptimized code measures nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }

    let mut within = true;
    for size in SIZES {
        let [slicer, chained, unsealed, sealed, crc] = medians(&ethernet_frame(size));
        println!(
            "{size} bytes of payload, ns: slicer {slicer:.1}, chained slices {chained:.1}, \
             frame and Write {unsealed:.1}, with trailer {sealed:.1}, trailer alone {crc:.1}"
        );
        let ratio = unsealed / slicer;
        println!(
            "{size} bytes of payload: frame and Write / frame alone = {ratio:.2} by the slicer \
             (at most {LIMIT}), {:.2} by chained slices",
            unsealed / chained
        );
        within &= ratio <= LIMIT;
    }
    if within {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
