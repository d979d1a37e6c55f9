//! The steps of a script, as they stand in a scenario.

use serde::Deserialize;

use crate::units::{DurationNs, Size};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Sends an OPEN of its own and waits for the answer; makes no connection.
    Open(OpenStep),
    /// Goes through the set-up up to CONFIRM, with one bit of the cookie flipped.
    BadCookie,
    /// Makes the connection and opens stream 0.
    Connect,
    /// Sends the last CONFIRM again.
    RepeatConfirm,
    /// A sound Write of one packet that must be acknowledged: shows the peer alive.
    Sane,
    /// Sends data packets, sound or edited.
    Data(Data),
    /// Sends the last data packet again.
    Repeat(Mark),
    /// Sends the data packet before the last again.
    RepeatBefore(Mark),
    /// Sends what [`Data::gap`] left out.
    Fill,
    /// Asks what has arrived on a path.
    Probe(u8),
    /// Sends an acknowledgment that is not true.
    LyingAck(LyingAck),
    /// Asks for credit on stream 0.
    AskCredit,
    /// Promises so many more receives on stream 0, and tells of them.
    Grant(u16),
    /// Refuses the message that the peer's latest data packet belongs to, and with it the connection.
    Refuse(Refusal),
    /// Whether data of the peer is acknowledged.
    Acking(bool),
    /// Waits for data packets of the peer.
    Receive(u16),
    /// Lets time pass.
    Quiet(DurationNs),
    /// Sends CLOSE.
    Close,
    /// Sends the last CLOSE again.
    RepeatClose,
}

impl Step {
    /// What the step waits for after sending.
    pub fn expect(&self) -> Expect {
        match self {
            Self::Open(open) => open.expect,
            Self::BadCookie => Expect::Reject,
            Self::RepeatConfirm => Expect::ConfirmAck,
            Self::Data(data) => data.expect,
            Self::Repeat(_) | Self::RepeatBefore(_) | Self::Fill | Self::Sane => Expect::Ack,
            Self::Probe(_) => Expect::ProbeAck,
            Self::AskCredit => Expect::Credit,
            Self::Close | Self::RepeatClose => Expect::CloseAck,
            _ => Expect::Silence,
        }
    }
}

/// An answer to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// An acknowledgment.
    #[default]
    Ack,
    /// A NAK.
    Nak,
    /// A REJECT.
    Reject,
    /// An ACCEPT.
    Accept,
    /// A CONFIRM_ACK.
    ConfirmAck,
    /// A CLOSE_ACK.
    CloseAck,
    /// A PATH_PROBE_ACK.
    ProbeAck,
    /// An RQ_CREDIT.
    Credit,
    /// Nothing: the script goes on after three round trips and 20 ms.
    Silence,
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Key, bounds or permission do not let the Write in.
    RemAccess,
    /// The Send is longer than its receive.
    Length,
}

/// An OPEN that differs from the one that makes the connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenStep {
    /// Lowest version offered.
    #[serde(default = "version")]
    pub ver_min: u8,
    /// Highest version offered.
    #[serde(default = "version")]
    pub ver_max: u8,
    /// Whether the service is one that the peer does not offer.
    #[serde(default)]
    pub unknown_service: bool,
    /// What to wait for.
    pub expect: Expect,
}

fn version() -> u8 {
    metaroce_wire::metaroce::VERSION
}

/// What a data packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A WRITE to the region.
    #[default]
    Write,
    /// A SEND.
    Send,
}

/// Data packets of one message each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// WRITE or SEND.
    #[serde(default)]
    pub operation: Operation,
    /// Path.
    #[serde(default)]
    pub path: u8,
    /// Payload bytes, one packet.
    #[serde(default = "hundred_bytes")]
    pub size: Size,
    /// How many, each a message of its own.
    #[serde(default = "one")]
    pub count: u16,
    /// PSNs left out before it, to be sent by [`Step::Fill`].
    #[serde(default)]
    pub gap: u16,
    /// PSNs past the next one; the packet then does not count as sent.
    #[serde(default)]
    pub ahead: u32,
    /// Epoch.
    #[serde(default)]
    pub epoch: u8,
    /// Stream instead of 0.
    #[serde(default)]
    pub stream: u16,
    /// Whether it writes over the place of the Write before it.
    #[serde(default)]
    pub over: bool,
    /// Bits flipped in the key.
    #[serde(default)]
    pub rkey_xor: u32,
    /// Added to the address, bytes.
    #[serde(default)]
    pub va_add: u64,
    /// Bytes that the message claims beyond this packet, so that it is not its last.
    #[serde(default)]
    pub more: u32,
    /// Whether an acknowledgment is asked for.
    #[serde(default = "yes")]
    pub ar: bool,
    /// Congestion mark: `ect0`, `ect1`, `ce`, `not_ect`.
    #[serde(default)]
    pub mark: Mark,
    /// Source port added to that of the path.
    #[serde(default)]
    pub port_add: u16,
    /// Changes to the finished bytes.
    #[serde(default)]
    pub edit: Vec<Edit>,
    /// Bytes cut from the end, the trailer being made anew.
    #[serde(default)]
    pub cut: usize,
    /// Whether the trailer is made right after the changes.
    #[serde(default = "yes")]
    pub seal: bool,
    /// What to wait for.
    #[serde(default)]
    pub expect: Expect,
}

fn hundred_bytes() -> Size {
    Size::from_bytes(100)
}
fn one() -> u16 {
    1
}
fn yes() -> bool {
    true
}

impl Data {
    /// Whether the packet is one that an honest endpoint with so many paths could send now, so that it must be placed.
    pub fn is_sound(&self, paths: u16) -> bool {
        u16::from(self.path) < paths
            && self.edit.is_empty()
            && self.cut == 0
            && self.seal
            && self.ahead == 0
            && self.epoch == 0
            && self.stream == 0
            && self.rkey_xor == 0
            && self.va_add == 0
            && self.expect != Expect::Nak
    }
}

/// A change to the bytes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Which byte, from the start of the UDP payload.
    pub at: usize,
    /// Bits to flip in it.
    pub xor: u8,
}

/// A congestion mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// ECT(0).
    #[default]
    Ect0,
    /// ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
    /// Not ECN-capable.
    NotEct,
}

/// An acknowledgment that is not true.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LyingAck {
    /// Path acknowledged.
    #[serde(default)]
    pub path: u8,
    /// Epoch.
    #[serde(default)]
    pub epoch: u8,
    /// Added to the cumulative PSN that would be true.
    #[serde(default)]
    pub cum_add: i32,
    /// Bits set in the vector; with none the packet is an ACK.
    #[serde(default)]
    pub bits: Vec<u32>,
}
