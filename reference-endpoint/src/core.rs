//! The protocol without I/O and without a clock.
//!
//! Five verbs drive an [`Endpoint`]: [`handle_datagram`](Endpoint::handle_datagram),
//! [`handle_timeout`](Endpoint::handle_timeout), [`poll_transmit`](Endpoint::poll_transmit),
//! [`poll_timeout`](Endpoint::poll_timeout) and [`poll_event`](Endpoint::poll_event). After any call that changes
//! state, poll in this order: transmit until none, then event until none, then timeout once. All times are nanoseconds
//! on one clock that never goes backwards.

mod answer;
mod answers;
mod calls;
mod closing;
mod config;
mod congestion;
mod connection;
mod control;
mod counters;
mod credit;
mod data;
mod ecn;
mod emit;
mod endpoint;
mod event;
mod greet;
mod handshake;
mod hint;
mod inbox;
mod lazy_queue;
mod memory;
mod nak;
mod outbox;
mod place;
mod plane;
mod probe;
mod receive;
mod report;
mod reset;
mod rest;
mod retire;
mod rtt;
mod rx_path;
mod send;
mod serve;
mod setup;
mod shares;
mod srq;
mod stats;
mod stream;
mod streams;
mod transitions;
mod tx_path;

pub use config::{
    Access, Buffer, Config, Data, Ecn, Features, Misuse, Op, Region, Remote, Service, StreamConfig,
    Transmit, Work,
};
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use event::{Completion, Event, Status, WorkKind};
pub use stats::{ConnectionStats, PathStats, PlaneStats, StreamStats};
pub use transitions::{Step, steps, steps_taken};
