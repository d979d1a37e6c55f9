//! Packets delivered to the judged side.

use metaroce_wire::metaroce::{
    AckFlags, AckHeader, Body, Cbh, Flags, MFlags, NakScope, Opcode, RqCredit, Sack,
};
use metaroce_wire::serial::{Psn, Rqsn};

use super::connection::{Connection, InMessage, OutMessage};
use super::facts::Access;
use super::receiver::Incoming;
use super::sender::AckFault;
use super::sighting::{AckArrived, Relation, Sighting};
use super::suspect::{Suspect, SuspectClass, of_itself};
use super::tracker::{Model, SUSPECTS, is_probe, stream};

/// Probes of the peer that are remembered, per connection.
const PROBES: usize = 256;

impl Model {
    pub(super) fn take_delivered(&mut self, s: &mut Sighting<'_>) {
        let Some(cbh) = s.cbh else { return };
        s.connection = self.find(|connection| connection.own.scid == cbh.dcid);
        let class = if s.crc_ok {
            of_itself(&cbh, s.body.as_ref(), s.error.as_ref()).or_else(|| {
                (s.src.ip() != self.context.peer.ip()).then_some(SuspectClass::OtherAddress)
            })
        } else {
            Some(SuspectClass::BadCrc)
        };
        let bit_zero = matches!(class, Some(SuspectClass::Senseless)) && self.has_bit_zero(s);
        let class = match class {
            Some(class) if !bit_zero => {
                if class == SuspectClass::BadCrc {
                    self.note_damage(s);
                }
                Some(class)
            }
            _ if cbh.opcode.is_data() => self.take_data_delivered(s, &cbh),
            _ => self.take_other_delivered(s, &cbh),
        };
        if let Some(class) = class {
            self.suspect(s, &cbh, class);
        } else if cbh.opcode.is_control() && !is_probe(cbh.opcode) {
            self.log(s, &cbh);
        }
    }

    fn has_bit_zero(&self, s: &Sighting<'_>) -> bool {
        match s.body {
            Some(Body::AckSack(ack)) => ack.sack.bit(0),
            Some(Body::PathProbeAck(answer)) => answer.sack.bit(0),
            _ => false,
        }
    }

    fn note_damage(&mut self, s: &Sighting<'_>) {
        let (Some(index), Some((msgh, _))) = (s.connection, s.headers()) else {
            return;
        };
        let connection = &mut self.connections[index];
        if let Some(stream) = connection.streams.get(&msgh.stream) {
            let message = stream.index(msgh.msn);
            if connection.damaged.len() < SUSPECTS {
                connection.damaged.insert((msgh.stream, message));
            }
        }
    }

    fn suspect(&mut self, s: &mut Sighting<'_>, cbh: &Cbh, class: SuspectClass) {
        // Whatever answers a packet does so soon: the oldest can go.
        if self.suspects.len() >= SUSPECTS {
            self.suspects.pop_front();
        }
        let suspect = Suspect {
            frame: s.frame,
            time: s.time,
            class,
            cbh: *cbh,
            len: s.payload.len(),
            msgh: s.headers().map(|(msgh, _)| msgh),
        };
        self.suspects.push_back(suspect);
        s.suspect = Some(suspect);
    }

