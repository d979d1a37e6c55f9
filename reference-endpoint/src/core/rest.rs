//! Memory that a connection at rest gives back.

use super::connection::{Connection, NEVER};
use super::stream::Stream;
use super::tx_path::TxPath;

/// A connection of which nothing has been heard for so long rests, ns. Its queues grow again when they are needed.
const REST: u64 = 250_000_000;

impl Connection {
    pub(super) fn rest_deadline(&self) -> u64 {
        if self.rests || !self.is_up() {
            NEVER
        } else {
            self.heard + REST
        }
    }

    /// Notes that there is work, after which the connection can rest.
    pub(super) fn wake(&mut self) {
        if self.rests {
            self.rests = false;
            self.arm(self.rest_deadline());
        }
    }

    /// Gives back the memory of what is over.
    pub(super) fn on_rest_timer(&mut self, now: u64) {
        if now < self.rest_deadline() {
            return;
        }
        self.rests = true;
        self.tx.iter_mut().for_each(TxPath::rest);
        self.streams.iter_mut().for_each(Stream::rest);
        self.active.shrink_to_fit();
        self.waiting.shrink_to_fit();
        self.repairs.shrink_to_fit();
        self.moved.shrink_to_fit();
        self.acks.shrink_to_fit();
        self.newly.shrink_to_fit();
        self.control.shrink_to_fit();
        self.requests.rest();
        self.answers.rest();
        self.asked.shrink_to_fit();
    }
}
