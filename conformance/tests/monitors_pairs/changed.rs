//! What the text allows beside the plain case is not charged, and what no monitor follows is not passed.

use metaroce_conformance::evidence::WorkKind;
use metaroce_conformance::trace::Side;
use metaroce_reports::Verdict;
use metaroce_wire::metaroce::{Features, Flags, Opcode};

use crate::scenes::{accepting, lost_repair, sending, tail};
use crate::trace::{MS, Trace, US, write};

fn is_broken(t: &Trace, clause: &str) -> bool {
    !t.judge()[clause].violations.is_empty()
}

fn exercised(t: &Trace, clause: &str) -> u64 {
    t.judge()[clause].exercised
}

#[test]
fn with_a_feature_that_no_monitor_follows_nothing_passes() {
    let agree = |features: Features, planes: u8| {
        let mut t = Trace::new(Side::A);
        (t.mine.features, t.theirs.features) = (features, features);
        (t.mine.extra_planes, t.theirs.extra_planes) = (planes, planes);
        t.connect();
        t.open_stream();
        t.posted(Side::A, 1, WorkKind::Write, 10);
        let sent = t.send_new(0, write(0, 10), 0);
        t.wait(2 * MS);
        let stamp = t.items[sent].pkt.stamp();
        t.acked(0, 0, &[], stamp);
        t.wait(MS);
        t.judge()["REL-001"].clone().finding("REL-001").verdict
    };
    assert_eq!(agree(Features::default(), 0), Verdict::Pass);
    for (_, feature) in Features::ALL {
        assert_eq!(agree(*feature, 0), Verdict::Inconclusive, "{feature:?}");
    }
    assert_eq!(agree(Features::default(), 1), Verdict::Inconclusive);
}

#[test]
fn the_credit_of_a_repeated_answer_may_rise() {
    let mut t = accepting();
    let again = t.nth(true, Opcode::STREAM_OPEN_ACK, 1);
    again.put16(26, 5);
    assert!(!is_broken(&t, "CONN-025"));
    t.nth(true, Opcode::STREAM_OPEN_ACK, 1).put16(18, 1);
    assert!(is_broken(&t, "CONN-025"));
}

#[test]
fn a_probe_may_go_ahead_on_a_new_port() {
    let mut t = tail();
    let probe = t.index(true, Opcode::PATH_PROBE, 0);
    for item in &mut t.items[probe..] {
        if [Opcode::PATH_PROBE, Opcode::WRITE].contains(&item.pkt.opcode()) {
            item.pkt.port += 5;
        }
    }
    assert!(!is_broken(&t, "PATH-004") && exercised(&t, "PATH-004") > 0);
    t.items[probe].pkt.port += 1;
    assert!(is_broken(&t, "PATH-004"));
}

#[test]
fn a_repair_may_wait_where_the_answer_to_a_probe_proves_nothing() {
    // The repair does not come, with and without a change of port that only the probe has shown.
    let missing = |port: u16| {
        let mut t = tail();
        let at = t.rtx_at(0);
        t.items.remove(at);
        t.find(true, Opcode::PATH_PROBE).port += port;
        t
    };
    assert!(is_broken(&missing(0), "REL-040"));
    assert!(!is_broken(&missing(5), "REL-040"));
    assert_eq!(exercised(&missing(5), "REL-040"), 0);
}

#[test]
fn a_repair_may_wait_where_a_gap_proves_nothing() {
    // The repair does not come for 5 ms, with and without a change of port before the gap.
    let late = |port: u16| {
        let mut t = Trace::ready(Side::A);
        t.posted(Side::A, 1, WorkKind::Write, 256 * 6);
        let lost = t.send_new(0, write(0, 256 * 6), 0);
        t.wait(US);
        let second = t.send_new(0, write(0, 256 * 6), 1);
        t.items[second].pkt.port += port;
        t.wait(2 * MS);
        let stamp = t.items[second].pkt.stamp();
        t.acked(0, -1, &[1], stamp);
        t.wait(5 * MS);
        t.resend(lost);
        t.wait(2 * MS);
        t
    };
    assert!(is_broken(&late(0), "REL-031"));
    assert!(!is_broken(&late(7), "REL-031"));
    assert_eq!(exercised(&late(7), "REL-031"), 0);
    // A duplicate that was reported raises the allowance of its path.
    let mut t = lost_repair();
    assert!(exercised(&t, "REL-034") > 0);
    let report = t.find(false, Opcode::ACK_SACK);
    report.put16(22, 0xc000);
    assert_eq!(exercised(&t, "REL-034"), 0);
}

#[test]
fn no_flag_but_two_may_change_in_a_retransmission() {
    for (flag, broken) in [(Flags::AR, false), (Flags::SE, true)] {
        let mut t = sending();
        let at = t.rtx_at(0);
        t.items[at].pkt.bytes[2] ^= flag.0;
        assert_eq!(is_broken(&t, "REL-027"), broken, "{flag:?}");
    }
}

#[test]
fn data_may_overtake_the_answer_to_the_opener() {
    let mut t = Trace::new(Side::A);
    t.connect();
    let open = t.stream_open_pkt(true, 13, 0);
    t.tx(open);
    t.wait(2 * MS);
    t.arrive(0, 0, write(0, 10), 0);
    t.reply(0);
    t.wait(MS);
    let answer = t.stream_ack_pkt(false, 13, 0);
    t.get(answer);
    t.wait(MS);
    assert!(!is_broken(&t, "STRM-004"));
}

#[test]
fn after_eight_transmissions_a_repair_waits_for_the_timeout() {
    // A packet that was lost so many times, and whose next repair comes 5 ms after the report.
    let late_after = |transmissions: u32| {
        let mut t = Trace::ready(Side::A);
        let message = write(0, 256 * 40);
        t.posted(Side::A, 1, WorkKind::Write, 256 * 40);
        let lost = t.send_new(0, message, 0);
        let mut bits = Vec::new();
        for n in 1..=transmissions {
            t.wait(US);
            let next = t.send_new(0, message, n);
            t.wait(2 * MS);
            bits.push(n);
            let stamp = t.items[next].pkt.stamp();
            t.acked(0, -1, &bits, stamp);
            if n == transmissions {
                t.wait(5 * MS);
            }
            t.resend(lost);
        }
        t.wait(2 * MS);
        t
    };
    assert!(is_broken(&late_after(4), "REL-034"));
    assert!(is_broken(&late_after(7), "REL-034"));
    assert!(!is_broken(&late_after(8), "REL-034"));
}
