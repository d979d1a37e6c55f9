//! What an endpoint counts.

use serde::Serialize;

/// Counters of an endpoint, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Sent, of every kind.
    pub packets_sent: u64,
    /// Received, of every kind, before any check.
    pub packets_received: u64,
    /// Data sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// PATH_PROBE sent.
    pub probes: u64,
    /// Dropped for a wrong CRC.
    pub crc_errors: u64,
    /// Dropped as malformed, other versions included.
    pub malformed: u64,
    /// Dropped for an unknown opcode.
    pub unknown_opcode: u64,
    /// Dropped for an unknown connection id or a foreign address.
    pub unknown_connection: u64,
    /// Data that had arrived before.
    pub duplicates: u64,
    /// Data outside the window.
    pub out_of_window: u64,
    /// Data for a path, epoch, stream, message or receive that is not there.
    pub misdirected: u64,
    /// Acknowledgments, probe answers and NAKs that could not be true.
    pub bad_acks: u64,
    /// Requests that were passed over since too many answers waited to be sent.
    pub unanswered: u64,
    /// Answers to requests that nobody waits for, and requests out of place.
    pub stray: u64,
    /// NAKs sent.
    pub naks_sent: u64,
    /// NAKs received.
    pub naks_received: u64,
    /// Data received with a CE mark, duplicates left out.
    pub ce_seen: u64,
}
