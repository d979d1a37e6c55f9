//! The protocol without I/O and without a clock.
//!
//! Five verbs drive an [`Endpoint`]: [`handle_datagram`](Endpoint::handle_datagram),
//! [`handle_timeout`](Endpoint::handle_timeout), [`poll_transmit`](Endpoint::poll_transmit),
//! [`poll_timeout`](Endpoint::poll_timeout) and [`poll_event`](Endpoint::poll_event). After any call that changes
//! state, poll in this order: transmit until none, then event until none, then timeout once. All times are nanoseconds
//! on one clock that never goes backwards.

mod closing;
mod config;
mod connection;
mod control;
mod counters;
mod credit;
mod emit;
mod endpoint;
mod event;
mod handshake;
mod memory;
mod receive;
mod rx_path;
mod send;
mod setup;
mod stream;
mod transitions;
mod tx_path;

pub use config::{Access, Buffer, Config, Ecn, Misuse, Region, Service, Transmit};
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use event::{Event, Status, WorkKind};
pub use transitions::{Step, steps};
