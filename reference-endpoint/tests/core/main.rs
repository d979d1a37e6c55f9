//! The core over a simulated link. A watcher compares every packet with what an honest endpoint sends there, and memory
//! is compared byte for byte.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod defence;
mod endings;
mod exchange;
mod forged_set_up;
mod link;
mod repair;
mod repeated;
mod set_up;
mod watch;
