//! Many connections between two endpoints: idle ones, for the memory that they take, or all at work.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use crate::endpoint::{News, Party, Region, SERVICE_PORT, Shape};
use crate::machine;
use crate::party::{Figures, Ready, Said, Usage, say};

/// Connections that are being opened at a time, so that no burst of them overflows a socket.
const OPENING: usize = 64;
/// Connections that may be refused; each is tried again.
const MOST_REFUSED: u64 = 64;
/// How long an endpoint is left alone before its memory is looked at.
const REST: Duration = Duration::from_millis(500);
/// Longest wait of one turn.
const TURN: Duration = Duration::from_millis(20);

/// Many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Many {
    /// How many.
    pub connections: usize,
    /// Paths of each.
    pub paths: u16,
    /// Streams of each.
    pub streams: u16,
    /// Payload bytes of a packet.
    pub payload: u16,
    /// Writes that each completes, one after the other.
    pub writes: usize,
    /// Bytes of a Write.
    pub length: usize,
    /// Longest time to open all, and to complete all, s.
    pub limit: u64,
}

impl Many {
    fn shape(&self) -> Shape {
        Shape {
            paths: self.paths,
            streams: self.streams,
            payload: self.payload,
            depth: 16,
            row: 1,
            // A refused one is remembered for a while.
            connections: self.connections + MOST_REFUSED as usize,
        }
    }

    fn memory(&self) -> usize {
        (self.connections * self.length).max(1)
    }
}

fn usage() -> Usage {
    let (resident, most_resident) = machine::resident();
    Usage {
        heap: crate::heap(),
        resident,
        most_resident,
        cpu: machine::process_cpu().as_secs_f64(),
        refused: 0,
    }
}

fn is_called_off(ended: &mut Receiver<()>) -> bool {
    ended.try_recv() != Err(TryRecvError::Empty)
}

/// Turns for a while, without news.
async fn rest(party: &mut Party) -> io::Result<()> {
    let start = Instant::now();
    while start.elapsed() < REST {
        party.turn(TURN).await?;
        if let Some(News::Ended(why)) = party.news() {
            return Err(ended(why));
        }
    }
    Ok(())
}

fn ended(why: Option<String>) -> io::Error {
    io::Error::other(why.unwrap_or("a connection was closed".into()))
}

/// Accepts them; says how much memory is in use before the first and when all have come, then serves until its end.
///
/// # Errors
/// When the endpoint fails, a connection does, or bytes are missing in the end.
pub async fn accept(many: &Many, local: SocketAddr, mut end: Receiver<()>) -> io::Result<Figures> {
    let local = SocketAddr::new(local.ip(), SERVICE_PORT);
    let mut party = Party::start(local, &many.shape(), true)?;
    let region = party.register(many.memory())?;
    say(&Said::Ready(Ready {
        port: local.port(),
        region: Some((region.va, region.rkey)),
        certificate: None,
    }));
    say(&Said::Step(0.0, usage()));
    let (start, mut established) = (Instant::now(), 0);
    while !is_called_off(&mut end) {
        party.turn(TURN).await?;
        while let Some(news) = party.news() {
            match news {
                News::Established(_) => {
                    established += 1;
                    if established == many.connections {
                        let seconds = start.elapsed().as_secs_f64();
                        rest(&mut party).await?;
                        say(&Said::Step(seconds, usage()));
                    }
                }
                News::Written(_) => {}
                News::Ended(why) => return Err(ended(why)),
            }
        }
    }
    say(&Said::Step(0.0, usage()));
    if many.writes > 0 {
        let missing = party.memory(&region).iter().filter(|b| **b != FILL).count();
        if missing > 0 {
            return Err(io::Error::other(format!(
                "{missing} bytes have not arrived"
            )));
        }
    }
    Ok(Figures::default())
}

/// What the Writes write.
const FILL: u8 = 0xa5;

/// Opens them; says how much memory is in use before the first and when all are open; then lets each complete its
/// Writes, and says when each has completed one and when all are complete.
///
/// # Errors
/// When the endpoint or a connection fails.
pub async fn open(
    many: &Many,
    local: SocketAddr,
    peer: SocketAddr,
    ready: &Ready,
    mut end: Receiver<()>,
) -> io::Result<Figures> {
    let local = SocketAddr::new(local.ip(), SERVICE_PORT);
    let remote = ready.region.unwrap_or_default();
    let mut party = Party::start(local, &many.shape(), false)?;
    let region = party.register(many.memory())?;
    party.memory(&region).fill(FILL);
    say(&Said::Step(0.0, usage()));

    let start = Instant::now();
    let (mut opening, mut asked, mut refused) = (0, 0, 0);
    let mut established = Vec::with_capacity(many.connections);
    while established.len() < many.connections {
        while opening < OPENING && asked < many.connections {
            party.connect(peer)?;
            asked += 1;
            opening += 1;
        }
        party.turn(TURN).await?;
        if start.elapsed().as_secs() >= many.limit {
            let (open, all) = (established.len(), many.connections);
            let text = format!("{open} of {all} open after {} s", many.limit);
            return Err(io::Error::other(text));
        }
        while let Some(news) = party.news() {
            match news {
                News::Established(conn) => {
                    established.push(conn);
                    opening -= 1;
                }
                News::Written(_) => {}
                // Refused: the id that the acceptor derives for a connection is another one's already.
                News::Ended(_) if refused < MOST_REFUSED => {
                    refused += 1;
                    asked -= 1;
                    opening -= 1;
                }
                News::Ended(why) => return Err(ended(why)),
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    rest(&mut party).await?;
    say(&Said::Step(seconds, Usage { refused, ..usage() }));

    if many.writes > 0 {
        write_all(many, &mut party, &established, (&region, remote)).await?;
    }
    while !is_called_off(&mut end) {
        party.turn(TURN).await?;
    }
    Ok(Figures::default())
}

async fn write_all(
    many: &Many,
    party: &mut Party,
    connections: &[u32],
    (own, remote): (&Region, (u64, u32)),
) -> io::Result<()> {
    let start = Instant::now();
    let mut left: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (slot, &conn) in connections.iter().enumerate() {
        left.insert(conn, (slot, many.writes));
        let piece = (slot * many.length, many.length);
        party.write((conn, 0), own, remote, piece)?;
    }
    let mut untouched = connections.len();
    let mut unfinished = connections.len();
    while unfinished > 0 {
        party.turn(TURN).await?;
        if start.elapsed().as_secs() >= many.limit {
            let all = connections.len();
            let text = format!(
                "{untouched} of {all} without a Write and {unfinished} not complete after {} s",
                many.limit
            );
            return Err(io::Error::other(text));
        }
        while let Some(news) = party.news() {
            let conn = match news {
                News::Written(conn) => conn,
                News::Established(_) => continue,
                News::Ended(why) => return Err(ended(why)),
            };
            let Some((slot, left)) = left.get_mut(&conn) else {
                continue;
            };
            if *left == many.writes {
                untouched -= 1;
                if untouched == 0 {
                    say(&Said::Step(start.elapsed().as_secs_f64(), usage()));
                }
            }
            *left -= 1;
            if *left == 0 {
                unfinished -= 1;
            } else {
                let piece = (*slot * many.length, many.length);
                party.write((conn, 0), own, remote, piece)?;
            }
        }
    }
    say(&Said::Step(start.elapsed().as_secs_f64(), usage()));
    Ok(())
}
