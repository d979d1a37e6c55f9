//! Looks at every packet of a run and compares it with what an honest endpoint sends there.

use std::collections::{BTreeMap, BTreeSet};

use metaroce_endpoint::core::{Ecn, Transmit};
use metaroce_wire::metaroce::{
    AckFlags, AckHeader, Body, Cbh, Flags, MFlags, Packet, Sack, parse_unsealed,
};
use metaroce_wire::serial::Psn;

const MS: u64 = 1_000_000;
/// Longest delay of an acknowledgment that the ends declare, ns.
const ACK_DELAY: u64 = 200_000;

/// One path of one direction, seen from both ends.
#[derive(Default)]
struct Path {
    // at the sender
    next: Option<u32>,
    port: Option<u16>,
    last_stamp: Option<u32>,
    /// By PSN: the bytes that may not change, and the order of every transmission.
    sent: BTreeMap<u32, (Vec<u8>, Vec<u64>)>,
    news: u32,
    reported: BTreeSet<u32>,
    reported_cum: Option<u32>,
    /// The latest transmission that may have been proved to have arrived.
    evidence: Option<u64>,
    /// What has to be sent again at once.
    owed: BTreeSet<u32>,
    /// Order of the probes by transaction.
    probes: BTreeMap<u32, u64>,
    /// A duplicate was reported after a repair: gaps may be given time (PATH-018).
    patient: bool,
    progress: u64,
    answered: bool,
    probed: bool,
    // at the receiver
    arrived: BTreeSet<u32>,
    cum: u32,
    highest: u32,
    marked: u32,
    capable: u32,
    last_marked: bool,
    /// Timestamp, RTX, stream and time of arrival.
    trigger: Option<(u32, bool, u16, u64)>,
    /// Arrival of the oldest packet not yet acknowledged.
    oldest: Option<u64>,
    due: Option<&'static str>,
    since: (u32, usize),
    duplicate: bool,
}

/// What the watcher knows of a run.
pub struct Watch {
    /// Off while an end misbehaves on purpose.
    pub on: bool,
    /// First PSN by sender.
    isn: [u32; 2],
    /// By sender and path id.
    paths: BTreeMap<(usize, u8), Path>,
    ports: BTreeMap<(usize, u16), u8>,
    order: u64,
    /// First receive not posted, as told by each end for each stream.
    limits: BTreeMap<(usize, u16), u16>,
    /// Transmissions beyond the first, by sender.
    pub repeats: [u64; 2],
    /// Of them, those that only a timeout explains.
    pub guesses: [u64; 2],
}

impl Watch {
    pub fn new() -> Self {
        Self {
            on: true,
            isn: [0; 2],
            paths: BTreeMap::new(),
            ports: BTreeMap::new(),
            order: 0,
            limits: BTreeMap::new(),
            repeats: [0; 2],
            guesses: [0; 2],
        }
    }

    fn path(&mut self, from: usize, cbh: &Cbh) -> &mut Path {
        let isn = self.isn[from];
        self.paths.entry((from, cbh.path)).or_insert_with(|| Path {
            cum: isn.wrapping_sub(1),
            highest: isn.wrapping_sub(1),
            ..Path::default()
        })
    }

    /// A packet leaves `from`.
    pub fn sent(&mut self, now: u64, from: usize, transmit: &Transmit, bytes: &[u8]) {
        let packet = parse_unsealed(bytes).unwrap();
        let cbh = packet.cbh;
        self.order += 1;
        match packet.body {
            Body::Open(open) => self.isn[from] = open.params.isn.value(),
            Body::Accept(accept) => self.isn[from] = accept.params.isn.value(),
            _ => {}
        }
        if !self.on {
            return;
        }
        let data = cbh.opcode.is_data();
        let mark = if data { Ecn::Ect0 } else { Ecn::NotEct };
        assert_eq!(transmit.ecn, mark, "ECN-001, ECN-002");
        match packet.body {
            Body::Send(_) | Body::Write(_) => self.data_sent(now, from, transmit, bytes, &packet),
            Body::Ack(ack) => self.ack_sent(now, from, &cbh, &ack.header, &Sack::EMPTY),
            Body::AckSack(ack) => self.ack_sent(now, from, &cbh, &ack.header, &ack.sack),
            Body::RqCredit(tell) if tell.kind == 1 => {
                self.limit_told(from, tell.stream, tell.rq_limit.value());
            }
            Body::PathProbe(probe) => {
                let order = self.order;
                let path = self.path(from, &cbh);
                let highest = path.next.unwrap().wrapping_sub(1);
                assert_eq!(probe.highest_psn.value(), highest, "REL-036");
                assert_eq!(path.port, Some(transmit.src_port), "PATH-004");
                path.probed = true;
                path.probes.insert(cbh.psn.value(), order);
            }
            Body::PathProbeAck(ack) => {
                let path = self.path(1 - from, &cbh);
                path.check_report(ack.cum_psn, &ack.sack);
            }
            _ => {}
        }
    }

