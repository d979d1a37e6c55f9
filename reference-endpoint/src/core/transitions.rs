//! What a connection, a path and a stream can be in, and the only steps that lead from one state to another.
//!
//! Every change of state goes through [`step`], which takes the steps of these tables and no others. The tables are
//! compared with those of the specification, so that code and specification cannot come apart.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often each step was taken, by the number of the table and that of the step.
static TAKEN: [[AtomicU64; 32]; 3] = [const { [const { AtomicU64::new(0) }; 32] }; 3];

/// A state machine: its states are the type itself.
pub(super) trait Machine: Copy + PartialEq + Debug + 'static {
    /// What can happen.
    type Event: Copy + PartialEq + Debug + 'static;
    /// Number of the table.
    const TABLE: usize;
    /// Every step: state before, event, state after.
    const STEPS: &'static [(Self, Self::Event, Self)];
}

/// Takes the step that `on` leads to. An event that is not possible in the state is an error of this program: it
/// changes nothing.
pub(super) fn step<M: Machine>(state: &mut M, on: M::Event) {
    let taken = take(state, |(from, event, _), now| *from == now && *event == on);
    debug_assert!(taken, "no step leads from {state:?} on {on:?}");
}

/// Takes the step to `to`, where an event leads to several states by a condition.
pub(super) fn step_to<M: Machine>(state: &mut M, on: M::Event, to: M) {
    let taken = take(state, |step, now| *step == (now, on, to));
    debug_assert!(taken, "no step leads from {state:?} on {on:?} to {to:?}");
}

fn take<M: Machine>(state: &mut M, fits: impl Fn(&(M, M::Event, M), M) -> bool) -> bool {
    let Some(step) = M::STEPS.iter().position(|step| fits(step, *state)) else {
        return false;
    };
    *state = M::STEPS[step].2;
    TAKEN[M::TABLE][step].fetch_add(1, Ordering::Relaxed);
    true
}

/// Makes an enum whose values have names in snake case, as in the specification.
macro_rules! named {
    ( $(#[$doc:meta])* $name:ident { $( $(#[$vdoc:meta])* $variant:ident = $text:literal ),+ $(,)? } ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $( $(#[$vdoc])* $variant ),+ }

        impl $name {
            pub(super) const fn name(self) -> &'static str {
                match self { $( Self::$variant => $text ),+ }
            }
        }
    };
}

named! {
    /// Where a connection is in its life.
    State {
        /// Nothing is sent yet, or all is forgotten.
        None = "none",
        /// OPEN is sent.
        Opening = "opening",
        /// CONFIRM is sent.
        Confirming = "confirming",
        /// Both sides keep state; streams are being opened.
        Connected = "connected",
        /// All streams are open.
        Established = "established",
        /// No new work; CLOSE goes out once the work is done.
        Closing = "closing",
        /// Over; repeated packets of the peer are still answered.
        Closed = "closed",
        /// Over by an error; repeated packets of the peer are still answered.
        Failed = "failed",
    }
}

impl State {
    /// Whether the connection is over, and only repetitions are answered.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Failed)
    }
}

named! {
    /// What changes the state of a connection.
    Event {
        /// The application asks for a connection.
        Connect = "connect",
        /// A CONFIRM with a cookie that fits has come.
        ValidConfirm = "valid_confirm",
        /// An ACCEPT of what was offered has come.
        Accept = "accept",
        /// The CONFIRM_ACK has come.
        ConfirmAck = "confirm_ack",
        /// The last of the agreed streams is open.
        StreamsOpen = "streams_open",
        /// The application closes the connection.
        Close = "close",
        /// Either side has closed, and no work is under way.
        Settled = "settled",
        /// The peer has closed with an error.
        PeerError = "peer_error",
        /// The connection cannot go on.
        Error = "error",
        /// The linger time is over.
        Rested = "rested",
    }
}

impl Machine for State {
    type Event = Event;
    const TABLE: usize = 0;
    const STEPS: &'static [(Self, Event, Self)] = &[
        (Self::None, Event::Connect, Self::Opening),
        (Self::None, Event::ValidConfirm, Self::Connected),
        (Self::Opening, Event::Accept, Self::Confirming),
        (Self::Opening, Event::Error, Self::Failed),
        (Self::Confirming, Event::ConfirmAck, Self::Connected),
        (Self::Confirming, Event::Error, Self::Failed),
        (Self::Connected, Event::StreamsOpen, Self::Established),
        (Self::Connected, Event::Close, Self::Closing),
        (Self::Connected, Event::Settled, Self::Closed),
        (Self::Connected, Event::PeerError, Self::Closed),
        (Self::Connected, Event::Error, Self::Failed),
        (Self::Established, Event::Close, Self::Closing),
        (Self::Established, Event::Settled, Self::Closed),
        (Self::Established, Event::PeerError, Self::Closed),
        (Self::Established, Event::Error, Self::Failed),
        (Self::Closing, Event::Settled, Self::Closed),
        (Self::Closing, Event::PeerError, Self::Closed),
        (Self::Closing, Event::Error, Self::Failed),
        (Self::Closed, Event::Rested, Self::None),
        (Self::Failed, Event::Rested, Self::None),
    ];
}

