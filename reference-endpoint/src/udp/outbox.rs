//! Sending: datagrams that follow each other with the same addresses, mark and length leave as one row.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ecn::to_codepoint;
use super::losses::Losses;
use super::source::{Missing, Source, Sources};
use crate::core::Transmit;

/// Bytes of a row, at most: what one UDP datagram can carry over IPv4, because the system takes the row for one.
const MOST_ROW: usize = 65_507;
/// Bytes gathered before all of them go out, whole rows or not, so that the buffer stays in the cache.
const MOST_BYTES: usize = 256 << 10;
/// The same where rows are single datagrams, so that there is next to nothing to cut and a smaller cache will do.
const MOST_BYTES_SINGLE: usize = 16 << 10;

/// What was left when sending stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing: there was no more to send.
    Nothing,
    /// There may be more: the bound of the call is reached.
    More,
    /// The system has no room: the rows that it did not take wait here.
    Full,
}

/// What a call has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams taken from the caller.
    pub datagrams: usize,
    /// What is left.
    pub left: Left,
}

/// Datagrams that leave as one: the same addresses and mark, all of one length but the last, which may be shorter.
#[derive(Debug, Clone, Copy)]
struct Row {
    transmit: Transmit,
    start: usize,
    end: usize,
    segment: usize,
    ended: bool,
}

impl Row {
    fn new(transmit: Transmit, start: usize, end: usize, most_segments: usize) -> Self {
        let mut row = Self {
            transmit,
            start,
            end,
            segment: end - start,
            ended: false,
        };
        row.ended = row.is_whole(most_segments);
        row
    }

    /// Takes one more datagram of `len` bytes, which lies right behind the row, if it belongs there.
    fn take(&mut self, transmit: &Transmit, len: usize, most_segments: usize) -> bool {
        if self.ended || *transmit != self.transmit || len > self.segment || len == 0 {
            return false;
        }
        self.end += len;
        self.ended = len < self.segment || self.is_whole(most_segments);
        true
    }

    /// Whether not even one more of full length has room.
    fn is_whole(&self, most_segments: usize) -> bool {
        self.segment == 0
            || self.len() / self.segment >= most_segments
            || self.len() + self.segment > MOST_ROW
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    fn datagrams(&self) -> usize {
        self.len().div_ceil(self.segment.max(1)).max(1)
    }
}

/// The sending half of [`Sockets`](super::Sockets).
///
/// When the system has no room (EAGAIN), the row is held back and nothing else is taken from the caller: a full buffer
/// is back pressure, and must not become a loss. That is bounded: after the [time](super::Settings::hold) of a row the
/// row is lost and counted, and so is all that the sockets of the same own address do not take at once, until one that
/// had no room has taken something. So an interface that stands still holds up the others once, however many source
/// ports are sent from.
///
/// Where the system refuses to cut rows (EIO, EINVAL) and takes the same datagrams one by one, everything is sent one
/// by one from then on.
pub struct Outbox {
    sources: Sources,
    bytes: Vec<u8>,
    rows: VecDeque<Row>,
    most_segments: usize,
    /// Whether the latest row that has ended is a single datagram.
    single: bool,
    hold: Duration,
    /// Since when the first row is held back.
    held: Option<Instant>,
    /// The sockets that had no room since a row of their own address was held back for its full time: what an address
    /// with any of them does not take at once is lost. Another socket may have room of its own left, so only one of
    /// these shows, by taking something, that the address sends again.
    stuck: BTreeSet<(IpAddr, u16)>,
    pub(super) losses: Losses,
}

impl Outbox {
    pub(super) fn new(sources: Sources, most_segments: usize, hold: Duration) -> Self {
        Self {
            sources,
            bytes: Vec::with_capacity(MOST_BYTES + MOST_ROW),
            rows: VecDeque::with_capacity(2),
            most_segments: most_segments.max(1),
            single: false,
            hold,
            held: None,
            stuck: BTreeSet::new(),
            losses: Losses::default(),
        }
    }

    /// Datagrams of a row, at most; 1 where the system does not cut rows.
    pub fn most_segments(&self) -> usize {
        self.most_segments
    }

    /// Sockets open for source ports.
    pub fn bound(&self) -> usize {
        self.sources.bound()
    }

    /// Sends what `next` appends to the buffer that it is given, one datagram at a time, until it returns `None` or
    /// `most` datagrams are out or the system is full. Nothing is taken while a row is held back.
    pub fn send(
        &mut self,
        most: usize,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<Transmit>,
    ) -> Sent {
        let mut datagrams = 0;
        let left = loop {
            // At the bound all rows go out, and so they do when the buffer is long.
            let bound = if self.single {
                MOST_BYTES_SINGLE
            } else {
                MOST_BYTES
            };
            let keep = usize::from(datagrams < most && self.bytes.len() < bound);
            if !self.flush(keep) {
                break Left::Full;
            }
            if datagrams >= most {
                break Left::More;
            }
            let start = self.bytes.len();
            let Some(transmit) = next(&mut self.bytes) else {
                self.bytes.truncate(start);
                let left = self.flush(0);
                break if left { Left::Nothing } else { Left::Full };
            };
            datagrams += 1;
            self.queue(transmit, start);
        };
        Sent { datagrams, left }
    }

