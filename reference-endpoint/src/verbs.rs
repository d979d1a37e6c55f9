//! The interface of the verbs over the core: device, protection domains, memory regions, completion queues, queue pairs
//! and shared receive queues, under the names of `libibverbs`. What is new stands in [`ext`].
//!
//! A [`Device`] owns its [`Endpoint`](crate::core::Endpoint) and, like it, does no I/O and has no clock. It is driven by
//! the same five verbs: [`handle_datagram`](Device::handle_datagram), [`handle_timeout`](Device::handle_timeout),
//! [`poll_transmit`](Device::poll_transmit), [`poll_timeout`](Device::poll_timeout) and
//! [`poll_event`](Device::poll_event). After any call, transmit until there is none, take events, and look at the timeout
//! once. All other calls return at once, and what they begin ends with a completion or an event. Times are nanoseconds.
//!
//! A queue pair is a stream. Queue pairs that are connected to the same peer and service share one connection as far as
//! the agreed number of streams goes, and get another one after that. At the other side each of them becomes a queue pair
//! made by the template of [`Device::listen`], or takes one that waits with [`Destination::Accept`].
//!
//! - RESET takes nothing, INIT receives only. [`Device::connect`] goes through INIT and RTR to RTS. While the stream is not
//!   open the state shows as RTR; what is posted then waits.
//! - ERR ends the stream: its work is flushed in order, then its receives, and so is what is posted from then on. RESET
//!   does the same first, so that no completion is lost. Without the feature RESET of the connection, all of its queue
//!   pairs end together.
//! - A Send or Write of several entries is put together when it is posted; a receive, a Read and an atomic operation take
//!   one entry.
//! - `rnr_retry`, path and payload size belong to the connection and are set in [`Service`](crate::core::Service);
//!   permissions are those of the region alone.
//!
//! # Example
//!
//! A Write from one device to another:
//!
//! ```
//! use metaroce_endpoint::core::{Config, Ecn, Status};
//! use metaroce_endpoint::verbs::{AccessFlags, Device, QpInit, SendWr, WrOpcode, service};
//! use std::net::SocketAddr;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let addresses: [SocketAddr; 2] = ["192.0.2.1:4791".parse()?, "192.0.2.2:4791".parse()?];
//! let mut a = Device::new(Config::new(addresses[0]))?;
//! let mut b = Device::new(Config::new(addresses[1]))?;
//!
//! // The side that is written to offers a service and a region.
//! let (pd, cq) = (b.alloc_pd()?, b.create_cq(16)?);
//! let target = b.reg_mr(pd, 64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
//! b.listen(QpInit::new(pd, cq), service(7))?;
//!
//! // The other one connects, and posts at once.
//! let (pd, cq) = (a.alloc_pd()?, a.create_cq(16)?);
//! let source = a.reg_mr(pd, 64, AccessFlags::NONE)?;
//! a.bytes_mut(source)?[..5].copy_from_slice(b"hello");
//! let mut now = 0;
//! let qp = a.create_qp(QpInit::new(pd, cq))?;
//! a.connect(now, qp, addresses[1], service(7))?;
//! let write = WrOpcode::RdmaWrite(target.remote(8));
//! a.post_send(now, qp, &[SendWr::new(1, write, source.sge(0, 5))])?;
//!
//! // The network: every packet arrives at once.
//! let mut packet = Vec::new();
//! let done = loop {
//!     while let Some(sent) = a.poll_transmit(now, &mut packet) {
//!         b.handle_datagram(now, (sent.src_ip, sent.src_port).into(), sent.ecn, &packet);
//!     }
//!     while let Some(sent) = b.poll_transmit(now, &mut packet) {
//!         a.handle_datagram(now, (sent.src_ip, sent.src_port).into(), sent.ecn, &packet);
//!     }
//!     if let Some(done) = a.poll_cq(cq, 1)?.pop() {
//!         break done;
//!     }
//!     now += 1000;
//!     a.handle_timeout(now);
//!     b.handle_timeout(now);
//! };
//! assert_eq!((done.wr_id, done.status), (1, Status::Success));
//! assert_eq!(&b.bytes(target)?[8..13], b"hello");
//! # Ok(())
//! # }
//! ```

mod cm;
mod cq;
mod device;
mod error;
pub mod ext;
mod memory;
mod post;
mod qp;
mod states;
mod types;

pub use crate::core::Status as WcStatus;
pub use cm::service;
pub use device::Device;
pub use error::{Error, PostError};
pub use qp::{Destination, Modify};
pub use states::STEPS;
pub use types::{
    AccessFlags, AsyncEvent, Cq, DeviceAttr, Limits, Mr, Pd, Qp, QpAttr, QpCap, QpInit, QpState,
    RecvWr, SendData, SendFlags, SendWr, Sge, Srq, Wc, WcOpcode, WrOpcode,
};
