//! What the monitors share: decoding, and the state of each connection as it can be known at the tap of one side.
//!
//! A judged side is watched at its own tap alone. There, everything it sends is seen as it was sent, before the link acts
//! on it, and everything it gets is seen as it was delivered. A [`Model`] is fed the observations of that tap in the order
//! of the capture and turns each into a [`Sighting`], which says how the packet relates to what came before it.
//!
//! Memory is bounded per connection. Where a trace exceeds what is tracked, [`Model::untracked`] says so, and the
//! monitors end inconclusive rather than wrong.

mod bits;
mod connection;
mod control;
mod delivered;
mod facts;
mod receiver;
mod sender;
mod sent;
mod sighting;
mod suspect;
mod tracker;

pub use connection::{Closing, Connection, InMessage, OutMessage, Stream};
pub use control::{Control, ControlLog, is_request};
pub use facts::{Access, Facts, Posted};
pub use receiver::{AckRecord, Arrival, Counts, InPath, position};
pub use sender::{AckFault, OutPath, Probe, Proof, SentPacket};
pub use sent::question_of;
pub use sighting::{AckArrived, AckSent, AnswerSent, DataSent, MessageSent, Relation, Sighting};
pub use suspect::{Answered, Suspect, SuspectClass, reserved_bits};
pub use tracker::{Context, Model};
