//! Mutants of the congestion marks and their echo.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::Opcode;

use super::catalogue;
use super::tools::{
    ack_copies, at, each, is_new, is_rtx, put, receiving, some_data, tells_duplicate, u32_at,
};
use crate::core::Ecn;

catalogue! {
    "not-ect" "ECN-001" [] "sends some data as Not-ECT" =>
        some_data(|_, sent| { sent.transmit.ecn = Ecn::NotEct; true });
    "repair-not-ect" "ECN-001" [] "sends retransmissions as Not-ECT" =>
        each(|cbh, sent| if is_rtx(cbh) { sent.transmit.ecn = Ecn::NotEct; });
    "ect1" "ECN-001" [] "sends new data as ECT(1)" =>
        each(|cbh, sent| if is_new(cbh) { sent.transmit.ecn = Ecn::Ect1; });
    "ack-ect" "ECN-002" [] "sends acknowledgments as ECT(0)" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { sent.transmit.ecn = Ecn::Ect0; });
    "control-ect" "ECN-002" [] "sends control as ECT(0)" =>
        each(|cbh, sent| if cbh.opcode.is_control() && cbh.opcode != Opcode::OPEN { sent.transmit.ecn = Ecn::Ect0; });
    "ce-not-counted" "ECN-003" [] "always reports a CE count of 0" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { put(&mut sent.bytes, at::CE_COUNT, &[0; 4]); });
    "ect-not-counted" "ECN-004" [] "always reports an ECT count of 0" =>
        each(|cbh, sent| if cbh.opcode.is_ack() { put(&mut sent.bytes, at::ECT_COUNT, &[0; 4]); });
    "duplicates-counted" "ECN-005" ["ECN-004"]
        because "the counts of marks are compared packet by packet"
        "counts duplicates as ECT" => {
        let mut seen: BTreeMap<u8, u32> = BTreeMap::new();
        each(move |cbh, sent| if cbh.opcode.is_ack() {
            let extra = seen.entry(cbh.path).or_default();
            *extra += u32::from(tells_duplicate(&sent.bytes));
            let count = u32_at(&sent.bytes, at::ECT_COUNT).wrapping_add(*extra);
            put(&mut sent.bytes, at::ECT_COUNT, &count.to_be_bytes());
        })
    };
    "repairs-not-counted" "ECN-006" ["ECN-003", "ECN-004"]
        because "the counts of marks are compared packet by packet"
        "does not count what arrives with RTX set" =>
        receiving(|cbh, received| {
            if is_rtx(cbh) { received.ecn = Ecn::NotEct; }
            false
        });
    "all-counted" "ECN-007" ["ECN-004"]
        because "the counts of marks are compared packet by packet"
        "counts data that arrives Not-ECT as ECT" =>
        receiving(|cbh, received| {
            if cbh.opcode.is_data() && received.ecn == Ecn::NotEct { received.ecn = Ecn::Ect0; }
            false
        });
    "count-goes-back" "ECN-008" ["ECN-004"]
        because "the counts of marks are compared packet by packet"
        "repeats acknowledgments with one ECT less" =>
        ack_copies(|_, sent| {
            let count = u32_at(&sent.bytes, at::ECT_COUNT);
            put(&mut sent.bytes, at::ECT_COUNT, &count.wrapping_sub(1).to_be_bytes());
            count > 0
        });
}
