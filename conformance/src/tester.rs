//! The scripted peer: sends what no honest endpoint would, and watches the answer.
//!
//! It is a [`Node`] like any other party, without sockets and clock of its own. It only makes
//! the stimulus and waits for answers; whether an answer was right is for the monitors, who see the same packets.

mod connection;
mod script;

use std::collections::VecDeque;
use std::net::SocketAddr;

use metaroce_wire::frame::Ecn;

use crate::link::sim::{Node, Outgoing};
use connection::Connection;
pub use script::{Data, Edit, Expect, LyingAck, Mark, OpenStep, Operation, Refusal, Step};

/// How long an answer that is due may take, ns.
const ANSWER_TIME: u64 = 2_000_000_000;
/// How often a request of the tester's own is repeated before the script is given up.
const TRIES: u32 = 8;
/// Pause before a request is repeated, ns.
const REPEAT_EVERY: u64 = 200_000_000;

/// What the tester needs to know to play the initiator.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Own address and service port.
    pub local: SocketAddr,
    /// Address and service port of the peer, as the tester knows it.
    pub peer: SocketAddr,
    /// First UDP source port.
    pub source_port_base: u16,
    /// Paths.
    pub paths: u16,
    /// Payload bytes per packet.
    pub payload_size: u16,
    /// First PSN of every path it sends on.
    pub isn: u32,
    /// Service.
    pub service_id: u32,
    /// Seed of nonce and connection id.
    pub seed: u64,
    /// One-way delay of the link, ns: how long silence must last scales with it.
    pub delay_ns: u64,
    /// Address of the peer's region to write to.
    pub va: u64,
    /// Its key.
    pub rkey: u32,
    /// Its length, bytes.
    pub region_len: usize,
}

/// How a script went, as far as the tester itself can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When, ns.
    pub t_ns: u64,
    /// Whether the peer was alive: `before` or `after` the stimulus.
    pub when: &'static str,
    /// Whether a sound exchange went through.
    pub ok: bool,
    /// What was done.
    pub detail: String,
}

/// The scripted peer.
pub struct Tester {
    setup: Setup,
    steps: VecDeque<Step>,
    current: Option<Running>,
    connection: Connection,
    outbox: VecDeque<(Outgoing, Vec<u8>)>,
    notes: Vec<Note>,
    sane_seen: bool,
    stuck: Option<String>,
}

/// A step under way.
struct Running {
    step: Step,
    wait: Wait,
    deadline: u64,
    tries: u32,
}

/// What ends a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Time alone.
    Time,
    /// Any packet of a class, or time.
    Packet(Expect),
    /// The report that the latest data packet has arrived.
    Report,
    /// The set-up reaching its end.
    Connected,
    /// This many data packets received since the step began.
    Data(u64),
}

impl Tester {
    /// A tester that will run `steps`.
    pub fn new(setup: Setup, steps: &[Step]) -> Self {
        Self {
            setup,
            steps: steps.iter().cloned().collect(),
            current: None,
            connection: Connection::new(setup),
            outbox: VecDeque::new(),
            notes: Vec::new(),
            sane_seen: false,
            stuck: None,
        }
    }

    /// Whether the script is over.
    pub fn done(&self) -> bool {
        self.stuck.is_some() || (self.current.is_none() && self.steps.is_empty())
    }

    /// Whether the connection and its stream are open.
    pub fn connected(&self) -> bool {
        self.connection.is_open()
    }

    /// Why the script could not go on, when it could not.
    pub fn stuck(&self) -> Option<&str> {
        self.stuck.as_deref()
    }

    /// What the tester found out about the peer being alive.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// What the peer's region must hold: the sound Writes of the script over the initial fill.
    pub fn image(&self) -> &[u8] {
        self.connection.image()
    }

