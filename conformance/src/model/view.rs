//! The state of one connection as its judged side must see it: built from what that side sent and what was delivered
//! to it, in the order of its own tap.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{AckFlags, AckHeader, Body, Cbh, Flags, Msgh, Opcode, Params, Sack};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::Sighting;

/// Packets remembered past the window behind the newest, per path.
const KEPT: u32 = 2048;

/// Why a delivered data packet must not be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bad {
    /// Its trailer is wrong.
    Crc,
    /// Another version.
    Version,
    /// Malformed.
    Malformed,
    /// A path or an epoch that is not there.
    Path,
    /// A stream that is not open.
    Stream,
    /// A connection id that is not this one's.
    Dcid,
    /// Beyond the window.
    OutOfWindow,
}

/// What a sound data packet is to its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It comes for the first time.
    New,
    /// It has come before.
    Duplicate,
    /// It must be dropped.
    Bad(Bad),
}

/// A data packet that the judged side has sent.
#[derive(Debug, Clone)]
pub struct TxPacket {
    /// The frame of its latest transmission.
    pub frame: u64,
    /// Time of the latest transmission, ns.
    pub time: u64,
    /// Timestamp of the latest transmission.
    pub stamp: u32,
    /// Transmissions so far.
    pub count: u32,
    /// The bytes of the first one without flags, timestamp and trailer.
    pub image: Vec<u8>,
    /// Stream and message.
    pub message: (u16, Msn),
    /// When it was first reported to have arrived, ns.
    pub acked: Option<u64>,
    /// When, and by which frame, it was first shown to be lost since its latest transmission.
    pub lost: Option<(u64, u64)>,
}

/// A path that the judged side sends on.
#[derive(Debug, Clone)]
pub struct TxView {
    /// Its packets by distance from the first PSN.
    pub packets: BTreeMap<u32, TxPacket>,
    /// PSN that the next new packet must bear.
    pub next: Psn,
    /// Highest cumulative PSN reported.
    pub cum: Psn,
    /// Whether anything was ever acknowledged.
    pub acked: bool,
    /// New packets sent.
    pub sent: u64,
    /// Source port of the latest new packet.
    pub port: u16,
    /// Timestamp of the latest data packet.
    pub stamp: Option<u32>,
    /// Latest transmission or report, ns.
    pub progress: u64,
    /// Whether a probe was sent since the latest report.
    pub probed: bool,
    /// When the latest probe was sent, ns.
    pub probe_at: Option<u64>,
    /// When the latest report came, ns.
    pub report_at: Option<u64>,
}

/// A data packet that has arrived, and what had arrived up to it.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// Its number on the path.
    pub number: u64,
    /// Its timestamp.
    pub stamp: u32,
    /// Whether it was marked as a retransmission.
    pub rtx: bool,
    /// Its stream.
    pub stream: u16,
    /// Duplicates so far, this one included.
    pub duplicates: u64,
    /// Cumulative PSN and vector.
    pub state: (Psn, Sack),
    /// First arrivals marked CE, and ECT.
    pub counts: (u32, u32),
}

/// Arrivals that are remembered, per path.
const ARRIVALS: usize = 1024;

/// A path that the judged side receives on.
#[derive(Debug, Clone)]
pub struct RxView {
    /// First PSN.
    pub isn: Psn,
    /// Everything up to it has arrived.
    pub cum: Psn,
    /// Distances from the first PSN, of what has arrived beyond `cum`.
    pub beyond: BTreeSet<u32>,
    /// First arrivals marked CE.
    pub ce: u32,
    /// First arrivals marked ECT.
    pub ect: u32,
    /// The latest arrivals, duplicates included, and what had arrived with each: an acknowledgment echoes the one it
    /// follows, which on a real link need not be the last that the tap has seen.
    pub arrivals: VecDeque<Arrived>,
    /// Number of the next arrival.
    pub next_arrival: u64,
    /// Number of the arrival that the latest acknowledgment followed.
    pub told_arrival: Option<u64>,
    /// Whether no other arrival bears the same timestamp.
    pub told_surely: bool,
    /// First arrivals since the latest acknowledgment.
    pub unacked: u32,
    /// Whether the latest first arrival was marked CE.
    pub last_ce: bool,
    /// Highest PSN that has arrived.
    pub highest: Psn,
    /// What the latest acknowledgment said: cumulative PSN, vector, counts.
    pub told: Option<(Psn, Sack, AckHeader)>,
    /// Number of the arrival that would have followed a packet beyond the window of which no acknowledgment has told.
    pub out_of_window: Option<u64>,
    /// Packets that must not be acknowledged, by PSN: why, and which frame.
    pub bad: BTreeMap<u32, (Bad, u64)>,
}

