//! Memory and completions: what the judged side reports through its adapter.

use std::collections::{BTreeMap, VecDeque};

use super::{Context, Monitor, Tally, entries};
use crate::evidence::{Event, MemoryPart, What, WorkKind};

entries! { "completions":
    "STRM-019" => Memory { part: MemoryPart::Inside, receives: Some(false), kinds: BTreeMap::new() },
    "STRM-020" => Memory { part: MemoryPart::Inside, receives: Some(true), kinds: BTreeMap::new() },
    "STRM-021" => Memory { part: MemoryPart::Outside, receives: None, kinds: BTreeMap::new() },
    "STRM-024" => InOrder::of(true),
    "STRM-026" => Length::default(),
    "STRM-027" => Early::default(),
    "STRM-028" => InOrder::of(false),
}

/// Bytes are where they belong. A check with the id of a receive is one of a Send.
struct Memory {
    part: MemoryPart,
    receives: Option<bool>,
    kinds: BTreeMap<u64, WorkKind>,
}

impl Monitor for Memory {
    fn event(&mut self, event: &Event, c: &Context<'_>, tally: &mut Tally) {
        if event.side != c.side {
            return;
        }
        match &event.what {
            What::Posted {
                wr_id,
                kind: WorkKind::Recv,
                ..
            } => {
                self.kinds.insert(*wr_id, WorkKind::Recv);
            }
            What::Memory {
                wr_id,
                part,
                len,
                expected,
                seen,
            } if *part == self.part && *len > 0 => {
                let is_receive = self.kinds.contains_key(wr_id);
                if self.receives.is_some_and(|wanted| wanted != is_receive) {
                    return;
                }
                if expected == seen {
                    tally.held();
                } else {
                    tally.broken(
                        vec![],
                        format!("work {wr_id}: {len} bytes with SHA-256 {expected}"),
                        seen.clone(),
                    );
                }
            }
            _ => {}
        }
    }
}

/// Completions of a stream come in the order in which the work was posted.
struct InOrder {
    receives: bool,
    posted: BTreeMap<u16, VecDeque<u64>>,
}

impl InOrder {
    fn of(receives: bool) -> Self {
        Self {
            receives,
            posted: BTreeMap::new(),
        }
    }
}

impl Monitor for InOrder {
    fn event(&mut self, event: &Event, c: &Context<'_>, tally: &mut Tally) {
        if event.side != c.side {
            return;
        }
        match &event.what {
            What::Posted {
                stream,
                wr_id,
                kind,
                ..
            } if (*kind == WorkKind::Recv) == self.receives => {
                self.posted.entry(*stream).or_default().push_back(*wr_id);
            }
            What::Completed {
                stream,
                wr_id,
                kind,
                ..
            } if (*kind == WorkKind::Recv) == self.receives => {
                let queue = self.posted.entry(*stream).or_default();
                if queue.front() == Some(wr_id) {
                    tally.held();
                } else {
                    tally.broken(
                        vec![],
                        format!("completion of work {:?} of stream {stream}", queue.front()),
                        format!("work {wr_id}"),
                    );
                }
                queue.retain(|id| id != wr_id);
            }
            _ => {}
        }
    }
}

/// A receive completion tells the length of the Send: that of the peer's work posted as number before it.
#[derive(Default)]
struct Length {
    lengths: BTreeMap<u64, u32>,
}

impl Monitor for Length {
    fn event(&mut self, event: &Event, c: &Context<'_>, tally: &mut Tally) {
        match &event.what {
            What::Posted {
                wr_id,
                kind: WorkKind::Send,
                len,
                ..
            } if event.side != c.side => {
                self.lengths.insert(wr_id + 1, *len);
            }
            What::Completed {
                wr_id,
                kind: WorkKind::Recv,
                status,
                byte_len,
                ..
            } if event.side == c.side && status == "IBV_WC_SUCCESS" => {
                match self.lengths.get(wr_id) {
                    Some(len) if len == byte_len => tally.held(),
                    Some(len) => tally.broken(
                        vec![],
                        format!("work {wr_id}: {len} bytes"),
                        format!("{byte_len}"),
                    ),
                    None => {}
                }
            }
            _ => {}
        }
    }
}

/// No success is reported before everything has been acknowledged: the n-th work of a stream is its n-th message.
#[derive(Default)]
struct Early {
    posted: BTreeMap<u16, Vec<u64>>,
}

impl Monitor for Early {
    fn event(&mut self, event: &Event, c: &Context<'_>, tally: &mut Tally) {
        if event.side != c.side {
            return;
        }
        match &event.what {
            What::Posted {
                stream,
                wr_id,
                kind,
                ..
            } if *kind != WorkKind::Recv => {
                self.posted.entry(*stream).or_default().push(*wr_id);
            }
            What::Completed {
                stream,
                wr_id,
                kind,
                status,
                ..
            } if *kind != WorkKind::Recv && status == "IBV_WC_SUCCESS" => {
                let index = self
                    .posted
                    .get(stream)
                    .and_then(|all| all.iter().position(|id| id == wr_id));
                let view = c.view.streams.get(stream);
                let Some(index) = index.and_then(|index| u32::try_from(index).ok()) else {
                    return;
                };
                let complete = view.is_some_and(|view| {
                    index < view.lowest
                        || view
                            .messages
                            .get(&index)
                            .is_some_and(|message| message.complete_at > 0)
                });
                if complete {
                    tally.held();
                } else {
                    tally.broken(
                        vec![],
                        format!("work {wr_id} complete after all its packets were acknowledged"),
                        "before",
                    );
                }
            }
            _ => {}
        }
    }
}
