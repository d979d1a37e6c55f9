//! The specification of the open profile of MetaRoCE as data: numbered clauses out of the chapters, and the wire
//! tables.
//!
//! The chapters and tables are embedded when the crate is built. Nothing here reads a file, a clock or the network.

pub mod block;
mod clause;
mod data;
mod diagram;
mod digest;
mod dissector;
mod lock;
mod parse;
mod sequence;
mod state;
mod table;
mod timer;
mod yaml;

pub use clause::{Clause, Level, Observability, Role, Source};
pub use data::{Feature, Retired, features, parse_features, parse_retired, retired};
pub use diagram::diagram;
pub use digest::digest;
pub use dissector::{DISSECTOR_BEGIN, DISSECTOR_END, dissector_data};
pub use lock::lock;
pub use parse::{Defect, Error, clauses, parse_chapter};
pub use sequence::{
    ConnectionState, EcnMark, End, EndState, EventStep, Fate, FieldValue, Happening, Limits,
    MemoryState, PacketStep, Posted, ReceiveState, RegionState, SEQUENCES, Sequence, SequenceError,
    SequenceFile, Step, StreamState, Violated, parse_sequences, render,
};
pub use state::{State, StateTable, Transition, draw, parse_states, states};
pub use table::{
    CodeSpace, CodeSpaceKind, Entry, FieldSpec, Table, TableError, codes, parse_codes, parse_table,
    tables, validate_set,
};
pub use timer::{Timer, parse_timers, timers};

macro_rules! chapter {
    ($name:literal, $prefix:literal) => {
        ($name, $prefix, include_str!(concat!("../chapters/", $name)))
    };
}
macro_rules! table {
    ($name:literal) => {
        ($name, include_str!(concat!("../tables/", $name)))
    };
}

macro_rules! data {
    ($name:literal) => {
        ($name, include_str!(concat!("../", $name)))
    };
}

/// Version of this text, clauses and tables.
pub const VERSION: &str = "0.1.0";

/// Name of the profile that the text describes, as results and adapters quote it.
pub const PROFILE: &str = "metaroce-open 0.1";

/// The highest number of the published statements, P1 to P14, that a clause can rest on.
pub const STATEMENTS: u8 = 14;

/// The chapters in reading order: file name, prefix of the ids, text.
pub const CHAPTERS: &[(&str, &str, &str)] = &[
    chapter!("01-conventions.md", "CONV"),
    chapter!("02-packets.md", "PKT"),
    chapter!("03-connections.md", "CONN"),
    chapter!("04-streams.md", "STRM"),
    chapter!("05-paths.md", "PATH"),
    chapter!("06-reliability.md", "REL"),
    chapter!("07-ecn.md", "ECN"),
    chapter!("08-operations.md", "OPS"),
    chapter!("09-memory.md", "MEM"),
    chapter!("10-receives.md", "RCV"),
    chapter!("11-planes.md", "PLN"),
    chapter!("12-congestion.md", "CC"),
    chapter!("13-hints.md", "HINT"),
    chapter!("14-errors.md", "ERR"),
    chapter!("15-security.md", "SEC"),
    chapter!("16-verbs.md", "VERB"),
    chapter!("17-limits.md", "LIM"),
    chapter!("18-conformance.md", "CONF"),
    chapter!("19-performance.md", "PERF"),
];

/// The wire tables: file name and text. The code points are apart, in [`CODES`].
pub const TABLES: &[(&str, &str)] = &[
    table!("cbh.yaml"),
    table!("msgh.yaml"),
    table!("tagh.yaml"),
    table!("atomic.yaml"),
    table!("params.yaml"),
    table!("planes.yaml"),
    table!("send.yaml"),
    table!("send_imm.yaml"),
    table!("send_inv.yaml"),
    table!("write.yaml"),
    table!("write_imm.yaml"),
    table!("read_req.yaml"),
    table!("cmp_swap.yaml"),
    table!("fetch_add.yaml"),
    table!("fill.yaml"),
    table!("read_resp.yaml"),
    table!("atomic_resp.yaml"),
    table!("ack.yaml"),
    table!("ack_sack.yaml"),
    table!("nak.yaml"),
    table!("open.yaml"),
    table!("accept.yaml"),
    table!("reject.yaml"),
    table!("confirm.yaml"),
    table!("confirm_ack.yaml"),
    table!("close.yaml"),
    table!("close_ack.yaml"),
    table!("path_probe.yaml"),
    table!("path_probe_ack.yaml"),
    table!("path_change.yaml"),
    table!("path_retire.yaml"),
    table!("path_retired.yaml"),
    table!("rate_hint.yaml"),
    table!("rq_credit.yaml"),
    table!("stream_reset.yaml"),
    table!("stream_reset_ack.yaml"),
    table!("stream_open.yaml"),
    table!("stream_open_ack.yaml"),
];

/// The table of code points: file name and text.
pub const CODES: (&str, &str) = table!("codes.yaml");

/// The data besides tables and code points: path within the specification, and text. In order: features, retired ids,
/// timers and limits.
pub const DATA: &[(&str, &str); 3] = &[
    data!("data/features.yaml"),
    data!("data/retired.yaml"),
    data!("data/timers.yaml"),
];

/// The state tables: path within the specification, and text.
pub const STATES: &[(&str, &str)] = &[
    data!("states/connection.yaml"),
    data!("states/path.yaml"),
    data!("states/stream.yaml"),
];
