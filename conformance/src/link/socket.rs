//! UDP sockets that read and write congestion marks.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use metaroce_wire::frame::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Receive buffer asked of the system, bytes; the system may give less.
const RECEIVE_BUFFER: usize = 8 << 20;

/// One socket.
pub(crate) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    /// Binds it; needs a runtime with I/O.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(address)?;
        // With a smaller buffer than asked for, a burst may be lost, which the balance of the taps would show at once.
        let _smaller = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER);
        socket.set_nonblocking(true)?;
        let io = UdpSocket::from_std(socket)?;
        let state = UdpSocketState::new((&io).into())?;
        Ok(Self { io, state })
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.io.readable().await
    }

    /// Receives what one call brings: none, one, or a row of datagrams of one sender.
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        mut each: impl FnMut(SocketAddr, Ecn, &[u8]),
    ) -> io::Result<()> {
        let mut meta = [RecvMeta::default()];
        let mut slices = [IoSliceMut::new(buffer)];
        self.io.try_io(Interest::READABLE, || {
            self.state.recv((&self.io).into(), &mut slices, &mut meta)
        })?;
        let [meta] = meta;
        for datagram in buffer
            .get(..meta.len)
            .unwrap_or_default()
            .chunks(meta.stride.max(1))
        {
            each(
                meta.addr,
                meta.ecn
                    .map_or(Ecn::NotEct, |codepoint| Ecn::from_bits(codepoint as u8)),
                datagram,
            );
        }
        Ok(())
    }

    /// Sends one datagram.
    pub(crate) fn send(&self, dst: SocketAddr, ecn: Ecn, bytes: &[u8]) -> io::Result<()> {
        let datagram = Transmit {
            destination: dst,
            ecn: EcnCodepoint::from_bits(ecn.bits()),
            contents: bytes,
            segment_size: None,
            src_ip: None,
        };
        // Not through the runtime: it holds a fresh socket for full until it has looked at it once.
        self.state.send((&self.io).into(), &datagram)
    }
}
