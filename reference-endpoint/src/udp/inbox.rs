//! Receiving: on the service port of every own address, many datagrams with one call to the system.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::task::Poll;

use quinn_udp::{RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ecn::from_codepoint;
use crate::core::Ecn;

/// Bytes of one receive: the largest datagram, or a row of datagrams that the system has joined.
const BUFFER: usize = 1 << 16;
/// Receives in one call to the system. More of them only fill the cache: a full one is a row already.
const BATCH: usize = 16;

/// The socket of one own address.
struct Plane {
    local: SocketAddr,
    io: AsyncFd<Arc<UdpSocket>>,
    state: UdpSocketState,
}

/// The receiving half of [`Sockets`](super::Sockets).
pub struct Inbox {
    planes: Vec<Plane>,
    buffers: Vec<u8>,
    failed: u64,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            planes: Vec::new(),
            buffers: vec![0; BATCH * BUFFER],
            failed: 0,
        }
    }

    pub(super) fn add(&mut self, local: SocketAddr, io: Arc<UdpSocket>) -> io::Result<()> {
        let state = UdpSocketState::new((&io).into())?;
        // Watched for reading alone: otherwise every datagram that leaves would wake the runtime.
        #[expect(
            deprecated,
            reason = "its successor is unsafe, and an owned descriptor cannot be closed behind its back"
        )]
        let io = AsyncFd::with_interest(io, Interest::READABLE)?;
        self.planes.push(Plane { local, io, state });
        Ok(())
    }

    pub(super) fn locals(&self) -> impl Iterator<Item = SocketAddr> {
        self.planes.iter().map(|plane| plane.local)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// The smallest of the receive buffers that the system has given, bytes as it counts them.
    pub fn receive_buffer(&self) -> Option<usize> {
        let sizes = self.planes.iter().map(|plane| {
            socket2::SockRef::from(plane.io.get_ref())
                .recv_buffer_size()
                .unwrap_or(0)
        });
        sizes.min()
    }

    /// Waits until there is something to receive.
    pub async fn readable(&self) {
        std::future::poll_fn(|context| {
            // All are asked, so that each of them wakes. An error shows again, and is counted, in a receive.
            let ready = |plane: &Plane| plane.io.poll_read_ready(context).is_ready();
            if self.planes.iter().map(ready).fold(false, |a, b| a | b) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Receives and hands each datagram to `each`: the own address that it came to, where it comes from, its mark and
    /// its bytes. The addresses have their turn one after the other, a call to the system each, until there is nothing
    /// left or at least `most` datagrams were handed out; one call may bring more than that. Tells whether there may
    /// be more.
    pub fn receive(
        &mut self,
        most: usize,
        mut each: impl FnMut(IpAddr, SocketAddr, Ecn, &[u8]),
    ) -> bool {
        let mut count = 0;
        loop {
            let mut dry = true;
            for plane in &self.planes {
                match plane.receive(&mut self.buffers, &mut each) {
                    Ok(received) => {
                        count += received;
                        dry = false;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => {
                        // It may be the news of an earlier datagram: what has come is still there to be read.
                        self.failed += 1;
                        count += 1;
                        dry = false;
                    }
                }
            }
            if dry {
                return false;
            }
            if count >= most {
                return true;
            }
        }
    }
}

impl Plane {
    fn receive(
        &self,
        buffers: &mut [u8],
        each: &mut impl FnMut(IpAddr, SocketAddr, Ecn, &[u8]),
    ) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); BATCH];
        let received = {
            let mut pieces = buffers.chunks_exact_mut(BUFFER);
            let mut slices: [IoSliceMut<'_>; BATCH] =
                std::array::from_fn(|_| IoSliceMut::new(pieces.next().unwrap_or_default()));
            self.io.try_io(Interest::READABLE, |io| {
                self.state.recv(io.into(), &mut slices, &mut metas)
            })?
        };
        let mut count = 0;
        for (meta, buffer) in metas
            .iter()
            .zip(buffers.chunks_exact(BUFFER))
            .take(received)
        {
            let to = match meta.dst_ip {
                Some(to) if self.local.ip().is_unspecified() => to,
                _ => self.local.ip(),
            };
            let ecn = from_codepoint(meta.ecn);
            let bytes = buffer.get(..meta.len).unwrap_or_default();
            if bytes.is_empty() {
                each(to, meta.addr, ecn, bytes);
                count += 1;
            }
            // The system joins datagrams of one sender, one length and one mark.
            for datagram in bytes.chunks(meta.stride.max(1)) {
                each(to, meta.addr, ecn, datagram);
                count += 1;
            }
        }
        Ok(count)
    }
}
