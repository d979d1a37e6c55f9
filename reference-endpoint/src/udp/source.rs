//! The sockets that are sent from: one for each own address and source port, as many as are allowed.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn_udp::UdpSocketState;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// Rows sent by all sockets before one that was idle meanwhile makes room for another, for each socket allowed. A port
/// that is one of many in use has its turn sooner than that.
const IDLE_ROWS: u64 = 4;
/// Rows before a port that could not be bound is tried again.
const RETRY_ROWS: u64 = 1024;
/// Ports remembered as not to be bound, at most.
const MOST_REFUSED: usize = 4096;

/// Binds a socket that receives only what it is addressed by, at once or not at all.
pub(super) fn open(address: SocketAddr, receive_buffer: usize) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // The system gives what it likes; a smaller buffer loses packets under load, which the protocol repairs.
    // It counts in an int, and a size beyond that must not come out as a small one.
    let _smaller = socket.set_recv_buffer_size(receive_buffer.min(i32::MAX as usize));
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A socket to send from. It is written to directly and not through the runtime, which would be woken for every
/// datagram that has left.
pub(super) struct Source {
    pub(super) io: Arc<UdpSocket>,
    state: UdpSocketState,
    used: u64,
    service: bool,
    /// Errors that the next sends meet instead of the system.
    #[cfg(test)]
    pub(super) script: std::collections::VecDeque<Option<i32>>,
}

impl Source {
    pub(super) fn new(io: Arc<UdpSocket>, service: bool) -> io::Result<Self> {
        let state = UdpSocketState::new((&io).into())?;
        Ok(Self {
            io,
            state,
            used: 0,
            service,
            #[cfg(test)]
            script: std::collections::VecDeque::new(),
        })
    }

    pub(super) fn most_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    pub(super) fn send(&mut self, transmit: &quinn_udp::Transmit<'_>) -> io::Result<()> {
        #[cfg(test)]
        if let Some(Some(errno)) = self.script.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let sent = self.state.try_send((&self.io).into(), transmit);
        if let Err(error) = &sent
            && Errno::from_io_error(error) == Some(Errno::INVAL)
        {
            // The crate takes this for the sign of an old system, and would set no mark any more over IPv4. It is not:
            // a destination without a route or a refused segmentation look the same. A new state sets marks again.
            if let Ok(state) = UdpSocketState::new((&self.io).into()) {
                self.state = state;
            }
        }
        sent
    }
}

/// Why there is no socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Unbound,
    TooMany,
}

/// All sockets that are sent from.
pub(super) struct Sources {
    by_address: HashMap<(IpAddr, u16), Source>,
    /// Where a socket could not be bound, and when that is tried again.
    refused: HashMap<(IpAddr, u16), u64>,
    most: usize,
    /// How many there are beside those of the service port.
    bound: usize,
    /// Rows so far: the clock of this table.
    rows: u64,
}

impl Sources {
    /// A table of at most `most` sockets beside those of the service ports.
    pub(super) fn new(most: usize) -> Self {
        Self {
            by_address: HashMap::new(),
            refused: HashMap::new(),
            most,
            bound: 0,
            rows: 0,
        }
    }

    /// How many sockets are open beside those of the service ports.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Adds a socket that receives on a service port and may be sent from as well.
    pub(super) fn add_service(&mut self, local: SocketAddr, source: Source) {
        self.by_address.insert((local.ip(), local.port()), source);
    }

    /// The socket of this address, without binding one.
    pub(super) fn known(&mut self, ip: IpAddr, port: u16) -> Option<&mut Source> {
        self.by_address.get_mut(&(ip, port))
    }

    /// The socket of this address for the next row; binds it when it is first needed.
    pub(super) fn of(&mut self, ip: IpAddr, port: u16) -> Result<&mut Source, Missing> {
        self.rows += 1;
        let key = (ip, port);
        if !self.by_address.contains_key(&key) {
            let source = self.bind(key)?;
            self.by_address.insert(key, source);
            self.bound += 1;
        }
        let source = self.by_address.get_mut(&key).ok_or(Missing::Unbound)?;
        source.used = self.rows;
        Ok(source)
    }

    fn bind(&mut self, key: (IpAddr, u16)) -> Result<Source, Missing> {
        if let Some(retry) = self.refused.get(&key)
            && *retry > self.rows
        {
            return Err(Missing::Unbound);
        }
        if self.bound >= self.most && !self.close_idle() {
            return Err(Missing::TooMany);
        }
        let address = SocketAddr::from(key);
        // What is sent to a source port is never read: the least that the system allows is kept of it.
        let source = open(address, 0).and_then(|io| Source::new(Arc::new(io), false));
        match source {
            Ok(source) => {
                self.refused.remove(&key);
                Ok(source)
            }
            Err(error) => {
                if self.refused.len() >= MOST_REFUSED {
                    self.refused.clear();
                }
                let retry = self.rows.saturating_add(RETRY_ROWS);
                if self.refused.insert(key, retry).is_none() {
                    // Said once for each port: what follows on it is counted in silence. Nobody may be there to hear it.
                    let _ = writeln!(io::stderr(), "cannot bind source port {address}: {error}");
                }
                Err(Missing::Unbound)
            }
        }
    }

    /// Closes the socket that was not used for longest, if that is long enough.
    fn close_idle(&mut self) -> bool {
        let idle_since = self
            .rows
            .saturating_sub(IDLE_ROWS.saturating_mul(self.most as u64));
        let oldest = self
            .by_address
            .iter()
            .filter(|(_, source)| !source.service && source.used < idle_since)
            .min_by_key(|(_, source)| source.used)
            .map(|(key, _)| *key);
        let Some(key) = oldest else { return false };
        self.bound -= usize::from(self.by_address.remove(&key).is_some());
        true
    }
}
