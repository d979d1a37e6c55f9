//! What the sockets have lost, by reason.

use std::io;

use rustix::io::Errno;

/// Datagrams that were to be sent and were not, by reason, and receives that failed. None of them ends anything: to the
/// protocol they are packets lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// The system had no room for longer than a row is held back.
    pub full: u64,
    /// From a source port that could not be bound: in use, foreign address, no file descriptors.
    pub unbound: u64,
    /// From one source port more than the endpoint may have, while all of them were in use.
    pub too_many_ports: u64,
    /// Nobody listens there (ECONNREFUSED).
    pub connection_refused: u64,
    /// No route to the network (ENETUNREACH).
    pub network_unreachable: u64,
    /// The host does not answer (EHOSTUNREACH).
    pub host_unreachable: u64,
    /// The system forbids it (EPERM, EACCES).
    pub not_permitted: u64,
    /// Longer than the system or the link carries (EMSGSIZE).
    pub too_long: u64,
    /// The system is short of memory or of queue (ENOBUFS, ENOMEM).
    pub no_memory: u64,
    /// The system takes this destination for none, or for none from this address (EINVAL).
    pub invalid: u64,
    /// Anything else.
    pub other: u64,
    /// Receives that failed; what they would have brought may still come.
    pub failed_receives: u64,
}

impl Losses {
    /// Datagrams that were to be sent and were not.
    pub fn unsent(&self) -> u64 {
        let Self {
            full,
            unbound,
            too_many_ports,
            connection_refused,
            network_unreachable,
            host_unreachable,
            not_permitted,
            too_long,
            no_memory,
            invalid,
            other,
            failed_receives: _,
        } = self;
        full + unbound
            + too_many_ports
            + connection_refused
            + network_unreachable
            + host_unreachable
            + not_permitted
            + too_long
            + no_memory
            + invalid
            + other
    }

    pub(super) fn count(&mut self, error: &io::Error, datagrams: u64) {
        let counter = match Errno::from_io_error(error) {
            Some(Errno::CONNREFUSED) => &mut self.connection_refused,
            Some(Errno::NETUNREACH) => &mut self.network_unreachable,
            Some(Errno::HOSTUNREACH) => &mut self.host_unreachable,
            Some(Errno::PERM | Errno::ACCESS) => &mut self.not_permitted,
            Some(Errno::MSGSIZE) => &mut self.too_long,
            Some(Errno::NOBUFS | Errno::NOMEM) => &mut self.no_memory,
            Some(Errno::INVAL) => &mut self.invalid,
            _ => &mut self.other,
        };
        *counter += datagrams;
    }
}