impl RxView {
    fn new(isn: Psn) -> Self {
        Self {
            isn,
            cum: isn.sub(1),
            beyond: BTreeSet::new(),
            ce: 0,
            ect: 0,
            arrivals: VecDeque::new(),
            next_arrival: 0,
            told_arrival: None,
            told_surely: true,
            unacked: 0,
            last_ce: false,
            highest: isn.sub(1),
            told: None,
            out_of_window: None,
            bad: BTreeMap::new(),
        }
    }

    /// Whether `psn` has arrived.
    pub fn has(&self, psn: Psn) -> bool {
        psn.precedes_or_is(self.cum) || self.beyond.contains(&psn.distance_from(self.isn))
    }

    /// Whether something beyond a gap has arrived.
    pub fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// The arrivals whose timestamp an acknowledgment echoes: more than one where the link has doubled a packet.
    pub fn triggers(&self, echo: u32) -> impl Iterator<Item = &Arrived> {
        self.arrivals
            .iter()
            .filter(move |arrival| arrival.stamp == echo)
    }

    /// Duplicates up to the arrival that the latest acknowledgment followed.
    pub fn told_duplicates(&self) -> u64 {
        let told = self
            .told_arrival
            .and_then(|number| self.arrivals.iter().rev().find(|a| a.number == number));
        told.map_or(0, |arrival| arrival.duplicates)
    }

    fn arrived(&mut self, cbh: &Cbh, stream: u16, duplicate: bool) {
        let mut sack = Sack::EMPTY;
        for at in &self.beyond {
            if let Some(bit) = self.isn.add(*at).distance_from(self.cum).checked_sub(1) {
                sack.set(bit);
            }
        }
        let before = self.arrivals.back().map_or(0, |arrival| arrival.duplicates);
        if self.arrivals.len() == ARRIVALS {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(Arrived {
            number: self.next_arrival,
            stamp: cbh.timestamp,
            rtx: cbh.flags.has(Flags::RTX),
            stream,
            duplicates: before + u64::from(duplicate),
            state: (self.cum, sack),
            counts: (self.ce, self.ect),
        });
        self.next_arrival += 1;
    }

    fn take(&mut self, psn: Psn, ecn: Ecn) {
        self.beyond.insert(psn.distance_from(self.isn));
        self.bad.remove(&psn.value());
        while self.beyond.remove(&self.cum.add(1).distance_from(self.isn)) {
            self.cum = self.cum.add(1);
        }
        if self.highest.precedes(psn) {
            self.highest = psn;
        }
        match ecn {
            Ecn::Ce => self.ce = self.ce.wrapping_add(1),
            Ecn::Ect0 | Ecn::Ect1 => self.ect = self.ect.wrapping_add(1),
            Ecn::NotEct => {}
        }
        self.last_ce = ecn == Ecn::Ce;
        self.unacked += 1;
    }
}

/// A message that the judged side sends.
#[derive(Debug, Clone)]
pub struct MessageView {
    /// Opcode, RQSN, length, address and key, as in its first packet.
    pub head: (Opcode, u16, u32, u64, u32),
    /// Offsets sent.
    pub offsets: BTreeSet<u32>,
    /// Packets not yet reported.
    pub unacked: BTreeSet<(u8, u32)>,
    /// When the last packet was reported, ns; 0 while some are missing.
    pub complete_at: u64,
}

/// A stream of the connection.
#[derive(Debug, Clone)]
pub struct StreamView {
    /// Whether it is open.
    pub open: bool,
    /// First MSN and RQSN.
    pub first: (Msn, Rqsn),
    /// MSN and RQSN that the next message must bear.
    pub next: (Msn, Rqsn),
    /// First RQSN that the peer has not posted, as reported to the judged side.
    pub credit: Rqsn,
    /// Messages of the judged side by distance from the first MSN.
    pub messages: BTreeMap<u32, MessageView>,
    /// Messages below this distance are complete.
    pub lowest: u32,
}

/// A control packet that the judged side has sent.
#[derive(Debug, Clone)]
pub struct Control {
    /// Opcode.
    pub opcode: Opcode,
    /// Body.
    pub body: Vec<u8>,
    /// When it was last sent, ns.
    pub time: u64,
    /// Pause before that, ns; 0 the first time.
    pub pause: u64,
    /// Times sent.
    pub count: u32,
}

/// Everything known of the connection of a judged side.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Whether the judged side is the initiator.
    pub initiator: bool,
    /// Parameters that the judged side has sent.
    pub mine: Option<Params>,
    /// Parameters that it was sent.
    pub theirs: Option<Params>,
    /// Cookie that it was sent.
    pub cookie: Option<[u8; 32]>,
    /// Connection ids that its peer has named.
    pub peer_ids: BTreeSet<u32>,
    /// OPEN packets delivered to it: transaction id, parameters, length.
    pub opens: BTreeMap<u32, (Params, usize)>,
    /// Whether CONFIRM_ACK has passed.
    pub confirmed: bool,
    /// Whether it has sent CLOSE, or CLOSE_ACK.
    pub closed: [bool; 2],
    /// Whether either side has closed.
    pub closing: bool,
    /// Requests sent, by transaction id.
    pub requests: BTreeMap<u32, Control>,
    /// Streams.
    pub streams: BTreeMap<u16, StreamView>,
    /// Paths sent on.
    pub tx: BTreeMap<u8, TxView>,
    /// Paths received on.
    pub rx: BTreeMap<u8, RxView>,
    /// What the latest packet has shown to be lost: path, PSN, time and frame.
    pub newly_lost: Vec<(u8, u32, u64, u64)>,
}

