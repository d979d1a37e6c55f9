//! A relay between two loopback addresses, one thread: every datagram from one party goes to the other, through a
//! [line](mod@line) in each direction. Ports and congestion marks stay; addresses become the relay's own, so the trailer of
//! the protocol, which covers them, is carried over; foreign datagrams have none.

pub mod line;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metaroce_wire::crc::{self, PseudoHeader};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::event::{Timespec, epoll};

use crate::machine;
use line::{Counts, Line, LineSetup};

/// Buffers asked of the system, bytes; it may give less.
const BUFFER: usize = 8 << 20;
/// Largest datagram, or row of datagrams that the system has joined.
const LARGEST: usize = 1 << 16;
/// Source ports, at most, for each direction.
const MOST_PORTS: usize = 300;
/// Longest sleep, ns: how late the end is noticed.
const LONGEST_SLEEP: u64 = 20_000_000;
/// How often the relay looks for packets while there are any under way, ns: how coarse its times are.
const GRAIN: u64 = 100_000;
/// Calls for more from one socket before the others have their turn.
const TURN: usize = 4;

/// Loopback addresses of two parties and of the relay's two ends between them.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// The sender.
    pub a: IpAddr,
    /// The receiver, as the sender knows it.
    pub near: IpAddr,
    /// The sender, as the receiver knows it.
    pub far: IpAddr,
    /// The receiver.
    pub b: IpAddr,
}

impl Addresses {
    /// A block of the loopback net; different numbers give different blocks.
    pub fn block(number: u32) -> Self {
        // Blocks of this process only; another process has other ones.
        let block = std::process::id().wrapping_mul(31).wrapping_add(number);
        let (x, y) = ((block >> 8) as u8 % 250 + 2, block as u8);
        let address = |host| IpAddr::V4(Ipv4Addr::new(127, x, y, host));
        Self {
            a: address(1),
            near: address(2),
            far: address(3),
            b: address(4),
        }
    }
}

/// What a relay is made of.
pub struct RelaySetup {
    /// Addresses.
    pub addresses: Addresses,
    /// Port of the service, bound on both ends from the start.
    pub service: u16,
    /// Whether the datagrams bear the trailer of the protocol.
    pub trailer: bool,
    /// Both directions.
    pub line: LineSetup,
    /// Share lost at random, from A and from B.
    pub loss: [f64; 2],
    /// Seed of the loss.
    pub seed: u64,
}

/// What a relay has done.
#[derive(Debug)]
pub struct RelayReport {
    /// From A and from B.
    pub counts: Arc<[Counts; 2]>,
    /// Datagrams that the system lost before the relay saw them: then the run shows the relay, not the parties.
    pub unseen: u64,
    /// Largest lateness of a packet, ns.
    pub late_ns: u64,
    /// Mean lateness, ns.
    pub mean_late_ns: f64,
    /// Share of a core that the thread used, from its first packet to its last.
    pub cpu: f64,
}

/// A running relay.
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<RelayReport>>,
}

impl Relay {
    /// Binds and starts.
    ///
    /// # Errors
    /// Whatever the system has against it.
    pub fn start(setup: RelaySetup) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut carrier = Carrier::new(&setup)?;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || carrier.run(&stopped))?;
        Ok(Self { stop, thread })
    }

    /// Stops it.
    ///
    /// # Errors
    /// When it had failed before.
    pub fn finish(self) -> io::Result<RelayReport> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("the relay has panicked")))
    }
}

struct Port {
    io: UdpSocket,
    state: UdpSocketState,
}

impl Port {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let io = UdpSocket::bind(address)?;
        let socket = socket2::SockRef::from(&io);
        // With smaller buffers than asked for a burst may be lost, which is counted and reported.
        let _smaller = socket.set_recv_buffer_size(BUFFER);
        let _smaller = socket.set_send_buffer_size(BUFFER);
        let state = UdpSocketState::new((&io).into())?;
        Ok(Self { io, state })
    }

    /// Datagrams that the system has thrown away because the receive buffer was full.
    fn unseen(&self, table: &str) -> u64 {
        let Ok(SocketAddr::V4(local)) = self.io.local_addr() else {
            return 0;
        };
        // The address stands there as the machine holds it in memory, the port as a number.
        let address = u32::from_ne_bytes(local.ip().octets());
        let wanted = format!("{address:08X}:{:04X}", local.port());
        let rows = table.lines().map(str::split_whitespace);
        let mut row = rows.filter(|row| row.clone().nth(1) == Some(&wanted));
        row.next()
            .and_then(|row| row.last()?.parse().ok())
            .unwrap_or(0)
    }
}

struct Due {
    at: u64,
    src_port: u16,
    dst_port: u16,
    ecn: Option<EcnCodepoint>,
    bytes: Vec<u8>,
}

/// One side of the relay: what comes in here, and what waits to leave on the other side.
struct Side {
    /// The party and the relay's end next to it.
    party: IpAddr,
    end: IpAddr,
    line: Line,
    due: VecDeque<Due>,
    /// By port, with the place in the list of ports.
    by_port: BTreeMap<u16, usize>,
    /// Difference between the trailers of both sides, by destination port and length.
    differences: BTreeMap<(u16, usize), u32>,
}