named! {
    /// Where the sending end of a path is.
    PathState {
        /// Nothing that is unacknowledged has been asked about.
        Open = "open",
        /// A probe is under way.
        Probing = "probing",
        /// Given up, and the connection with it.
        Failed = "failed",
        /// PATH_RETIRE is sent.
        Retiring = "retiring",
        /// The epoch is over, and what the peer has not got waits to be moved.
        Retired = "retired",
        /// The number of the old epoch rests.
        Resting = "resting",
        /// A probe of the next epoch is sent.
        Reviving = "reviving",
    }
}

impl PathState {
    /// Whether data are sent on it.
    pub(super) fn is_alive(self) -> bool {
        matches!(self, Self::Open | Self::Probing)
    }
}

named! {
    /// What changes the state of a path.
    PathEvent {
        /// A probe is due.
        ProbeDue = "probe_due",
        /// A data packet goes out.
        Sent = "sent",
        /// An acknowledgment or a probe's answer has come.
        Report = "report",
        /// No answer has come to the probe.
        Timeout = "timeout",
        /// All attempts were in vain.
        Exhausted = "exhausted",
        /// The sender gives it up.
        Retire = "retire",
        /// The answer to PATH_RETIRE has come.
        PathRetired = "path_retired",
        /// Nothing is left to move.
        Moved = "moved",
        /// It is time to ask whether it works again.
        RevivalDue = "revival_due",
        /// No answer has come to what was asked.
        NoAnswer = "no_answer",
        /// The connection is over.
        ConnectionOver = "connection_over",
    }
}

impl Machine for PathState {
    type Event = PathEvent;
    const TABLE: usize = 1;
    const STEPS: &'static [(Self, PathEvent, Self)] = &[
        (Self::Open, PathEvent::ProbeDue, Self::Probing),
        (Self::Probing, PathEvent::Sent, Self::Open),
        (Self::Probing, PathEvent::Report, Self::Open),
        (Self::Probing, PathEvent::Timeout, Self::Open),
        // Which one it is depends on whether another path is alive, and on what was agreed.
        (Self::Open, PathEvent::Exhausted, Self::Failed),
        (Self::Open, PathEvent::Exhausted, Self::Retiring),
        (Self::Probing, PathEvent::Exhausted, Self::Failed),
        (Self::Probing, PathEvent::Exhausted, Self::Retiring),
        (Self::Open, PathEvent::Retire, Self::Retiring),
        (Self::Probing, PathEvent::Retire, Self::Retiring),
        (Self::Retiring, PathEvent::PathRetired, Self::Retired),
        (Self::Retiring, PathEvent::NoAnswer, Self::Failed),
        (Self::Retiring, PathEvent::ConnectionOver, Self::Resting),
        (Self::Retired, PathEvent::Moved, Self::Resting),
        (Self::Retired, PathEvent::RevivalDue, Self::Reviving),
        (Self::Retired, PathEvent::ConnectionOver, Self::Resting),
        (Self::Resting, PathEvent::RevivalDue, Self::Reviving),
        (Self::Reviving, PathEvent::NoAnswer, Self::Resting),
        (Self::Reviving, PathEvent::Report, Self::Open),
        (Self::Reviving, PathEvent::ConnectionOver, Self::Resting),
    ];
}

named! {
    /// Where a stream is.
    StreamState {
        /// There is none yet.
        None = "none",
        /// STREAM_OPEN is sent.
        Opening = "opening",
        /// Messages flow.
        Open = "open",
        /// The connection is over.
        Ended = "ended",
        /// The stream was refused, or the connection was over before the stream was open.
        Void = "void",
        /// STREAM_RESET is sent.
        Resetting = "resetting",
        /// Both sides have reset it; its number rests.
        Reset = "reset",
    }
}

impl StreamState {
    /// Whether STREAM_RESET has been sent or received for it.
    pub(super) fn is_reset(self) -> bool {
        matches!(self, Self::Resetting | Self::Reset)
    }

    /// Whether it is over, so that work for it is flushed.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Void) || self.is_reset()
    }

    /// Whether it counts for the agreed number of streams (STRM-041).
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Opening | Self::Open | Self::Resetting)
    }

    /// Whether data are taken. Those of a peer that has agreed may overtake its answer, or the answer is lost (STRM-046).
    pub(super) fn takes_data(self) -> bool {
        matches!(self, Self::Opening | Self::Open)
    }
}

