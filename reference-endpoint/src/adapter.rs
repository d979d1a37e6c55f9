//! The adapter: the endpoint as a party that a harness drives by lines of JSON.
//!
//! [`Session`] is the adapter without I/O and without a clock, for use under simulated time. With the feature `udp`,
//! `run_stdio` puts it between standard input, standard output and real sockets. The form of every line is described by
//! `schema/adapter.schema.json`.

mod answers;
mod engine;
mod hex;
mod messages;
mod opening;
mod posts;
mod session;
#[cfg(feature = "udp")]
mod stdio;

pub use answers::Code;
pub use engine::{Engine, Todo, Work};
pub use messages::{LONGEST_LINE, LONGEST_PIECE, LONGEST_WAIT_MS};
pub use session::Session;
#[cfg(feature = "udp")]
pub use stdio::{Options, RunError, run_stdio};

/// Version of the adapter protocol.
pub const PROTOCOL: u32 = 1;
/// Name that the endpoint gives itself.
pub const NAME: &str = "metaroce-endpoint";
/// Profile of the protocol that it implements.
pub const PROFILE: &str = "metaroce-open 0.1";