    fn data_sent(
        &mut self,
        now: u64,
        from: usize,
        transmit: &Transmit,
        bytes: &[u8],
        packet: &Packet<'_>,
    ) {
        let cbh = packet.cbh;
        let psn = cbh.psn.value();
        let owner = *self
            .ports
            .entry((from, transmit.src_port))
            .or_insert(cbh.path);
        assert_eq!(owner, cbh.path, "PATH-002");
        let (order, isn) = (self.order, self.isn[from]);
        let path = self.path(from, &cbh);
        assert!(
            path.port.is_none_or(|port| port == transmit.src_port),
            "PATH-003"
        );
        path.port = Some(transmit.src_port);
        let later = path
            .last_stamp
            .is_none_or(|last| Psn::new(last).precedes(Psn::new(cbh.timestamp)));
        // A pause of half the number space or more leaves nothing to compare.
        assert!(later || now - path.progress > 2_000 * MS, "PKT-017");
        path.last_stamp = Some(cbh.timestamp);
        let mut fixed = bytes.to_vec();
        fixed[2] = 0;
        fixed[12..16].fill(0);
        let end = fixed.len() - 4;
        fixed[end..].fill(0);
        let repeated = cbh.flags.has(Flags::RTX);
        if let Some((first, transmissions)) = path.sent.get_mut(&psn) {
            assert!(repeated, "REL-028");
            assert!(*first == fixed, "REL-027");
            assert!(!path.reported.contains(&psn), "REL-030");
            let latest = *transmissions.last().unwrap();
            let proved = path.evidence.is_some_and(|evidence| latest < evidence);
            assert!(
                proved || now - path.progress >= 10 * MS || path.probed,
                "REL-032, REL-033: psn {psn:#x}"
            );
            transmissions.push(order);
            path.owed.remove(&psn);
            self.repeats[from] += 1;
            self.guesses[from] += u64::from(!proved);
        } else {
            assert!(!repeated, "REL-029");
            assert_eq!(psn, path.next.unwrap_or(isn), "REL-001, REL-002");
            let cum = path.reported_cum.unwrap_or(isn.wrapping_sub(1));
            assert!(psn.wrapping_sub(cum) <= 256, "REL-003");
            path.news += 1;
            assert!(path.answered || path.news <= 16, "PATH-010");
            path.next = Some(psn.wrapping_add(1));
            path.sent.insert(psn, (fixed, vec![order]));
        }
        self.path(from, &cbh).progress = now;
    }

    fn limit_told(&mut self, from: usize, stream: u16, limit: u16) {
        let known = self.limits.entry((from, stream)).or_insert(limit);
        assert!(limit.wrapping_sub(*known) < 0x8000, "STRM-031");
        *known = limit;
    }

    fn ack_sent(&mut self, now: u64, from: usize, cbh: &Cbh, header: &AckHeader, sack: &Sack) {
        self.limit_told(from, header.stream, header.rq_limit.value());
        let path = self.path(1 - from, cbh);
        path.check_report(cbh.psn, sack);
        let (stamp, rtx, stream, arrived) = path.trigger.unwrap();
        let held = (now - arrived) / 64;
        assert_eq!(u64::from(header.ack_delay), held, "REL-023");
        path.check_age(now);
        path.oldest = None;
        assert_eq!(header.timestamp_echo, stamp, "REL-022");
        assert_eq!(cbh.flags.has(Flags::RTXE), rtx, "REL-024");
        assert_eq!(header.stream, stream, "REL-025");
        assert_eq!(header.ce_count, path.marked, "ECN-003, ECN-005, ECN-006");
        assert_eq!(header.ect_count, path.capable, "ECN-004, ECN-005, ECN-007");
        let duplicate = AckFlags(header.ack_flags).has(AckFlags::DUPLICATE_SEEN);
        assert_eq!(duplicate, path.duplicate, "REL-020, REL-021");
        path.duplicate = false;
        path.due = None;
        path.since = (0, 0);
    }

    /// A packet is about to be handed to `to`.
    pub fn delivered(&mut self, now: u64, to: usize, ecn: Ecn, bytes: &[u8]) {
        if !self.on {
            return;
        }
        let packet = parse_unsealed(bytes).unwrap();
        let cbh = packet.cbh;
        match packet.body {
            Body::Send(_) | Body::Write(_) => self.data_delivered(now, to, ecn, &packet),
            Body::Ack(ack) => {
                let path = self.path(to, &cbh);
                path.told(now, cbh.psn, &Sack::EMPTY);
                path.allow(&ack.header);
            }
            Body::AckSack(ack) => {
                let path = self.path(to, &cbh);
                path.told(now, cbh.psn, &ack.sack);
                path.allow(&ack.header);
            }
            Body::PathProbeAck(ack) => {
                let path = self.path(to, &cbh);
                path.told(now, ack.cum_psn, &ack.sack);
                // The probe was sent after all that its answer lacks.
                path.probed = true;
                let probe = path.probes.get(&cbh.psn.value()).copied();
                path.owe(probe);
            }
            _ => {}
        }
    }