    /// Until when the first row is held back, if one is, and not for longer than the clock can tell.
    pub fn held_until(&self) -> Option<Instant> {
        self.held?.checked_add(self.hold)
    }

    /// Waits until the socket of the row that is held back has room; for ever when there is none.
    pub async fn writable(&mut self) {
        let held = self.held.and(self.rows.front().copied());
        let source = held.and_then(|row| {
            let Transmit {
                src_ip, src_port, ..
            } = row.transmit;
            self.sources.known(src_ip, src_port)
        });
        // Where it cannot be watched, the time of the row has to end the wait.
        let Some(watched) = source.and_then(|source| watch(source).ok()) else {
            return std::future::pending().await;
        };
        let _error_shows_when_sending = watched.writable().await;
    }

    fn queue(&mut self, transmit: Transmit, start: usize) {
        let end = self.bytes.len();
        let most = self.most_segments;
        let taken = self
            .rows
            .back_mut()
            .is_some_and(|row| row.take(&transmit, end - start, most));
        if !taken {
            let single = |row: &Row| row.len() == row.segment;
            self.single = self.rows.back().is_some_and(single);
            self.rows.push_back(Row::new(transmit, start, end, most));
        }
    }

    /// Sends the rows that have ended, and the others but the last `keep`; tells whether the system took them.
    fn flush(&mut self, keep: usize) -> bool {
        while let Some(row) = self.rows.front() {
            if self.rows.len() <= keep && !row.ended {
                return true;
            }
            if !self.send_front() {
                return false;
            }
            self.held = None;
            self.rows.pop_front();
        }
        self.bytes.clear();
        true
    }

    /// Sends the first row or loses it; false when it is held back, or what is left of it.
    fn send_front(&mut self) -> bool {
        let Some(row) = self.rows.front_mut() else {
            return true;
        };
        let Transmit {
            src_ip, src_port, ..
        } = row.transmit;
        let source = match self.sources.of(src_ip, src_port) {
            Ok(source) => source,
            Err(missing) => {
                let counter = match missing {
                    Missing::Unbound => &mut self.losses.unbound,
                    Missing::TooMany => &mut self.losses.too_many_ports,
                };
                *counter += row.datagrams() as u64;
                return true;
            }
        };
        let bytes = self.bytes.get(..row.end).unwrap_or_default();
        let mut piece = if self.most_segments > 1 {
            row.len()
        } else {
            row.segment
        };
        loop {
            let end = row.end.min(row.start + piece);
            let contents = bytes.get(row.start..end).unwrap_or_default();
            let sent = source.send(&datagrams(&row.transmit, contents, row.segment));
            let count = contents.len().div_ceil(row.segment.max(1)).max(1);
            match sent {
                Ok(()) => {
                    if self.stuck.contains(&(src_ip, src_port)) {
                        self.stuck.retain(|(ip, _)| *ip != src_ip);
                    }
                    self.held = None;
                    if piece == row.segment && count == 1 && row.len() > row.segment {
                        // The system takes it alone, but did not take it in its row.
                        self.most_segments = 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let since = *self.held.get_or_insert_with(Instant::now);
                    let stuck = self.stuck.iter().any(|(ip, _)| *ip == src_ip);
                    if !stuck && since.elapsed() < self.hold {
                        return false;
                    }
                    self.stuck.insert((src_ip, src_port));
                    self.losses.full += count as u64;
                }
                Err(error) if count > 1 && refuses_rows(&error) => {
                    piece = row.segment;
                    continue;
                }
                Err(error) => self.losses.count(&error, count as u64),
            }
            row.start = end;
            if row.start >= row.end {
                return true;
            }
        }
    }
}

fn refuses_rows(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::INVAL))
}

fn datagrams<'a>(
    transmit: &Transmit,
    contents: &'a [u8],
    segment: usize,
) -> quinn_udp::Transmit<'a> {
    quinn_udp::Transmit {
        destination: transmit.dst,
        ecn: to_codepoint(transmit.ecn),
        contents,
        segment_size: (contents.len() > segment).then_some(segment),
        src_ip: None,
    }
}

/// Registers the socket for as long as somebody waits for room.
fn watch(source: &Source) -> io::Result<AsyncFd<std::net::UdpSocket>> {
    let socket = source.io.try_clone()?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe, and an owned descriptor cannot be closed behind its back"
    )]
    AsyncFd::with_interest(socket, Interest::WRITABLE)
}

#[cfg(test)]
impl Outbox {
    /// Lets the next sends from this address meet these errors instead of the system; `None` is no error.
    pub(super) fn script(&mut self, from: std::net::SocketAddr, errors: &[Option<i32>]) {
        let source = self.sources.of(from.ip(), from.port()).unwrap();
        source.script.extend(errors);
    }

    pub(super) fn pretend_segments(&mut self, most: usize) {
        self.most_segments = most;
    }
}
