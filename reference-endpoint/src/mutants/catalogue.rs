//! All mutants: what each breaks, and how.

use std::collections::BTreeMap;

use super::edit::{Then, incoming, is_inner_piece, is_rtx, is_sack, is_victim, outgoing};
use super::{Edge, Mutant};
use crate::core::Ecn;
use metaroce_wire::metaroce::Opcode;

/// What is known of a mutant beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutantInfo {
    /// Name.
    pub id: &'static str,
    /// The clause it breaks, and must fail.
    pub clause: &'static str,
    /// Clauses that it cannot but break too, because one act shows in several places: a first transmission that is
    /// spoiled differs from its sound repair (REL-027); a packet taken that should have been dropped is placed, counted
    /// and acknowledged, and the sound one that follows it is then a duplicate; an acknowledgment that is late, or
    /// names the wrong trigger, disagrees with everything that had arrived by then; a vector over a CumPSN that is one
    /// too high says one too much for every bit.
    pub declared: &'static [&'static str],
    /// What it does.
    pub what: &'static str,
}

type Make = fn() -> Box<dyn Edge>;

/// Offsets of fields in the UDP payload.
mod at {
    pub const VERSION: usize = 0;
    pub const FLAGS: usize = 2;
    pub const PSN_LOW: usize = 11;
    pub const ECHO_LOW: usize = 19;
    pub const ACK_FLAGS: usize = 22;
    pub const CE_COUNT: std::ops::Range<usize> = 24..28;
    pub const MFLAGS: usize = 20;
    pub const SACK: usize = 40;
    pub const WRITE_PAYLOAD: usize = 48;
    pub const OPEN_PADDING: usize = 60;
}

macro_rules! mutants {
    ( $( $id:literal $clause:literal $declared:tt $what:literal => $make:expr ; )+ ) => {
        const CATALOGUE: &[(MutantInfo, Make)] = &[
            $( (MutantInfo { id: $id, clause: $clause, declared: &$declared, what: $what }, || Box::new($make)), )+
        ];
    };
}

