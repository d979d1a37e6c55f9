//! An endpoint: its memory, its connections, and which of them is served next.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use metaroce_wire::Error as WireError;
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{Body, NakCode, Packet, parse};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::config::{Config, Ecn, Misuse, Service, Transmit};
use super::connection::{Connection, NEVER, Shared};
use super::counters::Counters;
use super::event::Event;
use super::handshake::{Secret, Spent};
use super::memory::Memory;
use super::receive::Piece;
use super::shares::Shares;
use super::srq::Srqs;

/// Datagrams of one connection in a row, before another one has its turn.
const TURN: u32 = 64;

/// A connection and where it stands among the others.
struct Entry {
    connection: Box<Connection>,
    /// It is in the row of those that may have something to send.
    ready: bool,
    /// The time under which its timer is kept.
    timer: u64,
}

/// An endpoint of the protocol. See the [module](super) for how to drive it.
pub struct Endpoint {
    pub(super) config: Config,
    pub(super) random: ChaCha8Rng,
    pub(super) secret: Secret,
    pub(super) spent: Spent,
    pub(super) memory: Memory,
    pub(super) srqs: Srqs,
    pub(super) shares: Shares,
    pub(super) service: Option<Service>,
    entries: BTreeMap<u32, Entry>,
    pub(super) by_cid: BTreeMap<u32, u32>,
    /// The same by the peer's address and the id that it has chosen.
    by_peer: HashMap<(IpAddr, u32), u32>,
    next_handle: u32,
    /// Connections that may have something to send, in turn, and what is left of the turn of the first.
    ready: VecDeque<u32>,
    turn_left: u32,
    timers: BTreeSet<(u64, u32)>,
    /// Answers to packets that belong to no connection: source port, where to, and the bytes.
    pub(super) stateless: VecDeque<(u16, SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    pub(super) counters: Counters,
}

impl Endpoint {
    /// An endpoint without connections.
    ///
    /// # Errors
    /// [`Misuse::Range`] when a setting is outside its range.
    pub fn new(config: Config) -> Result<Self, Misuse> {
        config.check()?;
        let mut random = ChaCha8Rng::seed_from_u64(config.seed);
        let secret = Secret::new([random.next_u64(), random.next_u64()]);
        let interval = u64::from(config.hint_interval_us) * 1000;
        Ok(Self {
            memory: Memory::new(config.max_regions),
            shares: Shares::new(config.capacity_mbps.unwrap_or(0), interval),
            config,
            random,
            secret,
            spent: Spent::default(),
            srqs: Srqs::default(),
            service: None,
            entries: BTreeMap::new(),
            by_cid: BTreeMap::new(),
            by_peer: HashMap::new(),
            next_handle: 0,
            ready: VecDeque::new(),
            turn_left: TURN,
            timers: BTreeSet::new(),
            stateless: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        })
    }

    // ---- the five verbs -----------------------------------------------------------------------------------------

    /// Takes one UDP payload that came from `from` to the own address in plane 0, with the mark `ecn`.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.handle_datagram_at(now, self.config.local.ip(), from, ecn, bytes);
    }

