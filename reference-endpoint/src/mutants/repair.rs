//! Mutants of the sender's reliability: what is sent again, when, where and how.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use metaroce_wire::metaroce::{Cbh, Opcode, Sack};
use metaroce_wire::serial::Psn;

use super::catalogue;
use super::edge::{Edge, Edit, Received, Sent};
use super::tools::{
    Deaf, at, change, dropping, each, is_new, is_rtx, narrow, put, receiving, sack_at, sending,
    u32_at,
};

/// Where the payload of a Send and of a Write starts.
const SEND_PAYLOAD: usize = 32;
const WRITE_PAYLOAD: usize = 48;
const HIGHEST_PSN: usize = 16;
const ECHOED_HIGHEST: usize = 24;

/// Marks a datagram as sent again, with the timestamp of the one that was just sent on its path.
fn again(bytes: &mut [u8], stamp: u32) {
    change(bytes, at::FLAGS, |flags| flags | 0x40);
    put(bytes, at::TIMESTAMP, &stamp.to_be_bytes());
}

/// What the peer has reported of one path, and data kept to be sent once more.
#[derive(Default)]
struct Path {
    cum: Option<Psn>,
    stamp: u32,
    kept: VecDeque<(Psn, Vec<u8>)>,
}

/// Now and then sends data again that was acknowledged long ago.
#[derive(Default)]
struct Replay {
    paths: BTreeMap<u8, Path>,
    count: u32,
}

impl Edit for Replay {
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        if let Ok((cbh, _)) = Cbh::read(&received.bytes)
            && cbh.opcode.is_ack()
        {
            self.paths.entry(cbh.path).or_default().cum = Some(cbh.psn);
        }
        edge.deliver(received);
    }
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        let Ok((cbh, _)) = Cbh::read(&sent.bytes) else {
            edge.send(sent);
            return;
        };
        if !is_new(&cbh) {
            edge.send(sent);
            return;
        }
        let path = self.paths.entry(cbh.path).or_default();
        path.stamp = cbh.timestamp;
        path.kept.push_back((cbh.psn, sent.bytes.clone()));
        let transmit = sent.transmit;
        edge.send(sent);
        self.count += 1;
        let old = path
            .kept
            .front()
            .is_some_and(|(psn, _)| path.cum.is_some_and(|cum| psn.precedes_or_is(cum)));
        if old
            && self.count.is_multiple_of(4)
            && let Some((_, mut bytes)) = path.kept.pop_front()
        {
            again(&mut bytes, path.stamp);
            edge.send(Sent {
                transmit,
                bytes,
                as_is: false,
            });
        }
        if path.kept.len() > 64 {
            path.kept.pop_front();
        }
    }
}

/// Sends each retransmission a second time on another path, under a PSN that has long arrived there.
#[derive(Default)]
struct Astray {
    /// CumPSN reported, last timestamp and source port, by path.
    paths: BTreeMap<u8, (Option<Psn>, u32, u16)>,
}

impl Edit for Astray {
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        if let Ok((cbh, _)) = Cbh::read(&received.bytes)
            && cbh.opcode.is_ack()
            && let Some(path) = self.paths.get_mut(&cbh.path)
        {
            path.0 = Some(cbh.psn);
        }
        edge.deliver(received);
    }
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        let Ok((cbh, _)) = Cbh::read(&sent.bytes) else {
            edge.send(sent);
            return;
        };
        if cbh.opcode.is_data() {
            let path = self.paths.entry(cbh.path).or_default();
            (path.1, path.2) = (cbh.timestamp, sent.transmit.src_port);
        }
        let mut copy = sent.clone();
        edge.send(sent);
        // Only where the PSN has arrived already: a new one would be placed, and the message counted wrongly.
        let elsewhere = self.paths.iter().find(|(path, (cum, ..))| {
            **path != cbh.path && cum.is_some_and(|cum| cbh.psn.precedes_or_is(cum))
        });
        if is_rtx(&cbh)
            && let Some((path, (_, stamp, port))) = elsewhere
        {
            change(&mut copy.bytes, at::PATH, |_| *path);
            again(&mut copy.bytes, *stamp);
            copy.transmit.src_port = *port;
            edge.send(copy);
        }
    }
}

