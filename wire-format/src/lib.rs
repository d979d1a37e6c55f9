//! Bytes to packets and back, for the open profile of MetaRoCE.
//!
//! The crate does no I/O, reads no clock and allocates nothing. [`metaroce::parse`] gives borrowed views of one UDP
//! payload, [`metaroce::Packet::emit`] writes one into a caller's buffer, and [`metaroce::parse_lax`] shows what can be
//! read of a malformed one together with the first error. Without features it is `no_std`; the feature `frame` adds
//! the Ethernet, IP and UDP headers around a packet.
//!
//! Every further packet type is one more file in `src/metaroce/packets/` and one more line in its list.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod crc;
pub mod error;
#[cfg(feature = "frame")]
pub mod frame;
pub mod metaroce;
pub mod serial;

pub use error::{EmitError, Error};
