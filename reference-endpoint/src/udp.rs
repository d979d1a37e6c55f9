//! Datagrams over real sockets, with their congestion marks.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::core::{Ecn, Transmit};

/// Largest datagram, or row of datagrams, that is received at once, bytes.
const BUFFER: usize = 1 << 16;
/// Receive buffer asked of the system, bytes; the system may give less.
const RECEIVE_BUFFER: usize = 4 << 20;

struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(address)?;
        // A smaller buffer than asked for loses packets under load, which the protocol repairs.
        let _smaller = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER);
        socket.set_nonblocking(true)?;
        let io = UdpSocket::from_std(socket)?;
        let state = UdpSocketState::new((&io).into())?;
        Ok(Self { io, state })
    }
}

/// The sockets of an endpoint: one to receive, one for each source port it sends from.
pub(crate) struct Sockets {
    local: SocketAddr,
    receive: Socket,
    send: BTreeMap<u16, Socket>,
    buffer: Vec<u8>,
}

impl Sockets {
    pub(crate) fn bind(local: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            local,
            receive: Socket::bind(local)?,
            send: BTreeMap::new(),
            buffer: vec![0; BUFFER],
        })
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.receive.io.readable().await
    }

    /// Receives what one call brings: none, one, or a row of datagrams of one sender.
    pub(crate) fn receive(
        &mut self,
        mut each: impl FnMut(SocketAddr, Ecn, &[u8]),
    ) -> io::Result<()> {
        let mut meta = [RecvMeta::default()];
        let (io, state) = (&self.receive.io, &self.receive.state);
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        io.try_io(Interest::READABLE, || {
            state.recv(io.into(), &mut slices, &mut meta)
        })?;
        let [meta] = meta;
        let bytes = self.buffer.get(..meta.len).unwrap_or_default();
        for datagram in bytes.chunks(meta.stride.max(1)) {
            each(meta.addr, from_codepoint(meta.ecn), datagram);
        }
        Ok(())
    }

    /// Sends one datagram. One that the system does not take is lost, as on any wire; only a source port that cannot
    /// be bound is an error.
    pub(crate) fn send(&mut self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let socket = match self.send.entry(transmit.src_port) {
            std::collections::btree_map::Entry::Occupied(socket) => socket.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => place.insert(Socket::bind(
                SocketAddr::new(self.local.ip(), transmit.src_port),
            )?),
        };
        let datagram = quinn_udp::Transmit {
            destination: transmit.dst,
            ecn: to_codepoint(transmit.ecn),
            contents: bytes,
            segment_size: None,
            src_ip: None,
        };
        let (io, state) = (&socket.io, &socket.state);
        // Not through the runtime: it holds a fresh socket for full until it has looked at it once.
        let _lost = state.send(io.into(), &datagram);
        Ok(())
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
mod tests {
    use super::*;

    #[test]
    fn every_mark_of_a_burst_survives() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut receiver = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let dst = receiver.receive.io.local_addr().unwrap();
            let mut sender = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let marks = [Ecn::Ce, Ecn::Ect0, Ecn::NotEct, Ecn::Ect1];
            for i in 0..200u8 {
                let transmit = Transmit {
                    src_port: 0,
                    dst,
                    ecn: marks[usize::from(i % 4)],
                };
                sender.send(&transmit, &[i; 100]).unwrap();
            }
            let mut seen = Vec::new();
            while seen.len() < 200 {
                receiver.readable().await.unwrap();
                let received = receiver.receive(|_, ecn, bytes| seen.push((bytes[0], ecn)));
                assert!(
                    received.is_ok() || received.unwrap_err().kind() == io::ErrorKind::WouldBlock
                );
            }
            for (i, ecn) in seen {
                assert_eq!(ecn, marks[usize::from(i % 4)], "datagram {i}");
            }
        });
    }
}
