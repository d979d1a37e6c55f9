//! All that touches the reference endpoint: a party over real sockets, and its bulk transfer.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use metaroce_endpoint::core::Region;
use metaroce_endpoint::core::{
    Access, Buffer, Config, Data, Endpoint, Event, Misuse, Op, Remote, Service, Status, Work,
};
use metaroce_endpoint::udp::{Driver, Pace, Sockets};
use metaroce_wire::crc;
use metaroce_wire::metaroce::{Cbh, Msgh, Tagh};
use tokio::sync::oneshot::Receiver;

use crate::party::{Bulk, Counted, Figures, Ready, Said, Window, say};

/// First source port; one more for each path.
const FIRST_SOURCE_PORT: u16 = 21_000;
/// Port of the service, on both sides.
pub const SERVICE_PORT: u16 = 20_999;
/// Datagrams carried by hand before the other side has its turn.
const TURN: usize = 64;
/// How long the end of a connection is waited for.
const CLOSING: Duration = Duration::from_millis(500);

/// UDP payload of a packet of a Write with so much of the message in it, bytes.
pub fn datagram(payload: u16) -> usize {
    Cbh::LEN + Msgh::LEN + Tagh::LEN + usize::from(payload) + crc::LEN
}

/// Whether packets can be sent in rows of this length on one path.
pub fn offers_rows_of(row: usize) -> bool {
    (1..=16).contains(&row)
}

/// What a connection is asked to be.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Paths.
    pub paths: u16,
    /// Streams.
    pub streams: u16,
    /// Payload bytes of a packet.
    pub payload: u16,
    /// Messages in flight per stream.
    pub depth: u16,
    /// Packets in a row on one path.
    pub row: usize,
    /// Connections at a time.
    pub connections: usize,
}

/// What a party hears of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A connection and its streams are open.
    Established(u32),
    /// A Write is complete.
    Written(u32),
    /// A connection has ended: well, or for this reason.
    Ended(Option<String>),
}

/// An endpoint with its sockets.
pub struct Party {
    core: Endpoint,
    driver: Driver,
    service: Service,
    news: VecDeque<News>,
}

impl Party {
    /// Binds, and listens where it is to accept.
    ///
    /// # Errors
    /// When the system or the endpoint refuses.
    pub fn start(local: SocketAddr, shape: &Shape, accepts: bool) -> io::Result<Self> {
        let core = Endpoint::new(config(local, u64::from(accepts), shape));
        let mut core = core.map_err(io::Error::other)?;
        let service = service(shape);
        if accepts {
            core.listen(service).map_err(io::Error::other)?;
        }
        let mut driver = Driver::new(Pace::default())?;
        driver.set_sockets(Some(Sockets::bind(local)?));
        Ok(Self {
            core,
            driver,
            service,
            news: VecDeque::new(),
        })
    }

    fn now(&self) -> u64 {
        self.driver.now()
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// When the endpoint refuses.
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<u32> {
        let now = self.now();
        let connected = self.core.connect(now, peer, self.service);
        connected.map_err(io::Error::other)
    }

    /// Registers memory that the peer may write to.
    ///
    /// # Errors
    /// When the endpoint refuses.
    pub fn register(&mut self, len: usize) -> io::Result<Region> {
        self.core.register(len, WRITABLE).map_err(io::Error::other)
    }

    /// The bytes of a region.
    pub fn memory(&mut self, region: &Region) -> &mut [u8] {
        self.core.memory_mut(region.mr).unwrap_or_default()
    }

    /// Posts a Write of `len` bytes at `offset`, of the own region and of the peer's.
    ///
    /// # Errors
    /// When the endpoint refuses.
    pub fn write(
        &mut self,
        (conn, stream): (u32, u16),
        own: &Region,
        peer: (u64, u32),
        (offset, len): (usize, usize),
    ) -> io::Result<()> {
        let now = self.now();
        let peer = (peer.0 + offset as u64, peer.1);
        let posted = post(
            &mut self.core,
            now,
            (conn, stream),
            (own, offset, len),
            peer,
        );
        posted.map_err(io::Error::other)
    }

    /// Closes a connection.
    pub fn close(&mut self, conn: u32) {
        let now = self.now();
        // Already over.
        let _over = self.core.close(now, conn);
    }

    /// The next news.
    pub fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn hear(&mut self) {
        while let Some(event) = self.core.poll_event() {
            self.news.push_back(match event {
                Event::Established { conn, .. } => News::Established(conn),
                Event::Completion(done) if done.status == Status::Success => {
                    News::Written(done.conn)
                }
                Event::Completion(done) => News::Ended(Some(done.status.to_string())),
                Event::Closed { .. } => News::Ended(None),
                Event::Failed { message, .. } => News::Ended(Some(message)),
                Event::StreamEnded { status, .. } => News::Ended(Some(status.to_string())),
                Event::StreamOpened { .. } | Event::PathAlive { .. } => continue,
            });
        }
    }

    /// Receives, does what is due and sends, once; then waits for more, at most for so long, unless there is news.
    pub async fn turn(&mut self, longest: Duration) -> io::Result<()> {
        let more = self.driver.turn(&mut self.core);
        self.hear();
        let latest = self.now().saturating_add(longest.as_nanos() as u64);
        let due = self.core.poll_timeout().unwrap_or(latest).min(latest);
        // News may lead to work, which is sent in the next turn.
        let more = more || !self.news.is_empty();
        self.driver.wait(Some(due), more).await
    }

    /// What a connection has counted.
    pub fn counted(&self, conn: u32) -> Option<Counted> {
        self.core.counters(conn).map(|counters| Counted {
            sent: counters.packets_sent,
            again: counters.retransmissions,
            timeouts: counters.timeouts,
        })
    }

    /// Datagrams that the system did not take.
    pub fn refused(&self) -> u64 {
        self.driver
            .sockets()
            .map_or(0, |sockets| sockets.losses().unsent())
    }
}

/// What a transfer without sockets took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Datagrams from the sender and from the receiver.
    pub datagrams: [u64; 2],
}