impl View {
    /// The values agreed on: those of ACCEPT.
    pub fn agreed(&self) -> Option<&Params> {
        if self.initiator {
            self.theirs.as_ref()
        } else {
            self.mine.as_ref()
        }
    }

    /// What a data packet delivered to the judged side is to it.
    pub fn arrival(&self, s: &Sighting<'_>) -> Option<Arrival> {
        let cbh = s.cbh()?;
        if s.sent || !cbh.opcode.is_data() {
            return None;
        }
        let bad = |bad| Some(Arrival::Bad(bad));
        if !s.crc_ok {
            return bad(Bad::Crc);
        }
        if cbh.version != 1 {
            return bad(Bad::Version);
        }
        let (Some((msgh, _)), true) = (s.data(), s.is_sound()) else {
            return bad(Bad::Malformed);
        };
        if self.mine.is_some_and(|mine| mine.scid != cbh.dcid) {
            return bad(Bad::Dcid);
        }
        let paths = self.agreed().map_or(256, |agreed| agreed.paths);
        if u16::from(cbh.path) >= paths || cbh.epoch != 0 {
            return bad(Bad::Path);
        }
        if !self
            .streams
            .get(&msgh.stream)
            .is_some_and(|stream| stream.open)
        {
            return bad(Bad::Stream);
        }
        let isn = self.theirs.map_or(cbh.psn, |theirs| theirs.isn);
        let (cum, seen) = match self.rx.get(&cbh.path) {
            Some(rx) => (rx.cum, rx.has(cbh.psn)),
            None => (isn.sub(1), cbh.psn.precedes(isn)),
        };
        if seen {
            return Some(Arrival::Duplicate);
        }
        if cbh.psn.distance_from(cum) > Sack::BITS {
            bad(Bad::OutOfWindow)
        } else {
            Some(Arrival::New)
        }
    }

    /// The earlier transmission of a data packet that the judged side sends.
    pub fn earlier(&self, cbh: &Cbh) -> Option<&TxPacket> {
        let isn = self.mine?.isn;
        self.tx
            .get(&cbh.path)?
            .packets
            .get(&cbh.psn.distance_from(isn))
    }

    /// Notes a sighting; monitors have seen it before.
    pub fn update(&mut self, s: &Sighting<'_>) {
        self.newly_lost.clear();
        if s.sent {
            self.sent(s)
        } else {
            self.delivered(s)
        }
    }

