//! Mutants: the model with one rule broken at its edge, to show that the suite notices.
//!
//! A mutant edits datagrams on their way in and out of a sound endpoint. It is never active unless it is named.

mod catalogue;
mod edit;

use std::collections::VecDeque;
use std::net::SocketAddr;

pub use catalogue::{MutantInfo, all, by_id};

use crate::core::{Ecn, Transmit};

/// A datagram on its way out.
pub(crate) type Out = (Transmit, Vec<u8>);

/// What a mutant does at the edge. The state of one connection is enough: a session has one.
pub(crate) trait Edge: Send {
    /// Changes, drops or adds to a datagram that goes out.
    fn outgoing(&mut self, now: u64, local: SocketAddr, datagram: Out, out: &mut Vec<(u64, Out)>) {
        let _ = local;
        out.push((now, datagram));
    }
    /// Changes, drops or adds to datagrams that come in: `(from, local)` are their addresses.
    fn incoming(
        &mut self,
        _now: u64,
        _addresses: (SocketAddr, SocketAddr),
        _in: &mut Vec<(Ecn, Vec<u8>)>,
    ) {
    }
}

/// A mutant at work.
pub struct Mutant {
    edge: Box<dyn Edge>,
    /// Datagrams held until their time, in the order of release.
    held: VecDeque<(u64, Out)>,
}

impl Mutant {
    pub(crate) fn new(edge: Box<dyn Edge>) -> Self {
        Self {
            edge,
            held: VecDeque::new(),
        }
    }

    /// Takes a datagram that the endpoint sends.
    pub(crate) fn outgoing(
        &mut self,
        now: u64,
        local: SocketAddr,
        transmit: Transmit,
        bytes: Vec<u8>,
    ) {
        let mut out = Vec::new();
        self.edge.outgoing(now, local, (transmit, bytes), &mut out);
        self.held.extend(out);
    }

    /// The next datagram whose time has come.
    pub(crate) fn released(&mut self, now: u64) -> Option<Out> {
        let index = self.held.iter().position(|(at, _)| *at <= now)?;
        self.held.remove(index).map(|(_, datagram)| datagram)
    }

    /// When the next held datagram is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.held.iter().map(|(at, _)| *at).min()
    }

    pub(crate) fn incoming(
        &mut self,
        now: u64,
        addresses: (SocketAddr, SocketAddr),
        datagrams: &mut Vec<(Ecn, Vec<u8>)>,
    ) {
        self.edge.incoming(now, addresses, datagrams);
    }
}
