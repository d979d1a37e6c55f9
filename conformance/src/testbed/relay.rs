//! The testbed over real sockets: parties in processes of their own, the relay between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{BedError, LinkEnd, Testbed};
use crate::iut::{AdapterProcess, PartyError, Report, Request, read_value};
use crate::link::Socket;
use crate::link::relay::{Relay, RelaySetup};
use crate::link::sim::Node;
use crate::tester::{Setup, Step, Tester};
use crate::trace::Side;

/// How long one party is waited for before the other has its turn.
const SLICE: Duration = Duration::from_millis(2);
/// How many events a party may report in one test: far more than any scenario gives rise to.
const MOST_EVENTS: usize = 1 << 17;

/// Two parties and a relay.
pub struct RelayBed {
    start: Instant,
    relay: Relay,
    processes: [Option<AdapterProcess>; 2],
    tester: Option<TesterHost>,
    next: Side,
    events: [usize; 2],
}

impl RelayBed {
    /// Starts the relay between parties that run already.
    ///
    /// # Errors
    /// [`BedError`] when the relay cannot start.
    pub fn new(
        setup: RelaySetup,
        processes: [Option<AdapterProcess>; 2],
    ) -> Result<Self, BedError> {
        let start = setup.start;
        let relay = Relay::start(setup).map_err(BedError::harness)?;
        Ok(Self {
            start,
            relay,
            processes,
            tester: None,
            next: Side::A,
            events: [0; 2],
        })
    }
}

impl Testbed for RelayBed {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn call(&mut self, side: Side, request: &Request) -> Result<Value, BedError> {
        match &mut self.processes[side.index()] {
            Some(process) => process.call(request).map_err(|error| {
                if error.is_ours() {
                    BedError::harness(error)
                } else {
                    BedError::party(side, error)
                }
            }),
            None => Err(BedError::harness(format!(
                "the scripted peer was asked for {}",
                request.op()
            ))),
        }
    }

    fn poll(&mut self, until: u64) -> Result<Vec<(Side, Report)>, BedError> {
        #[derive(serde::Deserialize)]
        struct Events {
            events: Vec<Report>,
        }
        let start = self.start;
        if let Some(host) = &mut self.tester {
            host.run(start, SLICE).map_err(BedError::harness)?;
        }
        let side = self.next;
        self.next = side.other();
        if self.processes[side.index()].is_none() {
            return Ok(Vec::new());
        }
        let left = Duration::from_nanos(until.saturating_sub(self.now()));
        let patience = if self.tester.is_some() {
            Duration::ZERO
        } else {
            left.min(SLICE)
        };
        let timeout_ms = u64::try_from(patience.as_millis()).unwrap_or(0);
        let value = self.call(side, &Request::Poll { timeout_ms })?;
        let events: Events =
            read_value("poll", value).map_err(|e: PartyError| BedError::party(side, e))?;
        let count = &mut self.events[side.index()];
        *count += events.events.len();
        if *count > MOST_EVENTS {
            let error = PartyError::Garbage {
                op: "poll".into(),
                what: format!("more than {MOST_EVENTS} events in one test"),
                line: String::new(),
            };
            return Err(BedError::party(side, error));
        }
        Ok(events
            .events
            .into_iter()
            .map(|report| (side, report))
            .collect())
    }

    fn start_tester(&mut self, _side: Side, setup: Setup, steps: &[Step]) -> Result<(), BedError> {
        let host = TesterHost::new(setup, steps).map_err(BedError::harness)?;
        self.tester = Some(host);
        Ok(())
    }

    fn tester(&self) -> Option<&Tester> {
        self.tester.as_ref().map(|host| &host.tester)
    }

    fn finish(self: Box<Self>) -> Result<LinkEnd, BedError> {
        // Both are asked before one is waited for.
        let mut processes = self.processes;
        for process in processes.iter_mut().flatten() {
            process.close_input();
        }
        let ends = processes.map(|process| process.and_then(AdapterProcess::finish));
        let report = self.relay.finish().map_err(BedError::harness)?;
        Ok(LinkEnd {
            rules: report.rules,
            held: report.held,
            jitter_ns: report.jitter_ns,
            ends,
        })
    }
}

/// The scripted peer with sockets.
struct TesterHost {
    tester: Tester,
    runtime: tokio::runtime::Runtime,
    local: SocketAddr,
    receive: Socket,
    send: BTreeMap<u16, Socket>,
}

impl TesterHost {
    fn new(setup: Setup, steps: &[Step]) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let receive = {
            let _entered = runtime.enter();
            Socket::bind(setup.local)?
        };
        Ok(Self {
            tester: Tester::new(setup, steps),
            runtime,
            local: setup.local,
            receive,
            send: BTreeMap::new(),
        })
    }

    /// Plays for about `span`.
    fn run(&mut self, start: Instant, span: Duration) -> std::io::Result<()> {
        let Self {
            tester,
            runtime,
            local,
            receive,
            send,
        } = self;
        let clock = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let end = Instant::now() + span;
        let (mut out, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        runtime.block_on(async {
            loop {
                if tester.poll_timeout().is_some_and(|due| due <= clock()) {
                    tester.handle_timeout(clock());
                }
                while let Some(outgoing) = tester.poll_transmit(clock(), &mut out) {
                    let socket = match send.entry(outgoing.src_port) {
                        std::collections::btree_map::Entry::Occupied(socket) => socket.into_mut(),
                        std::collections::btree_map::Entry::Vacant(place) => {
                            place.insert(Socket::bind(SocketAddr::new(local.ip(), outgoing.src_port))?)
                        }
                    };
                    socket.send(outgoing.dst, outgoing.ecn, &out)?;
                }
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() || tester.done() {
                    return Ok(());
                }
                let due = tester.poll_timeout().map_or(left, |due| Duration::from_nanos(due.saturating_sub(clock())));
                tokio::select! {
                    ready = receive.readable() => {
                        ready?;
                        let mut arrived = Vec::new();
                        match receive.receive(&mut buffer, |from, ecn, bytes| arrived.push((from, ecn, bytes.to_vec()))) {
                            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
                            _ => {}
                        }
                        for (from, ecn, bytes) in arrived {
                            tester.handle_datagram(clock(), from, ecn, &bytes);
                        }
                    }
                    () = tokio::time::sleep(due.min(left)) => {}
                }
            }
        })
    }
}