    /// Takes one UDP payload that came from `from` to the own address `to`, with the mark `ecn`.
    pub fn handle_datagram_at(
        &mut self,
        now: u64,
        to: IpAddr,
        from: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        self.counters.packets_received += 1;
        let pseudo = PseudoHeader::new(from.ip(), SocketAddr::new(to, self.config.local.port()));
        let packet = match parse(bytes, &pseudo) {
            Ok(packet) => packet,
            Err(WireError::Crc { .. }) => {
                self.counters.crc_errors += 1;
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        match &packet.body {
            Body::Open(open) if to == self.config.local.ip() => {
                self.on_open(now, from, &packet.cbh, open);
            }
            Body::Confirm(confirm) if to == self.config.local.ip() => {
                self.on_confirm(now, from, &packet.cbh, confirm);
            }
            Body::Unknown(_) => self.counters.unknown_opcode += 1,
            _ => self.on_connected(now, (to, from), ecn, &packet),
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        self.renew_shares(now);
        let later = self.timers.split_off(&(now.saturating_add(1), 0));
        for (_, handle) in std::mem::replace(&mut self.timers, later) {
            if let Some(entry) = self.entries.get_mut(&handle) {
                entry.timer = NEVER;
            }
            self.with(handle, |connection, shared, _| {
                connection.on_timer(now, shared);
            });
            let over = |entry: &mut Entry| entry.connection.is_forgotten(now);
            if self.entries.get_mut(&handle).is_some_and(over) {
                self.forget(handle);
            }
        }
    }

    /// Fills `out` with the next datagram to send at `now`, if there is one.
    pub fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        out.clear();
        self.append_transmit(now, out)
    }

    /// Adds the next datagram to send at `now` to the end of `out`, if there is one.
    pub fn append_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((src_port, dst, bytes)) = self.stateless.pop_front() {
            out.extend_from_slice(&bytes);
            self.counters.packets_sent += 1;
            return Some(Transmit {
                src_ip: self.config.local.ip(),
                src_port,
                dst,
                ecn: Ecn::NotEct,
            });
        }
        while let Some(&handle) = self.ready.front() {
            let sent = self.with(handle, |connection, shared, _| {
                connection.append_transmit(now, shared, out)
            });
            if let Some(Some(transmit)) = sent {
                self.turn_left -= 1;
                if self.turn_left == 0 {
                    self.turn_left = TURN;
                    self.ready.rotate_left(1);
                }
                self.counters.packets_sent += 1;
                return Some(transmit);
            }
            self.turn_left = TURN;
            self.ready.pop_front();
            if let Some(entry) = self.entries.get_mut(&handle) {
                entry.ready = false;
            }
        }
        None
    }

    /// When [`Self::handle_timeout`] is next wanted, ns. It may lie in the past.
    pub fn poll_timeout(&self) -> Option<u64> {
        let first = self.timers.first().map(|(due, _)| *due);
        first.into_iter().chain(self.shares.deadline()).min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- connections --------------------------------------------------------------------------------------------

    /// Lets `act` work on a connection with what it shares; afterwards it may have something to send, and its timer is
    /// set anew. Nothing when there is no such connection.
    pub(super) fn with<R>(
        &mut self,
        handle: u32,
        act: impl FnOnce(&mut Connection, &mut Shared<'_>, &Config) -> R,
    ) -> Option<R> {
        let entry = self.entries.get_mut(&handle)?;
        let mut shared = Shared {
            memory: &mut self.memory,
            srqs: &mut self.srqs,
            shares: &mut self.shares,
            counters: &mut self.counters,
            events: &mut self.events,
        };
        let result = act(&mut entry.connection, &mut shared, &self.config);
        shared.counters.unanswered += std::mem::take(&mut entry.connection.unanswered);
        if !entry.ready {
            entry.ready = true;
            self.ready.push_back(handle);
        }
        let due = entry.connection.due;
        if due < entry.timer {
            if entry.timer != NEVER {
                self.timers.remove(&(entry.timer, handle));
            }
            entry.timer = due;
            self.timers.insert((due, handle));
        }
        Some(result)
    }

    pub(super) fn connection(&self, handle: u32) -> Option<&Connection> {
        self.entries.get(&handle).map(|entry| &*entry.connection)
    }

    pub(super) fn by_cid(&self, cid: u32) -> Option<&Connection> {
        self.connection(*self.by_cid.get(&cid)?)
    }

    /// The connection whose peer has chosen the id `cid` at the address `ip`.
    pub(super) fn by_peer(&self, ip: IpAddr, cid: u32) -> Option<&Connection> {
        self.connection(*self.by_peer.get(&(ip, cid))?)
    }

    /// Notes the id that the peer of a connection has chosen. An acceptor's that another one has taken before changes
    /// nothing.
    fn note_peer(&mut self, handle: u32) {
        let Some(connection) = self.connection(handle) else {
            return;
        };
        let (ip, cid) = (connection.peer.ip(), connection.theirs.scid.value());
        if cid != 0 {
            self.by_peer.entry((ip, cid)).or_insert(handle);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.config.max_connections
    }

    pub(super) fn take_handle(&mut self, scid: u32) -> u32 {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.by_cid.insert(scid, handle);
        handle
    }

    pub(super) fn add(&mut self, connection: Connection) {
        let handle = connection.handle;
        let entry = Entry {
            connection: Box::new(connection),
            ready: false,
            timer: NEVER,
        };
        self.entries.insert(handle, entry);
        self.note_peer(handle);
        self.with(handle, |_, _, _| {});
    }

    fn forget(&mut self, handle: u32) {
        let Some(entry) = self.entries.remove(&handle) else {
            return;
        };
        self.timers.remove(&(entry.timer, handle));
        let connection = &entry.connection;
        self.by_cid.remove(&connection.mine.scid.value());
        let theirs = (connection.peer.ip(), connection.theirs.scid.value());
        if self.by_peer.get(&theirs) == Some(&handle) {
            self.by_peer.remove(&theirs);
        }
    }

    /// Renews the shares of those that send to this endpoint, and sees to it that they learn of them.
    fn renew_shares(&mut self, now: u64) {
        if self.shares.deadline().is_none_or(|due| now < due) {
            return;
        }
        let interval = u64::from(self.config.hint_interval_us) * 1000;
        let news = self.shares.renew(now).to_vec();
        for handle in news {
            self.with(handle, |connection, _, _| {
                connection.owe_hint(now + interval);
            });
        }
    }

    // ---- packets of a connection --------------------------------------------------------------------------------

    fn on_connected(
        &mut self,
        now: u64,
        (to, from): (IpAddr, SocketAddr),
        ecn: Ecn,
        packet: &Packet<'_>,
    ) {
        let cbh = &packet.cbh;
        let handle = self.by_cid.get(&cbh.dcid.value()).copied();
        let taken = handle.and_then(|handle| {
            self.with(handle, |connection, shared, config| {
                let plane = connection.plane_of(to, from.ip())?;
                connection.hear(now, from.port());
                match Piece::of(cbh, &packet.body) {
                    Some(piece) => connection.on_data(now, (plane, ecn), cbh, &piece, shared),
                    None => connection.on_control(now, plane, packet, config, shared),
                }
                Some(handle)
            })?
        });
        let Some(handle) = taken else {
            if let Body::Nak(nak) = &packet.body
                && nak.code == NakCode::UNKNOWN_CID
            {
                self.counters.naks_received += 1;
            }
            self.counters.unknown_connection += 1;
            return;
        };
        if matches!(packet.body, Body::Accept(_)) {
            self.note_peer(handle);
        }
    }
}
