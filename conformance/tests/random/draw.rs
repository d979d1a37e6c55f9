//! From a seed to a scenario, as text: the same YAML that people write, so that what fails can be kept and run as it is.

use crate::chance::Chance;
use crate::faults::rules;

/// Packets that the work of a scenario has, at most, but for one scenario in sixteen.
const PACKETS: u64 = 400;
/// The same for that one: several windows of a path.
const MANY_PACKETS: u64 = 3000;

/// What a scenario is made between.
pub struct Frame {
    /// Paths in each direction.
    pub paths: u64,
    /// Streams.
    pub streams: u64,
    /// Payload bytes of a packet.
    pub payload: u64,
    /// Packets that the work may have.
    pub packets: u64,
}

/// The scenario of a seed.
pub fn scenario(seed: u64) -> String {
    let mut chance = Chance::new(seed, 0);
    let few = chance.is(70);
    let frame = Frame {
        paths: if few {
            chance.between(1, 5)
        } else {
            chance.between(1, 16)
        },
        streams: if few {
            chance.between(1, 3)
        } else {
            chance.between(1, 16)
        },
        payload: 256 << chance.below(5),
        packets: if chance.below(16) == 0 {
            MANY_PACKETS
        } else {
            PACKETS
        },
    };
    let msg_window = chance.pick(&[1, 2, 3, 4, 8, 16, 64, 300]);
    let delay = chance.pick(&[
        "10us", "50us", "200us", "1ms", "1ms", "3ms", "10ms", "30ms", "80ms",
    ]);
    let mut text = format!(
        "id: random-{seed}\ntitle: drawn from seed {seed}\npaths: {}\nstreams: {}\npayload: {}B\n\
         msg_window: {msg_window}\ndelay: {delay}\nlimit: 120s\n",
        frame.paths, frame.streams, frame.payload,
    );
    if chance.is(70) {
        let first = match chance.below(4) {
            0 => chance.below(3),
            1 => chance.below(1 << 32),
            _ => (1 << 32) - 1 - chance.below(60),
        };
        text += &format!("initial_psn: {first}\n");
    }
    if chance.is(70) {
        let delay = chance.word(&["0us", "20us", "200us", "1ms", "4ms", "20ms", "50ms"]);
        text += &format!("ack_delay: {delay}\n");
    }
    let rules = rules(&frame, &mut Chance::new(seed, 1));
    if !rules.is_empty() {
        text += "rules:\n";
        text += &rules;
    }
    text += "work:\n";
    text += &work(&frame, &mut Chance::new(seed, 2));
    text
}

/// Messages of all lengths in bursts, with pauses between them, and receives that come late.
fn work(frame: &Frame, chance: &mut Chance) -> String {
    let mut text = String::new();
    let mut left = frame.packets;
    let waits = chance.is(60);
    let late = chance.is(50);
    for _ in 0..chance.between(1, 14) {
        if waits && chance.is(30) {
            let wait = chance.pick(&["pause", "settle"]);
            let span = chance.word(&["50us", "300us", "2ms", "15ms", "70ms", "300ms"]);
            text += &format!("  - {wait}: {span}\n");
        }
        let size = size(frame, left, chance);
        let packets = size.div_ceil(frame.payload).max(1);
        let most = if chance.is(70) { 3 } else { 60 };
        let count = chance.between(1, most).min(left / packets).max(1);
        left = left.saturating_sub(packets * count);
        let kind = chance.pick(&["write", "send"]);
        let mut extra = String::new();
        if kind == "send" && late && chance.is(40) {
            let span = chance.word(&["30us", "400us", "3ms", "25ms", "90ms", "400ms"]);
            extra = format!(", late: {span}");
        }
        text += &format!(
            "  - {kind}: {{from: {}, stream: {}, size: {size}B, count: {count}{extra}}}\n",
            chance.pick(&['a', 'b']),
            chance.below(frame.streams),
        );
        if left == 0 {
            break;
        }
    }
    text
}

/// A length: mostly around the ends of packets, sometimes all that is left.
fn size(frame: &Frame, left: u64, chance: &mut Chance) -> u64 {
    let packets = match chance.below(10) {
        0 => return chance.below(4),
        1..=4 => chance.below(4),
        5..=7 => chance.below(40),
        _ => chance.below(left + 1),
    };
    let packets = packets.min(left.saturating_sub(1));
    (packets * frame.payload + chance.below(5)).saturating_sub(2)
}
