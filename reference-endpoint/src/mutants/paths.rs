//! Mutants of paths and their source ports.

use metaroce_wire::metaroce::{Cbh, Opcode};

use super::catalogue;
use super::edge::{Edge, Edit, Received, Sent};
use super::tools::{each, is_rtx, reporting, tells_duplicate};
use crate::core::{Completion, Event, Status};

/// How far away a port is that no path uses.
const ELSEWHERE: u16 = 300;

/// A port that no path uses: the paths have at most 256 in a row.
fn other_port(port: u16) -> u16 {
    port.checked_add(ELSEWHERE).unwrap_or(port - ELSEWHERE)
}

/// Repeats acknowledgments to the port that the latest packet came from.
#[derive(Default)]
struct ToSource {
    latest: Option<u16>,
}

impl Edit for ToSource {
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        self.latest = Some(received.from.port());
        edge.deliver(received);
    }
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        let is_ack = Cbh::read(&sent.bytes).is_ok_and(|(cbh, _)| cbh.opcode.is_ack());
        // A copy of one that tells of a duplicate would be false by itself.
        if let Some(port) = self.latest
            && is_ack
            && !tells_duplicate(&sent.bytes)
        {
            let mut copy = sent.clone();
            copy.transmit.dst.set_port(port);
            edge.send(copy);
        }
        edge.send(sent);
    }
}

catalogue! {
    "one-port" "PATH-002" [] "sends the data and the probes of all paths from one source port" => {
        let mut first = None;
        each(move |cbh, sent| if cbh.opcode.is_data() || cbh.opcode == Opcode::PATH_PROBE {
            sent.transmit.src_port = *first.get_or_insert(sent.transmit.src_port);
        })
    };
    "repair-elsewhere" "PATH-003" ["PATH-004"]
        because "a path has one source port at a time"
        "sends retransmissions from a port of their own" =>
        each(|cbh, sent| if is_rtx(cbh) { sent.transmit.src_port = other_port(sent.transmit.src_port); });
    "probe-elsewhere" "PATH-004" [] "sends probes from a port of their own" =>
        each(|cbh, sent| if cbh.opcode == Opcode::PATH_PROBE {
            sent.transmit.src_port = other_port(sent.transmit.src_port);
        });
    "failed-path-flushed" "PATH-011" [] "reports the work that a failed path ends as flushed" =>
        reporting(|event| if let Event::Completion(Completion { status: status @ Status::RetryExcErr, .. }) = event {
            *status = Status::WrFlushErr;
        });
    "answers-to-source" "CONV-003" [] "repeats acknowledgments to the source port of what they answer" =>
        ToSource::default();
}
