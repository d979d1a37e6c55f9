//! The testbed in simulated time: the reference endpoint in process, or the scripted peer.

use std::net::SocketAddr;
use std::path::Path;

use metaroce_endpoint::adapter::Session;
use metaroce_endpoint::core::Ecn as CoreEcn;
use metaroce_endpoint::mutants::Mutant;
use metaroce_wire::frame::Ecn;
use serde_json::Value;

use super::{BedError, LinkEnd, Testbed};
use crate::inject::Injector;
use crate::iut::{Report, Request, read_answer, read_value};
use crate::link::sim::{Node, Outgoing, SimLink};
use crate::tester::{Setup, Step, Tester};
use crate::trace::Side;
use crate::trace::pcapng::TraceWriter;

/// A party in simulated time.
pub enum SimParty {
    /// The reference endpoint.
    Reference(Box<Session>),
    /// The scripted peer.
    Tester(Box<Tester>),
    /// Nobody yet.
    Nobody,
}

impl SimParty {
    /// The reference endpoint, or a mutant of it.
    pub fn reference(mutant: Option<Mutant>) -> Self {
        Self::Reference(Box::new(Session::new(0, mutant)))
    }
}

impl Node for SimParty {
    fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Reference(session) => session.local(),
            Self::Tester(tester) => tester.address(),
            Self::Nobody => None,
        }
    }

    fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        match self {
            Self::Reference(session) => session.handle_datagram(now, from, to_core(ecn), bytes),
            Self::Tester(tester) => tester.handle_datagram(now, from, ecn, bytes),
            Self::Nobody => {}
        }
    }

    fn handle_timeout(&mut self, now: u64) {
        match self {
            Self::Reference(session) => session.handle_timeout(now),
            Self::Tester(tester) => tester.handle_timeout(now),
            Self::Nobody => {}
        }
    }

    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Outgoing> {
        match self {
            Self::Reference(session) => session.poll_transmit(now, out).map(|transmit| Outgoing {
                src_port: transmit.src_port,
                dst: transmit.dst,
                ecn: from_core(transmit.ecn),
            }),
            Self::Tester(tester) => tester.poll_transmit(now, out),
            Self::Nobody => None,
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Reference(session) => session.poll_timeout(),
            Self::Tester(tester) => tester.poll_timeout(),
            Self::Nobody => None,
        }
    }
}

fn to_core(ecn: Ecn) -> CoreEcn {
    match ecn {
        Ecn::NotEct => CoreEcn::NotEct,
        Ecn::Ect0 => CoreEcn::Ect0,
        Ecn::Ect1 => CoreEcn::Ect1,
        Ecn::Ce => CoreEcn::Ce,
    }
}

fn from_core(ecn: CoreEcn) -> Ecn {
    match ecn {
        CoreEcn::NotEct => Ecn::NotEct,
        CoreEcn::Ect0 => Ecn::Ect0,
        CoreEcn::Ect1 => Ecn::Ect1,
        CoreEcn::Ce => Ecn::Ce,
    }
}

/// Two parties in simulated time.
pub struct SimBed {
    link: SimLink,
    parties: [SimParty; 2],
    capture: std::rc::Rc<std::cell::RefCell<Option<TraceWriter>>>,
    next_id: u64,
}

impl SimBed {
    /// A testbed at time 0 that captures into `capture`.
    ///
    /// # Errors
    /// [`BedError`] when the capture cannot be made.
    pub fn new(
        delay_ns: u64,
        injector: Injector,
        parties: [SimParty; 2],
        capture: &Path,
    ) -> Result<Self, BedError> {
        let writer = TraceWriter::create(capture, "IP headers are made by the simulator")
            .map_err(BedError::harness)?;
        let shared = std::rc::Rc::new(std::cell::RefCell::new(Some(writer)));
        let sink = std::rc::Rc::clone(&shared);
        let link = SimLink::new(
            delay_ns,
            injector,
            Box::new(move |observation| match sink.borrow_mut().as_mut() {
                Some(writer) => writer.write(observation).map_err(|e| e.to_string()),
                None => Err("the capture is closed".into()),
            }),
        );
        Ok(Self {
            link,
            parties,
            capture: shared,
            next_id: 1,
        })
    }
}

impl Testbed for SimBed {
    fn now(&self) -> u64 {
        self.link.now()
    }

    fn call(&mut self, side: Side, request: &Request) -> Result<Value, BedError> {
        let id = self.next_id;
        self.next_id += 1;
        let op = request.op();
        let line = request.line(id).map_err(BedError::harness)?;
        let SimParty::Reference(session) = &mut self.parties[side.index()] else {
            return Err(BedError::harness(format!(
                "the scripted peer was asked for {op}"
            )));
        };
        let answer = session.handle_line(self.link.now(), &line);
        read_answer(op, id, &answer).map_err(|e| BedError::party(side, e))
    }

    fn poll(&mut self, until: u64) -> Result<Vec<(Side, Report)>, BedError> {
        let [a, b] = &mut self.parties;
        // The parties are looked at between short spans: what they report within one has the same order anyway.
        let span = (self.link.now() + 50_000).min(until);
        let mut nodes: [&mut dyn Node; 2] = [a, b];
        self.link
            .run(&mut nodes, span, |_| false)
            .map_err(BedError::harness)?;
        let mut reports = Vec::new();
        for side in Side::BOTH {
            let has = matches!(&self.parties[side.index()], SimParty::Reference(session) if session.has_events());
            if has {
                #[derive(serde::Deserialize)]
                struct Events {
                    events: Vec<Report>,
                }
                let value = self.call(side, &Request::Poll { timeout_ms: 0 })?;
                let events: Events =
                    read_value("poll", value).map_err(|e| BedError::party(side, e))?;
                reports.extend(events.events.into_iter().map(|report| (side, report)));
            }
        }
        Ok(reports)
    }

    fn start_tester(&mut self, side: Side, setup: Setup, steps: &[Step]) -> Result<(), BedError> {
        self.parties[side.index()] = SimParty::Tester(Box::new(Tester::new(setup, steps)));
        Ok(())
    }

    fn tester(&self) -> Option<&Tester> {
        self.parties.iter().find_map(|party| match party {
            SimParty::Tester(tester) => Some(tester.as_ref()),
            _ => None,
        })
    }

    fn finish(self: Box<Self>) -> Result<LinkEnd, BedError> {
        let writer = self.capture.borrow_mut().take();
        let closed = writer.map_or(Ok(()), TraceWriter::finish);
        closed.map_err(BedError::harness)?;
        Ok(LinkEnd {
            rules: self.link.injector().counts(),
            held: self.link.held(),
            jitter_ns: 0,
            ends: [None, None],
        })
    }
}
