//! What the parties of a trace say, how a trace is changed, and what the monitors make of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use metaroce_conformance::evidence::{Event, MemoryPart, What, WorkKind};
use metaroce_conformance::model::{Context, Facts};
use metaroce_conformance::monitors::{Panel, Tally};
use metaroce_conformance::trace::{Observation, Side};
use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::frame::Frame;
use metaroce_wire::metaroce::{Flags, Opcode};

use crate::trace::{Item, Pkt, RKEY, Trace, VA, address};

impl Trace {
    // What the parties say.

    pub fn posted(&mut self, side: Side, wr_id: u64, kind: WorkKind, len: u32) {
        let remote = (kind == WorkKind::Write).then_some((VA, RKEY));
        let what = What::Posted {
            stream: 0,
            wr_id,
            kind,
            len,
            remote,
        };
        self.say(side, what);
    }

    pub fn completed(&mut self, wr_id: u64, kind: WorkKind, status: &str, byte_len: u32) {
        let what = What::Completed {
            stream: 0,
            wr_id,
            kind,
            status: status.into(),
            byte_len,
        };
        self.say(self.me, what);
    }

    pub fn memory(&mut self, wr_id: u64, part: MemoryPart, expected: &str, seen: &str) {
        let what = What::Memory {
            wr_id,
            part,
            len: 64,
            expected: expected.into(),
            seen: seen.into(),
        };
        self.say(self.me, what);
    }

    // Changes.

    /// The first packet of a direction and kind.
    pub fn find(&mut self, sent: bool, opcode: Opcode) -> &mut Pkt {
        self.nth(sent, opcode, 0)
    }

    pub fn nth(&mut self, sent: bool, opcode: Opcode, n: usize) -> &mut Pkt {
        let at = self.index(sent, opcode, n);
        &mut self.items[at].pkt
    }

    pub fn index(&self, sent: bool, opcode: Opcode, n: usize) -> usize {
        let mut all = self.items.iter().enumerate();
        let fits = |item: &Item| item.sent == sent && item.pkt.opcode() == opcode;
        all.by_ref()
            .filter(|(_, item)| fits(item))
            .nth(n)
            .map(|(at, _)| at)
            .expect("no such packet")
    }

    /// Position of the `n`th acknowledgment that the judged side sends for a path.
    pub fn ack_at(&self, path: u8, n: usize) -> usize {
        let fits =
            |item: &Item| item.sent && item.pkt.opcode().is_ack() && item.pkt.bytes[3] == path;
        let mut all = self.items.iter().enumerate().filter(|(_, item)| fits(item));
        all.nth(n)
            .map(|(at, _)| at)
            .expect("no such acknowledgment")
    }

    pub fn ack_of(&mut self, path: u8, n: usize) -> &mut Pkt {
        let at = self.ack_at(path, n);
        &mut self.items[at].pkt
    }

    /// Position of the `n`th retransmission.
    pub fn rtx_at(&self, n: usize) -> usize {
        let fits = |item: &Item| item.sent && Flags(item.pkt.bytes[2]).has(Flags::RTX);
        let mut all = self.items.iter().enumerate().filter(|(_, item)| fits(item));
        all.nth(n)
            .map(|(at, _)| at)
            .expect("no such retransmission")
    }

    /// The first packet that the judged side sends and that fits.
    pub fn sent_where(&mut self, fits: impl Fn(&Pkt) -> bool) -> &mut Pkt {
        let mut all = self.items.iter_mut().filter(|item| item.sent);
        let found = all.find(|item| fits(&item.pkt));
        &mut found.expect("no such packet").pkt
    }

    /// Puts a packet of the judged side before the item at `at`, at that item's time less `before`.
    pub fn insert(&mut self, at: usize, sent: bool, before: u64, pkt: Pkt) {
        let time = self.items[at].time - before;
        self.items.insert(at, Item { time, sent, pkt });
    }

    /// The `n`th completion.
    pub fn completion(&mut self, n: usize) -> &mut Event {
        let fits = |event: &&mut Event| matches!(event.what, What::Completed { .. });
        let mut all = self.events.iter_mut().filter(fits);
        all.nth(n).expect("no such completion")
    }

    pub fn remove(&mut self, sent: bool, opcode: Opcode, n: usize) {
        let at = self.index(sent, opcode, n);
        self.items.remove(at);
    }

    /// Packets as the tap records them.
    fn observation(&self, item: &Item) -> Observation {
        let from = if item.sent { self.me } else { self.me.other() };
        let src = item.pkt.src.unwrap_or(address(from).ip());
        let dst = SocketAddr::new(address(from.other()).ip(), item.pkt.dst_port);
        let mut bytes = item.pkt.bytes.clone();
        if item.pkt.seal {
            crc::seal(&PseudoHeader::new(src, dst), &mut bytes).unwrap();
        }
        let frame = Frame {
            src: SocketAddr::new(src, item.pkt.port),
            dst,
            ecn: item.pkt.ecn,
            ttl: 64,
            payload: &bytes,
        };
        let mut out = vec![0; frame.ip_len()];
        frame.emit(&mut out).unwrap();
        Observation {
            time_ns: item.time,
            tap: self.me,
            from,
            frame: out,
            notes: Vec::new(),
        }
    }

    /// What every monitor finds.
    pub fn judge(&self) -> BTreeMap<&'static str, Tally> {
        let mut panel = Panel::everything(Context {
            side: self.me,
            local: address(self.me),
            peer: address(self.me.other()),
            allowance_ns: self.allowance,
            jitter_ns: self.jitter,
            facts: Facts::new(&self.events),
        });
        let mut events = self.events.iter().peekable();
        for (n, item) in self.items.iter().enumerate() {
            while let Some(event) = events.next_if(|event| event.t_ns + self.allowance < item.time)
            {
                panel.event(event);
            }
            panel
                .observe(n as u64 + 1, &self.observation(item))
                .unwrap();
        }
        events.for_each(|event| panel.event(event));
        panel.advance(self.now);
        let found = panel.finish();
        found
            .into_iter()
            .map(|(entry, tally)| (entry.clause, tally))
            .collect()
    }
}