    fn take_data_delivered(&mut self, s: &mut Sighting<'_>, cbh: &Cbh) -> Option<SuspectClass> {
        let (msgh, tagh) = s.headers()?;
        let piece = s.message().map(|(_, _, payload)| payload.len());
        let established = |connection: &Connection| connection.established.is_some();
        let Some(connection) = s
            .connection
            .and_then(|index| self.connections.get_mut(index))
            .filter(|connection| established(connection))
        else {
            return Some(SuspectClass::UnknownConnection);
        };
        if u16::from(cbh.path) >= connection.agreed.paths || cbh.epoch != 0 {
            return Some(SuspectClass::NoPath);
        }
        let packets = piece.map_or(1, |_| connection.packets_of(msgh.len));
        let payload_size = connection.payload_size().max(1);
        let open = connection.streams.get(&msgh.stream);
        let Some(stream) = open.filter(|stream| stream.open.is_some() || stream.asked) else {
            return Some(SuspectClass::NoStream);
        };
        let place = u64::from(msgh.rqsn.distance_from(stream.first_rqsn));
        let (index, early) = (
            stream.index(msgh.msn),
            stream.index(msgh.msn) > stream.complete_below,
        );
        if connection.in_path(cbh.path).is_past_window(cbh.psn) {
            return Some(SuspectClass::OutOfWindow);
        }
        let facts = &self.context.facts;
        // An answer has the number of its question, and a FILL has none: neither is a message of the peer.
        let begins = !cbh.opcode.is_response() && cbh.opcode != Opcode::FILL;
        let doubtful = match tagh {
            _ if !begins => false,
            // What may be read is not known.
            Some(_) if piece.is_none() => true,
            Some(tagh) => {
                let writer = self.context.side.other();
                match facts.access(writer, tagh.va, tagh.rkey, msgh.len) {
                    Access::Granted => false,
                    Access::Denied => return Some(SuspectClass::AccessDenied),
                    Access::Unknown => true,
                }
            }
            None => {
                let receives = facts.receives(self.context.side, msgh.stream);
                match usize::try_from(place).ok().and_then(|i| receives.get(i)) {
                    Some(receive) if msgh.len > receive.len => return Some(SuspectClass::TooLong),
                    Some(_) => false,
                    None => true,
                }
            }
        };
        let incoming = Incoming {
            frame: s.frame,
            time: s.time,
            path: cbh.path,
            psn: cbh.psn,
            doubtful,
            ending: connection.closing.has_begun(),
            timestamp: cbh.timestamp,
            ecn: s.ecn,
            rtx: cbh.flags.has(Flags::RTX),
            ar: cbh.flags.has(Flags::AR),
            eom: msgh.mflags.has(MFlags::EOM),
            stream: msgh.stream,
            message: index,
            early,
            port: s.src.port(),
            payload: piece.unwrap_or(0),
        };
        let arrival = connection.in_path(cbh.path).take(&incoming);
        if !begins {
            // Nothing to keep account of.
        } else if let Some(stream) = connection.streams.get_mut(&msgh.stream)
            && index >= stream.complete_below
        {
            let fresh = || InMessage::new(msgh, cbh.opcode.consumes_receive(), packets);
            let entry = stream.inward.entry(index).or_insert_with(fresh);
            if msgh.offset / payload_size < entry.packets {
                let fresh = entry.arrived.insert(msgh.offset / payload_size);
                entry.duplicated |= !fresh;
            }
            stream.complete();
            if stream.prune() {
                self.not_tracked("more messages are under way than are tracked");
            }
        } else if let Some(message) = connection
            .streams
            .get_mut(&msgh.stream)
            .and_then(|stream| stream.inward.get_mut(&index))
        {
            message.duplicated = true;
        }
        s.relation = Relation::DataArrived(arrival);
        None
    }