    fn sent(&mut self, s: &Sighting<'_>) {
        let (Some(cbh), Some(body)) = (s.lax.cbh, s.lax.body) else {
            return;
        };
        match body {
            Body::Open(open) => {
                self.initiator = true;
                self.mine = Some(open.params);
            }
            Body::Accept(accept) => self.mine = Some(accept.params),
            Body::ConfirmAck(_) => self.confirmed = true,
            Body::Close(_) => (self.closed[0], self.closing) = (true, true),
            Body::CloseAck(_) => self.closed[1] = true,
            Body::StreamOpenAck(ack) if ack.status == 0 => {
                self.open_stream(ack.stream, ack.first_msn, ack.first_rqsn, true)
            }
            Body::StreamOpen(open) => {
                self.open_stream(open.stream, open.first_msn, open.first_rqsn, false)
            }
            Body::PathProbe(_) => {
                if let Some(tx) = self.tx.get_mut(&cbh.path) {
                    tx.probed = true;
                    tx.probe_at = Some(s.time);
                }
            }
            Body::Ack(ack) => self.told(&cbh, ack.header, Sack::EMPTY),
            Body::AckSack(ack) => self.told(&cbh, ack.header, ack.sack),
            Body::Send(_) | Body::Write(_) => self.sent_data(s, &cbh),
            _ => {}
        }
        if is_request(&body) {
            let image = control_image(s.bytes);
            let request = self.requests.entry(cbh.psn.value()).or_insert(Control {
                opcode: cbh.opcode,
                body: image,
                time: s.time,
                pause: 0,
                count: 0,
            });
            if request.count > 0 {
                request.pause = s.time - request.time;
            }
            request.time = s.time;
            request.count += 1;
        }
    }

    fn told(&mut self, cbh: &Cbh, header: AckHeader, sack: Sack) {
        if let Some(rx) = self.rx.get_mut(&cbh.path) {
            rx.told = Some((cbh.psn, sack, header));
            if header.ack_flags & AckFlags::OUT_OF_WINDOW_SEEN.0 != 0 {
                rx.out_of_window = None;
            }
            let numbers: Vec<u64> = rx
                .triggers(header.timestamp_echo)
                .map(|arrival| arrival.number)
                .collect();
            if let Some(number) = numbers.last() {
                rx.told_arrival = Some(*number);
                rx.told_surely = numbers.len() == 1;
            }
            rx.unacked = 0;
        }
    }

    fn open_stream(&mut self, id: u16, msn: Msn, rqsn: Rqsn, open: bool) {
        let stream = self.streams.entry(id).or_insert(StreamView {
            open,
            first: (msn, rqsn),
            next: (msn, rqsn),
            credit: rqsn,
            messages: BTreeMap::new(),
            lowest: 0,
        });
        stream.open |= open;
    }

    fn sent_data(&mut self, s: &Sighting<'_>, cbh: &Cbh) {
        let (Some(mine), Some((msgh, _))) = (self.mine, s.data()) else {
            return;
        };
        let tx = self.tx.entry(cbh.path).or_insert_with(|| TxView {
            packets: BTreeMap::new(),
            next: mine.isn,
            cum: mine.isn.sub(1),
            acked: false,
            sent: 0,
            port: s.src.port(),
            stamp: None,
            progress: s.time,
            probed: false,
            probe_at: None,
            report_at: None,
        });
        tx.stamp = Some(cbh.timestamp);
        tx.progress = s.time;
        let at = cbh.psn.distance_from(mine.isn);
        let fresh = !tx.packets.contains_key(&at) && !cbh.psn.precedes(tx.next);
        let packet = tx.packets.entry(at).or_insert_with(|| TxPacket {
            frame: s.frame,
            time: s.time,
            stamp: cbh.timestamp,
            count: 0,
            image: data_image(s.bytes),
            message: (msgh.stream, msgh.msn),
            acked: None,
            lost: None,
        });
        packet.frame = s.frame;
        packet.time = s.time;
        packet.stamp = cbh.timestamp;
        packet.count += 1;
        packet.lost = None;
        if !fresh {
            return;
        }
        tx.next = cbh.psn.add(1);
        tx.sent += 1;
        tx.port = s.src.port();
        let oldest = at.wrapping_sub(KEPT);
        if at > KEPT {
            tx.packets = tx.packets.split_off(&oldest);
        }
        self.sent_piece(s, cbh, &msgh, at);
    }