/// Asks with a wrong highest PSN; the answer is put right before the endpoint sees it.
#[derive(Default)]
struct WrongHighest {
    asked: BTreeSet<u32>,
}

impl Edit for WrongHighest {
    fn outgoing(&mut self, edge: &mut Edge, mut sent: Sent) {
        if let Ok((cbh, _)) = Cbh::read(&sent.bytes)
            && cbh.opcode == Opcode::PATH_PROBE
        {
            let highest = u32_at(&sent.bytes, HIGHEST_PSN).wrapping_add(1);
            put(&mut sent.bytes, HIGHEST_PSN, &highest.to_be_bytes());
            self.asked.insert(cbh.psn.value());
        }
        edge.send(sent);
    }
    fn incoming(&mut self, edge: &mut Edge, mut received: Received) {
        if let Ok((cbh, _)) = Cbh::read(&received.bytes)
            && cbh.opcode == Opcode::PATH_PROBE_ACK
            && self.asked.contains(&cbh.psn.value())
        {
            let highest = u32_at(&received.bytes, ECHOED_HIGHEST).wrapping_sub(1);
            put(&mut received.bytes, ECHOED_HIGHEST, &highest.to_be_bytes());
            received.reseal = true;
        }
        edge.deliver(received);
    }
}

/// Takes an acknowledgment of more than was sent for one of all that was sent.
#[derive(Default)]
struct Credulous {
    highest: BTreeMap<u8, Psn>,
}

impl Edit for Credulous {
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        if let Ok((cbh, _)) = Cbh::read(&sent.bytes)
            && is_new(&cbh)
        {
            self.highest.insert(cbh.path, cbh.psn);
        }
        edge.send(sent);
    }
    fn incoming(&mut self, edge: &mut Edge, mut received: Received) {
        if let Ok((cbh, _)) = Cbh::read(&received.bytes)
            && cbh.opcode.is_ack()
            && let Some(highest) = self.highest.get(&cbh.path)
        {
            let reach = sack_of(&received.bytes)
                .and_then(|sack| sack.highest())
                .map_or(0, |bit| bit + 1);
            if highest.precedes(cbh.psn.add(reach)) {
                narrow(&mut received.bytes);
                put(&mut received.bytes, at::PSN, &highest.value().to_be_bytes());
                received.reseal = true;
            }
        }
        edge.deliver(received);
    }
}

fn sack_of(bytes: &[u8]) -> Option<Sack> {
    (bytes.get(1) == Some(&Opcode::ACK_SACK.0))
        .then(|| sack_at(bytes, at::SACK))
        .flatten()
}

/// Hides the vector, and the echo from which a gap shows as well.
fn hide_gap(cbh: &Cbh, received: &mut Received) -> bool {
    if cbh.opcode != Opcode::ACK_SACK {
        return false;
    }
    narrow(&mut received.bytes);
    change(&mut received.bytes, at::ACK_FLAGS, |flags| flags & 0x7f);
    true
}

/// Takes a vector with bit 0 set at its word: the packet behind CumPSN has arrived.
fn believe_bit_zero(cbh: &Cbh, received: &mut Received) -> bool {
    let Some(sack) = sack_of(&received.bytes).filter(|sack| sack.bit(0)) else {
        return false;
    };
    let run = (0..Sack::BITS).take_while(|&bit| sack.bit(bit)).count() as u32;
    let mut rest = Sack::EMPTY;
    sack.ones()
        .filter(|&bit| bit >= run)
        .for_each(|bit| rest.set(bit - run));
    put(
        &mut received.bytes,
        at::PSN,
        &cbh.psn.add(run).value().to_be_bytes(),
    );
    put(&mut received.bytes, at::SACK, &rest.0);
    true
}

