//! One endpoint in one task: receives, does what is due, sends, and waits for the next of these.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::outbox::Left;
use super::sockets::Sockets;
use super::timer::Timer;
use crate::adapter::{Engine, Session};
use crate::core::{Ecn, Transmit};
use crate::verbs::Device;

/// Longest wait when nothing is due.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Datagrams in a row that share a reading of the clock, at most.
const SHARED: u32 = 16;

/// What a driver serves: the verbs of the [core](crate::core) that deal with datagrams and time.
pub trait Party {
    /// Takes one UDP payload that came from `from` to the own address `to` with the mark `ecn`.
    fn on_datagram(&mut self, now: u64, to: IpAddr, from: SocketAddr, ecn: Ecn, bytes: &[u8]);
    /// Does what is due at `now`.
    fn on_timeout(&mut self, now: u64);
    /// Appends the next datagram to send at `now` to `out`, if there is one.
    fn next_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit>;
    /// When [`Self::on_timeout`] is next wanted, ns.
    fn next_timeout(&self) -> Option<u64>;
}

impl<E: Engine + ?Sized> Party for E {
    fn on_datagram(&mut self, now: u64, to: IpAddr, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.handle_datagram_at(now, to, from, ecn, bytes);
    }
    fn on_timeout(&mut self, now: u64) {
        self.handle_timeout(now);
    }
    fn next_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        self.append_transmit(now, out)
    }
    fn next_timeout(&self) -> Option<u64> {
        self.poll_timeout()
    }
}

impl Party for Session {
    fn on_datagram(&mut self, now: u64, to: IpAddr, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.handle_datagram_at(now, to, from, ecn, bytes);
    }
    fn on_timeout(&mut self, now: u64) {
        self.handle_timeout(now);
    }
    fn next_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        self.append_transmit(now, out)
    }
    fn next_timeout(&self) -> Option<u64> {
        self.poll_timeout()
    }
}

impl Party for Device {
    fn on_datagram(&mut self, now: u64, to: IpAddr, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.handle_datagram_at(now, to, from, ecn, bytes);
    }
    fn on_timeout(&mut self, now: u64) {
        self.handle_timeout(now);
    }
    fn next_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        self.append_transmit(now, out)
    }
    fn next_timeout(&self) -> Option<u64> {
        self.poll_timeout()
    }
}

/// How much is done in one turn before the other direction has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Datagrams received in a turn, at least; what one call to the system brings is not cut.
    pub receive: usize,
    /// Datagrams sent in a turn, at most.
    pub send: usize,
    /// Whether what a datagram draws goes out before the next one is looked at. Then each draws its own answer, as
    /// where every datagram comes alone; otherwise a call to the system is taken in whole first, which is faster.
    pub answer_each: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            receive: 256,
            send: 256,
            answer_each: false,
        }
    }
}

/// Wakes a driver from elsewhere, or asks it to stop.
#[derive(Debug, Clone, Default)]
pub struct Handle {
    woken: Arc<Notify>,
    stopped: Arc<AtomicBool>,
}

impl Handle {
    /// Ends the present wait of the driver, or the next one if there is none.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Asks [`Driver::run`] to stop in order.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }
}

/// The clock of a driver. To read it for every datagram costs as much as to look the datagram up.
#[derive(Debug, Clone, Copy)]
struct Clock {
    start: Instant,
    latest: u64,
    /// Datagrams for which the latest reading still does.
    left: u32,
}

impl Clock {
    fn new(start: Instant) -> Self {
        Self {
            start,
            latest: 0,
            left: 0,
        }
    }

    /// The time of the next datagram of a turn, ns: at most [`SHARED`] of them, which take some ten microseconds, have the
    /// same.
    fn of_next(&mut self) -> u64 {
        if self.left == 0 {
            self.latest = since(self.start);
            self.left = SHARED;
        }
        self.left -= 1;
        self.latest
    }
}

/// Drives one endpoint with its sockets and a timer, in the task of whoever calls it.
///
/// [`Self::run`] does all of it. Who has more to wait for calls [`Self::turn`] and [`Self::wait`] in turn.
pub struct Driver {
    sockets: Option<Sockets>,
    timer: Timer,
    start: Instant,
    handle: Handle,
    pace: Pace,
}

