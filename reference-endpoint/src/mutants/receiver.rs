//! Mutants of the receiver's reliability: what is acknowledged, when, and with what beside it.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::{Opcode, Sack};
use metaroce_wire::serial::Psn;

use super::catalogue;
use super::edge::{Edge, Edit, Sent};
use super::tools::{
    ack_copies, at, change, dropping, each, narrow, put, sack_at, sending, tells_duplicate, u16_at,
    u32_at, widen,
};

/// Where PATH_PROBE_ACK has its vector.
const PROBE_SACK: usize = 32;

/// Holds an acknowledgment that a duplicate has drawn for 20 ms. When another one for the path goes out before, that
/// one tells of the duplicate, and the held one is dropped: it would take back what the other says.
#[derive(Default)]
struct LateForDuplicate {
    held: BTreeMap<u8, u64>,
}

/// How long an acknowledgment is held, ns.
const HELD: u64 = 20_000_000;

impl Edit for LateForDuplicate {
    fn outgoing(&mut self, edge: &mut Edge, mut sent: Sent) {
        let is_ack = matches!(sent.bytes.get(1), Some(0x40 | 0x41));
        let Some(path) = sent.bytes.get(at::PATH).copied().filter(|_| is_ack) else {
            edge.send(sent);
            return;
        };
        let held = self.held.get(&path).is_some_and(|until| edge.now < *until);
        if held {
            self.held.remove(&path);
            edge.drop_held_acks(path);
            change(&mut sent.bytes, at::ACK_FLAGS, |flags| flags | 0x40);
            edge.send(sent);
        } else if tells_duplicate(&sent.bytes) {
            self.held.insert(path, edge.now + HELD);
            edge.send_at(edge.now + HELD, sent);
        } else {
            edge.send(sent);
        }
    }
}

/// Clears the lowest bit of a vector that has several; false when there are not several.
fn take_back_bit(bytes: &mut [u8]) -> bool {
    let Some(sack) = sack_at(bytes, at::SACK) else {
        return false;
    };
    let mut fewer = Sack::EMPTY;
    sack.ones().skip(1).for_each(|bit| fewer.set(bit));
    put(bytes, at::SACK, &fewer.0);
    !fewer.is_empty()
}

