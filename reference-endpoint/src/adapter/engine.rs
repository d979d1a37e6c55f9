//! What a session drives: the core, or something else that is made to look like it.

use std::net::{IpAddr, SocketAddr};

use crate::core::{
    self, Access, Buffer, Completion, Counters, Ecn, Endpoint, Event, Misuse, Op, Region, Service,
    Status, Transmit, WorkKind,
};

/// Work to post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
    /// The caller's number for the work.
    pub wr_id: u64,
    /// Kind of work.
    pub kind: WorkKind,
    /// The work itself.
    pub todo: Todo,
}

/// What work is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Todo {
    /// A receive into a buffer.
    Receive(Buffer),
    /// Anything else.
    Request(core::Work),
}

impl Work {
    /// How many local bytes it has.
    pub(crate) fn len(&self) -> usize {
        match &self.todo {
            Todo::Receive(buffer) => buffer.len,
            Todo::Request(work) => work.data.len(),
        }
    }

    /// Whether it is a Send or a Write and nothing more: no immediate data, no key.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(&self.todo, Todo::Request(work) if matches!(work.op, Op::Send | Op::Write(_)))
    }

    /// The completion of work that has succeeded.
    pub(crate) fn succeeded(&self, byte_len: u32) -> Completion {
        Completion {
            conn: self.conn,
            stream: self.stream,
            wr_id: self.wr_id,
            kind: self.kind,
            status: Status::Success,
            byte_len,
            imm: None,
            invalidated: None,
            solicited: false,
        }
    }
}

/// Everything that a session asks of an endpoint: the five verbs of the [core](crate::core) and its calls. All times
/// are nanoseconds on one clock that never goes backwards.
pub trait Engine: Send {
    /// Takes one UDP payload, see [`Endpoint::handle_datagram`].
    fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]);
    /// Does what is due, see [`Endpoint::handle_timeout`].
    fn handle_timeout(&mut self, now: u64);
    /// The next datagram to send, see [`Endpoint::poll_transmit`].
    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit>;
    /// As [`Self::handle_datagram`], for a datagram that came to the own address `to`.
    fn handle_datagram_at(
        &mut self,
        now: u64,
        to: IpAddr,
        from: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        let _the_only_one = to;
        self.handle_datagram(now, from, ecn, bytes);
    }
    /// As [`Self::poll_transmit`], but the datagram is appended to `out`, so that a row of them lies in one piece.
    fn append_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        if out.is_empty() {
            return self.poll_transmit(now, out);
        }
        let mut datagram = Vec::new();
        let transmit = self.poll_transmit(now, &mut datagram)?;
        out.extend_from_slice(&datagram);
        Some(transmit)
    }
    /// When [`Self::handle_timeout`] is next wanted, ns, see [`Endpoint::poll_timeout`].
    fn poll_timeout(&self) -> Option<u64>;
    /// The next event, see [`Endpoint::poll_event`].
    fn poll_event(&mut self) -> Option<Event>;
    /// Registers memory, see [`Endpoint::register`].
    ///
    /// # Errors
    /// [`Misuse::Limit`].
    fn register(&mut self, len: usize, access: Access) -> Result<Region, Misuse>;
    /// The bytes of a region.
    fn memory(&self, mr: u32) -> Option<&[u8]>;
    /// The bytes of a region, to be changed.
    fn memory_mut(&mut self, mr: u32) -> Option<&mut [u8]>;
    /// Offers a service, see [`Endpoint::listen`].
    ///
    /// # Errors
    /// [`Misuse`].
    fn listen(&mut self, service: Service) -> Result<(), Misuse>;
    /// Begins a connection, see [`Endpoint::connect`].
    ///
    /// # Errors
    /// [`Misuse`].
    fn connect(&mut self, now: u64, peer: SocketAddr, service: Service) -> Result<u32, Misuse>;
    /// Posts work of any kind.
    ///
    /// # Errors
    /// [`Misuse`].
    fn post(&mut self, now: u64, work: &Work) -> Result<(), Misuse>;
    /// Closes a connection, see [`Endpoint::close`].
    ///
    /// # Errors
    /// [`Misuse`].
    fn close(&mut self, now: u64, conn: u32) -> Result<(), Misuse>;
    /// What was counted, see [`Endpoint::counters`].
    fn counters(&self, conn: u32) -> Option<Counters>;
    /// The endpoint itself, for the calls that only a whole one serves; nothing where there is none.
    fn endpoint(&mut self) -> Option<&mut Endpoint> {
        None
    }
}

impl Engine for Endpoint {
    fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.handle_datagram(now, from, ecn, bytes);
    }
    fn handle_timeout(&mut self, now: u64) {
        self.handle_timeout(now);
    }
    fn handle_datagram_at(
        &mut self,
        now: u64,
        to: IpAddr,
        from: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        self.handle_datagram_at(now, to, from, ecn, bytes);
    }
    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_transmit(now, out)
    }
    fn append_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        self.append_transmit(now, out)
    }
    fn poll_timeout(&self) -> Option<u64> {
        self.poll_timeout()
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }
    fn register(&mut self, len: usize, access: Access) -> Result<Region, Misuse> {
        self.register(len, access)
    }
    fn memory(&self, mr: u32) -> Option<&[u8]> {
        self.memory(mr)
    }
    fn memory_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
        self.memory_mut(mr)
    }
    fn listen(&mut self, service: Service) -> Result<(), Misuse> {
        self.listen(service)
    }
    fn connect(&mut self, now: u64, peer: SocketAddr, service: Service) -> Result<u32, Misuse> {
        self.connect(now, peer, service)
    }
    fn post(&mut self, now: u64, work: &Work) -> Result<(), Misuse> {
        let (conn, stream) = (work.conn, work.stream);
        match &work.todo {
            Todo::Receive(buffer) => self.post_recv(now, conn, stream, work.wr_id, *buffer),
            Todo::Request(work) => self.post(now, conn, stream, work.clone()),
        }
    }
    fn close(&mut self, now: u64, conn: u32) -> Result<(), Misuse> {
        self.close(now, conn)
    }
    fn counters(&self, conn: u32) -> Option<Counters> {
        self.counters(conn)
    }
    fn endpoint(&mut self) -> Option<&mut Endpoint> {
        Some(self)
    }
}
