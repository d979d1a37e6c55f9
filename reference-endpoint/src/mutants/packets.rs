//! Mutants of the packet formats.

use metaroce_wire::metaroce::{NakCode, Opcode};

use super::catalogue;
use super::tools::{
    ack_copies, at, change, dropping, each, is_new, put, sending, some_data, u32_at,
};

/// Where a NAK has its code.
const NAK_CODE: usize = 16;

catalogue! {
    "other-version" "PKT-001" ["REL-027"]
        because "the spoiled first transmission differs from its sound repair"
        "sends some data as version 3" =>
        some_data(|_, sent| { change(&mut sent.bytes, 0, |first| first ^ 0x20); true });
    "wrong-crc" "PKT-002" [] "spoils the trailer of some data" =>
        some_data(|_, sent| {
            sent.as_is = true;
            let last = sent.bytes.len().saturating_sub(1);
            change(&mut sent.bytes, last, |byte| byte ^ 1);
            true
        });
    "reserved-flag" "PKT-003" ["REL-027"]
        because "the spoiled first transmission differs from its sound repair"
        "sets a reserved flag on some data" =>
        some_data(|_, sent| { change(&mut sent.bytes, at::FLAGS, |flags| flags | 0x01); true });
    "ack-asks-for-ack" "PKT-004" [] "sets AR on acknowledgments" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { change(&mut sent.bytes, at::FLAGS, |flags| flags | 0x80); });
    "echo-on-data" "PKT-005" [] "sets RTXE on data" =>
        each(|cbh, sent| if cbh.opcode.is_data() { change(&mut sent.bytes, at::FLAGS, |flags| flags | 0x10); });
    "padding-not-zero" "PKT-007" ["REL-027"]
        because "the spoiled first transmission differs from its sound repair"
        "fills some padding with ones; the repair has zeros" =>
        some_data(|cbh, sent| {
            let Some(last) = sent.bytes.len().checked_sub(5).filter(|_| cbh.pad > 0) else { return false };
            change(&mut sent.bytes, last, |_| 0xff);
            true
        });
    "padded-ack" "PKT-008" [] "repeats acknowledgments with a pad count of 1" =>
        ack_copies(|_, sent| { change(&mut sent.bytes, at::PAD, |byte| byte | 0x40); true });
    "long-ack" "PKT-009" [] "repeats acknowledgments with four more bytes" =>
        ack_copies(|_, sent| { sent.bytes.extend([0; 4]); true });
    "control-names-path" "PKT-010" [] "sends STREAM_OPEN and STREAM_OPEN_ACK with a path id, each for the first time" => {
        let mut spoiled = 0u8;
        each(move |cbh, sent| {
            if matches!(cbh.opcode, Opcode::STREAM_OPEN | Opcode::STREAM_OPEN_ACK) && spoiled == 0 {
                spoiled = 1;
                change(&mut sent.bytes, at::PATH, |_| 1);
            }
        })
    };
    "wrong-connection-id" "PKT-011" [] "repeats acknowledgments under another connection id" =>
        ack_copies(|_, sent| { change(&mut sent.bytes, at::DCID_LOW, |byte| byte ^ 1); true });
    "empty-hint" "PKT-012" [] "sends a rate hint of 1 Mb/s although it supports none" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { put(&mut sent.bytes, at::RATE_HINT, &[0, 0, 1]); });
    "write-with-immediate" "PKT-013" ["REL-027"]
        because "the spoiled first transmission differs from its sound repair"
        "sends immediate data in some Writes; the repair has none" =>
        some_data(|cbh, sent| {
            if cbh.opcode == Opcode::WRITE { put(&mut sent.bytes, at::WRITE_IMM, &[0, 0, 0, 9]); }
            cbh.opcode == Opcode::WRITE
        });
    "false-immediate" "PKT-014" ["REL-027"]
        because "the spoiled first transmission differs from its sound repair"
        "sets IMM on some data; the repair is right" =>
        some_data(|_, sent| { change(&mut sent.bytes, at::MFLAGS, |mflags| mflags | 0x20); true });
    "nak-with-psn" "PKT-016" [] "sends 1 as PSN in the base header of NAKs" =>
        each(|cbh, sent| if cbh.opcode == Opcode::NAK { put(&mut sent.bytes, at::PSN, &[0, 0, 0, 1]); });
    "clock-runs-back" "PKT-017" ["REL-031", "REL-032"]
        because "the order of transmissions is read off the timestamps, and with it what shows a loss"
        "stamps some data a little earlier than what it sent before on the path" => {
        let mut last = std::collections::BTreeMap::new();
        let mut count = 0u32;
        sending(move |edge, cbh, mut sent| {
            if is_new(cbh) {
                count += 1;
                if let Some(before) = last.get(&cbh.path).filter(|_| count.is_multiple_of(4)) {
                    let earlier = u32::wrapping_sub(*before, 1);
                    put(&mut sent.bytes, at::TIMESTAMP, &earlier.to_be_bytes());
                }
            }
            if cbh.opcode.is_data() {
                last.insert(cbh.path, u32_at(&sent.bytes, at::TIMESTAMP));
            }
            edge.send(sent);
        })
    };
    "silent-on-refusal" "STRM-034" ["STRM-032"]
        because "its NAK never arrives, so that it gives the connection up: the sound Write after the refused one is not placed"
        "sends no NAK for an access that it refuses" =>
        dropping(|cbh, sent| cbh.opcode == Opcode::NAK && sent.bytes.get(NAK_CODE) == Some(&NakCode::REM_ACCESS.0));
    "silent-on-excess" "STRM-035" ["REL-006"]
        because "its NAK never arrives, so that it gives the connection up: the sound Write after the refused Send is not placed"
        "sends no NAK for a Send longer than its receive" =>
        dropping(|cbh, sent| cbh.opcode == Opcode::NAK && sent.bytes.get(NAK_CODE) == Some(&NakCode::LENGTH.0));
}
