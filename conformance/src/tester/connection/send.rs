//! Data, probes, and what no honest peer sends.

use metaroce_wire::crc;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{
    AckHeader, Body, Cbh, Flags, MFlags, Msgh, Nak, NakCode, NakScope, Opcode, Packet, PathProbe,
    Sack, Send, Tagh, U24, Write,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::receive::Arrivals;
use super::{Connection, Outbox, SLOT, Sent};
use crate::tester::script::{Data, Expect, LyingAck, Mark, Operation, Refusal};

impl Connection {
    pub(super) fn lie(&mut self, now: u64, lie: &LyingAck, out: &mut Outbox) -> Result<(), String> {
        let isn = self.peer_isn();
        let arrivals = self
            .arrivals
            .entry(lie.path)
            .or_insert_with(|| Arrivals::before(isn));
        let mut sack = Sack::EMPTY;
        lie.bits.iter().for_each(|&bit| sack.set(bit));
        let header = AckHeader {
            timestamp_echo: arrivals.timestamp,
            ack_delay: 0,
            ack_flags: 0,
            ce_count: arrivals.ce,
            ect_count: arrivals.ect,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            stream: 0,
            rq_limit: self.granted,
        };
        let cum = arrivals.cum.add(lie.cum_add as u32);
        self.send_ack(
            now,
            (lie.path, lie.epoch),
            Flags(0),
            (cum, header, sack),
            out,
        )
    }

    pub(super) fn refuse(
        &mut self,
        now: u64,
        why: Refusal,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let (of, msgh) = self.latest.ok_or("no data packet to refuse")?;
        let code = match why {
            Refusal::RemAccess => NakCode::REM_ACCESS,
            Refusal::Length => NakCode::LENGTH,
        };
        let body = Body::Nak(Nak {
            code,
            scope: NakScope::CONNECTION,
            stream: msgh.stream,
            msn: msgh.msn,
            rsvd: 0,
            offending_psn: of.psn,
            detail: 0,
        });
        let cbh = Cbh {
            path: of.path,
            epoch: of.epoch,
            ..self.base(now, Opcode::NAK)
        };
        let bytes = self.emit(&Packet { cbh, body })?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    pub(super) fn probe(&mut self, now: u64, path: u8, out: &mut Outbox) -> Result<(), String> {
        let highest_psn = self.next_psn(path).sub(1);
        self.transaction = self.transaction.wrapping_add(1);
        let cbh = Cbh {
            path,
            psn: Psn::new(self.transaction),
            ..self.base(now, Opcode::PATH_PROBE)
        };
        let bytes = self.emit(&Packet {
            cbh,
            body: Body::PathProbe(PathProbe { highest_psn }),
        })?;
        self.push(self.port(path), Ecn::NotEct, bytes, out);
        Ok(())
    }

    pub(super) fn fill(&mut self, now: u64, out: &mut Outbox) -> Result<(), String> {
        for (path, psn) in std::mem::take(&mut self.left_out) {
            let data = Data { path, ..sound() };
            self.send_packet(now, &data, psn, Flags::RTX, out)?;
        }
        Ok(())
    }

    pub(super) fn send_data(
        &mut self,
        now: u64,
        data: &Data,
        out: &mut Outbox,
    ) -> Result<(), String> {
        for _ in 0..data.gap {
            let psn = self.next_psn(data.path);
            self.left_out.push((data.path, psn));
            self.next_psn.insert(data.path, psn.add(1));
        }
        let next = self.next_psn(data.path);
        self.send_packet(now, data, next.add(data.ahead), Flags(0), out)?;
        let sound = data.is_sound(self.setup.paths);
        // What is refused keeps its numbers: another message under them would be one that contradicts it.
        let refused = !sound && data.expect == Expect::Nak;
        if sound || refused {
            self.next_psn.insert(data.path, next.add(1));
        }
        if refused {
            self.next_msn += 1;
            if data.operation == Operation::Send {
                self.next_rqsn = self.next_rqsn.wrapping_add(1);
            }
        }
        Ok(())
    }

    pub(super) fn send_packet(
        &mut self,
        now: u64,
        data: &Data,
        psn: Psn,
        extra: Flags,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let len = usize::try_from(data.size.bytes())
            .unwrap_or(usize::MAX)
            .min(usize::from(self.setup.payload_size));
        let payload: Vec<u8> = (0..len)
            .map(|i| crate::payload::pattern(self.setup.seed ^ u64::from(self.next_msn), i as u64))
            .collect();
        let total = u32::try_from(len)
            .unwrap_or(u32::MAX)
            .saturating_add(data.more);
        let mflags = if data.more == 0 {
            MFlags::SOM.with(MFlags::EOM)
        } else {
            MFlags::SOM
        };
        let is_send = data.operation == Operation::Send;
        let msgh = Msgh {
            stream: data.stream,
            rqsn: Rqsn::new(if is_send { self.next_rqsn } else { 0 }),
            mflags,
            msn: Msn::new(self.next_msn),
            offset: 0,
            len: total,
        };
        let slot = if data.over { self.last_slot } else { self.slot };
        let (opcode, body) = if is_send {
            (
                Opcode::SEND,
                Body::Send(Send {
                    msgh,
                    payload: &payload,
                }),
            )
        } else {
            let va = self
                .setup
                .va
                .wrapping_add(slot as u64)
                .wrapping_add(data.va_add);
            let tagh = Tagh {
                va,
                rkey: self.setup.rkey ^ data.rkey_xor,
                imm: 0,
            };
            (
                Opcode::WRITE,
                Body::Write(Write {
                    msgh,
                    tagh,
                    payload: &payload,
                }),
            )
        };
        let flags = if data.ar {
            extra.with(Flags::AR)
        } else {
            extra
        };
        let cbh = Cbh {
            path: data.path,
            epoch: data.epoch,
            flags,
            psn,
            ..self.base(now, opcode)
        };
        let mut bytes = self.emit(&Packet { cbh, body })?;
        for edit in &data.edit {
            let len = bytes.len();
            let byte = bytes
                .get_mut(edit.at)
                .ok_or_else(|| format!("edit at byte {} of {len}", edit.at))?;
            *byte ^= edit.xor;
        }
        if data.cut > 0 {
            bytes.truncate(bytes.len().saturating_sub(data.cut));
        }
        if data.seal && (data.cut > 0 || !data.edit.is_empty()) {
            crc::seal(&self.pseudo, &mut bytes).map_err(|e| e.to_string())?;
        }
        if data.is_sound(self.setup.paths) {
            if !is_send {
                let end = slot + len;
                let place = self
                    .image
                    .get_mut(slot..end)
                    .ok_or("the region is too small for the script")?;
                place.copy_from_slice(&payload);
                self.last_slot = slot;
                if !data.over {
                    self.slot += len.next_multiple_of(SLOT).max(SLOT);
                }
            } else {
                self.next_rqsn = self.next_rqsn.wrapping_add(1);
            }
            self.next_msn += 1;
        }
        let port = self.port(data.path).wrapping_add(data.port_add);
        self.before = self.last.take();
        self.last = Some(Sent {
            port,
            bytes: bytes.clone(),
        });
        self.push(port, ecn(data.mark), bytes, out);
        Ok(())
    }

    /// A data packet again, as a retransmission of it would look.
    pub(super) fn resend(
        &mut self,
        now: u64,
        sent: Option<Sent>,
        mark: Mark,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let mut sent = sent.ok_or("nothing to repeat")?;
        let len = sent.bytes.len();
        if len > Cbh::LEN {
            sent.bytes[2] |= Flags::RTX.0;
            sent.bytes[12..16].copy_from_slice(&(now as u32).to_be_bytes());
        }
        crc::seal(&self.pseudo, &mut sent.bytes).map_err(|e| e.to_string())?;
        self.push(sent.port, ecn(mark), sent.bytes, out);
        Ok(())
    }
}

/// The packet of [`Step::Sane`].
pub(super) fn sound() -> Data {
    Data {
        operation: Operation::Write,
        path: 0,
        size: crate::units::Size::from_bytes(100),
        count: 1,
        gap: 0,
        ahead: 0,
        epoch: 0,
        stream: 0,
        over: false,
        rkey_xor: 0,
        va_add: 0,
        more: 0,
        ar: true,
        mark: Mark::Ect0,
        port_add: 0,
        edit: Vec::new(),
        cut: 0,
        seal: true,
        expect: Expect::Ack,
    }
}

pub(super) fn ecn(mark: Mark) -> Ecn {
    match mark {
        Mark::Ect0 => Ecn::Ect0,
        Mark::Ect1 => Ecn::Ect1,
        Mark::Ce => Ecn::Ce,
        Mark::NotEct => Ecn::NotEct,
    }
}
