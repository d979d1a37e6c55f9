//! What the tests of the links share: plain parties on sockets, and relays on addresses of their own.
#![expect(dead_code, reason = "each test binary uses its share")]

pub mod traffic;

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use metaroce_conformance::inject::{Injector, Rule, feasible};
use metaroce_conformance::link::relay::{Relay, RelayAddresses, RelayReport, RelaySetup};
use metaroce_conformance::trace::Observation;
use metaroce_conformance::trace::pcapng::TraceReader;
use metaroce_wire::frame::Ecn;
use quinn_udp::{RecvMeta, UdpSocketState};

/// Reads rules as a scenario would.
pub fn rules(text: &str) -> Vec<Rule> {
    let rules: Vec<Rule> = serde_saphyr::from_str(text).unwrap();
    feasible(&rules).unwrap();
    rules
}

/// A relay and what belongs to it.
pub struct TestRelay {
    pub relay: Relay,
    pub addresses: RelayAddresses,
    folder: tempfile::TempDir,
}

impl TestRelay {
    pub fn capture(&self) -> PathBuf {
        self.folder.path().join("capture.pcapng")
    }

    pub fn finish(self) -> (RelayReport, Vec<u8>) {
        let capture = self.capture();
        let report = self.relay.finish().unwrap();
        (report, std::fs::read(capture).unwrap())
    }
}

/// A relay on addresses that no other test has. `which` must differ between the tests of one binary.
pub fn isolated_relay(which: u64, rules: Vec<Rule>, delay_ns: u64) -> TestRelay {
    let folder = tempfile::tempdir().unwrap();
    let hint = u64::from(std::process::id()) << 8 | which;
    let addresses = RelayAddresses::find(49_200, hint).unwrap();
    let setup = RelaySetup {
        addresses,
        delay_ns,
        injector: Injector::new(rules, 7),
        capture: folder.path().join("capture.pcapng"),
        start: Instant::now(),
    };
    TestRelay {
        relay: Relay::start(setup).unwrap(),
        addresses,
        folder,
    }
}

pub fn read_capture(bytes: &[u8]) -> Vec<Observation> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcapng");
    std::fs::write(&path, bytes).unwrap();
    let items = TraceReader::open(&path).unwrap();
    items.map(|item| item.unwrap().1).collect()
}

/// A socket of a party, with marks.
pub struct Party {
    pub socket: UdpSocket,
    state: UdpSocketState,
    buffer: Vec<u8>,
}

impl Party {
    pub fn bind(address: SocketAddr) -> Self {
        Self::from_socket(UdpSocket::bind(address).unwrap())
    }

    pub fn from_socket(socket: UdpSocket) -> Self {
        let state = UdpSocketState::new((&socket).into()).unwrap();
        // The state has made it non-blocking.
        socket.set_nonblocking(false).unwrap();
        // Long enough for any machine: it ends a failed test, it paces nothing.
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).unwrap();
        socket2::SockRef::from(&socket)
            .set_recv_buffer_size(8 << 20)
            .unwrap();
        let buffer = vec![0; 1 << 16];
        Self {
            socket,
            state,
            buffer,
        }
    }

    pub fn send(&self, destination: SocketAddr, ecn: Ecn, contents: &[u8]) {
        let transmit = quinn_udp::Transmit {
            destination,
            ecn: quinn_udp::EcnCodepoint::from_bits(ecn.bits()),
            contents,
            segment_size: None,
            src_ip: None,
        };
        self.state.send((&self.socket).into(), &transmit).unwrap();
    }

    pub fn receive(&mut self) -> (SocketAddr, Ecn, Vec<u8>) {
        let mut meta = [RecvMeta::default()];
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let count = self
            .state
            .recv((&self.socket).into(), &mut slices, &mut meta)
            .unwrap();
        assert_eq!((count, meta[0].stride), (1, meta[0].len));
        let bytes = self.buffer[..meta[0].len].to_vec();
        let ecn = meta[0]
            .ecn
            .map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn as u8));
        (meta[0].addr, ecn, bytes)
    }
}
