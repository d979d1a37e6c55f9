//! The judged side's own packets.

use metaroce_wire::metaroce::{Body, Cbh, NakScope, Opcode};
use metaroce_wire::serial::{Psn, Rqsn};

use super::connection::OutMessage;
use super::sender::{Proof, Transmission};
use super::sighting::{DataSent, MessageSent, Relation, Sighting};
use super::suspect::{Answered, Suspect};
use super::tracker::{Model, is_probe, stream};

impl Model {
    pub(super) fn take_sent(&mut self, s: &mut Sighting<'_>) {
        let Some(cbh) = s.cbh else { return };
        s.connection = self
            .find(|connection| connection.peer.scid == cbh.dcid)
            // A wrong connection id is a finding of its own; the packet still belongs somewhere.
            .or_else(|| self.find(|_| true));
        let moment = (s.frame, s.time);
        if cbh.opcode.is_data() {
            self.take_data_sent(s, &cbh);
        } else if let (Some((header, sack)), Some(index)) = (s.ack(), s.connection) {
            let allowance = self.context.allowance_ns;
            let at = (s.frame, s.time, cbh.path);
            let connection = &mut self.connections[index];
            let ack = connection
                .in_path(cbh.path)
                .acknowledge(at, allowance, cbh.psn, header, sack);
            s.relation = Relation::AckSent(ack);
        } else {
            self.take_control_sent(s, &cbh, moment);
        }
        s.answers = self.answered(s, &cbh);
        if cbh.opcode.is_control() && !is_probe(cbh.opcode) {
            self.log(s, &cbh);
        }
    }

    fn take_control_sent(&mut self, s: &mut Sighting<'_>, cbh: &Cbh, moment: (u64, u64)) {
        let body = s.body;
        if let Some(Body::Confirm(confirm)) = body {
            self.candidate(true, confirm.params, confirm.accepted, confirm.accepted);
            s.connection = self.find(|connection| connection.peer.scid == cbh.dcid);
        }
        let Some(connection) = s
            .connection
            .and_then(|index| self.connections.get_mut(index))
        else {
            return;
        };
        match body {
            Some(Body::ConfirmAck(_)) if !connection.initiator => {
                connection.established.get_or_insert(moment);
            }
            Some(Body::PathProbe(_)) => {
                let path = connection.out_path(cbh.path);
                path.probe(cbh.psn.value(), s.frame, s.time, s.src.port());
            }
            Some(Body::PathProbeAck(answer)) => {
                let before = connection
                    .probes
                    .iter()
                    .rev()
                    .find(|(transaction, path, _)| {
                        (*transaction, *path) == (cbh.psn.value(), cbh.path)
                    })
                    .map(|(_, _, before)| *before);
                let path = connection.in_path(cbh.path);
                let answer = path.answer(cbh.path, before.flatten(), answer.cum_psn, &answer.sack);
                s.relation = Relation::AnswerSent(answer);
            }
            Some(Body::Close(close)) => {
                let closing = &mut connection.closing;
                closing.close_sent.get_or_insert((moment, close.reason));
            }
            Some(Body::CloseAck(_)) => {
                connection.closing.close_ack_sent.get_or_insert(moment);
            }
            Some(Body::Nak(nak)) if nak.scope == NakScope::CONNECTION => {
                connection.closing.nak_sent.get_or_insert(moment);
            }
            Some(Body::StreamOpen(open)) => {
                stream(connection, open.stream, open.first_msn, open.first_rqsn).asked = true;
            }
            Some(Body::StreamOpenAck(ack)) if ack.status == 0 => {
                if let Some(stream) = connection.streams.get_mut(&ack.stream) {
                    stream.open.get_or_insert(moment);
                }
            }
            _ => {}
        }
        self.check_streams(s.connection);
    }

