//! Fakes: no endpoints at all, but driven like one. A suite must let none of them pass anything.

mod ack_everything;

use std::collections::VecDeque;
use std::net::SocketAddr;

use metaroce_wire::crc::{self, PseudoHeader};

use super::FakeInfo;
use crate::adapter::{Engine, Work};
use crate::core::{Access, Config, Counters, Ecn, Event, Misuse, Region, Service, Transmit};

/// A line of the list of fakes.
type Definition = (FakeInfo, fn(Config) -> Box<dyn Engine>);

/// The fakes, and how to make them.
pub(super) const ALL: &[Definition] = &[
    (
        FakeInfo {
            id: "null",
            what: "answers the adapter protocol, sends nothing and reports nothing",
        },
        |_| Box::new(Null::default()),
    ),
    (
        FakeInfo {
            id: "echo",
            what: "sends every datagram back, with a right trailer",
        },
        |config| Box::new(Echo::new(config)),
    ),
    (
        FakeInfo {
            id: "ack-everything",
            what: "acknowledges all data blindly and reports all work as done at once",
        },
        |config| Box::new(ack_everything::AckEverything::new(config)),
    ),
];

/// Memory that nobody but its owner writes to.
#[derive(Default)]
struct Shelf {
    regions: Vec<Vec<u8>>,
}

impl Shelf {
    fn register(&mut self, len: usize) -> Region {
        self.regions.push(vec![0; len]);
        // As many regions as a session allows are far from overflowing.
        let mr = self.regions.len() as u32;
        Region {
            mr,
            va: u64::from(mr) << 32,
            rkey: mr,
        }
    }

    fn bytes(&self, mr: u32) -> Option<&[u8]> {
        let index = (mr as usize).checked_sub(1)?;
        self.regions.get(index).map(Vec::as_slice)
    }

    fn bytes_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
        let index = (mr as usize).checked_sub(1)?;
        self.regions.get_mut(index).map(Vec::as_mut_slice)
    }
}

/// The calls that every fake answers alike.
macro_rules! shelf_calls {
    () => {
        fn register(&mut self, len: usize, _: Access) -> Result<Region, Misuse> {
            Ok(self.shelf.register(len))
        }
        fn memory(&self, mr: u32) -> Option<&[u8]> {
            self.shelf.bytes(mr)
        }
        fn memory_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
            self.shelf.bytes_mut(mr)
        }
        fn counters(&self, _: u32) -> Option<Counters> {
            Some(Counters::default())
        }
    };
}
use shelf_calls;

/// Sends nothing.
#[derive(Default)]
struct Null {
    shelf: Shelf,
}

impl Engine for Null {
    shelf_calls!();
    fn handle_datagram(&mut self, _: u64, _: SocketAddr, _: Ecn, _: &[u8]) {}
    fn handle_timeout(&mut self, _: u64) {}
    fn poll_transmit(&mut self, _: u64, _: &mut Vec<u8>) -> Option<Transmit> {
        None
    }
    fn poll_timeout(&self) -> Option<u64> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
    fn listen(&mut self, _: Service) -> Result<(), Misuse> {
        Ok(())
    }
    fn connect(&mut self, _: u64, _: SocketAddr, _: Service) -> Result<u32, Misuse> {
        Ok(0)
    }
    fn post(&mut self, _: u64, _: &Work) -> Result<(), Misuse> {
        Ok(())
    }
    fn close(&mut self, _: u64, _: u32) -> Result<(), Misuse> {
        Ok(())
    }
}

/// Sends everything back.
struct Echo {
    shelf: Shelf,
    config: Config,
    out: VecDeque<(Transmit, Vec<u8>)>,
}

impl Echo {
    fn new(config: Config) -> Self {
        Self {
            shelf: Shelf::default(),
            config,
            out: VecDeque::new(),
        }
    }
}

impl Engine for Echo {
    shelf_calls!();
    fn handle_datagram(&mut self, _: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        let dst = SocketAddr::new(from.ip(), self.config.local.port());
        let mut bytes = bytes.to_vec();
        let _too_short = crc::seal(&PseudoHeader::new(self.config.local.ip(), dst), &mut bytes);
        let transmit = Transmit {
            src_ip: self.config.local.ip(),
            src_port: self.config.source_ports.start,
            dst,
            ecn,
        };
        self.out.push_back((transmit, bytes));
    }
    fn handle_timeout(&mut self, _: u64) {}
    fn poll_transmit(&mut self, _: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, bytes) = self.out.pop_front()?;
        *out = bytes;
        Some(transmit)
    }
    fn poll_timeout(&self) -> Option<u64> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
    fn listen(&mut self, _: Service) -> Result<(), Misuse> {
        Ok(())
    }
    fn connect(&mut self, _: u64, _: SocketAddr, _: Service) -> Result<u32, Misuse> {
        Ok(0)
    }
    fn post(&mut self, _: u64, _: &Work) -> Result<(), Misuse> {
        Ok(())
    }
    fn close(&mut self, _: u64, _: u32) -> Result<(), Misuse> {
        Ok(())
    }
}
