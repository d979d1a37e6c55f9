//! The edge of an endpoint, where a mutant sits.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use metaroce_wire::crc::{self, PseudoHeader};

use crate::adapter::{Engine, Work};
use crate::core::{Access, Counters, Ecn, Endpoint, Event, Misuse, Region, Service, Transmit};

/// A datagram on its way out.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub transmit: Transmit,
    pub bytes: Vec<u8>,
    /// Whether the trailer stays as it is; otherwise it is made right after the edit.
    pub as_is: bool,
}

/// A datagram on its way in.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// Own address that it came to.
    pub to: IpAddr,
    pub from: SocketAddr,
    pub ecn: Ecn,
    pub bytes: Vec<u8>,
    /// Whether the trailer was right when it came.
    pub sound: bool,
    /// Whether the trailer is to be made right again, because the bytes or the address were edited. One that was wrong
    /// when it came stays wrong, unless the mutant calls it sound.
    pub reseal: bool,
}

/// What a mutant has in its hands.
pub(super) struct Edge {
    pub now: u64,
    pub local: SocketAddr,
    outbox: VecDeque<Sent>,
    inbox: VecDeque<Received>,
    events: VecDeque<Event>,
    held: BTreeMap<(u64, u64), Sent>,
    held_events: BTreeMap<(u64, u64), Event>,
    order: u64,
}

impl Edge {
    /// Lets a datagram out.
    pub(super) fn send(&mut self, sent: Sent) {
        self.outbox.push_back(sent);
    }

    /// Lets a datagram out at a later time, ns.
    pub(super) fn send_at(&mut self, at: u64, sent: Sent) {
        self.order += 1;
        self.held.insert((at, self.order), sent);
    }

    /// Lets a datagram in.
    pub(super) fn deliver(&mut self, received: Received) {
        self.inbox.push_back(received);
    }

    /// Reports an event.
    pub(super) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Reports an event at a later time, ns.
    pub(super) fn report_at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.held_events.insert((at, self.order), event);
    }

    /// Drops what is held of the acknowledgments of a path.
    pub(super) fn drop_held_acks(&mut self, path: u8) {
        let is_ack = |bytes: &[u8]| matches!(bytes, [_, 0x40 | 0x41, _, of, ..] if *of == path);
        self.held.retain(|_, sent| !is_ack(&sent.bytes));
    }

    /// Takes back the first event that is held.
    pub(super) fn take_held_event(&mut self) -> Option<Event> {
        self.held_events.pop_first().map(|(_, event)| event)
    }

    fn release(&mut self, now: u64) {
        self.now = now;
        while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= now) {
            let sent = entry.remove();
            self.outbox.push_back(sent);
        }
        while let Some(entry) = self
            .held_events
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let event = entry.remove();
            self.events.push_back(event);
        }
    }

    fn deadline(&self) -> Option<u64> {
        let datagram = self.held.keys().next();
        let event = self.held_events.keys().next();
        datagram.into_iter().chain(event).map(|(at, _)| *at).min()
    }
}

/// What a mutant does. Without a method of its own it passes everything on.
pub(super) trait Edit: Send {
    /// Sees what goes out; only what it sends leaves.
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        edge.send(sent);
    }
    /// Sees what comes in; only what it delivers arrives.
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        edge.deliver(received);
    }
    /// Sees what is reported; only what it reports is seen.
    fn event(&mut self, edge: &mut Edge, event: Event) {
        edge.report(event);
    }
    /// Sees what a connection is to be asked for.
    fn connecting(&mut self, _service: &mut Service) {}
    /// Sees work that has been posted.
    fn posted(&mut self, _work: &Work) {}
    /// Comes after a datagram has arrived, with its hands in the memory.
    fn arrived(&mut self, _bytes: &[u8], _memory: &mut Reach<'_>) {}
    /// Sees the counters before they are shown.
    fn counters(&self, _counters: &mut Counters) {}
}

/// The memory that a mutant reaches.
pub(super) struct Reach<'e> {
    endpoint: &'e mut Endpoint,
    regions: &'e [Region],
}

impl Reach<'_> {
    /// The byte at a remote address under a key, when there is one.
    pub(super) fn byte(&mut self, rkey: u32, va: u64) -> Option<&mut u8> {
        let region = self.regions.iter().find(|region| region.rkey == rkey)?;
        let at = usize::try_from(va.checked_sub(region.va)?).ok()?;
        self.endpoint.memory_mut(region.mr)?.get_mut(at)
    }
}

