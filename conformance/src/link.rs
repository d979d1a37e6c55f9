//! Links: what carries packets between the two parties of a test, seen at both taps.

mod port;
pub mod relay;
pub mod sim;
mod socket;

pub(crate) use socket::Socket;
