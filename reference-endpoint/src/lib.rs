//! The model implementation of the open profile of MetaRoCE.
//!
//! [`core`] speaks the protocol without I/O and without a clock: it takes bytes and times and returns bytes, deadlines
//! and events.

pub mod core;
