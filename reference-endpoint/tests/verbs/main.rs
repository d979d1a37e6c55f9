//! The interface of the verbs over a simulated link.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod connections;
mod extensions;
mod link;
mod notices;
mod operations;
mod resources;
mod shared_queues;
mod states;
mod statuses;
