//! A bulk transfer between two parties in processes of their own, with or without a relay between them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::endpoint;
use crate::machine::Busy;
use crate::party::{Bulk, Figures, Party, Protocol, Task};
use crate::relay::line::LineSetup;
use crate::relay::{Addresses, Relay, RelayReport, RelaySetup};

/// The cores of the sender and of the receiver; nothing leaves them to the system.
pub type Cores = Option<[usize; 2]>;

/// A relay between the parties.
#[derive(Debug, Clone, Copy)]
pub struct Between {
    /// The line.
    pub line: LineSetup,
    /// Share lost at random, of what the sender and of what the receiver sends.
    pub loss: [f64; 2],
    /// Seed of the loss.
    pub seed: u64,
}

/// What a transfer gave.
#[derive(Debug)]
pub struct Outcome {
    /// As the sender saw it.
    pub sent: Figures,
    /// As the receiver saw it.
    pub received: Figures,
    /// Gigabits per second, of bytes of complete messages or of the stream.
    pub goodput: f64,
    /// Bytes of messages, from the beginning to the end.
    pub total: u64,
    /// Busy share of each core in the time of the figures.
    pub busy: Vec<f64>,
    /// What the relay did.
    pub relay: Option<RelayReport>,
}

impl Outcome {
    /// What everything else on the machine took in the time of the figures, in shares of a core. With much of it, the
    /// run shows the machine.
    pub fn others(&self) -> f64 {
        let relay = self.relay.as_ref().map_or(0.0, |relay| relay.cpu);
        let all: f64 = self.busy.iter().sum();
        (all - self.sent.cpu - self.received.cpu - relay).max(0.0)
    }
}

/// Runs a transfer. Different numbers use different addresses.
///
/// # Errors
/// When a party or the relay fails.
pub fn run(
    bulk: &Bulk,
    number: u32,
    cores: Cores,
    between: Option<&Between>,
) -> io::Result<Outcome> {
    let addresses = Addresses::block(number);
    let limit = Duration::from_millis(2 * (bulk.warm_ms + bulk.time_ms)) + Duration::from_secs(15);
    let core = |party: usize| cores.map(|cores| cores[party]);
    // QUIC and plain sockets take any port; the endpoint has its own.
    let at_b = SocketAddr::new(addresses.b, 0);
    let mut receiver = Party::start(&Task::Receive(*bulk, at_b), core(1), limit)?;
    let ready = receiver.ready()?;
    let relay = between.map(|between| {
        Relay::start(RelaySetup {
            addresses,
            service: ready.port,
            trailer: bulk.protocol == Protocol::Endpoint,
            line: between.line,
            loss: between.loss,
            seed: between.seed,
        })
    });
    let relay = relay.transpose()?;
    let peer = match relay {
        Some(_) => addresses.near,
        None => addresses.b,
    };
    let peer = SocketAddr::new(peer, ready.port);
    let at_a = SocketAddr::new(addresses.a, endpoint::SERVICE_PORT);
    let task = Task::Send(*bulk, at_a, peer, ready);
    let mut sender = Party::start(&task, core(0), limit)?;
    sender.step()?;
    let before = Busy::now();
    let sent = sender.last()?;
    let busy = Busy::now().since(&before);
    let received = receiver.done()?;
    let relay = relay.map(Relay::finish).transpose()?;
    let counted = match bulk.protocol {
        Protocol::Endpoint => &sent,
        Protocol::Quic(_) | Protocol::Plain => &received,
    };
    Ok(Outcome {
        goodput: counted.goodput(),
        total: counted.total,
        sent,
        received,
        busy,
        relay,
    })
}