    fn sent_piece(&mut self, s: &Sighting<'_>, cbh: &Cbh, msgh: &Msgh, at: u32) {
        let Some(stream) = self.streams.get_mut(&msgh.stream) else {
            return;
        };
        let index = msgh.msn.distance_from(stream.first.0);
        let message = stream.messages.entry(index).or_insert_with(|| MessageView {
            head: head(s, msgh),
            offsets: BTreeSet::new(),
            unacked: BTreeSet::new(),
            complete_at: 0,
        });
        message.offsets.insert(msgh.offset);
        message.unacked.insert((cbh.path, at));
        if !msgh.msn.precedes(stream.next.0) {
            stream.next.0 = msgh.msn.add(1);
            if cbh.opcode == Opcode::SEND {
                stream.next.1 = msgh.rqsn.add(1);
            }
        }
    }

    fn delivered(&mut self, s: &Sighting<'_>) {
        let Some(cbh) = s.lax.cbh else { return };
        if let Some(arrival) = self.arrival(s) {
            self.delivered_data(s, &cbh, arrival);
            return;
        }
        if !s.is_sound() {
            return;
        }
        match s.lax.body {
            Some(Body::Open(open)) => {
                self.peer_ids.insert(open.params.scid.value());
                self.opens
                    .insert(cbh.psn.value(), (open.params, s.bytes.len()));
                if self.theirs.is_none() || !self.confirmed {
                    self.theirs = Some(open.params);
                }
            }
            Some(Body::Accept(accept)) => {
                self.peer_ids.insert(accept.params.scid.value());
                self.theirs = Some(accept.params);
                self.cookie = Some(accept.cookie);
            }
            Some(Body::Confirm(confirm)) => self.theirs = Some(confirm.params),
            Some(Body::ConfirmAck(_)) => self.confirmed = true,
            Some(Body::StreamOpenAck(ack)) if ack.status == 0 => {
                self.open_stream(ack.stream, ack.first_msn, ack.first_rqsn, true);
                self.credit(ack.stream, ack.rq_limit);
            }
            Some(Body::StreamOpen(open)) => {
                self.open_stream(open.stream, open.first_msn, open.first_rqsn, false);
                self.credit(open.stream, open.rq_limit);
            }
            Some(Body::RqCredit(credit)) if credit.kind == 1 => {
                self.credit(credit.stream, credit.rq_limit)
            }
            Some(Body::Ack(ack)) => {
                self.reported(s, &cbh, Some(&ack.header), &Sack::EMPTY, cbh.psn)
            }
            Some(Body::AckSack(ack)) => {
                self.reported(s, &cbh, Some(&ack.header), &ack.sack, cbh.psn)
            }
            Some(Body::PathProbeAck(ack)) => self.reported(s, &cbh, None, &ack.sack, ack.cum_psn),
            Some(Body::Close(_)) => self.closing = true,
            _ => {}
        }
    }

    fn credit(&mut self, stream: u16, limit: Rqsn) {
        if let Some(stream) = self.streams.get_mut(&stream)
            && stream.credit.precedes(limit)
        {
            stream.credit = limit;
        }
    }

    fn delivered_data(&mut self, s: &Sighting<'_>, cbh: &Cbh, arrival: Arrival) {
        let isn = self.theirs.map_or(cbh.psn, |theirs| theirs.isn);
        let rx = self.rx.entry(cbh.path).or_insert_with(|| RxView::new(isn));
        let stream = s.data().map_or(0, |(msgh, _)| msgh.stream);
        match arrival {
            Arrival::New => {
                rx.take(cbh.psn, s.ecn);
                rx.arrived(cbh, stream, false);
            }
            Arrival::Duplicate => rx.arrived(cbh, stream, true),
            Arrival::Bad(bad) => {
                if bad == Bad::OutOfWindow {
                    rx.out_of_window.get_or_insert(rx.next_arrival);
                }
                if !rx.has(cbh.psn) && rx.bad.len() < KEPT as usize {
                    rx.bad.insert(cbh.psn.value(), (bad, s.frame));
                }
            }
        }
    }

