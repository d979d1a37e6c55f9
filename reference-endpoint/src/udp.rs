//! The driver over real sockets: datagrams with their congestion marks, a fine timer, and the loop that serves an
//! endpoint with both.
//!
//! [`Sockets`] send and receive. One socket for each own address receives on the service port; for every source port
//! that is sent from, a further one is bound when it is first needed, and all connections share them. [`Driver`] runs
//! one endpoint in one task. Whatever the system does not take or give is lost and [counted](Losses), as on any wire:
//! nothing here ends a session.
//!
//! What a receiving socket has dropped because it was full is not counted: Linux tells it in a control message
//! (`SO_RXQ_OVFL`) that neither quinn-udp nor safe code can ask for, and its room beside the mark of joined datagrams
//! over IPv6 would not suffice. The losses show as any others, in what the protocol sends again.

mod driver;
mod ecn;
mod inbox;
mod losses;
mod outbox;
mod run;
mod sockets;
mod source;
mod timer;

pub use driver::{Driver, Handle, Pace, Party};
pub use inbox::Inbox;
pub use losses::Losses;
pub use outbox::{Left, Outbox, Sent};
pub use run::{Act, Application, Connections, Served, Stop, Stopped};
pub use sockets::{Settings, Sockets};
pub use timer::Timer;

#[cfg(test)]
mod tests;