/// A sound endpoint with a mutant at its edge.
pub(super) struct Mutated {
    endpoint: Endpoint,
    edge: Edge,
    edit: Box<dyn Edit>,
    regions: Vec<Region>,
}

impl Mutated {
    pub(super) fn new(endpoint: Endpoint, local: SocketAddr, edit: Box<dyn Edit>) -> Self {
        let edge = Edge {
            now: 0,
            local,
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            events: VecDeque::new(),
            held: BTreeMap::new(),
            held_events: BTreeMap::new(),
            order: 0,
        };
        Self {
            endpoint,
            edge,
            edit,
            regions: Vec::new(),
        }
    }

    fn let_in(&mut self, now: u64) {
        while let Some(mut received) = self.edge.inbox.pop_front() {
            if received.reseal && received.sound {
                let to = SocketAddr::new(received.to, self.edge.local.port());
                let pseudo = PseudoHeader::new(received.from.ip(), to);
                // Too short for a trailer: the endpoint refuses it as it is.
                let _too_short = crc::seal(&pseudo, &mut received.bytes);
            }
            self.endpoint.handle_datagram_at(
                now,
                received.to,
                received.from,
                received.ecn,
                &received.bytes,
            );
            let mut reach = Reach {
                endpoint: &mut self.endpoint,
                regions: &self.regions,
            };
            self.edit.arrived(&received.bytes, &mut reach);
        }
    }
}

impl Engine for Mutated {
    fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.handle_datagram_at(now, self.edge.local.ip(), from, ecn, bytes);
    }

    fn handle_datagram_at(
        &mut self,
        now: u64,
        to: IpAddr,
        from: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        self.edge.release(now);
        let pseudo = PseudoHeader::new(from.ip(), SocketAddr::new(to, self.edge.local.port()));
        let received = Received {
            to,
            from,
            ecn,
            bytes: bytes.to_vec(),
            sound: crc::verify(&pseudo, bytes).is_ok(),
            reseal: false,
        };
        self.edit.incoming(&mut self.edge, received);
        self.let_in(now);
    }

    fn handle_timeout(&mut self, now: u64) {
        self.edge.release(now);
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        self.edge.release(now);
        loop {
            if let Some(mut sent) = self.edge.outbox.pop_front() {
                if !sent.as_is {
                    let pseudo = PseudoHeader::new(sent.transmit.src_ip, sent.transmit.dst);
                    let _too_short = crc::seal(&pseudo, &mut sent.bytes);
                }
                *out = sent.bytes;
                return Some(sent.transmit);
            }
            self.let_in(now);
            let mut bytes = Vec::new();
            let transmit = self.endpoint.poll_transmit(now, &mut bytes)?;
            let sent = Sent {
                transmit,
                bytes,
                as_is: false,
            };
            self.edit.outgoing(&mut self.edge, sent);
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        let own = self.edge.deadline();
        own.into_iter().chain(self.endpoint.poll_timeout()).min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        while self.edge.events.is_empty() {
            let event = self.endpoint.poll_event()?;
            self.edit.event(&mut self.edge, event);
        }
        self.edge.events.pop_front()
    }

    fn register(&mut self, len: usize, access: Access) -> Result<Region, Misuse> {
        let region = self.endpoint.register(len, access)?;
        self.regions.push(region);
        Ok(region)
    }

    fn memory(&self, mr: u32) -> Option<&[u8]> {
        self.endpoint.memory(mr)
    }

    fn memory_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
        self.endpoint.memory_mut(mr)
    }

    fn listen(&mut self, service: Service) -> Result<(), Misuse> {
        self.endpoint.listen(service)
    }

    fn connect(&mut self, now: u64, peer: SocketAddr, mut service: Service) -> Result<u32, Misuse> {
        self.edit.connecting(&mut service);
        self.endpoint.connect(now, peer, service)
    }

    fn post(&mut self, now: u64, work: &Work) -> Result<(), Misuse> {
        self.edge.release(now);
        Engine::post(&mut self.endpoint, now, work)?;
        self.edit.posted(work);
        Ok(())
    }

    fn close(&mut self, now: u64, conn: u32) -> Result<(), Misuse> {
        self.endpoint.close(now, conn)
    }

    fn counters(&self, conn: u32) -> Option<Counters> {
        let mut counters = self.endpoint.counters(conn)?;
        self.edit.counters(&mut counters);
        Some(counters)
    }
    fn endpoint(&mut self) -> Option<&mut Endpoint> {
        Some(&mut self.endpoint)
    }
}
