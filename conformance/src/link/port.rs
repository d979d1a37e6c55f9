//! A UDP socket of the relay: without a runtime, many datagrams at a time, with their congestion marks.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use metaroce_wire::frame::Ecn;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

/// Receive buffer asked of the system, bytes; the system may give less.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Largest datagram, or row of coalesced datagrams, bytes.
const LARGEST: usize = 1 << 16;

/// One socket.
pub(super) struct Port {
    io: UdpSocket,
    state: UdpSocketState,
}

/// Datagrams as they come out of one call.
pub(super) struct Batch {
    bytes: Vec<u8>,
    meta: Vec<RecvMeta>,
    filled: usize,
}

impl Batch {
    /// An empty batch.
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; LARGEST * BATCH_SIZE],
            meta: vec![RecvMeta::default(); BATCH_SIZE],
            filled: 0,
        }
    }

    /// The datagrams, in order of arrival: from where, mark, payload.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, Ecn, &[u8])> {
        let rows = self.bytes.chunks(LARGEST).zip(&self.meta).take(self.filled);
        rows.flat_map(|(bytes, meta)| {
            let ecn = meta.ecn.map_or(0, |codepoint| codepoint as u8);
            let row = bytes.get(..meta.len).unwrap_or_default();
            // A row of coalesced datagrams has one sender and one mark. An empty datagram is no row but is one.
            let empty = row.is_empty().then_some(row);
            let each = row.chunks(meta.stride.max(1)).chain(empty);
            each.map(move |datagram| (meta.addr, Ecn::from_bits(ecn), datagram))
        })
    }
}

impl Port {
    /// Binds it.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let io = UdpSocket::bind(address)?;
        // With a smaller buffer than asked for a burst may be lost, which is found out at the end.
        let _smaller = socket2::SockRef::from(&io).set_recv_buffer_size(RECEIVE_BUFFER);
        let state = UdpSocketState::new((&io).into())?;
        io.set_nonblocking(true)?;
        Ok(Self { io, state })
    }

    /// Takes what has arrived, as much as fits.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing.
    pub(super) fn receive(&self, batch: &mut Batch) -> io::Result<()> {
        batch.filled = 0;
        let mut slices: Vec<IoSliceMut<'_>> = batch
            .bytes
            .chunks_mut(LARGEST)
            .map(IoSliceMut::new)
            .collect();
        batch.filled = self
            .state
            .recv((&self.io).into(), &mut slices, &mut batch.meta)?;
        Ok(())
    }

    /// Sends one datagram.
    pub(super) fn send(&self, dst: SocketAddr, ecn: Ecn, bytes: &[u8]) -> io::Result<()> {
        let datagram = Transmit {
            destination: dst,
            ecn: EcnCodepoint::from_bits(ecn.bits()),
            contents: bytes,
            segment_size: None,
            src_ip: None,
        };
        // Its other way to send hides every error but one.
        self.state.try_send((&self.io).into(), &datagram)
    }

    /// Datagrams that the system has thrown away because the receive buffer was full; none where it does not say.
    pub(super) fn overflowed(&self) -> u64 {
        let Ok(SocketAddr::V4(local)) = self.io.local_addr() else {
            return 0;
        };
        let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        // The address stands there as the machine holds it in memory, the port as a number.
        let address = u32::from_ne_bytes(local.ip().octets());
        let wanted = format!("{address:08X}:{:04X}", local.port());
        let row = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row.get(1) == Some(&wanted.as_str()));
        row.and_then(|row| row.last()?.parse().ok()).unwrap_or(0)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_did_not_fit_are_counted() {
        let port = Port::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dst = port.io.local_addr().unwrap();
        socket2::SockRef::from(&port.io)
            .set_recv_buffer_size(4096)
            .unwrap();
        let sender = Port::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(port.overflowed(), 0);
        for _ in 0..100 {
            sender.send(dst, Ecn::Ce, &[1; 1000]).unwrap();
        }
        let mut batch = Batch::new();
        let mut received = 0;
        while port.receive(&mut batch).is_ok() {
            received += batch.datagrams().count() as u64;
        }
        assert!(received < 100);
        assert_eq!(port.overflowed(), 100 - received);
    }

    #[test]
    fn an_empty_datagram_is_one() {
        let port = Port::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dst = port.io.local_addr().unwrap();
        for bytes in [&[][..], &[1, 2], &[]] {
            port.send(dst, Ecn::Ect0, bytes).unwrap();
        }
        let mut batch = Batch::new();
        let mut seen = Vec::new();
        while port.receive(&mut batch).is_ok() {
            seen.extend(batch.datagrams().map(|(_, ecn, b)| (ecn, b.to_vec())));
        }
        let expected = [vec![], vec![1, 2], vec![]].map(|bytes| (Ecn::Ect0, bytes));
        assert_eq!(seen, expected);
    }
}
