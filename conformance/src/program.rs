//! The upper tester: opens both parties, posts the work of a scenario, waits for its completions and looks into the
//! memory that it went to. It is the same for every link.

mod work;

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::evidence::{Event, MemoryPart, Problem, What, WorkKind};
use crate::iut::{
    Capabilities, Hello, Open, PROTOCOL, PartyError, Registered, Report, Request, read_value,
};
use crate::payload::FILL;
use crate::scenario::Scenario;
use crate::testbed::{BedError, Testbed};
use crate::tester;
use crate::trace::Side;
use work::{Late, Message, bad_va, parse_va};

/// Bytes of sentinel before and after the place of a message.
const MARGIN: u64 = 64;
/// Bytes of the small Writes that show the parties alive.
const SANITY_BYTES: u32 = 64;
/// How long set-up, a sanity exchange or the close may take, ns.
const STEP_LIMIT: u64 = 8_000_000_000;
/// How long reports are still taken after a refusal, ns.
const LAST_REPORTS: u64 = 20_000_000;
/// How much memory is written in one request, bytes.
const CHUNK: usize = 256 << 10;
/// Bytes of the region that a tester writes to.
const TESTER_REGION: u64 = 64 << 10;
/// The service that both parties are configured with.
const SERVICE: u32 = 1;

/// Where a party sits.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Own address and service port.
    pub local: SocketAddr,
    /// Address and service port under which it knows its peer.
    pub peer: SocketAddr,
    /// First UDP source port.
    pub source_port_base: u16,
    /// Longest delay of an acknowledgment that is asked of it, us.
    pub ack_delay_us: u16,
}

/// What a party said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name and version.
    pub hello: Hello,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// What came of a program.
#[derive(Debug, Default)]
pub struct Record {
    /// Events in order of time.
    pub events: Vec<Event>,
    /// Who the parties are; none for a tester.
    pub identities: [Option<Identity>; 2],
    /// What ended the program early.
    pub problem: Option<Problem>,
}

/// Asks a party who it is and what it can do.
///
/// # Errors
/// [`BedError`].
pub fn identify(bed: &mut dyn Testbed, side: Side) -> Result<Identity, BedError> {
    let hello: Hello = call(bed, side, &Request::Hello { protocol: PROTOCOL })?;
    if hello.protocol != PROTOCOL {
        let what = format!("protocol {} instead of {PROTOCOL}", hello.protocol);
        return Err(BedError::party(
            side,
            PartyError::Garbage {
                op: "hello".into(),
                what,
                line: String::new(),
            },
        ));
    }
    let capabilities = call(bed, side, &Request::Capabilities {})?;
    Ok(Identity {
        hello,
        capabilities,
    })
}

fn call<T: serde::de::DeserializeOwned>(
    bed: &mut dyn Testbed,
    side: Side,
    request: &Request,
) -> Result<T, BedError> {
    let value = bed.call(side, request)?;
    read_value(request.op(), value).map_err(|e| BedError::party(side, e))
}

/// Runs a scenario between two parties.
pub struct Program<'p> {
    scenario: &'p Scenario,
    seed: u64,
    places: [Place; 2],
    bed: &'p mut dyn Testbed,
    record: Record,
    messages: Vec<Message>,
    /// Receives that are posted after their Sends, in order of time.
    late: VecDeque<Late>,
    /// Side, whether a receive, and id of all work that was handed out.
    posted: std::collections::HashSet<(usize, bool, u64)>,
    next_wr_id: u64,
    established: [bool; 2],
    closed: [bool; 2],
    failed: bool,
}

impl<'p> Program<'p> {
    /// A program that has not begun.
    pub fn new(
        scenario: &'p Scenario,
        seed: u64,
        places: [Place; 2],
        bed: &'p mut dyn Testbed,
    ) -> Self {
        Self {
            scenario,
            seed,
            places,
            bed,
            record: Record::default(),
            messages: Vec::new(),
            late: VecDeque::new(),
            posted: std::collections::HashSet::new(),
            next_wr_id: 1,
            established: [false; 2],
            closed: [false; 2],
            failed: false,
        }
    }