mutants! {
    "other-version" "PKT-001" ["REL-027"] "sends some data as version 2" =>
        outgoing(|cbh, out| { if is_victim(cbh) { out.1[at::VERSION] ^= 0x30; } Then::Send });
    "wrong-crc" "PKT-002" [] "spoils the trailer of some data" =>
        outgoing(|cbh, out| {
            if is_victim(cbh) && let Some(last) = out.1.last_mut() { *last ^= 1; }
            Then::SendAsIs
        });
    "reserved-flag" "PKT-003" ["REL-027"] "sets a reserved flag on some data" =>
        outgoing(|cbh, out| { if is_victim(cbh) { out.1[at::FLAGS] |= 0x01; } Then::Send });
    "padding-in-open" "CONN-002" [] "fills OPEN up with bytes that are not zero" =>
        outgoing(|cbh, out| {
            if cbh.opcode == Opcode::OPEN && let Some(byte) = out.1.get_mut(at::OPEN_PADDING) { *byte = 1; }
            Then::Send
        });
    "silent-on-close" "CONN-026" [] "does not answer CLOSE" =>
        outgoing(|cbh, _| if cbh.opcode == Opcode::CLOSE_ACK { Then::Drop } else { Then::Send });
    "som-inside" "STRM-015" ["REL-027"] "sets SOM on some packets inside a message" =>
        outgoing(|cbh, out| {
            if is_victim(cbh) && is_inner_piece(&out.1) { out.1[at::MFLAGS] |= 0x80; }
            Then::Send
        });
    "one-port" "PATH-002" ["PATH-004"] "sends the data of all paths from one source port" => {
        let mut first = None;
        outgoing(move |cbh, out| {
            if cbh.opcode.is_data() { out.0.src_port = *first.get_or_insert(out.0.src_port); }
            Then::Send
        })
    };
    "not-ect" "ECN-001" [] "sends some data as Not-ECT" =>
        outgoing(|cbh, out| { if is_victim(cbh) { out.0.ecn = Ecn::NotEct; } Then::Send });
    "ack-ect" "ECN-002" [] "sends acknowledgments as ECT(0)" =>
        outgoing(|cbh, out| { if cbh.opcode.is_ack() { out.0.ecn = Ecn::Ect0; } Then::Send });
    "ce-not-counted" "ECN-003" [] "always reports a CE count of 0" =>
        outgoing(|cbh, out| { if cbh.opcode.is_ack() { out.1[at::CE_COUNT].fill(0); } Then::Send });
    "repair-unmarked" "REL-028" [] "does not set RTX on retransmissions" =>
        outgoing(|cbh, out| { if is_rtx(cbh) { out.1[at::FLAGS] &= !0x40; } Then::Send });
    "first-marked" "REL-029" ["REL-026"] "sets RTX on some first transmissions" =>
        outgoing(|cbh, out| { if is_victim(cbh) { out.1[at::FLAGS] |= 0x40; } Then::Send });
    "repair-altered" "REL-027" [] "sends other bytes when it sends again" =>
        outgoing(|cbh, out| {
            if is_rtx(cbh) && cbh.opcode == Opcode::WRITE && out.1.len() > at::WRITE_PAYLOAD + 4 {
                out.1[at::WRITE_PAYLOAD] ^= 1;
            }
            Then::Send
        });
    "repair-late" "REL-031" ["PKT-017", "REL-030", "REL-032", "REL-033"] "sends again only after another 40 ms" =>
        outgoing(|cbh, _| if is_rtx(cbh) { Then::Later(40_000_000) } else { Then::Send });
    "repeat-acknowledged" "REL-030" ["REL-032", "REL-033"] "sends data again that has been acknowledged long ago" => {
        let mut kept: BTreeMap<u8, (u32, Vec<u8>)> = BTreeMap::new();
        outgoing(move |cbh, out| {
            if !cbh.opcode.is_data() || is_rtx(cbh) { return Then::Send; }
            let (count, bytes) = kept.entry(cbh.path).or_insert_with(|| (0, out.1.clone()));
            *count += 1;
            if *count != 40 { return Then::Send; }
            let mut again = bytes.clone();
            again[at::FLAGS] |= 0x40;
            again[12..16].copy_from_slice(&out.1[12..16]);
            Then::AndAlso(again)
        })
    };
    "claims-missing" "REL-007" ["CONV-006", "REL-008", "REL-009", "REL-010", "REL-013", "REL-014", "REL-015", "REL-017", "REL-019", "ECN-009"] "acknowledges one packet more than has arrived, where there is a gap" =>
        outgoing(|cbh, out| {
            // Only where adding one does not carry: the low byte is enough.
            if is_sack(cbh) && out.1[at::PSN_LOW] != 0xff && out.1[at::SACK] & 0x40 == 0 {
                out.1[at::PSN_LOW] += 1;
            }
            Then::Send
        });
    "bit-zero" "REL-011" ["CONV-006", "REL-008"] "sets bit 0 of the vector" =>
        outgoing(|cbh, out| { if is_sack(cbh) { out.1[at::SACK] |= 0x80; } Then::Send });
    "late-acknowledgment" "REL-019" ["REL-012", "REL-013", "REL-014", "REL-015", "REL-016", "REL-017", "REL-018", "REL-020", "REL-021", "REL-022", "REL-024", "REL-025", "ECN-003", "ECN-004", "ECN-009"]
        "sends acknowledgments 60 ms late" =>
        outgoing(|cbh, _| if cbh.opcode.is_ack() { Then::Later(60_000_000) } else { Then::Send });
    "duplicate-not-told" "REL-020" [] "never reports that it has seen a duplicate" =>
        outgoing(|cbh, out| { if cbh.opcode.is_ack() { out.1[at::ACK_FLAGS] &= !0x40; } Then::Send });
    "wrong-echo" "REL-022" ["REL-005", "REL-012", "REL-013", "REL-020", "REL-021", "REL-024", "REL-025", "ECN-003", "ECN-004"] "echoes a timestamp that is off by one" =>
        outgoing(|cbh, out| { if cbh.opcode.is_ack() { out.1[at::ECHO_LOW] ^= 1; } Then::Send });
    "probe-unanswered" "REL-037" [] "does not answer PATH_PROBE" =>
        outgoing(|cbh, _| if cbh.opcode == Opcode::PATH_PROBE_ACK { Then::Drop } else { Then::Send });
    "takes-wrong-crc" "CONV-006" ["CONV-007", "STRM-004", "STRM-019", "STRM-020", "REL-007", "REL-012", "REL-013", "REL-021", "REL-022", "REL-025", "REL-032", "REL-033", "REL-038", "ECN-004"] "takes packets whose trailer is wrong" => incoming(|_: &mut Vec<u8>| {});
    "takes-other-version" "CONV-010" ["CONV-006", "STRM-004", "STRM-019", "STRM-020", "REL-007", "REL-012", "REL-013", "REL-021", "REL-022", "REL-025", "REL-032", "REL-033", "REL-038", "ECN-004"] "takes packets of other versions" =>
        incoming(|bytes: &mut Vec<u8>| {
            if let Some(first) = bytes.first_mut() { *first = 0x10 | *first & 0x0f; }
        });
}

/// Every mutant, in the order of the catalogue.
pub fn all() -> impl Iterator<Item = &'static MutantInfo> {
    CATALOGUE.iter().map(|(info, _)| info)
}

/// Makes the mutant of that name.
pub fn by_id(id: &str) -> Option<Mutant> {
    let (_, make) = CATALOGUE.iter().find(|(info, _)| info.id == id)?;
    Some(Mutant::new(make()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let ids: std::collections::BTreeSet<&str> = all().map(|info| info.id).collect();
        assert_eq!(ids.len(), all().count());
        assert!(all().all(|info| by_id(info.id).is_some()));
        assert!(by_id("no-such-mutant").is_none());
        let clauses: std::collections::BTreeSet<&str> = all().map(|info| info.clause).collect();
        assert!(ids.len() >= 15 && clauses.len() >= 12);
    }
}
