//! One path on which the judged side receives: what was delivered, and what it has reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{AckFlags, AckHeader, Sack};
use metaroce_wire::serial::Psn;

use super::sighting::{AckSent, AnswerSent};

/// Arrivals of a path that are remembered one by one.
const REMEMBERED: usize = 2048;
/// Positions behind the cumulative one whose arrival is remembered.
const BEHIND: i64 = 1024;
/// PSNs past the cumulative one that are inside the window.
pub const WINDOW: i64 = Sack::BITS as i64;
/// PSNs that a finding names before it stops.
const NAMED: usize = 4;

/// Place of a PSN on its path: 0 for the ISN, negative before it.
pub fn position(isn: Psn, psn: Psn) -> i64 {
    i64::from(psn.distance_from(isn) as i32)
}

/// The PSN at a place of its path.
pub fn psn_at(isn: Psn, position: i64) -> Psn {
    // The low 32 bits are what stands on the wire.
    isn.add(position as u32)
}

/// A data packet that reached the judged side undamaged, on a path and stream that exist, inside the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the arrival on its path, from 1.
    pub seq: u64,
    /// Frame.
    pub frame: u64,
    /// When, ns.
    pub time: u64,
    /// Path.
    pub path: u8,
    /// PSN.
    pub psn: Psn,
    /// Whether the PSN had arrived before.
    pub duplicate: bool,
    /// Whether the receiver may have refused it for what it means.
    pub doubtful: bool,
    /// Whether the connection was coming to its end.
    pub ending: bool,
    /// Timestamp of the packet.
    pub timestamp: u32,
    /// Congestion mark with which it arrived.
    pub ecn: Ecn,
    /// RTX.
    pub rtx: bool,
    /// AR.
    pub ar: bool,
    /// Whether it ends its message.
    pub eom: bool,
    /// Stream.
    pub stream: u16,
    /// Position of the message in its stream.
    pub message: u64,
    /// Whether packets of earlier messages of the stream were missing.
    pub early: bool,
    /// UDP source port.
    pub port: u16,
    /// Whether that port differs from the one with which the path began.
    pub other_port: bool,
    /// Whether it lies past the highest arrival and not right behind it.
    pub opens_gap: bool,
    /// Whether its mark, CE or not, differs from that of the first arrival before it.
    pub mark_changed: bool,
    /// First arrivals since the latest acknowledgment for the path, this one included.
    pub since_ack: u32,
    /// Their payload, bytes.
    pub bytes_since_ack: u64,
    /// Place up to which all had arrived then, without doubt.
    pub cumulative: i64,
    /// Highest place that had arrived then, without doubt.
    pub highest: i64,
    /// First arrivals so far, by mark.
    pub counts: Counts,
}

/// First arrivals and duplicates of a path so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// First arrivals marked CE.
    pub ce: u32,
    /// First arrivals marked ECT(0) or ECT(1).
    pub ect: u32,
    /// First arrivals that were Not-ECT.
    pub not_ect: u32,
    /// First arrivals with RTX, marked CE.
    pub rtx_ce: u32,
    /// First arrivals with RTX, marked ECT.
    pub rtx_ect: u32,
    /// Duplicates marked CE.
    pub duplicate_ce: u32,
    /// Duplicates marked ECT.
    pub duplicate_ect: u32,
    /// Whether all of these are sure.
    pub unsure: bool,
}

/// An acknowledgment that the judged side has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckRecord {
    /// Frame.
    pub frame: u64,
    /// When, ns.
    pub time: u64,
    /// Cumulative place.
    pub cumulative: i64,
    /// CE_Count.
    pub ce: u32,
    /// ECT_Count.
    pub ect: u32,
}

/// A path of the peer's data.
#[derive(Debug, Clone)]
pub struct InPath {
    /// First PSN.
    pub isn: Psn,
    /// Place up to which all has arrived, doubtful packets included.
    pub cumulative: i64,
    arrived: BTreeMap<i64, u64>,
    doubtful: BTreeSet<i64>,
    arrivals: VecDeque<Arrival>,
    seq: u64,
    highest: i64,
    last_was_ce: Option<bool>,
    first_port: Option<u16>,
    counts: Counts,
    since_ack: (u32, u64),
    reported: BTreeSet<i64>,
    last_ack: Option<AckRecord>,
}