    /// Runs it to its end, or to the first party that does not play along.
    pub fn run(mut self) -> Record {
        let outcome = if self.scenario.tester.is_some() {
            self.run_scripted()
        } else {
            self.run_honest()
        };
        if let Err(error) = outcome {
            if let BedError::Party {
                side,
                error: PartyError::Refused { op, code, message },
            } = &error
            {
                let what = What::Refused {
                    op: op.clone(),
                    code: code.clone(),
                    message: message.clone(),
                };
                self.note(*side, what);
                self.listen();
            }
            self.record.problem = Some(Problem {
                side: error.side(),
                message: error.to_string(),
            });
        }
        self.record
    }

    /// Takes what the parties report for a moment: a connection that is over is a reason to refuse.
    fn listen(&mut self) {
        let end = self.bed.now() + LAST_REPORTS;
        while self.bed.now() < end {
            let Ok(reports) = self.bed.poll(end) else {
                return;
            };
            for (side, report) in reports {
                if self.take(side, report).is_err() {
                    return;
                }
            }
        }
    }

    fn run_honest(&mut self) -> Result<(), BedError> {
        for side in Side::BOTH {
            self.record.identities[side.index()] = Some(identify(self.bed, side)?);
        }
        self.open(Side::B, "acceptor")?;
        self.open(Side::A, "initiator")?;
        if !self.wait(STEP_LIMIT, |program| program.established == [true; 2])? {
            self.note_sanity("before", false, "no connection within 8 s");
            return Ok(());
        }
        if let Some(other) = self.other_size() {
            self.note_sanity("before", false, &other);
        }
        if !self.sanity("before")? {
            // What comes after a connection that carries nothing proves nothing, and takes its time.
            return Ok(());
        }
        self.post_work()?;
        let limit = self.scenario.limit_ns();
        let complete = self.wait(limit, |program| {
            program.messages.iter().all(Message::done) || program.failed
        })?;
        self.check_memory()?;
        if complete {
            self.sanity("after")?;
        } else {
            self.note_sanity("after", false, "the work was not complete in time");
        }
        self.counters()?;
        if !self.failed {
            self.call_ok(Side::A, &Request::Close { conn: 0 })?;
            self.wait(STEP_LIMIT, |program| program.closed == [true; 2])?;
        }
        Ok(())
    }

    /// What connection the parties report, if not the one that they were asked for.
    fn other_size(&self) -> Option<String> {
        let (asked_paths, asked_streams) = (self.scenario.paths, self.scenario.streams);
        self.record
            .events
            .iter()
            .find_map(|event| match event.what {
                What::Established { paths, streams }
                    if (paths, streams) != (asked_paths, asked_streams) =>
                {
                    let side = event.side;
                    Some(format!(
                        "party {side} reports a connection of {paths} paths and {streams} streams, \
                     {asked_paths} and {asked_streams} were asked for"
                    ))
                }
                _ => None,
            })
    }

