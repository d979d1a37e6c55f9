//! Injection: rules that name packets by identity, or by seeded chance, and say what becomes of them.
//!
//! The same rules and the same seed give the same packet the same fate on every link: chance is drawn from the identity
//! of a packet, never from the order of arrival.

mod engine;
mod facts;
mod feasible;
mod rule;

pub use engine::{Decision, Delivery, Injector, stranger};
pub use feasible::{Infeasible, feasible};
pub use rule::{
    Action, Class, Classes, Corrupt, Duplicate, HoldUntil, Match, Numbers, Reorder, Rule,
};