catalogue! {
    "claims-missing" "REL-007" ["REL-008", "REL-009", "REL-010", "CONV-006"]
        because "the bits that follow move with CumPSN, go back in the next acknowledgment, and claim what was damaged"
        "repeats acknowledgments with a CumPSN that is far ahead" =>
        ack_copies(|cbh, sent| {
            put(&mut sent.bytes, at::PSN, &cbh.psn.add(100_000).value().to_be_bytes());
            true
        });
    "claims-bit" "REL-008" ["REL-010"]
        because "the next acknowledgment takes the bit back"
        "repeats acknowledgments with the last bit of the vector set" =>
        ack_copies(|_, sent| {
            widen(&mut sent.bytes);
            change(&mut sent.bytes, at::SACK + 31, |byte| byte | 1);
            true
        });
    "cumulative-goes-back" "REL-009" ["REL-010", "REL-013"]
        because "what had arrived is reported as missing"
        "repeats acknowledgments with a CumPSN that is one less" => {
        let mut first = BTreeMap::new();
        ack_copies(move |cbh, sent| {
            // The first acknowledgment of a path has nothing to go back from.
            let base = *first.entry(cbh.path).or_insert(cbh.psn);
            put(&mut sent.bytes, at::PSN, &cbh.psn.sub(1).value().to_be_bytes());
            // Over a gap there would have to be a vector as well.
            cbh.opcode == Opcode::ACK && Psn::precedes(base, cbh.psn)
        })
    };
    "bit-taken-back" "REL-010" ["REL-013"]
        because "what had arrived is reported as missing"
        "repeats acknowledgments with one bit less in the vector" =>
        ack_copies(|cbh, sent| cbh.opcode == Opcode::ACK_SACK && take_back_bit(&mut sent.bytes));
    "bit-zero" "REL-011" ["REL-008", "REL-010", "CONV-006"]
        because "bit 0 claims the packet that CumPSN says is missing, and the next acknowledgment takes it back"
        "repeats acknowledgments with bit 0 of the vector set" =>
        ack_copies(|_, sent| {
            widen(&mut sent.bytes);
            change(&mut sent.bytes, at::SACK, |byte| byte | 0x80);
            true
        });
    "gap-hidden" "REL-012"
        ["REL-010", "REL-013", "REL-014", "REL-015", "REL-016", "REL-017", "REL-018", "REL-019", "ECN-009"]
        because "without the vector nothing of what has arrived behind a gap is reported, for whatever cause the acknowledgment was due"
        "sends acknowledgments without vector where there is a gap" =>
        each(|_, sent| narrow(&mut sent.bytes));
    "late-for-duplicates" "REL-018" ["REL-014", "REL-015"]
        because "gaps and marks among the duplicates are told late as well"
        "acknowledges a duplicate 20 ms late" =>
        LateForDuplicate::default();
    "late-acknowledgment" "REL-019"
        ["REL-013", "REL-014", "REL-015", "REL-016", "REL-017", "REL-018", "REL-020", "REL-021", "REL-022", "REL-024", "ECN-004", "ECN-009", "ECN-006", "REL-047", "STRM-023", "STRM-031", "PATH-007"]
        because "every acknowledgment that is due is late, and disagrees with all that has arrived since its making"
        "sends acknowledgments 60 ms late" =>
        sending(|edge, cbh, sent| if cbh.opcode.is_ack() { edge.send_at(edge.now + 60_000_000, sent); } else { edge.send(sent); });
    "duplicate-not-told" "REL-020" [] "never says that it has seen a duplicate" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { change(&mut sent.bytes, at::ACK_FLAGS, |flags| flags & !0x40); });
    "duplicate-always-told" "REL-021" [] "always says that it has seen a duplicate" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { change(&mut sent.bytes, at::ACK_FLAGS, |flags| flags | 0x40); });
    // The echo names the trigger, so that everything that speaks of the trigger is wrong with it.
    "wrong-echo" "REL-022" ["REL-012", "REL-020", "REL-021", "REL-024", "REL-025", "ECN-003", "ECN-004"]
        because "the echo names no arrival, so that nothing of the acknowledgment fits its trigger"
        "echoes a timestamp that is off by one" =>
        each(|cbh, sent| if cbh.opcode.is_ack() {
            let echo = u32_at(&sent.bytes, at::ECHO).wrapping_sub(1);
            put(&mut sent.bytes, at::ECHO, &echo.to_be_bytes());
        });
    "overstated-delay" "REL-023" [] "claims to have waited 512 us longer before each acknowledgment" =>
        each(|cbh, sent| if cbh.opcode.is_ack() {
            let delay = u16_at(&sent.bytes, at::ACK_DELAY).saturating_add(8000).min(u16::MAX - 1);
            put(&mut sent.bytes, at::ACK_DELAY, &delay.to_be_bytes());
        });
    "echo-never-marked" "REL-024" [] "never sets RTXE" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { change(&mut sent.bytes, at::FLAGS, |flags| flags & !0x10); });
    "ack-of-another-stream" "REL-025" [] "names a stream in acknowledgments that does not exist" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { change(&mut sent.bytes, at::ACK_STREAM + 1, |low| low ^ 1); });
    "probe-unanswered" "REL-037" [] "does not answer PATH_PROBE" =>
        dropping(|cbh, _| cbh.opcode == Opcode::PATH_PROBE_ACK);
    "probe-answer-claims" "REL-038" [] "answers probes with the last bit of the vector set" =>
        each(|cbh, sent| if cbh.opcode == Opcode::PATH_PROBE_ACK {
            change(&mut sent.bytes, PROBE_SACK + 31, |byte| byte | 1);
        });
    "probe-answer-omits" "REL-039" [] "answers probes without vector" =>
        each(|cbh, sent| if cbh.opcode == Opcode::PATH_PROBE_ACK { put(&mut sent.bytes, PROBE_SACK, &[0; 32]); });
}
