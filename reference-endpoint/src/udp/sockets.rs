//! All sockets of an endpoint.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::inbox::Inbox;
use super::losses::Losses;
use super::outbox::{Outbox, Sent};
use super::source::{self, Source, Sources};
use crate::core::{Ecn, Transmit};

/// What is asked of the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Sockets that are sent from, at most, beside those of the service port: one for each own address and source port.
    /// When all are there, the one that was idle longest makes room, if it was idle for four times as many rows of
    /// datagrams; else what another port would send is lost.
    pub most_sources: usize,
    /// Receive buffer asked of the system for each service port, bytes; the system may give less.
    pub receive_buffer: usize,
    /// How long what the system has no room for is held back before it is lost.
    pub hold: Duration,
    /// Whether rows of datagrams leave with one call where the system can do that.
    pub segmentation: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            most_sources: 256,
            receive_buffer: 8 << 20,
            hold: Duration::from_millis(5),
            segmentation: true,
        }
    }
}

/// The sockets of an endpoint. To be used inside a tokio runtime with I/O.
pub struct Sockets {
    inbox: Inbox,
    outbox: Outbox,
}

impl Sockets {
    /// Binds the service port of the only own address; port 0 lets the system choose one.
    ///
    /// # Errors
    /// Whatever the system has against it.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        Self::bind_all(&[local], &Settings::default())
    }

    /// Binds a service port on each of several own addresses.
    ///
    /// # Errors
    /// Whatever the system has against one of them; then none is bound.
    pub fn bind_all(locals: &[SocketAddr], settings: &Settings) -> io::Result<Self> {
        let mut inbox = Inbox::new();
        let mut sources = Sources::new(settings.most_sources);
        let mut most_segments = if settings.segmentation { 64 } else { 1 };
        for local in locals {
            let io = Arc::new(source::open(*local, settings.receive_buffer)?);
            let local = io.local_addr()?;
            inbox.add(local, Arc::clone(&io))?;
            let source = Source::new(io, true)?;
            most_segments = most_segments.min(source.most_segments());
            sources.add_service(local, source);
        }
        Ok(Self {
            inbox,
            outbox: Outbox::new(sources, most_segments, settings.hold),
        })
    }

    /// Own addresses and service ports, in the order in which they were named.
    pub fn locals(&self) -> impl Iterator<Item = SocketAddr> {
        self.inbox.locals()
    }

    /// What was lost so far.
    pub fn losses(&self) -> Losses {
        Losses {
            failed_receives: self.inbox.failed(),
            ..self.outbox.losses
        }
    }

    /// The receiving half.
    pub fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// The sending half.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Both halves, to send while something is received.
    pub fn halves(&mut self) -> (&mut Inbox, &mut Outbox) {
        (&mut self.inbox, &mut self.outbox)
    }

    /// See [`Inbox::receive`].
    pub fn receive(
        &mut self,
        most: usize,
        each: impl FnMut(IpAddr, SocketAddr, Ecn, &[u8]),
    ) -> bool {
        self.inbox.receive(most, each)
    }

    /// See [`Outbox::send`].
    pub fn send(
        &mut self,
        most: usize,
        next: impl FnMut(&mut Vec<u8>) -> Option<Transmit>,
    ) -> Sent {
        self.outbox.send(most, next)
    }
}