    fn run_scripted(&mut self) -> Result<(), BedError> {
        let steps = self.scenario.tester.clone().unwrap_or_default();
        self.record.identities[Side::B.index()] = Some(identify(self.bed, Side::B)?);
        self.open(Side::B, "acceptor")?;
        let region: Registered = call(
            self.bed,
            Side::B,
            &Request::Register {
                len: TESTER_REGION,
                fill: FILL,
                remote_write: true,
            },
        )?;
        let va = parse_va(&region.va).ok_or_else(|| bad_va(Side::B, &region.va))?;
        // The whole region is offered to the tester, under an id that no work has.
        let offer = What::Posted {
            stream: 0,
            wr_id: 0,
            kind: WorkKind::Write,
            len: u32::try_from(TESTER_REGION).unwrap_or(u32::MAX),
            remote: Some((va, region.rkey)),
        };
        self.note(Side::A, offer);
        let place = self.places[Side::A.index()];
        let setup = tester::Setup {
            local: place.local,
            peer: place.peer,
            source_port_base: place.source_port_base,
            paths: self.scenario.paths,
            payload_size: u16::try_from(self.scenario.payload.bytes()).unwrap_or(1024),
            isn: self.scenario.initial_psn.unwrap_or(0xffff_fff0),
            service_id: SERVICE,
            seed: self.seed,
            delay_ns: self.scenario.delay.nanos(),
            va,
            rkey: region.rkey,
            region_len: usize::try_from(TESTER_REGION).unwrap_or(0),
        };
        self.bed.start_tester(Side::A, setup, &steps)?;
        let limit = self.scenario.limit_ns();
        let connected = |program: &Self| {
            program
                .bed
                .tester()
                .is_none_or(|t| t.connected() || t.done())
        };
        self.wait(limit, connected)?;
        if self.bed.tester().is_some_and(tester::Tester::connected) {
            self.post_work()?;
        }
        let over = self.wait(limit, |program| {
            program.bed.tester().is_none_or(tester::Tester::done)
        })?;
        self.take_tester_notes(over);
        if self.failed {
            // The script ends the connection, and with it the exchanges that show the party at work.
            identify(self.bed, Side::B)?;
            self.note_sanity("after", true, "answers after the connection's end");
        }
        self.compare(Side::B, region.mr, 0, MemoryPart::Inside, 0, |bed| {
            bed.tester().map(|t| t.image().to_vec()).unwrap_or_default()
        })?;
        self.counters_of(Side::B)
    }

    fn take_tester_notes(&mut self, over: bool) {
        let Some(tester) = self.bed.tester() else {
            return;
        };
        let notes = tester.notes().to_vec();
        let stuck = tester.stuck().map(str::to_owned);
        for note in notes {
            let what = What::Sanity {
                when: note.when.into(),
                ok: note.ok,
                detail: note.detail,
            };
            self.record.events.push(Event {
                t_ns: note.t_ns,
                side: Side::B,
                what,
            });
        }
        if let Some(why) = stuck {
            self.note_sanity("after", false, &why);
        } else if !over {
            self.note_sanity("after", false, "the script was not over in time");
        }
    }

    fn open(&mut self, side: Side, role: &'static str) -> Result<(), BedError> {
        let place = self.places[side.index()];
        let open = Open {
            role,
            local: place.local,
            peer: place.peer,
            service_id: SERVICE,
            paths: self.scenario.paths,
            streams: self.scenario.streams,
            payload_size: u16::try_from(self.scenario.payload.bytes()).unwrap_or(1024),
            msg_window: self.scenario.msg_window,
            source_port_base: place.source_port_base,
            seed: self.seed ^ side.index() as u64,
            ack_delay_us: place.ack_delay_us,
            initial_psn: self.scenario.initial_psn,
        };
        #[derive(serde::Deserialize)]
        struct Opened {
            conn: u32,
        }
        let opened: Opened = call(self.bed, side, &Request::Open(open))?;
        if opened.conn == 0 {
            return Ok(());
        }
        let error = PartyError::Garbage {
            op: "open".into(),
            what: format!("connection {}: the one of a session is 0", opened.conn),
            line: String::new(),
        };
        Err(BedError::party(side, error))
    }

    /// A small Write in each direction; tells whether it came to an end, good or bad.
    fn sanity(&mut self, when: &str) -> Result<bool, BedError> {
        if self.failed {
            // The connection ended, as some scenarios mean it to: an answer to `hello` shows the parties alive.
            for side in Side::BOTH {
                identify(self.bed, side)?;
                let what = What::Sanity {
                    when: when.into(),
                    ok: true,
                    detail: "answers after the connection's end".into(),
                };
                self.note(side, what);
            }
            return Ok(true);
        }
        let first = self.messages.len();
        for from in Side::BOTH {
            self.post_message(from, WorkKind::Write, 0, u64::from(SANITY_BYTES), None)?;
        }
        let done = self.wait(STEP_LIMIT, |program| {
            program.messages[first..].iter().all(Message::done) || program.failed
        })?;
        let complete = done && self.messages[first..].iter().all(Message::arrived);
        let as_sent = self.check_memory()?;
        let detail = match (complete, as_sent) {
            (false, _) => "a small Write was not completed",
            (_, false) => "memory does not hold what the completions say",
            _ => "a small Write in each direction was completed",
        };
        self.note_sanity(when, complete && as_sent, detail);
        Ok(done)
    }