    fn take_data_sent(&mut self, s: &mut Sighting<'_>, cbh: &Cbh) {
        let (Some(index), Some((msgh, tagh))) = (s.connection, s.headers()) else {
            return;
        };
        let connection = &mut self.connections[index];
        let payload_size = connection.payload_size().max(1);
        let packets = s.message().map_or(1, |_| connection.packets_of(msgh.len));
        // An answer has the number of its question, and a FILL has none: neither is a message of this side.
        let begins = !cbh.opcode.is_response() && cbh.opcode != Opcode::FILL;
        let message = match connection.streams.get(&msgh.stream) {
            _ if !begins => u64::MAX,
            Some(stream) => stream.index(msgh.msn),
            None => 0,
        };
        let path = connection.out_path(cbh.path);
        if path.is_forgotten(cbh.psn) {
            self.not_tracked("a packet was sent again that is no longer remembered");
            return;
        }
        let mut sent = DataSent {
            path: cbh.path,
            psn: cbh.psn,
            isn: path.isn,
            before: None,
            last_new: path.last_new,
            last_stamp: path.last_stamp,
            port_of_new: path.port_of_new,
            cum: path.psn_at(path.cumulative),
            proof: Proof::default(),
            same_bytes: true,
            message: None,
            heard: path.heard.is_some(),
            new_packets: 0,
        };
        let transmission = Transmission {
            frame: s.frame,
            time: s.time,
            cbh,
            port: s.src.port(),
            stream: msgh.stream,
            message,
            bytes: s.payload,
        };
        (sent.before, sent.proof, sent.same_bytes) = path.transmit(&transmission);
        sent.new_packets = path.new_packets;
        let new = sent.before.is_none();
        connection.new_packets += u64::from(new);
        if begins && let Some(stream) = connection.streams.get_mut(&msgh.stream) {
            let piece = msgh.offset / payload_size;
            let mut what = MessageSent {
                index: message,
                begins: false,
                last_begun: stream.last_begun,
                last_rqsn: stream.last_rqsn,
                first: (cbh.opcode, msgh, tagh, s.frame),
                piece_again: false,
                lowest_open: stream.lowest_open,
                limit: stream.limit.map(Rqsn::value),
            };
            let entry = stream.out.entry(message).or_insert_with(|| {
                what.begins = true;
                OutMessage {
                    opcode: cbh.opcode,
                    msgh,
                    tagh,
                    frame: s.frame,
                    packets,
                    sent: Default::default(),
                    acknowledged: 0,
                }
            });
            what.first = (entry.opcode, entry.msgh, entry.tagh, entry.frame);
            if piece < entry.packets {
                let fresh = entry.sent.insert(piece);
                what.piece_again = new && !fresh;
            }
            if what.begins {
                stream.last_begun = Some(message);
                if cbh.opcode.consumes_receive() {
                    stream.last_rqsn = Some(msgh.rqsn.value());
                    stream.sends_begun += 1;
                }
            }
            sent.message = Some(what);
            if stream.prune() {
                self.not_tracked("more messages are under way than are tracked");
            }
        }
        s.relation = Relation::DataSent(sent);
    }

