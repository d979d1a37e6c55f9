//! UDP and nothing else: what sockets and offload give without a protocol.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use crate::party::{Bulk, Figures, Ready, Said, Window, say};

/// Buffers asked of the system, bytes; it may give less. The same for every protocol here.
pub const BUFFER: usize = 4 << 20;
/// Largest row of datagrams that the system joins or takes apart, bytes.
const LARGEST: usize = 65_507;

/// Datagrams of this size in a row, of at most so many.
pub fn row_of(row: usize, datagram: usize) -> usize {
    row.min(LARGEST / datagram).min(64)
}

fn bind(address: SocketAddr) -> io::Result<(UdpSocket, UdpSocketState)> {
    let io = UdpSocket::bind(address)?;
    let socket = socket2::SockRef::from(&io);
    let _smaller = socket.set_recv_buffer_size(BUFFER);
    let _smaller = socket.set_send_buffer_size(BUFFER);
    let state = UdpSocketState::new((&io).into())?;
    Ok((io, state))
}

fn wait(io: &UdpSocket, flags: PollFlags) -> io::Result<()> {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    match poll(&mut [PollFd::new(io, flags)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Counts what arrives, until its end is called for.
///
/// # Errors
/// When a socket fails.
pub fn receive(bulk: &Bulk, local: SocketAddr, mut ended: Receiver<()>) -> io::Result<Figures> {
    let (io, state) = bind(local)?;
    say(&Said::Ready(Ready {
        port: io.local_addr()?.port(),
        ..Ready::default()
    }));
    let mut window = Window::new(bulk);
    let mut buffers = vec![vec![0; 1 << 16]; BATCH_SIZE];
    let mut metas = [RecvMeta::default(); BATCH_SIZE];
    while ended.try_recv() == Err(TryRecvError::Empty) {
        let mut slices: Vec<IoSliceMut<'_>> =
            buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        match state.recv((&io).into(), &mut slices, &mut metas) {
            Ok(count) => {
                let bytes = metas.iter().take(count).map(|meta| {
                    let datagrams = meta.len / meta.stride.max(1);
                    datagrams * usize::from(bulk.payload)
                });
                window.count(bytes.sum());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(&io, PollFlags::IN)?,
            Err(error) => return Err(error),
        }
    }
    Ok(window.figures(0))
}

/// Sends rows as fast as the system takes them, from a socket for each path in turn.
///
/// # Errors
/// When a socket fails.
pub fn send(bulk: &Bulk, local: SocketAddr, peer: SocketAddr) -> io::Result<Figures> {
    let sockets = (0..bulk.paths)
        .map(|_| bind(SocketAddr::new(local.ip(), 0)))
        .collect::<io::Result<Vec<_>>>()?;
    let row = row_of(bulk.row, bulk.datagram);
    let contents = vec![0x5a; row * bulk.datagram];
    let transmit = Transmit {
        destination: peer,
        ecn: Some(EcnCodepoint::Ect0),
        contents: &contents,
        segment_size: (row > 1).then_some(bulk.datagram),
        src_ip: None,
    };
    let mut window = Window::new(bulk);
    let all = Duration::from_millis(bulk.warm_ms + bulk.time_ms + 200);
    let (start, mut refused) = (Instant::now(), 0);
    while start.elapsed() < all {
        for (io, state) in &sockets {
            match state.try_send(io.into(), &transmit) {
                Ok(()) => {
                    window.count(row * usize::from(bulk.payload));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    refused += 1;
                    wait(io, PollFlags::OUT)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(window.figures(refused))
}
