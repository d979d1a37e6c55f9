//! What the oracle knows of receives.

use std::collections::BTreeMap;

use crate::oracle::{Checked, Doom, HalfId, Msg, Oracle, Receive, Spot, memory};
use crate::shadow::Fill;
use metaroce_endpoint::core::{Completion, Endpoint, Status, WorkKind};

impl Oracle {
    pub fn received(&mut self, id: HalfId, done: &Completion, ends: &mut [Endpoint]) -> Checked {
        match done.status {
            Status::Success => self.receive_filled(id, done, ends),
            status => {
                if !self.allows(id.0, Some(id.2), id.1, status) {
                    return Err(format!("{done:?}: nothing was wrong"));
                }
                if !matches!(status, Status::WrFlushErr | Status::LocLenErr) || done.byte_len != 0 {
                    return Err(format!("{done:?}: a receive cannot end so"));
                }
                self.failures += 1;
                self.receive_over(id, done, ends)
            }
        }
    }

    fn receive_filled(&mut self, id: HalfId, done: &Completion, ends: &mut [Endpoint]) -> Checked {
        let peer = (id.0, 1 - id.1, id.2);
        let half = &self.halves[&id];
        if half.rx_failed || half.ended {
            return Err(format!("{done:?}: success after an error"));
        }
        let number = half.consumed;
        let message = self.halves.get(&peer).and_then(|p| p.consuming.get(number));
        let message = *message.ok_or_else(|| format!("{done:?}: the peer has sent nothing"))?;
        let msg = self.halves[&peer].tx[message].clone();
        let written = msg.kind == WorkKind::Write;
        let (spot, room) = if half.srq.is_some() {
            self.of_shared_queue(id, done, &msg, ends)?
        } else {
            let receive = half
                .slots
                .get(number)
                .copied()
                .flatten()
                .map(|i| (i, &half.rx[i]));
            let (index, receive) =
                receive.ok_or_else(|| format!("{done:?}: no receive has number {number}"))?;
            if receive.wr_id != done.wr_id || receive.over {
                return Err(format!(
                    "{done:?}: receive {} comes first (STRM-024)",
                    receive.wr_id
                ));
            }
            let found = (receive.spot, receive.len);
            self.half(id).rx[index].over = true;
            found
        };
        let kind = if written {
            WorkKind::RecvWrite
        } else {
            WorkKind::Recv
        };
        let same = done.kind == kind
            && done.byte_len as usize == msg.len
            && done.imm == msg.imm
            && done.invalidated == msg.invalidates
            && done.solicited == msg.solicited;
        if !same {
            return Err(format!("{done:?}: the message is {msg:?}"));
        }
        if msg.doom == Doom::Sure || (!written && msg.len > room) {
            return Err(format!("{done:?}: it had to be refused"));
        }
        self.half(id).consumed += 1;
        self.successes += 1;
        // The completion makes all that was sent before visible too (MEM-001).
        for i in 0..=message {
            let before = &self.halves[&peer].tx[i];
            match before.kind {
                WorkKind::Send if i < message => {}
                WorkKind::Send | WorkKind::Write => self.landed(peer, i, ends)?,
                WorkKind::CmpSwap | WorkKind::FetchAdd => self.carried_out(peer, i, ends)?,
                _ => {}
            }
        }
        self.give_back(peer, message, ends);
        if !written {
            self.scrub(spot, room, ends);
        }
        Ok(())
    }

    /// What was written up to this message is the application's again.
    fn give_back(&mut self, id: HalfId, message: usize, ends: &mut [Endpoint]) {
        for i in 0..=message {
            let msg = &mut self.half(id).tx[i];
            if msg.kind == WorkKind::Write && !msg.pinned && !msg.given && msg.doom != Doom::Sure {
                msg.given = true;
                let (target, len) = (msg.target, msg.len);
                if let Some(spot) = target {
                    self.scrub(spot, len, ends);
                }
            }
        }
    }

    fn carried_out(&self, id: HalfId, index: usize, ends: &[Endpoint]) -> Checked {
        let msg = &self.halves[&id].tx[index];
        let Some((word, attempt)) = msg.word else {
            return Ok(());
        };
        let word = &self.words[word];
        if word.gone {
            return Ok(());
        }
        let now = word.value(memory(ends, word.spot)?);
        if word.attempts[attempt].is_in(now) {
            Ok(())
        } else {
            Err(format!(
                "atomic {} is not carried out before a completion behind it (OPS-041)",
                msg.wr_id
            ))
        }
    }

    fn of_shared_queue(
        &mut self,
        id: HalfId,
        done: &Completion,
        msg: &Msg,
        ends: &[Endpoint],
    ) -> Result<(Spot, usize), String> {
        let queue = (
            self.ends[id.0][id.1],
            self.halves[&id].srq.unwrap_or_default(),
        );
        let receives = self.srqs.entry(queue).or_default();
        let receive = receives
            .iter_mut()
            .find(|r| r.wr_id == done.wr_id && !r.over);
        let receive = receive.ok_or_else(|| format!("{done:?}: no such receive in the queue"))?;
        receive.over = true;
        let (spot, room) = (receive.spot, receive.len);
        let len = if msg.kind == WorkKind::Send {
            msg.len.min(room)
        } else {
            0
        };
        self.with(spot, ends, |shadow, memory| {
            shadow.settle(spot.offset, len, &Fill::Payload(msg.key, 0));
            shadow.land(spot.offset, memory)
        })?;
        Ok((spot, room))
    }

    fn receive_over(&mut self, id: HalfId, done: &Completion, ends: &mut [Endpoint]) -> Checked {
        let end = self.ends[id.0][id.1];
        let half = self.half(id);
        half.rx_failed = true;
        let shared = self.halves[&id].srq.is_some();
        let receives = if shared {
            receives_of(&mut self.srqs, end, self.halves[&id].srq)
        } else {
            &mut self.halves.get_mut(&id).unwrap().rx
        };
        let index = receives
            .iter()
            .position(|r| r.wr_id == done.wr_id && !r.over);
        let index = index.ok_or_else(|| format!("{done:?}: no such receive is posted"))?;
        let first = receives.iter().position(|r| !r.over).unwrap_or(index);
        if !shared && first != index && done.status == Status::WrFlushErr {
            return Err(format!(
                "{done:?}: receive {} comes first (ERR-019)",
                receives[first].wr_id
            ));
        }
        receives[index].over = true;
        let (spot, len, bound) = (
            receives[index].spot,
            receives[index].len,
            receives[index].bound,
        );
        if done.status == Status::LocLenErr && !shared {
            let peer = self.halves.get(&(id.0, 1 - id.1, id.2));
            let long = bound.and_then(|b| peer.map(|p| p.tx[b].len > len));
            if long != Some(true) {
                return Err(format!("{done:?}: no message is too long for it"));
            }
        }
        self.with(spot, ends, |s, memory| s.freeze(spot.offset, memory))?;
        self.scrub(spot, len, ends);
        Ok(())
    }
}

fn receives_of(
    srqs: &mut BTreeMap<(usize, u32), Vec<Receive>>,
    end: usize,
    srq: Option<u32>,
) -> &mut Vec<Receive> {
    srqs.entry((end, srq.unwrap_or_default())).or_default()
}
