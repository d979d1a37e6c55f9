//! What the parties said they would do: the posted work, known before the trace is read.

use std::collections::{BTreeMap, HashMap};

use crate::evidence::{Event, What, WorkKind};
use crate::trace::Side;

/// Work that a party was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// When, ns.
    pub t_ns: u64,
    /// Work request id.
    pub wr_id: u64,
    /// Kind.
    pub kind: WorkKind,
    /// Bytes.
    pub len: u32,
    /// Where a Write goes: address and key.
    pub remote: Option<(u64, u32)>,
}

/// Whether a region lets a Write in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It lies in a place that was offered.
    Granted,
    /// It does not.
    Denied,
    /// Nothing is known about the places that were offered, or not enough.
    Unknown,
}

/// Bytes around a place that was offered which may belong to the region too.
const MARGIN: u64 = 4096;

/// The posted work of both parties. What is posted under id 0 is no work: it only offers a region to write to.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    work: [BTreeMap<u16, Vec<Posted>>; 2],
    receives: [BTreeMap<u16, Vec<Posted>>; 2],
    by_id: HashMap<(Side, bool, u64), (u16, usize)>,
    targets: [Vec<Posted>; 2],
}

impl Facts {
    /// Collects what `events` tell.
    pub fn new(events: &[Event]) -> Self {
        let mut facts = Self::default();
        for event in events {
            if let What::Posted {
                stream,
                wr_id,
                kind,
                len,
                remote,
            } = event.what
            {
                let posted = Posted {
                    t_ns: event.t_ns,
                    wr_id,
                    kind,
                    len,
                    remote,
                };
                facts.add(event.side, stream, posted);
            }
        }
        facts
    }

    fn add(&mut self, side: Side, stream: u16, posted: Posted) {
        let receive = posted.kind == WorkKind::Recv;
        if posted.remote.is_some() {
            self.targets[side.index()].push(posted);
        }
        if posted.wr_id == 0 {
            return;
        }
        let lists = if receive {
            &mut self.receives
        } else {
            &mut self.work
        };
        let list = lists[side.index()].entry(stream).or_default();
        self.by_id
            .insert((side, receive, posted.wr_id), (stream, list.len()));
        list.push(posted);
    }

    /// The Sends and Writes of a side on a stream, in the order in which they were posted: that of their MSNs.
    pub fn work(&self, side: Side, stream: u16) -> &[Posted] {
        self.work[side.index()]
            .get(&stream)
            .map_or(&[], Vec::as_slice)
    }

    /// The receives of a side on a stream, in the order in which they were posted: that of their RQSNs.
    pub fn receives(&self, side: Side, stream: u16) -> &[Posted] {
        self.receives[side.index()]
            .get(&stream)
            .map_or(&[], Vec::as_slice)
    }

    /// Streams on which a side was given Sends or Writes.
    pub fn streams(&self, side: Side) -> impl Iterator<Item = (u16, &[Posted])> {
        self.work[side.index()]
            .iter()
            .map(|(stream, list)| (*stream, list.as_slice()))
    }

    /// Stream and position of work in its list.
    pub fn place(&self, side: Side, receive: bool, wr_id: u64) -> Option<(u16, usize)> {
        self.by_id.get(&(side, receive, wr_id)).copied()
    }

    /// Whether a Write from `writer` of `len` bytes to `va` under `rkey` goes to a place that was offered to it.
    pub fn access(&self, writer: Side, va: u64, rkey: u32, len: u32) -> Access {
        let targets = &self.targets[writer.index()];
        let end = u128::from(va) + u128::from(len);
        let mut near = targets.is_empty();
        for target in targets {
            let Some((start, key)) = target.remote.filter(|(_, key)| *key == rkey) else {
                continue;
            };
            let stop = u128::from(start) + u128::from(target.len);
            debug_assert_eq!(key, rkey);
            if va >= start && end <= stop {
                return Access::Granted;
            }
            near |= va.saturating_add(MARGIN) >= start && end <= stop + u128::from(MARGIN);
        }
        if near {
            Access::Unknown
        } else {
            Access::Denied
        }
    }
}
