//! The model implementation of the open profile of MetaRoCE.
//!
//! [`core`] speaks the protocol without I/O and without a clock: it takes bytes and times and returns bytes, deadlines
//! and events. [`adapter`] lets a harness drive it, by lines of JSON. [`mutants`] break one rule each, to show that a
//! suite notices. [`verbs`] is the interface of the verbs over the core. The feature `udp` adds the driver over real sockets.

pub mod adapter;
pub mod core;
pub mod mutants;
#[cfg(feature = "udp")]
pub mod udp;
pub mod verbs;
