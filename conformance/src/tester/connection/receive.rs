//! What arrives of the peer, and the acknowledgments of it.

use std::collections::BTreeSet;

use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{
    Ack, AckFlags, AckHeader, AckSack, Body, Cbh, Flags, Msgh, Opcode, Packet, PathProbe,
    PathProbeAck, Sack, U24,
};
use metaroce_wire::serial::Psn;

use super::{Connection, Outbox};

/// What has arrived of the peer's data on one path.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    pub(super) cum: Psn,
    pub(super) beyond: BTreeSet<u32>,
    pub(super) timestamp: u32,
    pub(super) ce: u32,
    pub(super) ect: u32,
}

impl Arrivals {
    pub(super) fn before(isn: Psn) -> Self {
        Self {
            cum: isn.sub(1),
            beyond: BTreeSet::new(),
            timestamp: 0,
            ce: 0,
            ect: 0,
        }
    }

    /// Notes an arrival; tells whether it is a duplicate.
    pub(super) fn take(&mut self, psn: Psn, mark: Ecn, timestamp: u32) -> bool {
        self.timestamp = timestamp;
        if psn.precedes_or_is(self.cum) || !self.beyond.insert(psn.value()) {
            return true;
        }
        match mark {
            Ecn::Ce => self.ce += 1,
            Ecn::Ect0 | Ecn::Ect1 => self.ect += 1,
            Ecn::NotEct => {}
        }
        while self.beyond.remove(&self.cum.add(1).value()) {
            self.cum = self.cum.add(1);
        }
        false
    }

    pub(super) fn sack(&self) -> Sack {
        let mut sack = Sack::EMPTY;
        for &psn in &self.beyond {
            let ahead = Psn::new(psn).distance_from(self.cum);
            if let Some(bit) = ahead.checked_sub(1) {
                sack.set(bit);
            }
        }
        sack
    }
}

impl Connection {
    pub(super) fn on_probe(
        &mut self,
        now: u64,
        cbh: &Cbh,
        probe: &PathProbe,
        out: &mut Outbox,
    ) -> Result<(), String> {
        if !self.acking {
            return Ok(());
        }
        let isn = self.peer_isn();
        let arrivals = self
            .arrivals
            .entry(cbh.path)
            .or_insert_with(|| Arrivals::before(isn));
        let body = Body::PathProbeAck(PathProbeAck {
            timestamp_echo: cbh.timestamp,
            cum_psn: arrivals.cum,
            highest_psn: probe.highest_psn,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            sack: arrivals.sack(),
        });
        let answer = Cbh {
            path: cbh.path,
            epoch: cbh.epoch,
            psn: cbh.psn,
            ..self.base(now, Opcode::PATH_PROBE_ACK)
        };
        let bytes = self.emit(&Packet { cbh: answer, body })?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    pub(super) fn on_data(
        &mut self,
        now: u64,
        ecn: Ecn,
        cbh: &Cbh,
        msgh: &Msgh,
        out: &mut Outbox,
    ) -> Result<(), String> {
        self.data_seen += 1;
        self.latest = Some((*cbh, *msgh));
        let isn = self.peer_isn();
        let arrivals = self
            .arrivals
            .entry(cbh.path)
            .or_insert_with(|| Arrivals::before(isn));
        let duplicate = arrivals.take(cbh.psn, ecn, cbh.timestamp);
        if !self.acking {
            return Ok(());
        }
        let sack = arrivals.sack();
        let mut ack_flags = AckFlags::ECHO_VALID.0;
        if duplicate {
            ack_flags |= AckFlags::DUPLICATE_SEEN.0;
        }
        let header = AckHeader {
            timestamp_echo: arrivals.timestamp,
            ack_delay: 0,
            ack_flags,
            ce_count: arrivals.ce,
            ect_count: arrivals.ect,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            stream: msgh.stream,
            rq_limit: self.granted,
        };
        let cum = arrivals.cum;
        let flags = if cbh.flags.has(Flags::RTX) {
            Flags::RTXE
        } else {
            Flags(0)
        };
        self.send_ack(now, (cbh.path, cbh.epoch), flags, (cum, header, sack), out)
    }

    pub(super) fn send_ack(
        &mut self,
        now: u64,
        (path, epoch): (u8, u8),
        flags: Flags,
        (cum, header, sack): (Psn, AckHeader, Sack),
        out: &mut Outbox,
    ) -> Result<(), String> {
        let (opcode, body) = if sack.is_empty() {
            (Opcode::ACK, Body::Ack(Ack { header }))
        } else {
            (Opcode::ACK_SACK, Body::AckSack(AckSack { header, sack }))
        };
        let cbh = Cbh {
            path,
            epoch,
            flags,
            psn: cum,
            ..self.base(now, opcode)
        };
        let bytes = self.emit(&Packet { cbh, body })?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }
}
