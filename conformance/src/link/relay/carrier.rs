//! The relay's thread: takes, decides, waits, sends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::frame::{Ecn, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{RelayError, RelayReport, RelaySetup, failed};
use crate::inject::{Delivery, stranger};
use crate::link::port::{Batch, Port};
use crate::trace::pcapng::TraceWriter;
use crate::trace::{Note, Observation, Side};

/// Source ports that are kept at a time, at most, for each direction.
const MOST_PORTS: usize = 512;
/// Batches taken from one socket before the others have their turn.
const TURN: usize = 4;
/// Datagrams sent before the sockets are looked at again.
const MOST_AT_ONCE: usize = 256;
/// TTL in the IP headers of the capture: a socket does not see the real one.
const TTL: u8 = 64;
/// Times that a full send buffer is waited for before a datagram counts as a fault of the harness.
const SEND_TRIES: u32 = 200;
/// How long the capture may lag behind what has happened, ns.
const FLUSH_EVERY: u64 = 100_000_000;
/// Timer resolution asked of the system for this thread, ns.
const TIMER_SLACK: u64 = 1_000;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    sequence: u64,
    from: Side,
    stranger: bool,
    src_port: u16,
    dst_port: u16,
    ecn: u8,
    bytes: Vec<u8>,
}

/// What carries packets.
pub(super) struct Carrier {
    setup: RelaySetup,
    capture: TraceWriter,
    /// By side, then by port: the relay's sockets at its address next to that side.
    ports: [BTreeMap<u16, Port>; 2],
    /// The same for packets that come from a stranger; nobody answers to them.
    strange: [BTreeMap<u16, Port>; 2],
    due: BinaryHeap<Reverse<Due>>,
    sequence: u64,
    jitter_ns: u64,
    strangers: u64,
    flushed: u64,
}

