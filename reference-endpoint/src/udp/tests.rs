//! On the loopback interface, as an ordinary user. Driven by what happens; a time limit only ends a test that hangs.

mod driver;
mod losses;
mod rows;
mod verbs;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::*;
use crate::core::{Ecn, Transmit};

const MARKS: [Ecn; 6] = [Ecn::Ce, Ecn::Ect0, Ecn::NotEct, Ecn::Ect1, Ecn::Ce, Ecn::Ce];
const HOSTS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

/// Both families, as far as this system has them.
fn hosts() -> impl Iterator<Item = &'static str> {
    HOSTS.into_iter().filter(|host| {
        let there = std::net::UdpSocket::bind(host).is_ok();
        if !there {
            eprintln!("this system has no {host}: not tested");
        }
        there
    })
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), test)
            .await
            .unwrap()
    })
}

/// A datagram that has come in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Received {
    to: IpAddr,
    from: SocketAddr,
    ecn: Ecn,
    bytes: Vec<u8>,
}

fn bind(host: &str) -> Sockets {
    Sockets::bind(host.parse().unwrap()).unwrap()
}

fn local(sockets: &Sockets) -> SocketAddr {
    sockets.locals().next().unwrap()
}

/// An address whose port is free: the system has just given it, and takes it back.
fn free(host: &str) -> SocketAddr {
    std::net::UdpSocket::bind(host)
        .unwrap()
        .local_addr()
        .unwrap()
}

fn transmit(from: SocketAddr, to: SocketAddr, ecn: Ecn) -> Transmit {
    Transmit {
        src_ip: from.ip(),
        src_port: from.port(),
        dst: to,
        ecn,
    }
}

/// Sends all of them, as long as the system has room.
fn send(sockets: &mut Sockets, datagrams: &[(Transmit, Vec<u8>)]) -> Sent {
    let mut next = datagrams.iter();
    sockets.send(usize::MAX, |out| {
        let (transmit, bytes) = next.next()?;
        out.extend_from_slice(bytes);
        Some(*transmit)
    })
}

async fn receive_many(sockets: &mut Sockets, count: usize) -> Vec<Received> {
    let mut all = Vec::new();
    while all.len() < count {
        sockets.inbox().readable().await;
        sockets.receive(count, |to, from, ecn, bytes| {
            all.push(Received {
                to,
                from,
                ecn,
                bytes: bytes.to_vec(),
            });
        });
    }
    all
}

/// Whether this system cuts and joins rows; a test that needs it has nothing to test where it does not.
fn cuts_rows(sockets: &mut Sockets) -> bool {
    let cuts = sockets.outbox().most_segments() > 1;
    if !cuts {
        eprintln!("this system does not cut rows of datagrams: nothing to test");
    }
    cuts
}