impl Driver {
    /// A driver without sockets, whose clock starts now. To be used inside a tokio runtime with I/O.
    ///
    /// # Errors
    /// When the system has no timer to give.
    pub fn new(pace: Pace) -> io::Result<Self> {
        Ok(Self {
            sockets: None,
            timer: Timer::new()?,
            start: Instant::now(),
            handle: Handle::default(),
            pace,
        })
    }

    /// Gives it sockets, or takes them away; what waited to be sent goes with the old ones.
    pub fn set_sockets(&mut self, sockets: Option<Sockets>) {
        self.sockets = sockets;
    }

    /// Its sockets.
    pub fn sockets(&self) -> Option<&Sockets> {
        self.sockets.as_ref()
    }

    /// Time since it was made, ns: the `now` of everything that it calls.
    pub fn now(&self) -> u64 {
        since(self.start)
    }

    /// What wakes it from elsewhere.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.handle.stopped.load(Ordering::Acquire)
    }

    /// Receives, does what is due, and sends, a bounded turn of each; tells whether there is more to do at once.
    pub fn turn<P: Party + ?Sized>(&mut self, party: &mut P) -> bool {
        let received = self.receive(party);
        let sent = self.send(party);
        received | sent
    }

    /// Receives a turn and does what is due; tells whether there may be more to receive.
    pub(super) fn receive<P: Party + ?Sized>(&mut self, party: &mut P) -> bool {
        let (start, pace) = (self.start, self.pace);
        let more = self.sockets.as_mut().is_some_and(|sockets| {
            let (inbox, outbox) = sockets.halves();
            let mut budget = pace.send;
            let mut clock = Clock::new(start);
            inbox.receive(pace.receive, |to, from, ecn, bytes| {
                if pace.answer_each {
                    // Calls to the system come between.
                    clock.left = 0;
                }
                party.on_datagram(clock.of_next(), to, from, ecn, bytes);
                if pace.answer_each && budget > 0 {
                    let sent = outbox.send(budget, |out| party.next_transmit(since(start), out));
                    budget -= sent.datagrams;
                }
            })
        });
        let now = self.now();
        if party.next_timeout().is_some_and(|due| due <= now) {
            party.on_timeout(now);
        }
        more
    }

    /// Sends a turn; tells whether there may be more to send at once.
    pub(super) fn send<P: Party + ?Sized>(&mut self, party: &mut P) -> bool {
        let (start, pace) = (self.start, self.pace);
        self.sockets.as_mut().is_some_and(|sockets| {
            let mut clock = Clock::new(start);
            let sent = sockets.send(pace.send, |out| party.next_transmit(clock.of_next(), out));
            sent.left == Left::More
        })
    }

    /// Waits for the first of these: a datagram, room for what is held back, `due` (ns, see [`Self::now`]) or a
    /// [wake-up](Handle::wake). When there is `more` to do, it only lets the runtime have its turn.
    ///
    /// # Errors
    /// When the system refuses to set the timer.
    pub async fn wait(&mut self, due: Option<u64>, more: bool) -> io::Result<()> {
        let now = Instant::now();
        let mut until = match due {
            Some(due) => (self.start + Duration::from_nanos(due)).min(now + LONGEST_WAIT),
            None => now + LONGEST_WAIT,
        };
        if let Some(held) = self.sockets.as_mut().and_then(|s| s.outbox().held_until()) {
            until = until.min(held);
        }
        if more || until <= now {
            tokio::task::yield_now().await;
            return Ok(());
        }
        let woken = self.handle.woken.notified();
        let Some(sockets) = &mut self.sockets else {
            return tokio::select! {
                due = self.timer.wait_until(until) => due,
                () = woken => Ok(()),
            };
        };
        let (inbox, outbox) = sockets.halves();
        tokio::select! {
            () = inbox.readable() => Ok(()),
            () = outbox.writable() => Ok(()),
            due = self.timer.wait_until(until) => due,
            () = woken => Ok(()),
        }
    }
}

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