/// Carries Writes between two endpoints by hand, without sockets and on a clock of its own: the same work every time.
///
/// # Errors
/// When an endpoint refuses, or nothing moves any more.
pub fn by_hand(payload: u16, paths: u16, message: usize, messages: usize) -> io::Result<Moved> {
    let address = |host| SocketAddr::from(([127, 0, 0, host], SERVICE_PORT));
    let shape = Shape {
        paths,
        streams: 1,
        payload,
        depth: 16,
        row: 1,
        connections: 1,
    };
    let service = Service {
        initial_psn: Some(1),
        ..service(&shape)
    };
    let mut endpoints = Vec::new();
    for host in [1, 2] {
        let endpoint = Endpoint::new(config(address(host), u64::from(host), &shape));
        endpoints.push(endpoint.map_err(io::Error::other)?);
    }
    let [a, b] = endpoints.as_mut_slice() else {
        return Err(io::Error::other("there are two endpoints"));
    };
    b.listen(service).map_err(io::Error::other)?;
    let own = a.register(message, WRITABLE).map_err(io::Error::other)?;
    let peer = b.register(message, WRITABLE).map_err(io::Error::other)?;
    let mut now = 1_000;
    a.connect(now, address(2), service)
        .map_err(io::Error::other)?;

    let mut moved = Moved { datagrams: [0; 2] };
    let (mut posted, mut complete, mut idle) = (0, 0, 0);
    let mut conn = None;
    let mut out = Vec::new();
    while complete < messages {
        let mut any = false;
        for from in 0..2 {
            let (sender, receiver) = match from {
                0 => (&mut *a, &mut *b),
                _ => (&mut *b, &mut *a),
            };
            if sender.poll_timeout().is_some_and(|due| due <= now) {
                sender.handle_timeout(now);
            }
            for _ in 0..TURN {
                let Some(transmit) = sender.poll_transmit(now, &mut out) else {
                    break;
                };
                let source = address(from as u8 + 1).ip();
                let source = SocketAddr::new(source, transmit.src_port);
                receiver.handle_datagram(now, source, transmit.ecn, &out);
                moved.datagrams[from] += 1;
                any = true;
                now += 100;
            }
        }
        while let Some(event) = a.poll_event() {
            match event {
                Event::Established { conn: open, .. } => conn = Some(open),
                Event::Completion(done) if done.status == Status::Success => complete += 1,
                Event::StreamOpened { .. } | Event::PathAlive { .. } => {}
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
        while b.poll_event().is_some() {}
        while let Some(conn) = conn
            && posted < messages
            && posted < complete + 4
        {
            let (local, remote) = ((&own, 0, message), (peer.va, peer.rkey));
            post(a, now, (conn, 0), local, remote).map_err(io::Error::other)?;
            posted += 1;
            any = true;
        }
        idle = if any { 0 } else { idle + 1 };
        if idle > 100_000 {
            return Err(io::Error::other("nothing moves any more"));
        }
        if !any {
            let due = a.poll_timeout().into_iter().chain(b.poll_timeout()).min();
            now = due.unwrap_or(now).max(now + 100);
        }
    }
    Ok(moved)
}

const WRITABLE: Access = Access {
    remote_write: true,
    remote_read: false,
    remote_atomic: false,
    invalidate: false,
    domain: 0,
};

fn config(local: SocketAddr, seed: u64, shape: &Shape) -> Config {
    Config {
        seed,
        source_ports: FIRST_SOURCE_PORT..FIRST_SOURCE_PORT + shape.paths,
        max_connections: shape.connections,
        spray_run: u8::try_from(shape.row).unwrap_or(0),
        ..Config::new(local)
    }
}

fn service(shape: &Shape) -> Service {
    Service {
        paths: shape.paths,
        streams: shape.streams,
        first_streams: shape.streams,
        payload_size: shape.payload,
        msg_window: shape.depth,
        ..Service::default()
    }
}

fn post(
    core: &mut Endpoint,
    now: u64,
    (conn, stream): (u32, u16),
    (own, offset, len): (&Region, usize, usize),
    (va, rkey): (u64, u32),
) -> Result<(), Misuse> {
    let mr = own.mr;
    let data = Data::Buffer(Buffer { mr, offset, len });
    let op = Op::Write(Remote { va, rkey });
    core.post(now, conn, stream, Work::new(0, op, data))
}

fn shape(bulk: &Bulk) -> Shape {
    Shape {
        paths: bulk.paths,
        streams: 1,
        payload: bulk.payload,
        depth: bulk.depth as u16,
        row: bulk.row,
        connections: 1,
    }
}

/// What the sender's memory holds, and in the end the receiver's: no two words are the same.
fn pattern(at: usize) -> [u8; 8] {
    (at as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_le_bytes()
}

/// Takes Writes until its time is over, then looks whether every byte has arrived.
///
/// # Errors
/// When the endpoint fails or a byte is wrong.
pub async fn receive(
    bulk: &Bulk,
    local: SocketAddr,
    mut ended: Receiver<()>,
) -> io::Result<Figures> {
    let local = SocketAddr::new(local.ip(), SERVICE_PORT);
    let mut party = Party::start(local, &shape(bulk), true)?;
    let region = party.register(bulk.message * bulk.depth)?;
    say(&Said::Ready(Ready {
        port: local.port(),
        region: Some((region.va, region.rkey)),
        certificate: None,
    }));
    let mut window = Window::new(bulk);
    let mut connected = false;
    while ended
        .try_recv()
        .is_err_and(|e| e == tokio::sync::oneshot::error::TryRecvError::Empty)
    {
        party.turn(Duration::from_millis(20)).await?;
        while let Some(news) = party.news() {
            match news {
                News::Established(_) => connected = true,
                News::Ended(Some(why)) => return Err(io::Error::other(why)),
                News::Ended(None) | News::Written(_) => {}
            }
        }
        if connected {
            // For its processor time: nobody tells a receiver of Writes.
            window.count(0);
        }
    }
    let memory = party.memory(&region).chunks(8).enumerate();
    if let Some((word, _)) = memory.into_iter().find(|(word, b)| **b != pattern(*word)) {
        let at = word * 8;
        return Err(io::Error::other(format!("byte {at} has not arrived")));
    }
    Ok(window.figures(party.refused()))
}

/// Sends Writes, so many at a time, until the time of the figures is over and all are complete.
///
/// # Errors
/// When the endpoint or a Write fails.
pub async fn send(
    bulk: &Bulk,
    local: SocketAddr,
    peer: SocketAddr,
    ready: &Ready,
) -> io::Result<Figures> {
    let local = SocketAddr::new(local.ip(), SERVICE_PORT);
    let remote = ready
        .region
        .ok_or_else(|| io::Error::other("the receiver has no memory"))?;
    let mut party = Party::start(local, &shape(bulk), false)?;
    let region = party.register(bulk.message * bulk.depth)?;
    let words = party.memory(&region).chunks_mut(8).enumerate();
    words.for_each(|(word, bytes)| bytes.copy_from_slice(&pattern(word)));
    party.connect(peer)?;

    let mut window = Window::new(bulk);
    let (mut under_way, mut slot, mut over) = (0, 0, false);
    let mut conn = None;
    while conn.is_none() || under_way > 0 {
        party.turn(Duration::from_millis(20)).await?;
        while let Some(news) = party.news() {
            match news {
                News::Established(established) => conn = Some(established),
                News::Written(_) => {
                    under_way -= 1;
                    over |= window.count(bulk.message);
                }
                News::Ended(why) => {
                    return Err(io::Error::other(why.unwrap_or("closed early".into())));
                }
            }
        }
        over |= window.is_stale();
        while let Some(conn) = conn
            && under_way < bulk.depth
            && !over
        {
            let at = slot * bulk.message;
            party.write((conn, 0), &region, remote, (at, bulk.message))?;
            slot = (slot + 1) % bulk.depth;
            under_way += 1;
        }
    }
    let mut figures = window.figures(party.refused());
    if let Some(conn) = conn {
        figures.counted = party.counted(conn);
        party.close(conn);
    }
    let closing = Instant::now();
    while closing.elapsed() < CLOSING {
        party.turn(Duration::from_millis(20)).await?;
        if let Some(News::Ended(_)) = party.news() {
            break;
        }
    }
    Ok(figures)
}