    fn start_next(&mut self, now: u64) {
        while self.current.is_none() && self.stuck.is_none() {
            let Some(step) = self.steps.pop_front() else {
                return;
            };
            let mut tries = 0;
            let (wait, limit) = self.perform(now, &step, &mut tries);
            self.current = Some(Running {
                step,
                wait,
                deadline: now + limit,
                tries,
            });
            self.settle(now, false);
        }
    }

    /// Sends what a step sends; returns what it then waits for, and how long.
    fn perform(&mut self, now: u64, step: &Step, tries: &mut u32) -> (Wait, u64) {
        *tries += 1;
        let quiet = 6 * self.setup.delay_ns + 20_000_000;
        let sent = self
            .connection
            .perform(now, step, *tries > 1, &mut self.outbox);
        if let Err(why) = sent {
            self.stuck = Some(why);
        }
        match step {
            Step::Connect => (Wait::Connected, REPEAT_EVERY),
            Step::Quiet(pause) => (Wait::Time, pause.nanos()),
            Step::Acking(_) | Step::Grant(_) | Step::Refuse(_) => (Wait::Time, 0),
            Step::Receive(count) => (Wait::Data(u64::from(*count)), ANSWER_TIME),
            Step::Sane => (Wait::Report, REPEAT_EVERY),
            other => match other.expect() {
                Expect::Silence => (Wait::Time, quiet),
                expect => (Wait::Packet(expect), ANSWER_TIME),
            },
        }
    }

    /// Ends, or repeats, the step under way when what it waits for has come, or its time is over.
    fn settle(&mut self, now: u64, timed_out: bool) {
        let Some(running) = &mut self.current else {
            return;
        };
        let met = match running.wait {
            Wait::Time => now >= running.deadline,
            Wait::Packet(expect) => self.connection.has_answer(expect),
            Wait::Report => self.connection.is_reported(),
            Wait::Connected => self.connection.is_open(),
            Wait::Data(count) => self.connection.data_since_step() >= count,
        };
        let repeats = matches!(running.step, Step::Connect | Step::Sane);
        if met {
            if running.step == Step::Sane {
                let when = if self.sane_seen { "after" } else { "before" };
                self.sane_seen = true;
                self.notes.push(Note {
                    t_ns: now,
                    when,
                    ok: true,
                    detail: "a sound Write was acknowledged".into(),
                });
            }
            self.current = None;
        } else if timed_out && now >= running.deadline {
            if repeats && running.tries < TRIES {
                let step = running.step.clone();
                let mut tries = running.tries;
                let (wait, limit) = self.perform(now, &step, &mut tries);
                self.current = Some(Running {
                    step,
                    wait,
                    deadline: now + limit,
                    tries,
                });
            } else if repeats {
                let what = if running.step == Step::Connect {
                    "no connection could be made"
                } else {
                    "a sound Write was not acknowledged"
                };
                if running.step == Step::Sane {
                    let when = if self.sane_seen { "after" } else { "before" };
                    self.notes.push(Note {
                        t_ns: now,
                        when,
                        ok: false,
                        detail: what.into(),
                    });
                }
                self.stuck = Some(what.into());
                self.current = None;
            } else {
                // An answer that is due but does not come is the monitors' affair: the script goes on.
                self.current = None;
            }
        }
    }
}

impl Node for Tester {
    fn address(&self) -> Option<SocketAddr> {
        Some(self.setup.local)
    }

    fn handle_datagram(&mut self, now: u64, _from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.connection.receive(now, ecn, bytes, &mut self.outbox);
        self.settle(now, false);
        self.start_next(now);
    }

    fn handle_timeout(&mut self, now: u64) {
        self.settle(now, true);
        self.start_next(now);
    }

    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Outgoing> {
        self.start_next(now);
        let (outgoing, bytes) = self.outbox.pop_front()?;
        out.clear();
        out.extend_from_slice(&bytes);
        Some(outgoing)
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.current.as_ref().map(|running| running.deadline)
    }
}
