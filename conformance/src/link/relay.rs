//! The relay: two parties in processes of their own, over real UDP sockets on loopback addresses, without privileges.
//!
//! A knows B by the address `near`, B knows A by the address `far`; both belong to the relay. UDP source ports are kept
//! by sending from the same port of the relay's own address. Addresses change, so the trailer, which covers them, is
//! carried over: a right one stays right and a wrong one stays wrong.

mod carrier;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::evidence::RuleCount;
use crate::inject::Injector;
use crate::trace::Side;
use carrier::Carrier;

/// The four addresses of a test, with the service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayAddresses {
    /// The initiator.
    pub a: SocketAddr,
    /// The acceptor, as the initiator knows it.
    pub near: SocketAddr,
    /// The initiator, as the acceptor knows it.
    pub far: SocketAddr,
    /// The acceptor.
    pub b: SocketAddr,
}

impl RelayAddresses {
    /// Four addresses of the loopback net that are free on `port`, from a block that depends on `hint`.
    ///
    /// # Errors
    /// When no block of many tried is free.
    pub fn find(port: u16, hint: u64) -> io::Result<Self> {
        let mut last = io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "no loopback address is free",
        );
        for attempt in 0..64u64 {
            let block = hint
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23)
                .wrapping_add(attempt * 257);
            let (x, y) = ((block >> 8) as u8 % 253 + 1, block as u8);
            let address = |host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, x, y, host)), port);
            let found = Self {
                a: address(1),
                near: address(2),
                far: address(3),
                b: address(4),
            };
            let free = [found.a, found.near, found.far, found.b].map(std::net::UdpSocket::bind);
            match free.into_iter().find_map(Result::err) {
                None => return Ok(found),
                Some(error) => last = error,
            }
        }
        Err(last)
    }

    /// The address of the party on `side`, and of the relay's end next to it.
    fn at(&self, side: Side) -> (SocketAddr, SocketAddr) {
        match side {
            Side::A => (self.a, self.near),
            Side::B => (self.b, self.far),
        }
    }
}

/// What a relay is made of.
pub struct RelaySetup {
    /// Addresses.
    pub addresses: RelayAddresses,
    /// One-way delay, ns.
    pub delay_ns: u64,
    /// Rules.
    pub injector: Injector,
    /// Where the capture goes.
    pub capture: PathBuf,
    /// Time 0 of the capture.
    pub start: Instant,
}

/// Why the relay cannot start or go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("relay: {0}")]
pub struct RelayError(String);

fn failed(error: impl ToString) -> RelayError {
    RelayError(error.to_string())
}

/// What is known once the relay has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayReport {
    /// How often each rule acted.
    pub rules: Vec<RuleCount>,
    /// Packets still inside, from A and from B.
    pub held: [u64; 2],
    /// Largest lateness, ns: how much later than due a packet was sent, or how long the relay did not look for new ones.
    pub jitter_ns: u64,
    /// Datagrams from other addresses than the two parties'.
    pub strangers: u64,
}

/// A running relay. Dropping it stops it.
pub struct Relay {
    /// The thread ends when this is closed.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<Result<RelayReport, RelayError>>>,
}

impl Relay {
    /// Binds the relay's addresses and starts to carry packets.
    ///
    /// # Errors
    /// [`RelayError`].
    pub fn start(setup: RelaySetup) -> Result<Self, RelayError> {
        let carrier = Carrier::new(setup)?;
        let (alive, stop) = UnixStream::pair().map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || carrier.run(&stop))
            .map_err(failed)?;
        Ok(Self {
            alive: Some(alive),
            thread: Some(thread),
        })
    }

    /// Stops it and closes the capture.
    ///
    /// # Errors
    /// [`RelayError`] when it had failed, the capture did, or datagrams were lost before it could see them.
    pub fn finish(mut self) -> Result<RelayReport, RelayError> {
        self.end()
    }

    fn end(&mut self) -> Result<RelayReport, RelayError> {
        self.alive = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(report)) => report,
            _ => Err(failed("its thread has ended in a panic")),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Nobody has asked how it went.
            let _unasked = self.end();
        }
    }
}