    fn counters(&mut self) -> Result<(), BedError> {
        Side::BOTH
            .into_iter()
            .try_for_each(|side| self.counters_of(side))
    }

    fn counters_of(&mut self, side: Side) -> Result<(), BedError> {
        #[derive(serde::Deserialize)]
        struct Answer {
            counters: std::collections::BTreeMap<String, u64>,
        }
        match call::<Answer>(self.bed, side, &Request::Counters { conn: 0 }) {
            Ok(answer) => {
                self.note(
                    side,
                    What::Counters {
                        values: answer.counters,
                    },
                );
                Ok(())
            }
            // A connection that is over may have no counters any more.
            Err(BedError::Party {
                error: PartyError::Refused { .. },
                ..
            }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Lets traffic flow until `until` holds; tells whether it did within `limit` ns.
    fn wait(&mut self, limit: u64, until: impl Fn(&Self) -> bool) -> Result<bool, BedError> {
        let end = self.bed.now() + limit;
        loop {
            let next = self.late.front().map_or(end, |late| late.due.min(end));
            let reports = self.bed.poll(next)?;
            for (side, report) in reports {
                self.take(side, report)?;
            }
            self.post_late()?;
            if until(self) {
                return Ok(true);
            }
            if self.bed.now() >= end {
                return Ok(false);
            }
        }
    }

    fn take(&mut self, side: Side, report: Report) -> Result<(), BedError> {
        let what = match report {
            Report::Established { paths, streams, .. } => {
                self.established[side.index()] = true;
                What::Established { paths, streams }
            }
            Report::Completion {
                stream,
                wr_id,
                kind,
                status,
                byte_len,
                ..
            } => {
                if !self.was_posted(side, kind, wr_id) {
                    let error = PartyError::Garbage {
                        op: "poll".into(),
                        what: format!("the completion of work {wr_id}, which it was never given"),
                        line: String::new(),
                    };
                    return Err(BedError::party(side, error));
                }
                let receive = kind == WorkKind::Recv;
                let message = self.messages.iter_mut().find(|message| {
                    if receive {
                        message.recv_id == wr_id && message.from != side
                    } else {
                        message.wr_id == wr_id && message.from == side
                    }
                });
                if let Some(message) = message {
                    message.statuses[usize::from(receive)] = Some(status.clone());
                }
                What::Completed {
                    stream,
                    wr_id,
                    kind,
                    status,
                    byte_len,
                }
            }
            Report::Closed { reason, .. } => {
                self.closed[side.index()] = true;
                What::Closed { reason }
            }
            Report::Failed {
                status, message, ..
            } => {
                self.failed = true;
                What::Failed { status, message }
            }
        };
        self.note(side, what);
        Ok(())
    }

    fn was_posted(&self, side: Side, kind: WorkKind, wr_id: u64) -> bool {
        self.posted
            .contains(&(side.index(), kind == WorkKind::Recv, wr_id))
    }

    fn call_ok(&mut self, side: Side, request: &Request) -> Result<(), BedError> {
        self.bed.call(side, request).map(drop)
    }

    fn note(&mut self, side: Side, what: What) {
        if let What::Posted { wr_id, kind, .. } = what {
            let work = (side.index(), kind == WorkKind::Recv, wr_id);
            self.posted.insert(work);
        }
        let t_ns = self.bed.now();
        self.record.events.push(Event { t_ns, side, what });
    }

    fn note_sanity(&mut self, when: &str, ok: bool, detail: &str) {
        let sides: &[Side] = if self.bed.tester().is_some() {
            &[Side::B]
        } else {
            &Side::BOTH
        };
        for &side in sides {
            self.note(
                side,
                What::Sanity {
                    when: when.into(),
                    ok,
                    detail: detail.into(),
                },
            );
        }
    }
}