/// What an arriving packet brings, besides what the path itself knows.
pub(super) struct Incoming {
    pub frame: u64,
    pub time: u64,
    pub path: u8,
    pub psn: Psn,
    pub doubtful: bool,
    pub ending: bool,
    pub timestamp: u32,
    pub ecn: Ecn,
    pub rtx: bool,
    pub ar: bool,
    pub eom: bool,
    pub stream: u16,
    pub message: u64,
    pub early: bool,
    pub port: u16,
    pub payload: usize,
}

impl InPath {
    pub(super) fn new(isn: Psn) -> Self {
        Self {
            isn,
            cumulative: -1,
            arrived: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            arrivals: VecDeque::new(),
            seq: 0,
            highest: -1,
            last_was_ce: None,
            first_port: None,
            counts: Counts::default(),
            since_ack: (0, 0),
            reported: BTreeSet::new(),
            last_ack: None,
        }
    }

    /// Whether a PSN has arrived, without a doubt or with one.
    pub fn has(&self, position: i64) -> bool {
        position <= self.cumulative || self.arrived.contains_key(&position)
    }

    /// Whether a PSN is past the window.
    pub fn is_past_window(&self, psn: Psn) -> bool {
        position(self.isn, psn) > self.cumulative + WINDOW
    }

    /// The latest arrival.
    pub fn latest(&self) -> Option<&Arrival> {
        self.arrivals.back()
    }

    /// The latest acknowledgment for the path.
    pub fn last_ack(&self) -> Option<&AckRecord> {
        self.last_ack.as_ref()
    }

    /// Whether any acknowledgment has reported the place beyond its cumulative PSN.
    pub fn was_reported(&self, position: i64) -> bool {
        self.reported.contains(&position)
            || self.last_ack.is_some_and(|ack| ack.cumulative >= position)
    }