impl Carrier {
    /// Binds the service ports and creates the capture.
    pub(super) fn new(setup: RelaySetup) -> Result<Self, RelayError> {
        let bind = |address: SocketAddr| {
            let port =
                Port::bind(address).map_err(|e| failed(format!("cannot bind {address}: {e}")))?;
            Ok(BTreeMap::from([(address.port(), port)]))
        };
        let ports = [bind(setup.addresses.near)?, bind(setup.addresses.far)?];
        let headers = "IP headers are reconstructed from what a socket sees; TTL and identification are made up";
        let capture = TraceWriter::create(&setup.capture, headers).map_err(failed)?;
        Ok(Self {
            setup,
            capture,
            ports,
            strange: [BTreeMap::new(), BTreeMap::new()],
            due: BinaryHeap::new(),
            sequence: 0,
            jitter_ns: 0,
            strangers: 0,
            flushed: 0,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.setup.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Carries packets until the other end of `stop` is gone.
    pub(super) fn run(mut self, stop: &UnixStream) -> Result<RelayReport, RelayError> {
        // Without it, times are as coarse as the system has them.
        let _coarse = rustix::thread::set_current_timer_slack(TIMER_SLACK.try_into().ok());
        let mut batch = Batch::new();
        loop {
            let ready = self.wait(stop)?;
            let awake = self.now();
            for (side, port) in ready.ports {
                self.take(side, port, TURN, &mut batch)?;
            }
            if ready.stopped {
                return self.close(&mut batch);
            }
            let now = self.now();
            for delivery in self.setup.injector.expired(now) {
                self.schedule(now, delivery);
            }
            self.send_due()?;
            let now = self.now();
            // What came while it was busy has been seen so much too late, at most.
            self.jitter_ns = self.jitter_ns.max(now - awake);
            if now - self.flushed >= FLUSH_EVERY {
                self.capture.flush().map_err(failed)?;
                self.flushed = now;
            }
        }
    }

    /// Waits for a datagram, for the time of a packet, or for the end.
    fn wait(&self, stop: &UnixStream) -> Result<Ready, RelayError> {
        let due = self.due.peek().map(|Reverse(due)| due.at);
        let next = due
            .into_iter()
            .chain(self.setup.injector.deadline())
            .chain([self.flushed + FLUSH_EVERY])
            .min();
        let left = next.map_or(FLUSH_EVERY, |at| at.saturating_sub(self.now()));
        let timeout = Timespec::try_from(std::time::Duration::from_nanos(left)).map_err(failed)?;
        let mut names = Vec::new();
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        for side in Side::BOTH {
            for (number, port) in &self.ports[side.index()] {
                names.push((side, *number));
                fds.push(PollFd::new(port, PollFlags::IN));
            }
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let stopped = fds.first().is_some_and(is_ready);
        let ports = names
            .into_iter()
            .zip(fds.iter().skip(1))
            .filter(|(_, fd)| is_ready(fd))
            .map(|(name, _)| name)
            .collect();
        Ok(Ready { stopped, ports })
    }

    /// Takes what the party on `side` has sent to a port of the relay.
    fn take(
        &mut self,
        side: Side,
        number: u16,
        turns: usize,
        batch: &mut Batch,
    ) -> Result<(), RelayError> {
        for _ in 0..turns {
            let Some(port) = self.ports[side.index()].get(&number) else {
                return Ok(());
            };
            match port.receive(batch) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The other end of a port that nobody listens on: as lost as on any wire.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(failed(error)),
            }
            for (from, ecn, bytes) in batch.datagrams() {
                self.enter(side, number, from, ecn, bytes)?;
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        side: Side,
        number: u16,
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
            dst: SocketAddr::new(end.ip(), number),
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
            stranger: delivery.stranger,
            src_port: delivery.src.port(),
            dst_port: delivery.dst.port(),
            ecn: delivery.ecn.bits(),
            bytes: delivery.bytes,
        }));
    }

    fn send_due(&mut self) -> Result<(), RelayError> {
        for _ in 0..MOST_AT_ONCE {
            let now = self.now();
            if self.due.peek().is_none_or(|Reverse(due)| due.at > now) {
                break;
            }
            if let Some(Reverse(due)) = self.due.pop() {
                self.jitter_ns = self.jitter_ns.max(now - due.at);
                self.leave(now, due)?;
            }
        }
        Ok(())
    }

    fn leave(&mut self, now: u64, mut due: Due) -> Result<(), RelayError> {
        let to = due.from.other();
        let (was_src, was_dst) = self.setup.addresses.at(due.from);
        let (party, end) = self.setup.addresses.at(to);
        // The service port becomes the other one's; what was sent elsewhere goes elsewhere.
        let was_dst = SocketAddr::new(was_dst.ip(), due.dst_port);
        let service = due.dst_port == self.setup.addresses.at(due.from).1.port();
        let dst_port = if service { party.port() } else { due.dst_port };
        let dst = SocketAddr::new(party.ip(), dst_port);
        let ip = if due.stranger {
            stranger(end.ip())
        } else {
            end.ip()
        };
        let src = SocketAddr::new(ip, due.src_port);
        let before = PseudoHeader::new(was_src.ip(), was_dst);
        let after = PseudoHeader::new(src.ip(), dst);
        // Too short for a trailer: there is nothing to carry over.
        let _too_short = crc::translate(&before, &after, &mut due.bytes);
        let ecn = Ecn::from_bits(due.ecn);
        let frame = Frame {
            src,
            dst,
            ecn,
            ttl: TTL,
            payload: &due.bytes,
        };
        // Seen before it is sent: whatever the party does about it is seen later.
        self.observe(now, to, due.from, &frame, Vec::new())?;
        self.send(to, src, dst, ecn, &due.bytes)
    }

    fn send(
        &mut self,
        to: Side,
        src: SocketAddr,
        dst: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) -> Result<(), RelayError> {
        let ports = if src.ip() == self.setup.addresses.at(to).1.ip() {
            &mut self.ports[to.index()]
        } else {
            &mut self.strange[to.index()]
        };
        let full = ports.len() > MOST_PORTS;
        let port = match ports.entry(src.port()) {
            std::collections::btree_map::Entry::Occupied(port) => port.into_mut(),
            std::collections::btree_map::Entry::Vacant(_) if full => {
                return Err(failed(format!("more than {MOST_PORTS} source ports")));
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                let port = Port::bind(src).map_err(|e| failed(format!("cannot bind {src}: {e}")));
                place.insert(port?)
            }
        };
        for _ in 0..SEND_TRIES {
            match port.send(dst, ecn, bytes) {
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

    /// Takes what was sent before the end, and closes the capture. What has not left by now counts as held.
    fn close(mut self, batch: &mut Batch) -> Result<RelayReport, RelayError> {
        for side in Side::BOTH {
            let numbers: Vec<u16> = self.ports[side.index()].keys().copied().collect();
            for number in numbers {
                self.take(side, number, usize::MAX, batch)?;
            }
        }
        self.capture.finish().map_err(failed)?;
        let ports = self.ports.iter().flat_map(BTreeMap::values);
        let overflowed: u64 = ports.map(Port::overflowed).sum();
        if overflowed > 0 {
            return Err(failed(format!(
                "{overflowed} datagrams were lost before they were seen: a receive buffer was full"
            )));
        }
        let waiting = self.setup.injector.held();
        let held = Side::BOTH.map(|side| {
            let due = self.due.iter();
            let due = due.filter(|Reverse(due)| due.from == side).count();
            waiting[side.index()] + due as u64
        });
        Ok(RelayReport {
            rules: self.setup.injector.counts(),
            held,
            jitter_ns: self.jitter_ns,
            strangers: self.strangers,
        })
    }
}

/// What a wait has brought.
struct Ready {
    stopped: bool,
    ports: Vec<(Side, u16)>,
}
