//! Datagrams over real sockets, with their congestion marks.
//!
//! One socket on the service port receives; for every source port that is sent from, a further one is bound when it is
//! first needed. Whatever the system does not take or give is lost, as on any wire: nothing here ends a session.

mod timer;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

pub use timer::Timer;

use crate::core::{Ecn, Transmit};

/// Bytes of one receive: the largest datagram, or a row of datagrams that the system has joined.
const BUFFER: usize = 1 << 16;
/// Receive buffer asked of the system, bytes; the system may give less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A datagram that has come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Where it comes from.
    pub from: SocketAddr,
    /// Congestion mark.
    pub ecn: Ecn,
    /// UDP payload.
    pub bytes: Vec<u8>,
}

/// What the sockets have lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Datagrams that the system did not take.
    pub refused: u64,
    /// Datagrams from a source port that could not be bound.
    pub unbound: u64,
    /// Receives that failed.
    pub failed: u64,
}

/// A socket to send from. It is written to directly: what it does not take at once is lost, so nobody waits for it.
struct Source {
    io: std::net::UdpSocket,
    state: UdpSocketState,
}

impl Source {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let io = std::net::UdpSocket::bind(address)?;
        io.set_nonblocking(true)?;
        let state = UdpSocketState::new((&io).into())?;
        Ok(Self { io, state })
    }

    fn send(&self, transmit: &quinn_udp::Transmit<'_>) -> io::Result<()> {
        self.state.try_send((&self.io).into(), transmit)
    }
}

/// The sockets of an endpoint. To be used inside a tokio runtime with I/O.
pub struct Sockets {
    local: SocketAddr,
    service: UdpSocket,
    state: UdpSocketState,
    /// By source port; nothing where it could not be bound.
    sources: BTreeMap<u16, Option<Source>>,
    buffers: Vec<Vec<u8>>,
    losses: Losses,
}

impl Sockets {
    /// Binds the service port; port 0 lets the system choose one.
    ///
    /// # Errors
    /// Whatever the system has against it.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        let service = std::net::UdpSocket::bind(local)?;
        // A smaller buffer than asked for loses packets under load, which the protocol repairs.
        let _smaller = socket2::SockRef::from(&service).set_recv_buffer_size(RECEIVE_BUFFER);
        service.set_nonblocking(true)?;
        let service = UdpSocket::from_std(service)?;
        let state = UdpSocketState::new((&service).into())?;
        Ok(Self {
            local: service.local_addr()?,
            service,
            state,
            sources: BTreeMap::new(),
            buffers: vec![vec![0; BUFFER]; BATCH_SIZE],
            losses: Losses::default(),
        })
    }

    /// Own address and service port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// What was lost so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Waits until there is something to receive.
    pub async fn readable(&self) {
        // An error shows again, and is counted, when something is received.
        let _error = self.service.readable().await;
    }

    /// Receives what one call to the system brings, in the order of arrival; nothing when there is nothing.
    pub fn receive(&mut self) -> Vec<Received> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut slices: Vec<IoSliceMut<'_>> = self
            .buffers
            .iter_mut()
            .map(|b| IoSliceMut::new(b))
            .collect();
        let (io, state) = (&self.service, &self.state);
        let count = io.try_io(Interest::READABLE, || {
            state.recv(io.into(), &mut slices, &mut metas)
        });
        let count = match count {
            Ok(count) => count,
            Err(error) => {
                self.losses.failed += u64::from(error.kind() != io::ErrorKind::WouldBlock);
                return Vec::new();
            }
        };
        let mut received = Vec::with_capacity(count);
        for (meta, buffer) in metas.iter().zip(&self.buffers).take(count) {
            let bytes = buffer.get(..meta.len).unwrap_or_default();
            let ecn = from_codepoint(meta.ecn);
            // The system joins datagrams of one sender and one mark; an empty datagram has no stride.
            received.extend(bytes.chunks(meta.stride.max(1)).map(|datagram| Received {
                from: meta.addr,
                ecn,
                bytes: datagram.to_vec(),
            }));
        }
        received
    }

    /// Sends one datagram from the source port that it names, or loses it.
    pub fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let datagram = quinn_udp::Transmit {
            destination: transmit.dst,
            ecn: to_codepoint(transmit.ecn),
            contents: bytes,
            segment_size: None,
            src_ip: None,
        };
        if transmit.src_port == self.local.port() {
            let sent = self.state.try_send((&self.service).into(), &datagram);
            self.losses.refused += u64::from(sent.is_err());
            return;
        }
        match self.source(transmit.src_port) {
            None => self.losses.unbound += 1,
            Some(source) => {
                let sent = source.send(&datagram);
                self.losses.refused += u64::from(sent.is_err());
            }
        }
    }

    fn source(&mut self, port: u16) -> Option<&Source> {
        let place = match self.sources.entry(port) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(place) => {
                let address = SocketAddr::new(self.local.ip(), port);
                let source = Source::bind(address);
                if let Err(error) = &source {
                    // Said once for each port: what follows on it is lost in silence.
                    eprintln!("cannot bind source port {address}: {error}");
                }
                place.insert(source.ok())
            }
        };
        place.as_ref()
    }
}

fn to_codepoint(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::NotEct => None,
        Ecn::Ect0 => Some(EcnCodepoint::Ect0),
        Ecn::Ect1 => Some(EcnCodepoint::Ect1),
        Ecn::Ce => Some(EcnCodepoint::Ce),
    }
}

fn from_codepoint(ecn: Option<EcnCodepoint>) -> Ecn {
    match ecn {
        None => Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => Ecn::Ect1,
        Some(EcnCodepoint::Ce) => Ecn::Ce,
    }
}

#[cfg(test)]
mod tests;