struct Carrier {
    sides: [Side; 2],
    ports: Vec<(usize, Port)>,
    epoll: rustix::fd::OwnedFd,
    trailer: bool,
    spare: Vec<Vec<u8>>,
    counts: Arc<[Counts; 2]>,
    start: Instant,
    late_ns: u64,
    /// Sum of lateness, ns, and how many packets it is of.
    all_late: (u64, u64),
    /// Time and processor time at the first packet and at the latest.
    active: Option<[(Instant, Duration); 2]>,
}

impl Carrier {
    fn new(setup: &RelaySetup) -> io::Result<Self> {
        let Addresses { a, near, far, b } = setup.addresses;
        let side = |party, end, direction: usize| Side {
            party,
            end,
            line: Line::new(
                setup.line,
                setup.loss[direction],
                setup.seed * 2 + direction as u64,
            ),
            due: VecDeque::new(),
            by_port: BTreeMap::new(),
            differences: BTreeMap::new(),
        };
        let mut carrier = Self {
            sides: [side(a, near, 0), side(b, far, 1)],
            ports: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            trailer: setup.trailer,
            spare: Vec::new(),
            counts: Arc::default(),
            start: Instant::now(),
            late_ns: 0,
            all_late: (0, 0),
            active: None,
        };
        for side in 0..2 {
            carrier.port(side, setup.service)?;
        }
        Ok(carrier)
    }