    /// Notes a report delivered to the judged side about a path that it sends on.
    fn reported(
        &mut self,
        s: &Sighting<'_>,
        cbh: &Cbh,
        header: Option<&AckHeader>,
        sack: &Sack,
        cum: Psn,
    ) {
        if let Some(header) = header {
            self.credit(header.stream, header.rq_limit);
        }
        let Some(mine) = self.mine else { return };
        let Some(tx) = self.tx.get_mut(&cbh.path).filter(|_| cbh.epoch == 0) else {
            return;
        };
        let top = cum.add(sack.highest().map_or(0, |bit| bit + 1));
        // A report of what was never sent changes nothing, and neither does one that was overtaken.
        if !top.precedes(tx.next) || cum.precedes(tx.cum) {
            return;
        }
        // Everything before the old cumulative PSN is acknowledged already.
        let open = tx.cum.add(1).distance_from(mine.isn);
        tx.cum = cum;
        tx.acked = true;
        tx.progress = s.time;
        tx.probed = false;
        tx.report_at = Some(s.time);
        let echo = match (header, s.lax.body) {
            (Some(header), _) if header.ack_flags & 0x8000 != 0 => Some(header.timestamp_echo),
            (None, Some(Body::PathProbeAck(ack))) => Some(ack.timestamp_echo),
            _ => None,
        };
        let mut newly = Vec::new();
        for (at, packet) in tx.packets.range_mut(open..) {
            let psn = mine.isn.add(*at);
            if packet.acked.is_none() && (psn.precedes_or_is(cum) || sack.contains(cum, psn)) {
                packet.acked = Some(s.time);
                newly.push((*at, packet.message));
            }
        }
        if let Some(echo) = echo {
            for (at, packet) in tx.packets.range_mut(open..) {
                let before = Psn::new(packet.stamp).precedes(Psn::new(echo));
                if packet.acked.is_none() && packet.lost.is_none() && before {
                    packet.lost = Some((s.time, s.frame));
                    let psn = mine.isn.add(*at).value();
                    self.newly_lost.push((cbh.path, psn, s.time, s.frame));
                }
            }
        }
        for (at, (stream, msn)) in newly {
            self.message_acked(s.time, cbh.path, at, stream, msn);
        }
    }

    fn message_acked(&mut self, time: u64, path: u8, at: u32, stream: u16, msn: Msn) {
        let payload = self
            .agreed()
            .map_or(1, |agreed| u32::from(agreed.payload_size))
            .max(1);
        let Some(stream) = self.streams.get_mut(&stream) else {
            return;
        };
        let index = msn.distance_from(stream.first.0);
        if let Some(message) = stream.messages.get_mut(&index) {
            message.unacked.remove(&(path, at));
            let whole = message.offsets.len() as u32 == message.head.2.div_ceil(payload).max(1);
            if whole && message.unacked.is_empty() && message.complete_at == 0 {
                message.complete_at = time.max(1);
            }
        }
        while stream
            .messages
            .get(&stream.lowest)
            .is_some_and(|message| message.complete_at > 0)
        {
            stream.lowest += 1;
        }
    }
}

/// What every packet of a message must repeat.
pub(crate) fn head(s: &Sighting<'_>, msgh: &Msgh) -> (Opcode, u16, u32, u64, u32) {
    let (va, rkey) = match s.lax.body {
        Some(Body::Write(write)) => (write.tagh.va, write.tagh.rkey),
        _ => (0, 0),
    };
    (
        s.opcode().unwrap_or(Opcode(0)),
        msgh.rqsn.value(),
        msgh.len,
        va,
        rkey,
    )
}

/// A data packet without what may change when it is sent again.
pub(crate) fn data_image(bytes: &[u8]) -> Vec<u8> {
    let mut image = bytes
        .get(..bytes.len().saturating_sub(4))
        .unwrap_or_default()
        .to_vec();
    if let Some(flags) = image.get_mut(2) {
        *flags &= !(Flags::AR.0 | Flags::RTX.0 | Flags::SE.0 | Flags::RTXE.0);
    }
    if let Some(stamp) = image.get_mut(12..16) {
        stamp.fill(0);
    }
    image
}

/// The opcode and body of a control packet.
pub(crate) fn control_image(bytes: &[u8]) -> Vec<u8> {
    let body = bytes
        .get(16..bytes.len().saturating_sub(4))
        .unwrap_or_default();
    [bytes.get(1..2).unwrap_or_default(), body].concat()
}

/// Whether the packet asks for an answer.
pub(crate) fn is_request(body: &Body<'_>) -> bool {
    match body {
        Body::Open(_)
        | Body::Confirm(_)
        | Body::Close(_)
        | Body::PathProbe(_)
        | Body::StreamOpen(_) => true,
        Body::RqCredit(credit) => credit.kind == 0,
        _ => false,
    }
}