    fn data_delivered(&mut self, now: u64, to: usize, ecn: Ecn, packet: &Packet<'_>) {
        let cbh = &packet.cbh;
        let psn = cbh.psn.value();
        let payload = packet.body.payload().unwrap().len();
        let (stream, mflags) = match packet.body {
            Body::Send(send) => (send.msgh.stream, send.msgh.mflags),
            Body::Write(write) => (write.msgh.stream, write.msgh.mflags),
            _ => unreachable!(),
        };
        let path = self.path(1 - to, cbh);
        path.trigger = Some((cbh.timestamp, cbh.flags.has(Flags::RTX), stream, now));
        path.oldest.get_or_insert(now);
        if !path.arrived.insert(psn) {
            path.duplicate = true;
            path.due = Some("REL-018");
            return;
        }
        let ahead = psn.wrapping_sub(path.highest);
        if (1..0x8000_0000).contains(&ahead) {
            if ahead > 1 {
                path.due = Some("REL-017");
            }
            path.highest = psn;
        }
        while path.arrived.contains(&path.cum.wrapping_add(1)) {
            path.cum = path.cum.wrapping_add(1);
        }
        match ecn {
            Ecn::Ce => path.marked += 1,
            Ecn::Ect0 | Ecn::Ect1 => path.capable += 1,
            Ecn::NotEct => {}
        }
        if (ecn == Ecn::Ce) != path.last_marked {
            path.due = Some("ECN-009");
        }
        path.last_marked = ecn == Ecn::Ce;
        path.since = (path.since.0 + 1, path.since.1 + payload);
        if path.since.0 >= 8 || path.since.1 >= 16_384 {
            path.due = Some("REL-016, REL-047");
        }
        if cbh.flags.has(Flags::AR) || mflags.has(MFlags::EOM) {
            path.due = Some("REL-014, REL-015");
        }
    }

    /// Everything that `end` had to send has been taken.
    pub fn drained(&mut self, now: u64, end: usize) {
        if !self.on {
            return;
        }
        for ((from, id), path) in &mut self.paths {
            if *from == end {
                let owed = &path.owed;
                assert!(
                    owed.is_empty() || path.patient,
                    "REL-031, REL-034, REL-040: {owed:x?} of path {id}"
                );
            }
            if *from == 1 - end {
                let due = path.due.take();
                assert!(due.is_none(), "no acknowledgment of path {id}: {due:?}");
                path.check_age(now);
            }
        }
    }
}

impl Path {
    fn check_age(&self, now: u64) {
        let age = self.oldest.map_or(0, |oldest| now - oldest);
        assert!(age <= ACK_DELAY, "REL-019: {age}");
    }

    /// What the receiver says must be exactly what has arrived.
    fn check_report(&self, cum: Psn, sack: &Sack) {
        assert_eq!(cum.value(), self.cum, "REL-007, REL-013");
        for i in 0..Sack::BITS {
            let psn = self.cum.wrapping_add(1 + i);
            assert_eq!(
                sack.bit(i),
                self.arrived.contains(&psn),
                "REL-008, REL-010: psn {psn:#x}"
            );
        }
    }

    /// The sender learns what has arrived.
    fn told(&mut self, now: u64, cum: Psn, sack: &Sack) {
        self.answered = true;
        self.progress = now;
        self.probed = false;
        let mut proved = None;
        let known = self.reported_cum.map(Psn::new);
        if known.is_none_or(|known| known.precedes(cum)) {
            self.reported_cum = Some(cum.value());
        }
        for (psn, (_, transmissions)) in &self.sent {
            let psn = Psn::new(*psn);
            if psn.precedes_or_is(cum) || sack.contains(cum, psn) {
                // Which transmission arrived is not known: the last may have, the first is the least that did.
                if self.reported.insert(psn.value()) {
                    proved = proved.max(transmissions.first().copied());
                }
                self.owed.remove(&psn.value());
                self.evidence = self.evidence.max(transmissions.last().copied());
            }
        }
        self.owe(proved);
    }

    fn allow(&mut self, header: &AckHeader) {
        let seen = AckFlags(header.ack_flags).has(AckFlags::DUPLICATE_SEEN);
        let repaired = self.sent.values().any(|(_, sent)| sent.len() > 1);
        self.patient |= seen && repaired;
    }

    /// Everything unreported that was last sent before `proved` has to be sent again.
    fn owe(&mut self, proved: Option<u64>) {
        for (psn, (_, transmissions)) in &self.sent {
            let latest = transmissions.last().copied();
            // After eight transmissions a repair waits (REL-060).
            let prompt = transmissions.len() < 8;
            if proved.is_some() && latest < proved && !self.reported.contains(psn) && prompt {
                self.owed.insert(*psn);
            }
        }
    }
}
