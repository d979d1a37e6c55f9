//! The relay: two parties in processes of their own, over real UDP sockets on loopback addresses, without privileges.
//!
//! A knows B by the address `near`, B knows A by the address `far`; both belong to the relay. UDP source ports are kept
//! by sending from the same port of the relay's own address. Addresses change, so the trailer, which covers them, is
//! carried over: a right one stays right and a wrong one stays wrong.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::frame::{Ecn, Frame};
use tokio::sync::Notify;

use super::Socket;
use crate::evidence::RuleCount;
use crate::inject::{Delivery, Injector};
use crate::trace::pcapng::TraceWriter;
use crate::trace::{Note, Observation, Side};

/// Source ports that are kept at a time, at most, for each direction.
const MOST_PORTS: usize = 512;
/// Datagrams taken from one socket before the other has its turn.
const TURN: usize = 64;
/// TTL in the IP headers of the capture: a socket does not see the real one.
const TTL: u8 = 64;
/// Times that a full send buffer is waited for before a datagram counts as a fault of the harness.
const SEND_TRIES: u32 = 200;

/// The four addresses of a test, with the service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayAddresses {
    /// The initiator.
    pub a: SocketAddr,
    /// The acceptor, as the initiator knows it.
    pub near: SocketAddr,
    /// The initiator, as the acceptor knows it.
    pub far: SocketAddr,
    /// The acceptor.
    pub b: SocketAddr,
}

impl RelayAddresses {
    /// Four addresses of the loopback net that are free on `port`, from a block that depends on `hint`.
    ///
    /// # Errors
    /// When no block of many tried is free.
    pub fn find(port: u16, hint: u64) -> io::Result<Self> {
        let mut last = io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "no loopback address is free",
        );
        for attempt in 0..64u64 {
            let block = hint
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23)
                .wrapping_add(attempt * 257);
            let (x, y) = ((block >> 8) as u8 % 253 + 1, block as u8);
            let address = |host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, x, y, host)), port);
            let found = Self {
                a: address(1),
                near: address(2),
                far: address(3),
                b: address(4),
            };
            let free = [found.a, found.near, found.far, found.b].map(std::net::UdpSocket::bind);
            match free.into_iter().find_map(Result::err) {
                None => return Ok(found),
                Some(error) => last = error,
            }
        }
        Err(last)
    }

    /// The address of the party on `side`, and of the relay's end next to it.
    fn at(&self, side: Side) -> (SocketAddr, SocketAddr) {
        match side {
            Side::A => (self.a, self.near),
            Side::B => (self.b, self.far),
        }
    }
}

/// What a relay is made of.
pub struct RelaySetup {
    /// Addresses.
    pub addresses: RelayAddresses,
    /// One-way delay, ns.
    pub delay_ns: u64,
    /// Rules.
    pub injector: Injector,
    /// Where the capture goes.
    pub capture: PathBuf,
    /// Time 0 of the capture.
    pub start: Instant,
}

/// Why the relay cannot start or go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("relay: {0}")]
pub struct RelayError(String);

fn failed(error: impl ToString) -> RelayError {
    RelayError(error.to_string())
}

/// What is known once the relay has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayReport {
    /// How often each rule acted.
    pub rules: Vec<RuleCount>,
    /// Packets still inside, from A and from B.
    pub held: [u64; 2],
    /// Largest lateness of a packet that the relay had held for its delay, ns.
    pub jitter_ns: u64,
    /// Datagrams from other addresses than the two parties'.
    pub strangers: u64,
}

/// A running relay. Dropping it stops it.
pub struct Relay {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<Result<RelayReport, RelayError>>>,
}

impl Relay {
    /// Binds the relay's addresses and starts to carry packets.
    ///
    /// # Errors
    /// [`RelayError`].
    pub fn start(setup: RelaySetup) -> Result<Self, RelayError> {
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build();
            let runtime = runtime.map_err(failed)?;
            runtime.block_on(async {
                let carrier = Carrier::new(setup);
                let started = carrier.as_ref().map(drop).map_err(Clone::clone);
                // Nobody waits any more when the starter has gone away.
                let _gone = ready.send(started);
                carrier?.run(&stopped).await
            })
        });
        let started = is_ready.recv().map_err(failed)?;
        let relay = Self {
            stop,
            thread: Some(thread),
        };
        started.map(|()| relay)
    }

    /// Stops it and closes the capture.
    ///
    /// # Errors
    /// [`RelayError`] when it had failed, or the capture did.
    pub fn finish(mut self) -> Result<RelayReport, RelayError> {
        self.stop.notify_one();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(report)) => report,
            _ => Err(failed("its thread has ended in a panic")),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    sequence: u64,
    from: Side,
    src_port: u16,
    ecn: u8,
    bytes: Vec<u8>,
}

struct Carrier {
    setup: RelaySetup,
    capture: TraceWriter,
    listeners: [Socket; 2],
    senders: [BTreeMap<u16, Socket>; 2],
    due: BinaryHeap<Reverse<Due>>,
    sequence: u64,
    jitter_ns: u64,
    strangers: u64,
}

