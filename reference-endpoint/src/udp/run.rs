//! The whole loop around an endpoint, or a device of the verbs, and its application, with an end in order.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use super::driver::{Driver, Party};
use crate::adapter::Engine;
use crate::core::Event;
use crate::verbs::{AsyncEvent, Device};

/// What an application wants after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing before the next event or [wake-up](super::Handle::wake).
    Wait,
    /// Another turn at this time, ns, or sooner.
    WaitUntil(u64),
    /// Another turn as soon as both directions have had one.
    Again,
    /// An end in order.
    Stop,
}

/// A party that a driver can run to an end in order: an [`Engine`], or a [`Device`] of the verbs.
pub trait Served: Party {
    /// What it reports.
    type Event;
    /// The next thing that has happened. What it says of connections is noted in `connections`, by parties that do not
    /// know all of theirs themselves.
    fn next_event(&mut self, connections: &mut Connections) -> Option<Self::Event>;
    /// Closes all connections that are established and have not been told to.
    fn close_all(&mut self, now: u64, connections: &mut Connections);
    /// How many connections are established and not over.
    fn left_open(&self, connections: &Connections) -> usize;
}

impl<E: Engine + ?Sized> Served for E {
    type Event = Event;

    fn next_event(&mut self, connections: &mut Connections) -> Option<Event> {
        let event = self.poll_event()?;
        match &event {
            Event::Established { conn, .. } => {
                connections.open.insert(*conn);
                connections.to_close.insert(*conn);
            }
            Event::Closed { conn, .. } | Event::Failed { conn, .. } => {
                connections.open.remove(conn);
                connections.to_close.remove(conn);
            }
            _ => {}
        }
        Some(event)
    }

    fn close_all(&mut self, now: u64, connections: &mut Connections) {
        while let Some(conn) = connections.to_close.pop_first() {
            // What cannot be closed has failed, and says so by an event.
            let _failed = self.close(now, conn);
        }
    }

    fn left_open(&self, connections: &Connections) -> usize {
        connections.open.len()
    }
}

impl Served for Device {
    type Event = AsyncEvent;

    fn next_event(&mut self, _: &mut Connections) -> Option<AsyncEvent> {
        self.poll_event()
    }

    fn close_all(&mut self, now: u64, _: &mut Connections) {
        self.close_all_connections(now);
    }

    fn left_open(&self, _: &Connections) -> usize {
        self.connections_up()
    }
}

/// What a driver runs a party for.
pub trait Application<P: Served + ?Sized> {
    /// Something has happened at `now`, ns.
    fn on_event(&mut self, party: &mut P, now: u64, event: P::Event);
    /// Has its turn: after what has come in, before anything goes out. It is not asked any more once it has stopped.
    fn act(&mut self, party: &mut P, now: u64) -> Act;
}

/// How an end in order goes: every connection is closed, those that are closed answer for a while, and that is it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Longest time until all connections are closed.
    pub close: Duration,
    /// Longest time after that in which they still answer a peer that has not heard the answer (CONN-029); it is over
    /// sooner when the endpoint has nothing left to wait for.
    pub rest: Duration,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            close: Duration::from_secs(10),
            rest: Duration::from_secs(6),
        }
    }
}

/// How a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that were not closed in time.
    pub left_open: usize,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// Closing, until this time at most.
    Closing(u64),
    /// All is closed; answering until this time at most.
    Resting(u64),
}

/// The connections of a run that are established, as its events tell.
#[derive(Debug, Default)]
pub struct Connections {
    open: BTreeSet<u32>,
    /// Those of them that have not been told to close.
    to_close: BTreeSet<u32>,
}

impl Driver {
    /// Runs `party` until `app` or a [handle](Self::handle) stops it, and then to its end in order.
    ///
    /// Connections that are not established when it stops are closed as soon as they are, and not waited for.
    ///
    /// # Errors
    /// When the system refuses to set the timer. What goes wrong with datagrams is no error: they are lost.
    pub async fn run<P: Served + ?Sized, A: Application<P>>(
        &mut self,
        party: &mut P,
        app: &mut A,
        stop: Stop,
    ) -> io::Result<Stopped> {
        let mut connections = Connections::default();
        let mut phase = Phase::Running;
        loop {
            let mut more = self.receive(party);
            self.tell(party, app, &mut connections);
            let mut due = None;
            if phase == Phase::Running {
                let act = if self.is_stopped() {
                    Act::Stop
                } else {
                    app.act(party, self.now())
                };
                match act {
                    Act::Wait => {}
                    Act::WaitUntil(time) => due = Some(time),
                    Act::Again => more = true,
                    Act::Stop => {
                        phase = Phase::Closing(self.now().saturating_add(nanos(stop.close)));
                    }
                }
            }
            if phase != Phase::Running {
                party.close_all(self.now(), &mut connections);
            }
            more |= self.send(party);
            // Sending ends work, too.
            more |= self.tell(party, app, &mut connections);
            let now = self.now();
            let left_open = party.left_open(&connections);
            if matches!(phase, Phase::Closing(_)) && left_open == 0 {
                phase = Phase::Resting(now.saturating_add(nanos(stop.rest)));
            }
            match phase {
                Phase::Running => {}
                Phase::Closing(until) | Phase::Resting(until) => {
                    let rested = left_open == 0 && party.next_timeout().is_none() && !more;
                    if rested || until <= now {
                        return Ok(Stopped { left_open });
                    }
                    due = Some(until);
                }
            }
            let due = party.next_timeout().into_iter().chain(due).min();
            self.wait(due, more).await?;
        }
    }

    /// Tells the application what has happened, and whether anything has.
    fn tell<P: Served + ?Sized, A: Application<P>>(
        &self,
        party: &mut P,
        app: &mut A,
        connections: &mut Connections,
    ) -> bool {
        let mut any = false;
        while let Some(event) = party.next_event(connections) {
            app.on_event(party, self.now(), event);
            any = true;
        }
        any
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