named! {
    /// What changes the state of a stream.
    StreamEvent {
        /// The stream is asked for.
        Ask = "ask",
        /// The peer asks for it.
        StreamOpen = "stream_open",
        /// The peer agrees.
        StreamOpenAck = "stream_open_ack",
        /// The peer does not agree.
        Refused = "refused",
        /// Its connection is over.
        ConnectionOver = "connection_over",
        /// STREAM_OPEN stays unanswered.
        NoAnswer = "no_answer",
        /// This side resets it.
        Reset = "reset",
        /// The peer resets it.
        StreamReset = "stream_reset",
        /// The answer to STREAM_RESET has come.
        StreamResetAck = "stream_reset_ack",
        /// Every PSN that bore it is acknowledged or retired, and the linger time is over.
        PsnsFree = "psns_free",
    }
}

impl Machine for StreamState {
    type Event = StreamEvent;
    const TABLE: usize = 2;
    const STEPS: &'static [(Self, StreamEvent, Self)] = &[
        (Self::None, StreamEvent::Ask, Self::Opening),
        (Self::None, StreamEvent::StreamOpen, Self::Open),
        (Self::Opening, StreamEvent::StreamOpenAck, Self::Open),
        (Self::Opening, StreamEvent::Refused, Self::Void),
        (Self::Opening, StreamEvent::ConnectionOver, Self::Void),
        (Self::Open, StreamEvent::ConnectionOver, Self::Ended),
        (Self::Opening, StreamEvent::NoAnswer, Self::Resetting),
        (Self::Opening, StreamEvent::StreamReset, Self::Reset),
        (Self::Opening, StreamEvent::Reset, Self::Resetting),
        (Self::Open, StreamEvent::Reset, Self::Resetting),
        (Self::Open, StreamEvent::StreamReset, Self::Reset),
        (Self::Resetting, StreamEvent::StreamResetAck, Self::Reset),
        (Self::Resetting, StreamEvent::StreamReset, Self::Reset),
        (Self::Resetting, StreamEvent::ConnectionOver, Self::Ended),
        (Self::Reset, StreamEvent::PsnsFree, Self::None),
        (Self::Reset, StreamEvent::ConnectionOver, Self::Ended),
    ];
}

/// A step of a state table of this endpoint, by the names of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The table: `connection`, `path` or `stream`.
    pub table: &'static str,
    /// State before.
    pub from: &'static str,
    /// What happens.
    pub on: &'static str,
    /// State after.
    pub to: &'static str,
}

/// Every step that this endpoint can take.
pub fn steps() -> Vec<Step> {
    let mut all = Vec::new();
    for (from, on, to) in State::STEPS {
        all.push(named_step("connection", from.name(), on.name(), to.name()));
    }
    for (from, on, to) in PathState::STEPS {
        all.push(named_step("path", from.name(), on.name(), to.name()));
    }
    for (from, on, to) in StreamState::STEPS {
        all.push(named_step("stream", from.name(), on.name(), to.name()));
    }
    all
}

/// How often each step has been taken by the endpoints of this process. What tests have never seen is found with it.
pub fn steps_taken() -> Vec<(Step, u64)> {
    let sizes = [
        State::STEPS.len(),
        PathState::STEPS.len(),
        StreamState::STEPS.len(),
    ];
    let counts = TAKEN
        .iter()
        .zip(sizes)
        .flat_map(|(table, size)| &table[..size]);
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    steps().into_iter().zip(counts).collect()
}

fn named_step(table: &'static str, from: &'static str, on: &'static str, to: &'static str) -> Step {
    Step {
        table,
        from,
        on,
        to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_table_are_taken() {
        for (from, on, to) in State::STEPS {
            let mut state = *from;
            step(&mut state, *on);
            assert_eq!(state, *to);
        }
    }

    #[test]
    fn steps_are_counted_each_in_its_place() {
        let of = |table, on| {
            let all = steps_taken();
            let found = all.iter().find(|(s, _)| (s.table, s.on) == (table, on));
            found.map_or(0, |(_, count)| *count)
        };
        let before = of("stream", "refused");
        step(&mut StreamState::Opening.clone(), StreamEvent::Refused);
        assert!(of("stream", "refused") > before);
        assert!(State::STEPS.len() <= 32 && PathState::STEPS.len() <= 32);
        assert!(StreamState::STEPS.len() <= 32);
    }

    #[test]
    fn other_steps_lead_nowhere() {
        fn leads<M: Machine>(mut state: M, on: M::Event) -> bool {
            take(&mut state, |(from, event, _), now| {
                *from == now && *event == on
            })
        }
        assert!(!leads(State::Closed, Event::Close));
        assert!(!leads(PathState::Open, PathEvent::Timeout));
        assert!(!leads(StreamState::Void, StreamEvent::StreamOpenAck));
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "no step leads from Closed on Close")]
    fn an_impossible_event_is_noticed() {
        step(&mut State::Closed.clone(), Event::Close);
    }
}