    /// The place of a port on a side; it is bound when it is first needed.
    fn port(&mut self, side: usize, number: u16) -> io::Result<usize> {
        if let Some(&place) = self.sides[side].by_port.get(&number) {
            return Ok(place);
        }
        if self.sides[side].by_port.len() >= MOST_PORTS {
            return Err(io::Error::other("the relay has no more ports"));
        }
        let port = Port::bind(SocketAddr::new(self.sides[side].end, number))?;
        let place = self.ports.len();
        let data = epoll::EventData::new_u64(place as u64);
        epoll::add(&self.epoll, &port.io, data, epoll::EventFlags::IN)?;
        self.ports.push((side, port));
        self.sides[side].by_port.insert(number, place);
        Ok(place)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(&mut self, stop: &AtomicBool) -> io::Result<RelayReport> {
        machine::fine_timers();
        let mut buffers = vec![vec![0; LARGEST]; BATCH_SIZE];
        let mut ready = Vec::with_capacity(64);
        while !stop.load(Ordering::Relaxed) {
            self.wait(&mut ready)?;
            let places: Vec<u64> = ready.iter().map(|event| event.data.u64()).collect();
            for &place in &places {
                self.receive(place as usize, &mut buffers)?;
            }
            let sent = self.send_due()?;
            if !places.is_empty() || sent {
                let point = (Instant::now(), machine::thread_cpu());
                let [first, _] = self.active.unwrap_or([point; 2]);
                self.active = Some([first, point]);
            }
        }
        let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        let cpu = self.active.map_or(0.0, |[first, last]| {
            let time = last.0.duration_since(first.0).as_secs_f64();
            last.1.saturating_sub(first.1).as_secs_f64() / time.max(1e-9)
        });
        Ok(RelayReport {
            counts: Arc::clone(&self.counts),
            unseen: self.ports.iter().map(|(_, port)| port.unseen(&table)).sum(),
            late_ns: self.late_ns,
            mean_late_ns: self.all_late.0 as f64 / self.all_late.1.max(1) as f64,
            cpu,
        })
    }

    /// Waits for something to receive or to send. While packets are under way it looks only every [`GRAIN`]: a wake-up
    /// for each of them would take most of a core, from the parties too.
    fn wait(&self, ready: &mut Vec<epoll::Event>) -> io::Result<()> {
        let next = self.sides.iter().filter_map(|side| side.due.front());
        let mut timeout = Duration::from_nanos(LONGEST_SLEEP);
        if let Some(at) = next.map(|due| due.at).min() {
            timeout = Duration::ZERO;
            let now = self.now();
            if at > now {
                std::thread::sleep(Duration::from_nanos(GRAIN - now % GRAIN));
            }
        }
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        ready.clear();
        let spare = rustix::buffer::spare_capacity(ready);
        match epoll::wait(&self.epoll, spare, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, place: usize, buffers: &mut [Vec<u8>]) -> io::Result<()> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        for _ in 0..TURN {
            let Some((side, port)) = self.ports.get(place) else {
                return Ok(());
            };
            let side = *side;
            let number = port.io.local_addr()?.port();
            let mut slices: Vec<IoSliceMut<'_>> =
                buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let count = match port.state.recv((&port.io).into(), &mut slices, &mut metas) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The other end of a port that nobody listens on: as lost as on any wire.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let now = self.now();
            for (meta, buffer) in metas.iter().zip(&*buffers).take(count) {
                let row = buffer.get(..meta.len).unwrap_or_default();
                for datagram in row.chunks(meta.stride.max(1)) {
                    self.take(now, side, number, meta, datagram);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, now: u64, from: usize, number: u16, meta: &RecvMeta, bytes: &[u8]) {
        let side = &mut self.sides[from];
        if meta.addr.ip() != side.party {
            return;
        }
        let taken = side
            .line
            .take(now, bytes.len(), meta.ecn, &self.counts[from]);
        let Some((at, ecn)) = taken else { return };
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        side.due.push_back(Due {
            at,
            src_port: meta.addr.port(),
            dst_port: number,
            ecn,
            bytes: copy,
        });
    }

    /// Sends what is due; tells whether there was any.
    fn send_due(&mut self) -> io::Result<bool> {
        let mut any = false;
        for from in 0..2 {
            loop {
                let now = self.now();
                let is_due = |due: &mut Due| due.at <= now;
                let Some(mut due) = self.sides[from].due.pop_front_if(is_due) else {
                    break;
                };
                self.late_ns = self.late_ns.max(now - due.at);
                self.all_late.0 += now - due.at;
                self.all_late.1 += 1;
                self.leave(from, &mut due)?;
                self.spare.push(due.bytes);
                any = true;
            }
        }
        Ok(any)
    }

    fn leave(&mut self, from: usize, due: &mut Due) -> io::Result<()> {
        let to = 1 - from;
        let destination = SocketAddr::new(self.sides[to].party, due.dst_port);
        if self.trailer {
            self.carry_over(from, destination, &mut due.bytes);
        }
        let place = self.port(to, due.src_port)?;
        let transmit = Transmit {
            destination,
            ecn: due.ecn,
            contents: &due.bytes,
            segment_size: None,
            src_ip: None,
        };
        let Some((_, port)) = self.ports.get(place) else {
            return Ok(());
        };
        match port.state.try_send((&port.io).into(), &transmit) {
            Ok(()) => Counts::add(&self.counts[from].delivered),
            // A party that has ended, or a full buffer: the difference of the counts shows it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Carries the trailer over to the addresses of the other side. The CRC is linear: both trailers differ by a value
    /// that depends on addresses and length alone, so it is computed once.
    fn carry_over(&mut self, from: usize, destination: SocketAddr, bytes: &mut [u8]) {
        let to = 1 - from;
        let (src, was) = (self.sides[from].party, self.sides[from].end);
        let own = self.sides[to].end;
        let key = (destination.port(), bytes.len());
        let difference = *self.sides[from].differences.entry(key).or_insert_with(|| {
            let before = PseudoHeader::new(src, SocketAddr::new(was, destination.port()));
            let after = PseudoHeader::new(own, destination);
            let nothing = vec![0; bytes.len().saturating_sub(crc::LEN)];
            crc::compute(&before, &nothing) ^ crc::compute(&after, &nothing)
        });
        // Too short for a trailer: there is nothing to carry over.
        if let Some(trailer) = bytes.last_chunk_mut::<{ crc::LEN }>() {
            *trailer = (u32::from_be_bytes(*trailer) ^ difference).to_be_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_arrives_with_its_port_its_mark_and_a_right_trailer() {
        let addresses = Addresses::block(1);
        let b = Port::bind(SocketAddr::new(addresses.b, 0)).unwrap();
        let service = b.io.local_addr().unwrap().port();
        let a = Port::bind(SocketAddr::new(addresses.a, 0)).unwrap();
        let source = a.io.local_addr().unwrap().port();
        let relay = Relay::start(RelaySetup {
            addresses,
            service,
            trailer: true,
            line: LineSetup::new(1000, 1, 1000.0),
            loss: [0.0, 0.0],
            seed: 1,
        })
        .unwrap();
        let near = SocketAddr::new(addresses.near, service);
        let mut bytes = *b"a few bytes and their trailer 0000";
        crc::seal(&PseudoHeader::new(addresses.a, near), &mut bytes).unwrap();
        let transmit = Transmit {
            destination: near,
            ecn: Some(EcnCodepoint::Ect0),
            contents: &bytes,
            segment_size: None,
            src_ip: None,
        };
        a.state.try_send((&a.io).into(), &transmit).unwrap();
        b.io.set_nonblocking(false).unwrap();
        b.io.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut buffer = [0; 100];
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let mut metas = [RecvMeta::default()];
        b.state
            .recv((&b.io).into(), &mut slices, &mut metas)
            .unwrap();
        let [meta] = metas;
        assert_eq!(meta.addr, SocketAddr::new(addresses.far, source));
        assert_eq!(meta.ecn, Some(EcnCodepoint::Ect0));
        let pseudo = PseudoHeader::new(addresses.far, b.io.local_addr().unwrap());
        crc::verify(&pseudo, &buffer[..meta.len]).unwrap();
        let report = relay.finish().unwrap();
        assert_eq!(report.counts[0].delivered.load(Ordering::Relaxed), 1);
        assert_eq!(report.unseen, 0);
    }
}