    fn take_other_delivered(&mut self, s: &mut Sighting<'_>, cbh: &Cbh) -> Option<SuspectClass> {
        let moment = (s.frame, s.time);
        match s.body? {
            Body::Open(_) | Body::Reject(_) | Body::Accept(_) => return None,
            Body::Confirm(confirm) => {
                self.candidate(false, confirm.accepted, confirm.params, confirm.accepted);
                return None;
            }
            Body::Nak(_) if cbh.dcid.value() == 0 => return None,
            _ => {}
        }
        let Some(connection) = s
            .connection
            .and_then(|index| self.connections.get_mut(index))
        else {
            return Some(SuspectClass::UnknownConnection);
        };
        match s.body? {
            Body::ConfirmAck(_) if connection.initiator => {
                connection.established.get_or_insert(moment);
            }
            Body::Ack(ack) => {
                note_limit(connection, ack.header.stream, ack.header.rq_limit, cbh);
                let report = (cbh.psn, None, Some(ack.header.timestamp_echo));
                return take_report(s, connection, cbh, report, signs(&ack.header));
            }
            Body::AckSack(ack) => {
                if !ack.sack.bit(0) {
                    note_limit(connection, ack.header.stream, ack.header.rq_limit, cbh);
                }
                let report = (cbh.psn, Some(ack.sack), Some(ack.header.timestamp_echo));
                return take_report(s, connection, cbh, report, signs(&ack.header));
            }
            Body::PathProbeAck(answer) => {
                let report = (answer.cum_psn, Some(answer.sack), None);
                return take_report(s, connection, cbh, report, (0, false));
            }
            Body::PathProbe(_) => {
                let before = connection.in_path(cbh.path).latest().copied();
                if connection.probes.len() >= PROBES {
                    connection.probes.pop_front();
                }
                let probe = (cbh.psn.value(), cbh.path, before);
                connection.probes.push_back(probe);
            }
            Body::Close(close) => {
                let closing = &mut connection.closing;
                closing.close_arrived.get_or_insert((moment, close.reason));
            }
            Body::Nak(nak) if nak.scope == NakScope::CONNECTION => {
                let what = (moment, nak.code, nak.stream, nak.msn);
                connection.closing.nak_arrived.get_or_insert(what);
            }
            Body::RqCredit(RqCredit {
                stream,
                rq_limit,
                kind: 1,
                ..
            }) => note_limit(connection, stream, rq_limit, cbh),
            Body::StreamOpen(open) => {
                let new = stream(connection, open.stream, open.first_msn, open.first_rqsn);
                new.note_limit(open.rq_limit);
            }
            Body::StreamOpenAck(ack) if ack.status == 0 => {
                if let Some(stream) = connection.streams.get_mut(&ack.stream) {
                    stream.open.get_or_insert(moment);
                    stream.note_limit(ack.rq_limit);
                }
            }
            _ => {}
        }
        self.check_streams(s.connection);
        None
    }
}

fn note_limit(connection: &mut Connection, stream: u16, limit: Rqsn, cbh: &Cbh) {
    if cbh.epoch == 0
        && let Some(stream) = connection.streams.get_mut(&stream)
    {
        stream.note_limit(limit);
    }
}

/// What an acknowledgment says of the path besides what has arrived: marks, and whether a duplicate came.
fn signs(header: &AckHeader) -> (u32, bool) {
    let duplicate = header.ack_flags & AckFlags::DUPLICATE_SEEN.0 != 0;
    (header.ce_count, duplicate)
}

type Report = (Psn, Option<Sack>, Option<u32>);

fn take_report(
    s: &mut Sighting<'_>,
    connection: &mut Connection,
    cbh: &Cbh,
    (cum, sack, echo): Report,
    (ce_count, duplicate): (u32, bool),
) -> Option<SuspectClass> {
    let exists = u16::from(cbh.path) < connection.agreed.paths;
    let path = connection.out_path(cbh.path);
    let fault = if exists && cbh.epoch == 0 {
        path.fault(cum, sack.as_ref())
    } else {
        Some(AckFault::NoPath)
    };
    if let Some(fault) = fault {
        path.claim(cum, sack.as_ref(), fault);
        s.relation = Relation::AckArrived(AckArrived {
            path: cbh.path,
            fault: Some(fault),
            newly: Vec::new(),
            lost: Vec::new(),
            answer: echo.is_none(),
            trip_ns: None,
        });
        return Some(SuspectClass::FalseReport);
    }
    if echo.is_none() && path.ignores_answer(cbh.psn.value()) {
        return None;
    }
    let answer_to = match echo {
        None => path.find_probe(cbh.psn.value()).copied(),
        Some(_) => None,
    };
    path.marked |= ce_count > 0;
    path.cut |= ce_count > 0;
    path.unsettled |= duplicate;
    let at = (s.frame, s.time, cbh.path);
    let (arrived, newly) = path.report(at, cum, sack.as_ref(), echo, answer_to);
    for packet in newly {
        let Some(stream) = connection.streams.get_mut(&packet.stream) else {
            continue;
        };
        if let Some(message) = stream.out.get_mut(&packet.message) {
            message.acknowledged += 1;
        }
        while stream
            .out
            .get(&stream.lowest_open)
            .is_some_and(OutMessage::is_acknowledged)
        {
            stream.lowest_open += 1;
        }
    }
    s.relation = Relation::AckArrived(arrived);
    None
}