    /// The suspects that a packet of the judged side answers or acknowledges, and that nothing sound explains.
    fn answered(&mut self, s: &Sighting<'_>, cbh: &Cbh) -> Vec<Answered> {
        if self.suspects.is_empty() {
            return Vec::new();
        }
        match (&s.relation, s.body) {
            (Relation::AckSent(ack), _) => {
                // Bit 0 stands for no packet that could have been taken.
                let bits = ack.false_bits.iter().filter(|psn| **psn != cbh.psn.add(1));
                let claims: Vec<Psn> = ack.false_below.iter().chain(bits).copied().collect();
                let mut answered = self.claimed(s.connection, cbh.path, &claims);
                if ack.triggers.is_empty() {
                    // A newer arrival would be the trigger in its place.
                    let allowance = self.context.allowance_ns;
                    let latest = ack
                        .latest
                        .map_or((0, 0), |latest| (latest.frame, latest.time));
                    let echo = ack.header.timestamp_echo;
                    answered.extend(self.echoed(|suspect| {
                        let newest = suspect.frame > latest.0
                            || (allowance > 0 && suspect.time + allowance >= latest.1);
                        newest
                            && suspect.cbh.opcode.is_data()
                            && suspect.cbh.path == cbh.path
                            && suspect.cbh.timestamp == echo
                    }));
                }
                answered
            }
            (Relation::AnswerSent(answer), _) => {
                let claims = answer.falsely.clone();
                let mut answered = self.claimed(s.connection, cbh.path, &claims);
                if !self.was_asked(s.connection, cbh) {
                    answered.extend(self.echoed(|suspect| {
                        !suspect.cbh.opcode.is_data()
                            && (suspect.cbh.path, suspect.cbh.psn) == (cbh.path, cbh.psn)
                    }));
                }
                answered
            }
            (_, Some(Body::Nak(nak))) => self.echoed(|suspect| {
                (suspect.cbh.path, suspect.cbh.psn) == (cbh.path, nak.offending_psn)
            }),
            _ => {
                let Some(question) = question_of(cbh.opcode) else {
                    return Vec::new();
                };
                let sound = self.control.find(false, question, cbh.psn.value());
                if sound.is_some() {
                    return Vec::new();
                }
                self.echoed(|suspect| !suspect.cbh.opcode.is_data() && suspect.cbh.psn == cbh.psn)
            }
        }
    }

    fn echoed(&self, fits: impl Fn(&Suspect) -> bool) -> Vec<Answered> {
        let found = self.suspects.iter().filter(|suspect| fits(suspect));
        let echoed = |suspect: &Suspect| Answered {
            suspect: *suspect,
            claimed: false,
        };
        found.map(echoed).collect()
    }

    /// The latest suspect under each of the PSNs that are reported and have not arrived. Charged once, it counts as arrived
    /// from then on.
    fn claimed(&mut self, connection: Option<usize>, path: u8, claims: &[Psn]) -> Vec<Answered> {
        let mut answered = Vec::new();
        for psn in claims {
            let fits = |suspect: &&Suspect| {
                suspect.cbh.opcode.is_data() && (suspect.cbh.path, suspect.cbh.psn) == (path, *psn)
            };
            let Some(suspect) = self.suspects.iter().rev().find(fits).copied() else {
                continue;
            };
            answered.push(Answered {
                suspect,
                claimed: true,
            });
            let Some(connection) = connection.and_then(|index| self.connections.get_mut(index))
            else {
                continue;
            };
            connection.in_path(path).concede(*psn);
            let Some(msgh) = suspect.msgh else { continue };
            let packets = connection.packets_of(msgh.len);
            let piece = msgh.offset / connection.payload_size().max(1);
            if let Some(stream) = connection.streams.get_mut(&msgh.stream) {
                let send = suspect.cbh.opcode.consumes_receive();
                stream.concede(&msgh, send, packets, piece);
            }
        }
        answered
    }

    fn was_asked(&self, connection: Option<usize>, cbh: &Cbh) -> bool {
        connection
            .and_then(|index| self.connections.get(index))
            .is_some_and(|connection| {
                let mut probes = connection.probes.iter();
                probes.any(|(transaction, path, _)| {
                    (*transaction, *path) == (cbh.psn.value(), cbh.path)
                })
            })
    }
}

/// The request that an answer belongs to.
pub fn question_of(answer: Opcode) -> Option<Opcode> {
    match answer {
        Opcode::ACCEPT => Some(Opcode::OPEN),
        Opcode::CONFIRM_ACK => Some(Opcode::CONFIRM),
        Opcode::CLOSE_ACK => Some(Opcode::CLOSE),
        Opcode::PATH_PROBE_ACK => Some(Opcode::PATH_PROBE),
        Opcode::STREAM_OPEN_ACK => Some(Opcode::STREAM_OPEN),
        Opcode::STREAM_RESET_ACK => Some(Opcode::STREAM_RESET),
        Opcode::PATH_RETIRED => Some(Opcode::PATH_RETIRE),
        _ => None,
    }
}
