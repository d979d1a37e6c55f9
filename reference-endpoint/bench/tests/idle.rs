//! What a connection at rest takes of the heap, counted by the allocator, without sockets and on a clock of its own: the
//! same bytes every time.

use std::net::SocketAddr;

use metaroce_endpoint::core::{
    Access, Buffer, Config, Data, Endpoint, Event, Misuse, Op, Region, Remote, Service, Status,
    Work,
};

#[global_allocator]
static COUNTED: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

const PATHS: u16 = 8;
const STREAMS: u16 = 64;
/// The goal, bytes.
const GOAL: i64 = 16 << 10;
const CONNECTIONS: usize = 50;
const SERVICE_PORT: u16 = 20_999;
/// A message of several packets.
const LENGTH: usize = 3_000;
/// Rest, ns.
const REST: u64 = 1_000_000_000;

/// An endpoint and the heap that it holds, bytes.
struct Side {
    endpoint: Endpoint,
    heap: i64,
    established: Vec<u32>,
    completed: usize,
}

/// Bytes in use by the whole process.
fn in_use() -> i64 {
    let stats = COUNTED.stats();
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], SERVICE_PORT))
}

impl Side {
    fn new(host: u8) -> Result<Self, Misuse> {
        let config = Config {
            seed: u64::from(host),
            max_connections: CONNECTIONS,
            ..Config::new(address(host))
        };
        Ok(Self {
            endpoint: Endpoint::new(config)?,
            heap: 0,
            established: Vec::with_capacity(CONNECTIONS),
            completed: 0,
        })
    }

    /// Lets the endpoint act, and counts what it takes and gives back.
    fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint) -> R) -> R {
        let before = in_use();
        let result = act(&mut self.endpoint);
        self.heap += in_use() - before;
        result
    }

    fn hear(&mut self) {
        while let Some(event) = self.act(Endpoint::poll_event) {
            match event {
                Event::Established { conn, .. } => self.established.push(conn),
                Event::StreamOpened { .. } => {}
                Event::Completion(done) if done.status == Status::Success => self.completed += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    fn each(&self) -> i64 {
        self.heap / CONNECTIONS as i64
    }
}

/// Carries datagrams between the two sides for `time`, ns.
fn carry(sides: &mut [Side; 2], now: &mut u64, time: u64) {
    let until = *now + time;
    let mut out = Vec::with_capacity(1 << 14);
    while *now < until {
        let mut any = false;
        for from in 0..2 {
            let due = sides[from].endpoint.poll_timeout();
            if due.is_some_and(|due| due <= *now) {
                sides[from].act(|endpoint| endpoint.handle_timeout(*now));
            }
            while let Some(transmit) = sides[from].act(|e| e.poll_transmit(*now, &mut out)) {
                let source = SocketAddr::new(transmit.src_ip, transmit.src_port);
                sides[1 - from].act(|e| e.handle_datagram(*now, source, transmit.ecn, &out));
                any = true;
            }
            sides[from].hear();
        }
        let due = sides.iter().filter_map(|side| side.endpoint.poll_timeout());
        let next = if any {
            *now + 1_000
        } else {
            due.min().unwrap_or(until)
        };
        *now = next.clamp(*now + 1, until);
    }
}

fn register(side: &mut Side) -> Result<Region, Misuse> {
    let access = Access {
        remote_write: true,
        ..Access::default()
    };
    side.endpoint.register(LENGTH, access)
}

/// A connection with 8 paths and 64 streams holds less than 16 KiB on either side: when it has come about, and when every
/// stream has worked.
#[test]
fn a_connection_at_rest_is_small() -> Result<(), Misuse> {
    let service = Service {
        paths: PATHS,
        streams: STREAMS,
        first_streams: STREAMS,
        payload_size: 1024,
        ..Service::default()
    };
    let mut sides = [Side::new(1)?, Side::new(2)?];
    let regions = [register(&mut sides[0])?, register(&mut sides[1])?];
    sides[1].endpoint.listen(service)?;
    let mut now = 1_000;
    for _ in 0..CONNECTIONS {
        sides[0].act(|endpoint| endpoint.connect(now, address(2), service))?;
        carry(&mut sides, &mut now, 1_000_000);
    }
    carry(&mut sides, &mut now, REST);
    let fresh = [sides[0].each(), sides[1].each()];

    let data = |side: usize| {
        let (mr, offset, len) = (regions[side].mr, 0, LENGTH);
        Buffer { mr, offset, len }
    };
    let Region { va, rkey, .. } = regions[1];
    for at in 0..CONNECTIONS {
        let [own, peer] = [0, 1].map(|side: usize| sides[side].established[at]);
        for stream in (0..STREAMS).map(|n| 2 * n) {
            let taker = &mut sides[1];
            taker.act(|e| e.post_recv(now, peer, stream, 0, data(1)))?;
            for op in [Op::Write(Remote { va, rkey }), Op::Send] {
                let work = Work::new(0, op, Data::Buffer(data(0)));
                sides[0].act(|e| e.post(now, own, stream, work))?;
            }
        }
        carry(&mut sides, &mut now, 100_000_000);
    }
    carry(&mut sides, &mut now, REST);
    let worked = [sides[0].each(), sides[1].each()];

    let all = CONNECTIONS * usize::from(STREAMS);
    assert_eq!(
        sides.each_ref().map(|s| s.established.len()),
        [CONNECTIONS; 2]
    );
    assert_eq!(sides.each_ref().map(|s| s.completed), [2 * all, all]);
    println!("bytes of opener and acceptor: {fresh:?}, after work {worked:?}");
    assert!(
        fresh
            .into_iter()
            .chain(worked)
            .all(|bytes| bytes > 0 && bytes < GOAL)
    );
    Ok(())
}