catalogue! {
    "repair-astray" "REL-026" ["REL-027", "REL-030", "REL-032", "REL-033"]
        because "what arrives elsewhere under a PSN that is taken looks like a needless repetition with other bytes"
        "sends each retransmission a second time on another path" => Astray::default();
    "repair-altered" "REL-027" ["STRM-019", "STRM-020"]
        because "what is placed is the altered byte"
        "changes a payload byte of each retransmission" =>
        each(|cbh, sent| {
            let payload = if cbh.opcode == Opcode::WRITE { WRITE_PAYLOAD } else { SEND_PAYLOAD };
            // Four bytes of trailer at least follow the payload.
            if is_rtx(cbh) && sent.bytes.len() > payload + 4 { change(&mut sent.bytes, payload, |byte| byte ^ 1); }
        });
    "repair-unmarked" "REL-028" [] "does not set RTX on retransmissions" =>
        each(|cbh, sent| if is_rtx(cbh) { change(&mut sent.bytes, at::FLAGS, |flags| flags & !0x40); });
    "first-marked" "REL-029" ["REL-026"]
        because "a packet marked as sent again has no first transmission"
        "sets RTX on some first transmissions" => {
        let mut count = 0u32;
        each(move |cbh, sent| if is_new(cbh) {
            count += 1;
            if count % 8 == 1 { change(&mut sent.bytes, at::FLAGS, |flags| flags | 0x40); }
        })
    };
    "repeat-acknowledged" "REL-030" ["REL-032", "REL-033"]
        because "nothing shows as lost what has been acknowledged"
        "sends data again that has been acknowledged long ago" =>
        Replay::default();
    "repair-late" "REL-031" ["REL-034", "REL-044", "REL-048"]
        because "what is not looked at repairs nothing, hides a lost repair, delays the probe, and makes a false vector a true acknowledgment"
        "does not look at the vector, so that a gap waits for a probe or a timeout" =>
        receiving(hide_gap);
    "repeat-unprovoked" "REL-032" [] "sends some data twice without any sign of loss" => {
        let mut count = 0u32;
        sending(move |edge, cbh, sent| {
            let mut copy = sent.clone();
            edge.send(sent);
            count += u32::from(is_new(cbh));
            if is_new(cbh) && count % 8 == 1 {
                again(&mut copy.bytes, cbh.timestamp);
                edge.send(copy);
            }
        })
    };
    "repair-twice" "REL-033" ["REL-032"]
        because "the second of the two has no evidence of its own"
        "sends each retransmission twice" =>
        sending(|edge, cbh, sent| {
            if is_rtx(cbh) { edge.send(sent.clone()); }
            edge.send(sent);
        });
    "never-asks" "REL-035" ["REL-048"]
        because "no probe is a late probe"
        "sends no probe" => dropping(|cbh, _| cbh.opcode == Opcode::PATH_PROBE);
    "probe-wrong-highest" "REL-036" [] "names a PSN in probes that it has not sent" => WrongHighest::default();
    "believes-anything" "REL-044" ["STRM-027"]
        because "work is done as soon as it is believed to be acknowledged"
        "takes an acknowledgment of more than was sent for one of all that was sent" => Credulous::default();
    "believes-bit-zero" "REL-045" ["STRM-027"]
        because "work is done as soon as it is believed to be acknowledged"
        "acts on an acknowledgment with bit 0 of the vector set" =>
        receiving(believe_bit_zero);
    "believes-other-epoch" "REL-046" ["STRM-027"]
        because "work is done as soon as it is believed to be acknowledged"
        "acts on acknowledgments of another epoch" =>
        receiving(|cbh, received| {
            let other = cbh.opcode.is_ack() && cbh.epoch != 0;
            if other { change(&mut received.bytes, 0, |first| first & 0xf0); }
            other
        });
    "probe-answer-ignored" "REL-040" ["REL-030", "REL-031", "REL-032"]
        because "the timeout repairs late, and repairs what the answer has reported as arrived"
        "does not look at the answers to its probes, so that a timeout has to repair" =>
        Deaf(|cbh| cbh.opcode == Opcode::PATH_PROBE_ACK);
}
