//! How many datagrams the sockets of the endpoint move over the loopback interface, beside quinn-udp alone in the same
//! run. Nothing of the protocol is in it.
//!
//! `cargo run --release -p metaroce-endpoint --example udp_rows`
//!
//! One thread sends a burst and receives all of it, so a figure is the work of both sides and nothing is ever lost.
//! A burst goes out in rows: as many datagrams in sequence from one of eight source ports, then as many from the next.
//! All write every datagram into their buffer, make the same rows and look at every datagram that comes. Rounds
//! alternate; the median is shown, in thousands for each second of processor time, so that other work on the machine
//! counts little.
//!
//! "Bare" is quinn-udp with nothing around it. "In tokio" is the same with a receiver that waits in the runtime, as any
//! driver must that has more than one thing to wait for: the system then tells the runtime of each arrival.

#![expect(clippy::unwrap_used, reason = "a program to measure with")]

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use metaroce_endpoint::core::{Ecn, Transmit};
use metaroce_endpoint::udp::{Losses, Sockets};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSocketState};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::Interest;

const PORTS: usize = 8;
/// Datagrams of a burst: little enough for any receive buffer.
const BURST: usize = 48;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(60);

fn main() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(measure())
}

async fn measure() -> io::Result<()> {
    let mut bare = Plain::new(false)?;
    let mut in_tokio = Plain::new(true)?;
    let mut ours = Ours::new()?;
    println!("| bytes | row | bare | in tokio | sockets | to bare | to tokio |");
    println!("|---|---|---|---|---|---|---|");
    for len in [1100, 4200, 8300] {
        let datagram = vec![0x5a; len];
        for row in [1, 8, 16] {
            let mut rates = [(); 3].map(|()| Vec::new());
            for _ in 0..ROUNDS {
                for (who, rates) in rates.iter_mut().enumerate() {
                    let (start, mut count) = (worked(), 0);
                    while worked() - start < ROUND {
                        count += match who {
                            0 => bare.burst(&datagram, row).await?,
                            1 => in_tokio.burst(&datagram, row).await?,
                            _ => ours.burst(&datagram, row).await,
                        };
                    }
                    rates.push(f64::from(count) / (worked() - start).as_secs_f64());
                }
            }
            let [bare, tokio, ours] = rates.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                rates[ROUNDS / 2] / 1000.0
            });
            let (to_bare, to_tokio) = (ours / bare, ours / tokio);
            println!(
                "| {len} | {row} | {bare:.0} | {tokio:.0} | {ours:.0} | {to_bare:.2} | {to_tokio:.2} |"
            );
        }
    }
    assert_eq!(ours.sender.losses(), Losses::default());
    Ok(())
}

/// Processor time of this thread, with what the system does for it.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// quinn-udp and nothing else.
struct Plain {
    sources: Vec<(UdpSocket, UdpSocketState)>,
    receiver: (UdpSocket, UdpSocketState),
    /// The receiver once more, for the runtime.
    watched: Option<tokio::net::UdpSocket>,
    out: Vec<u8>,
    buffers: Vec<u8>,
}

impl Plain {
    fn new(in_tokio: bool) -> io::Result<Self> {
        let bind = || -> io::Result<_> {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            let _smaller = socket2::SockRef::from(&socket).set_recv_buffer_size(8 << 20);
            let state = UdpSocketState::new((&socket).into())?;
            Ok((socket, state))
        };
        let receiver = bind()?;
        let watched = in_tokio.then(|| tokio::net::UdpSocket::from_std(receiver.0.try_clone()?));
        Ok(Self {
            sources: (0..PORTS).map(|_| bind()).collect::<io::Result<_>>()?,
            receiver,
            watched: watched.transpose()?,
            out: Vec::new(),
            buffers: vec![0; BATCH_SIZE << 16],
        })
    }

    async fn burst(&mut self, datagram: &[u8], row: usize) -> io::Result<u32> {
        let destination = self.receiver.0.local_addr()?;
        let mut left = BURST;
        for (socket, state) in self.sources.iter().cycle() {
            if left == 0 {
                break;
            }
            let most = state.max_gso_segments().min(65_507 / datagram.len());
            let mut in_row = row.min(left);
            left -= in_row;
            while in_row > 0 {
                let count = in_row.min(most);
                in_row -= count;
                self.out.clear();
                for _ in 0..count {
                    self.out.extend_from_slice(datagram);
                }
                let transmit = quinn_udp::Transmit {
                    destination,
                    ecn: Some(EcnCodepoint::Ect0),
                    contents: &self.out,
                    segment_size: (count > 1).then_some(datagram.len()),
                    src_ip: None,
                };
                state.try_send(socket.into(), &transmit)?;
            }
        }
        let (socket, state) = &self.receiver;
        let mut received = 0;
        while received < BURST {
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let mut pieces = self.buffers.chunks_exact_mut(1 << 16);
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| IoSliceMut::new(pieces.next().unwrap_or_default()));
            let count = match &self.watched {
                None => state.recv(socket.into(), &mut slices, &mut metas)?,
                Some(watched) => {
                    watched.readable().await?;
                    watched.try_io(Interest::READABLE, || {
                        state.recv(socket.into(), &mut slices, &mut metas)
                    })?
                }
            };
            for (meta, buffer) in metas.iter().zip(&slices).take(count) {
                let looked = buffer[..meta.len].chunks(meta.stride);
                received += looked.filter(|datagram| datagram[0] == 0x5a).count();
            }
        }
        Ok(received as u32)
    }
}

struct Ours {
    sender: Sockets,
    receiver: Sockets,
    sources: Vec<SocketAddr>,
}

impl Ours {
    fn new() -> io::Result<Self> {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let free = || UdpSocket::bind(any)?.local_addr();
        Ok(Self {
            sender: Sockets::bind(any)?,
            receiver: Sockets::bind(any)?,
            sources: (0..PORTS).map(|_| free()).collect::<io::Result<_>>()?,
        })
    }

    async fn burst(&mut self, datagram: &[u8], row: usize) -> u32 {
        let dst = self.receiver.locals().next().unwrap();
        let mut sent = 0;
        self.sender.send(BURST, |out| {
            let source = self.sources[sent / row % PORTS];
            sent += 1;
            out.extend_from_slice(datagram);
            Some(Transmit {
                src_ip: source.ip(),
                src_port: source.port(),
                dst,
                ecn: Ecn::Ect0,
            })
        });
        let mut received = 0;
        while received < BURST {
            self.receiver.inbox().readable().await;
            self.receiver.receive(BURST - received, |_, _, _, bytes| {
                received += usize::from(bytes[0] == 0x5a)
            });
        }
        received as u32
    }
}
