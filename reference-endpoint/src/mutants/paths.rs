//! Mutants of paths and their source ports.

use metaroce_wire::metaroce::Opcode;

use super::catalogue;
use super::tools::{ack_copies, each, is_rtx, reporting};
use crate::core::{Event, Status};

/// How far away a port is that no path uses.
const ELSEWHERE: u16 = 300;

/// A port that no path uses: the paths have at most 256 in a row.
fn other_port(port: u16) -> u16 {
    port.checked_add(ELSEWHERE).unwrap_or(port - ELSEWHERE)
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
        reporting(|event| if let Event::Completion { status: status @ Status::RetryExcErr, .. } = event {
            *status = Status::WrFlushErr;
        });
    "answers-to-source" "CONV-003" [] "repeats acknowledgments to another port than the peer's" =>
        ack_copies(|_, sent| { sent.transmit.dst.set_port(sent.transmit.src_port); true });
}