    pub(super) fn take(&mut self, packet: &Incoming) -> Arrival {
        let at = position(self.isn, packet.psn);
        let known = self.has(at);
        // A doubtful packet that comes again without doubt is a first arrival if the first was refused: still in doubt.
        let clears = self.doubtful.contains(&at) && !packet.doubtful;
        let duplicate = known && !clears;
        let unsure = packet.doubtful || clears;
        self.seq += 1;
        let opens_gap = !known && at > self.highest + 1;
        let ce = packet.ecn == Ecn::Ce;
        let mark_changed = !known && self.last_was_ce.unwrap_or(false) != ce;
        self.counts.unsure |= unsure;
        if known {
            match packet.ecn {
                Ecn::Ce => self.counts.duplicate_ce += 1,
                Ecn::Ect0 | Ecn::Ect1 => self.counts.duplicate_ect += 1,
                Ecn::NotEct => {}
            }
        } else {
            self.count_first(packet);
            self.last_was_ce = Some(ce);
            self.highest = self.highest.max(at);
            self.arrived.insert(at, self.seq);
            while self.arrived.contains_key(&(self.cumulative + 1)) {
                self.cumulative += 1;
            }
            let keep = self.cumulative - BEHIND;
            while let Some((&oldest, _)) = self.arrived.first_key_value() {
                if oldest >= keep {
                    break;
                }
                self.arrived.pop_first();
            }
        }
        if packet.doubtful && !known {
            self.doubtful.insert(at);
        } else if clears {
            self.doubtful.remove(&at);
            self.arrived.insert(at, self.seq);
        }
        let sure = self.doubtful.first().map_or(i64::MAX, |first| first - 1);
        let other_port = *self.first_port.get_or_insert(packet.port) != packet.port;
        let arrival = Arrival {
            seq: self.seq,
            frame: packet.frame,
            time: packet.time,
            path: packet.path,
            psn: packet.psn,
            duplicate,
            doubtful: unsure,
            ending: packet.ending,
            timestamp: packet.timestamp,
            ecn: packet.ecn,
            rtx: packet.rtx,
            ar: packet.ar,
            eom: packet.eom,
            stream: packet.stream,
            message: packet.message,
            early: packet.early,
            port: packet.port,
            other_port,
            opens_gap,
            mark_changed,
            since_ack: self.since_ack.0,
            bytes_since_ack: self.since_ack.1,
            cumulative: self.cumulative.min(sure),
            highest: self.highest.min(sure),
            counts: self.counts,
        };
        if self.arrivals.len() >= REMEMBERED {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(arrival);
        arrival
    }

    fn count_first(&mut self, packet: &Incoming) {
        let rtx = u32::from(packet.rtx);
        match packet.ecn {
            Ecn::Ce => {
                self.counts.ce += 1;
                self.counts.rtx_ce += rtx;
            }
            Ecn::Ect0 | Ecn::Ect1 => {
                self.counts.ect += 1;
                self.counts.rtx_ect += rtx;
            }
            Ecn::NotEct => self.counts.not_ect += 1,
        }
        self.since_ack.0 += 1;
        self.since_ack.1 += packet.payload as u64;
    }

    /// Relates an acknowledgment that the judged side sends to what has arrived, and notes it.
    pub(super) fn acknowledge(
        &mut self,
        (frame, time, path): (u64, u64, u8),
        allowance: u64,
        cum: Psn,
        header: AckHeader,
        sack: Option<Sack>,
    ) -> AckSent {
        let claimed = position(self.isn, cum);
        let due = self.definite(time, allowance);
        // Where time is exact, every arrival is known. Elsewhere, whoever is behind with its work speaks of an earlier arrival. That is late, and judged as such, but no lie as long
        // as nothing later shows in it.
        let behind = due.filter(|_| allowance > 0);
        let behind = behind.and_then(|due| self.behind(&header, claimed, sack.as_ref(), due));
        let definite = behind.or(due);
        let after = definite.map_or(0, |arrival| arrival.seq);
        let triggers: Vec<Arrival> = self
            .arrivals
            .iter()
            .rev()
            .take_while(|arrival| arrival.seq >= after)
            .filter(|arrival| arrival.timestamp == header.timestamp_echo)
            .copied()
            .collect();
        let earliest = triggers.last().copied();
        let (false_below, false_bits) = self.false_reports(claimed, sack.as_ref());
        let must = earliest.or(definite);
        let omitted = self.omitted(claimed, sack.as_ref(), must.as_ref());
        let withdrawn = match &sack {
            None => Vec::new(),
            Some(sack) => self
                .reported
                .range(claimed + 1..)
                .filter(|&&at| !has_bit(sack, claimed, at))
                .take(NAMED)
                .map(|&at| psn_at(self.isn, at))
                .collect(),
        };
        let sent = AckSent {
            path,
            isn: self.isn,
            cumulative: claimed,
            sack,
            header,
            duplicate_flag: AckFlags(header.ack_flags).has(AckFlags::DUPLICATE_SEEN),
            out_of_window_flag: AckFlags(header.ack_flags).has(AckFlags::OUT_OF_WINDOW_SEEN),
            definite,
            latest: self.latest().copied(),
            triggers,
            false_below,
            false_bits,
            omitted,
            withdrawn,
            previous: self.last_ack,
        };
        self.note_ack(frame, time, &sent);
        sent
    }

    fn note_ack(&mut self, frame: u64, time: u64, ack: &AckSent) {
        let highest = self.last_ack.map_or(i64::MIN, |last| last.cumulative);
        let cumulative = ack.cumulative.max(highest);
        self.last_ack = Some(AckRecord {
            frame,
            time,
            cumulative,
            ce: ack.header.ce_count,
            ect: ack.header.ect_count,
        });
        self.since_ack = (0, 0);
        if let Some(sack) = &ack.sack {
            for bit in sack.ones() {
                let at = ack.cumulative + 1 + i64::from(bit);
                if self.has(at) {
                    self.reported.insert(at);
                }
            }
        }
        while self.reported.first().is_some_and(|&at| at <= cumulative) {
            self.reported.pop_first();
        }
    }

    /// Relates the answer to a probe to what has arrived.
    pub(super) fn answer(
        &self,
        path: u8,
        before: Option<Arrival>,
        cum: Psn,
        sack: &Sack,
    ) -> AnswerSent {
        let claimed = position(self.isn, cum);
        let (mut falsely, false_bits) = self.false_reports(claimed, Some(sack));
        falsely.extend(false_bits);
        AnswerSent {
            path,
            falsely,
            omitted: self.omitted(claimed, Some(sack), before.as_ref()),
        }
    }

    /// The latest arrival of which something sent at `time` must know. In simulated time, without any allowance, that is
    /// the latest at the tap: nothing is under way between tap and receiver.
    pub fn definite(&self, time: u64, allowance: u64) -> Option<Arrival> {
        if allowance == 0 {
            return self.latest().copied();
        }
        let mut arrivals = self.arrivals.iter().rev();
        let known = |arrival: &&Arrival| arrival.time.saturating_add(allowance) < time;
        arrivals.find(known).copied()
    }

    /// Takes it that a packet counts as arrived to the receiver although it should not: charged once, it is in doubt from
    /// then on.
    pub(super) fn concede(&mut self, psn: Psn) {
        let at = position(self.isn, psn);
        if self.has(at) {
            return;
        }
        self.seq += 1;
        self.counts.unsure = true;
        self.highest = self.highest.max(at);
        self.arrived.insert(at, self.seq);
        self.doubtful.insert(at);
        while self.arrived.contains_key(&(self.cumulative + 1)) {
            self.cumulative += 1;
        }
    }

    fn false_reports(&self, claimed: i64, sack: Option<&Sack>) -> (Vec<Psn>, Vec<Psn>) {
        let below = (self.cumulative + 1..=claimed).filter(|at| !self.has(*at));
        let bits = sack.into_iter().flat_map(Sack::ones).filter_map(|bit| {
            let at = claimed + 1 + i64::from(bit);
            (!self.has(at)).then(|| psn_at(self.isn, at))
        });
        let below = below.take(WINDOW as usize).map(|at| psn_at(self.isn, at));
        (below.collect(), bits.collect())
    }

    /// The arrival before `due` that an acknowledgment echoes, if it reports nothing that came after it.
    fn behind(
        &self,
        header: &AckHeader,
        claimed: i64,
        sack: Option<&Sack>,
        due: Arrival,
    ) -> Option<Arrival> {
        let mut latest_first = self.arrivals.iter().rev();
        let echoed = latest_first.find(|arrival| arrival.timestamp == header.timestamp_echo)?;
        if echoed.seq >= due.seq {
            return None;
        }
        let shows = |arrival: &Arrival| {
            let at = position(self.isn, arrival.psn);
            at <= claimed || sack.is_some_and(|sack| has_bit(sack, claimed, at))
        };
        let mut later = self
            .arrivals
            .iter()
            .rev()
            .take_while(|arrival| arrival.seq > echoed.seq);
        let ahead = later.any(|arrival| !arrival.duplicate && shows(arrival));
        (!ahead).then_some(*echoed)
    }

    /// What had arrived up to `trigger` and is not in a report.
    fn omitted(&self, claimed: i64, sack: Option<&Sack>, trigger: Option<&Arrival>) -> Vec<Psn> {
        let Some(trigger) = trigger else {
            return Vec::new();
        };
        let covered =
            |at: i64| at <= claimed || sack.is_some_and(|sack| has_bit(sack, claimed, at));
        let solid = claimed + 1..=trigger.cumulative;
        let beyond = self
            .arrived
            .range(trigger.cumulative.max(claimed) + 1..)
            .filter(|(at, seq)| **seq <= trigger.seq && !self.doubtful.contains(at))
            .map(|(at, _)| *at);
        // Of a long solid run the first few tell enough.
        solid
            .take(NAMED + Sack::BITS as usize)
            .chain(beyond)
            .filter(|at| !covered(*at) && !self.doubtful.contains(at))
            .take(NAMED)
            .map(|at| psn_at(self.isn, at))
            .collect()
    }
}

fn has_bit(sack: &Sack, cumulative: i64, at: i64) -> bool {
    u32::try_from(at - cumulative - 1).is_ok_and(|bit| sack.bit(bit))
}
