//! Why a call is refused.

use super::types::QpState;
use crate::core::Misuse;

/// A call that cannot be served: the caller's fault, and nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such thing.
    #[error("there is no {what} {id}")]
    NotFound {
        /// Kind of thing.
        what: &'static str,
        /// Its number.
        id: u32,
    },
    /// Something else still needs it (`EBUSY`).
    #[error("{what} {id} is still used by {by}")]
    InUse {
        /// Kind of thing.
        what: &'static str,
        /// Its number.
        id: u32,
        /// What uses it.
        by: &'static str,
    },
    /// A limit is reached (`ENOMEM`).
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// No step leads from one state of a queue pair to the other.
    #[error("a queue pair does not go from {from} to {to}")]
    Transition {
        /// State before.
        from: QpState,
        /// State asked for.
        to: QpState,
    },
    /// The queue pair does not take this in its state.
    #[error("a queue pair in {state} takes no {what}")]
    WrongState {
        /// Its state.
        state: QpState,
        /// What was posted.
        what: &'static str,
    },
    /// A parameter is not allowed (`EINVAL`).
    #[error("{0}")]
    Invalid(&'static str),
    /// The completion queue has overrun: completions are lost, and it gives no more.
    #[error("completion queue {0} has overrun")]
    Overrun(u32),
    /// The core refuses it.
    #[error(transparent)]
    Core(#[from] Misuse),
}

/// A list of work of which some could not be posted. What stands before it in the list has been posted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("request {index} of the list: {error}")]
pub struct PostError {
    /// Place in the list of the first request that was not posted (`bad_wr`).
    pub index: usize,
    /// Why.
    pub error: Error,
}