impl Carrier {
    fn new(setup: RelaySetup) -> Result<Self, RelayError> {
        let bind = |address: SocketAddr| {
            Socket::bind(address).map_err(|e| failed(format!("cannot bind {address}: {e}")))
        };
        let listeners = [bind(setup.addresses.near)?, bind(setup.addresses.far)?];
        let headers = "IP headers are reconstructed from what a socket sees; TTL and identification are made up";
        let capture = TraceWriter::create(&setup.capture, headers).map_err(failed)?;
        Ok(Self {
            setup,
            capture,
            listeners,
            senders: [BTreeMap::new(), BTreeMap::new()],
            due: BinaryHeap::new(),
            sequence: 0,
            jitter_ns: 0,
            strangers: 0,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.setup.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    async fn run(mut self, stop: &Notify) -> Result<RelayReport, RelayError> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let due = self.due.peek().map(|Reverse(due)| due.at);
            let next = due.into_iter().chain(self.setup.injector.deadline()).min();
            let wait = next.map_or(Duration::from_secs(3600), |at| {
                Duration::from_nanos(at.saturating_sub(self.now()))
            });
            tokio::select! {
                () = stop.notified() => return self.close(),
                ready = self.listeners[0].readable() => ready.map_err(failed)?,
                ready = self.listeners[1].readable() => ready.map_err(failed)?,
                () = tokio::time::sleep(wait), if !wait.is_zero() => {}
                () = std::future::ready(()), if wait.is_zero() => {}
            }
            for side in Side::BOTH {
                self.take(side, &mut buffer)?;
            }
            let now = self.now();
            for delivery in self.setup.injector.expired(now) {
                self.schedule(now, delivery);
            }
            self.send_due()?;
        }
    }

    /// Takes what the party on `side` has sent.
    fn take(&mut self, side: Side, buffer: &mut [u8]) -> Result<(), RelayError> {
        for _ in 0..TURN {
            let mut arrived = Vec::new();
            let each = |from, ecn, bytes: &[u8]| arrived.push((from, ecn, bytes.to_vec()));
            match self.listeners[side.index()].receive(buffer, each) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The other end of a port that nobody listens on: as lost as on any wire.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(failed(error)),
            }
            for (from, ecn, bytes) in arrived {
                self.enter(side, from, ecn, &bytes)?;
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        side: Side,
        src: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) -> Result<(), RelayError> {
        let (party, end) = self.setup.addresses.at(side);
        if src.ip() != party.ip() {
            self.strangers += 1;
            return Ok(());
        }
        let now = self.now();
        let frame = Frame {
            src,
            dst: end,
            ecn,
            ttl: TTL,
            payload: bytes,
        };
        let decision = self.setup.injector.decide(now, side, &frame);
        self.observe(now, side, side, &frame, decision.notes)?;
        for delivery in decision.deliveries {
            self.schedule(now, delivery);
        }
        Ok(())
    }

    fn schedule(&mut self, now: u64, delivery: Delivery) {
        self.sequence += 1;
        self.due.push(Reverse(Due {
            at: now + self.setup.delay_ns + delivery.delay_ns,
            sequence: self.sequence,
            from: delivery.from,
            src_port: delivery.src.port(),
            ecn: delivery.ecn.bits(),
            bytes: delivery.bytes,
        }));
    }

    fn send_due(&mut self) -> Result<(), RelayError> {
        while self
            .due
            .peek()
            .is_some_and(|Reverse(due)| due.at <= self.now())
        {
            let Some(Reverse(mut due)) = self.due.pop() else {
                break;
            };
            let to = due.from.other();
            let (was_src, was_dst) = self.setup.addresses.at(due.from);
            let (party, end) = self.setup.addresses.at(to);
            let before = PseudoHeader::new(was_src.ip(), was_dst);
            let after = PseudoHeader::new(end.ip(), party);
            // Too short for a trailer: there is nothing to carry over.
            let _too_short = crc::translate(&before, &after, &mut due.bytes);
            let ecn = Ecn::from_bits(due.ecn);
            let src = SocketAddr::new(end.ip(), due.src_port);
            let now = self.now();
            self.jitter_ns = self.jitter_ns.max(now - due.at);
            let frame = Frame {
                src,
                dst: party,
                ecn,
                ttl: TTL,
                payload: &due.bytes,
            };
            // Seen before it is sent: whatever the party does about it is seen later.
            self.observe(now, to, due.from, &frame, Vec::new())?;
            self.send(to, src, party, ecn, &due.bytes)?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        to: Side,
        src: SocketAddr,
        dst: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) -> Result<(), RelayError> {
        let senders = &mut self.senders[to.index()];
        if !senders.contains_key(&src.port()) && src.port() != dst.port() {
            if senders.len() >= MOST_PORTS {
                return Err(failed(format!("more than {MOST_PORTS} source ports")));
            }
            let socket =
                Socket::bind(src).map_err(|e| failed(format!("cannot bind {src}: {e}")))?;
            senders.insert(src.port(), socket);
        }
        let socket = senders
            .get(&src.port())
            .unwrap_or(&self.listeners[to.index()]);
        for _ in 0..SEND_TRIES {
            match socket.send(dst, ecn, bytes) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                // Nobody listens there any more: as lost as on any wire.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
                Err(error) => {
                    return Err(failed(format!("cannot send from {src} to {dst}: {error}")));
                }
            }
        }
        Err(failed("the send buffer stays full"))
    }

    fn observe(
        &mut self,
        time_ns: u64,
        tap: Side,
        from: Side,
        frame: &Frame<'_>,
        notes: Vec<Note>,
    ) -> Result<(), RelayError> {
        let mut bytes = vec![0; frame.ip_len()];
        frame.emit(&mut bytes).map_err(failed)?;
        self.capture
            .write(&Observation {
                time_ns,
                tap,
                from,
                frame: bytes,
                notes,
            })
            .map_err(failed)
    }

    fn close(self) -> Result<RelayReport, RelayError> {
        let waiting = self.setup.injector.held();
        let held = Side::BOTH.map(|side| {
            let due = self
                .due
                .iter()
                .filter(|Reverse(due)| due.from == side)
                .count();
            waiting[side.index()] + due as u64
        });
        self.capture.finish().map_err(failed)?;
        Ok(RelayReport {
            rules: self.setup.injector.counts(),
            held,
            jitter_ns: self.jitter_ns,
            strangers: self.strangers,
        })
    }
}
