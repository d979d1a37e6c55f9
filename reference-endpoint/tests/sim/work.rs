//! Drafts work from what is planned, and gives it memory.

use crate::chance::{mix, payload_of};
use crate::oracle::{Doom, HalfId, Msg, Spot};
use crate::plan::{Action, Kind, Planned, Post, Wrong};
use crate::shadow::{Fill, Shadow};
use crate::words::{ADDS, Attempt, Change, Word};
use crate::world::{What, World, note};
use metaroce_endpoint::core::{Access, Buffer, Data, Op, Remote, Status, Work, WorkKind};

/// Bytes of a region that many messages share.
const ARENA: usize = 32 * 1024;

pub const LOCAL: Access = Access {
    remote_write: false,
    remote_read: false,
    remote_atomic: false,
    invalidate: false,
    domain: 0,
};
const OPEN: Access = Access {
    remote_write: true,
    remote_read: true,
    ..LOCAL
};
const ATOMIC: Access = Access {
    remote_atomic: true,
    ..LOCAL
};

/// A message that is about to be posted.
struct Draft {
    op: Op,
    msg: Msg,
    fill: Fill,
    attempt: Option<(usize, Change)>,
}

impl World {
    // ---- memory -------------------------------------------------------------------------------------------------

    fn register(&mut self, end: usize, len: usize, access: Access) -> u32 {
        let region = self.ends[end].register(len, access).unwrap();
        let key = mix(self.plan.seed ^ u64::from(region.mr) << 32 ^ end as u64);
        let shadow = Shadow::new(key, len, region.va, region.rkey);
        self.ends[end]
            .memory_mut(region.mr)
            .unwrap()
            .copy_from_slice(shadow.bytes());
        self.oracle.regions.insert((end, region.mr), shadow);
        region.mr
    }

    /// A place of its own for `len` bytes, with bytes around it that nobody may touch.
    pub fn place(&mut self, end: usize, len: usize, access: Access) -> Spot {
        let gap = 8 + (mix(self.next_wr_id) % 5) as usize * 8;
        let class = (end, access.remote_write, access.remote_atomic);
        let fits = |mr: &u32| self.oracle.regions[&(end, *mr)].next + len + 2 * gap <= ARENA;
        let mr = match self.arenas.get(&class).copied().filter(fits) {
            Some(mr) => mr,
            None => {
                let mr = self.register(end, ARENA.max(len + 2 * gap), access);
                self.arenas.insert(class, mr);
                mr
            }
        };
        let shadow = self.oracle.regions.get_mut(&(end, mr)).unwrap();
        let offset = shadow.next + gap;
        shadow.next = (offset + len).next_multiple_of(8);
        Spot { end, mr, offset }
    }

    fn remote(&self, spot: Spot) -> Remote {
        let shadow = &self.oracle.regions[&(spot.end, spot.mr)];
        Remote {
            va: shadow.va + spot.offset as u64,
            rkey: shadow.rkey,
        }
    }

    fn put(&mut self, spot: Spot, bytes: &[u8]) {
        self.oracle
            .regions
            .get_mut(&(spot.end, spot.mr))
            .unwrap()
            .set(spot.offset, bytes);
        let memory = self.ends[spot.end].memory_mut(spot.mr).unwrap();
        memory[spot.offset..spot.offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn wr_id(&mut self) -> u64 {
        self.next_wr_id += 1;
        self.next_wr_id - 1
    }

    // ---- work ---------------------------------------------------------------------------------------------------

    pub fn post(&mut self, id: HalfId, post: Post, pick: u64) {
        let conn = &self.conns[id.0];
        let (end, handle, now) = (conn.ends[id.1], conn.handles[id.1].unwrap(), self.now);
        let wr_id = self.wr_id();
        let mut draft = self.draft(id, post, wr_id, pick);
        let own = matches!(
            draft.msg.kind,
            WorkKind::Read | WorkKind::CmpSwap | WorkKind::FetchAdd
        );
        let data = if own {
            let spot = self.place(end, draft.msg.len, LOCAL);
            draft.msg.target = Some(spot);
            Data::Buffer(Buffer {
                mr: spot.mr,
                offset: spot.offset,
                len: draft.msg.len,
            })
        } else {
            let bytes = payload_of(draft.msg.key, 0, draft.msg.len);
            if post.inline && bytes.len() <= 4096 {
                Data::Inline(bytes.into())
            } else {
                let spot = self.place(end, bytes.len(), LOCAL);
                self.put(spot, &bytes);
                draft.msg.source = Some(spot);
                Data::Buffer(Buffer {
                    mr: spot.mr,
                    offset: spot.offset,
                    len: bytes.len(),
                })
            }
        };
        let work = Work {
            wr_id,
            op: draft.op,
            data,
            signalled: post.signalled,
            solicited: post.solicited,
            fence: post.fence,
        };
        note(|| format!("{now:>12} work {wr_id} on {id:?}: {post:?}"));
        match self.ends[end].post(now, handle, id.2, work) {
            Err(e) => self.refused(id, &e.to_string()),
            Ok(()) => {
                if let Some((word, change)) = draft.attempt {
                    let attempt = Attempt {
                        by: id,
                        change,
                        old: None,
                    };
                    draft.msg.word = Some((word, self.oracle.attempt(word, attempt)));
                }
                if let Some((peer, mr)) = self.going.take() {
                    let at = now + mix(wr_id) % (self.plan.stop / 8 + 1);
                    let action = Action::Deregister(mr);
                    let side = usize::from(self.conns[id.0].ends[1] == peer);
                    let (conn, pick) = (id.0, 0);
                    self.at(
                        at,
                        What::Acts(Planned {
                            at,
                            conn,
                            side,
                            pick,
                            action,
                        }),
                    );
                }
                if draft.msg.doom != Doom::No {
                    let status = match post.wrong {
                        Some(Wrong::Unaligned) => Status::LocQpOpErr,
                        _ => Status::RemAccessErr,
                    };
                    self.oracle.allow(id.0, Some(id.2), Some(id.1), status);
                    self.allow_end(id.0, id.2);
                }
                self.oracle.posted(id, draft.msg, &draft.fill);
                if let Some(mutation) = &mut self.mutation {
                    mutation.on_post(end, handle, id.2, wr_id, post);
                }
            }
        }
    }

    fn draft(&mut self, id: HalfId, post: Post, wr_id: u64, pick: u64) -> Draft {
        let peer = self.conns[id.0].ends[1 - id.1];
        let key = mix(self.plan.seed ^ wr_id << 20);
        let imm = mix(key) as u32;
        let mut msg = Msg {
            wr_id,
            kind: WorkKind::Send,
            len: post.len,
            key,
            signalled: post.signalled,
            solicited: post.solicited && post.kind.consumes(),
            imm: None,
            invalidates: None,
            source: None,
            target: None,
            consumes: post.kind.consumes(),
            doom: Doom::No,
            pinned: false,
            given: false,
            word: None,
        };
        let mut fill = Fill::Payload(key, 0);
        let mut attempt = None;
        let op = match post.kind {
            Kind::Send => Op::Send,
            Kind::SendImm => {
                msg.imm = Some(imm);
                Op::SendImm(imm)
            }
            Kind::SendInv => {
                let rkey = if post.wrong.is_some() {
                    msg.doom = Doom::Sure;
                    0xdead_be00 | imm & 0xff
                } else {
                    let mr = self.register(
                        peer,
                        64,
                        Access {
                            invalidate: true,
                            ..OPEN
                        },
                    );
                    self.oracle.regions[&(peer, mr)].rkey
                };
                msg.invalidates = Some(rkey);
                Op::SendInv(rkey)
            }
            Kind::Write | Kind::WriteImm => {
                msg.kind = WorkKind::Write;
                let spot = self.place(peer, post.len, OPEN);
                msg.target = Some(spot);
                let remote = self.spoilt(peer, spot, &post, &mut msg);
                if post.kind == Kind::WriteImm {
                    msg.imm = Some(imm);
                    Op::WriteImm(remote, imm)
                } else {
                    Op::Write(remote)
                }
            }
            Kind::Read => {
                msg.kind = WorkKind::Read;
                let (spot, what) = self.read_what(id, peer, &mut msg, pick);
                fill = what;
                Op::Read(self.spoilt(peer, spot, &post, &mut msg))
            }
            Kind::CmpSwap | Kind::FetchAdd => {
                fill = Fill::Any;
                msg.len = 8;
                let (word, change) = self.word(peer, post.kind, wr_id, pick);
                let spot = self.oracle.words[word].spot;
                let at = self.spoilt(peer, spot, &post, &mut msg);
                attempt = (msg.doom == Doom::No).then_some((word, change));
                match change {
                    Change::Add(digit) => {
                        msg.kind = WorkKind::FetchAdd;
                        Op::FetchAdd {
                            at,
                            add: 1 << (2 * digit),
                        }
                    }
                    Change::Swap { compare, swap } => {
                        msg.kind = WorkKind::CmpSwap;
                        Op::CmpSwap { at, compare, swap }
                    }
                }
            }
        };
        Draft {
            op,
            msg,
            fill,
            attempt,
        }
    }

    /// Address and key of `spot`, or others if the work is to be wrong.
    fn spoilt(&mut self, peer: usize, spot: Spot, post: &Post, msg: &mut Msg) -> Remote {
        let right = self.remote(spot);
        let Some(wrong) = post.wrong.filter(|_| msg.len > 0) else {
            return right;
        };
        msg.doom = Doom::Sure;
        let atomic = matches!(post.kind, Kind::CmpSwap | Kind::FetchAdd);
        let access = if atomic { ATOMIC } else { OPEN };
        let len = msg.len as u64;
        let of = |world: &Self, mr| {
            world.remote(Spot {
                end: peer,
                mr,
                offset: 0,
            })
        };
        match wrong {
            Wrong::Key => Remote {
                rkey: right.rkey ^ 0x0040_0055,
                ..right
            },
            Wrong::Bounds => {
                let mr = self.register(peer, msg.len, access);
                let remote = of(self, mr);
                let by = (len / 2 + 1).next_multiple_of(8);
                let va = if msg.wr_id.is_multiple_of(2) {
                    remote.va + by
                } else {
                    remote.va - by
                };
                Remote { va, ..remote }
            }
            Wrong::Access => {
                let access = if atomic { OPEN } else { ATOMIC };
                let mr = self.register(peer, msg.len, access);
                of(self, mr)
            }
            Wrong::Gone => {
                let mr = self.register(peer, msg.len, access);
                let remote = of(self, mr);
                self.ends[peer].deregister(mr).unwrap();
                self.oracle.regions.remove(&(peer, mr));
                remote
            }
            Wrong::Going => {
                msg.doom = Doom::Maybe;
                let mr = self.register(peer, msg.len, access);
                if msg.kind == WorkKind::Write {
                    msg.target = Some(Spot {
                        end: peer,
                        mr,
                        offset: 0,
                    });
                }
                self.going = Some((peer, mr));
                of(self, mr)
            }
            Wrong::Domain => {
                let mr = self.register(
                    peer,
                    msg.len,
                    Access {
                        domain: 1,
                        ..access
                    },
                );
                of(self, mr)
            }
            Wrong::Unaligned => Remote {
                va: right.va + 1 + msg.wr_id % 7,
                ..right
            },
        }
    }

    /// What a Read reads: bytes that never change, or those of a Write before it on the stream.
    fn read_what(&mut self, id: HalfId, peer: usize, msg: &mut Msg, pick: u64) -> (Spot, Fill) {
        let half = self.oracle.half(id);
        let write = half.tx.iter_mut().rev().find(|m| {
            m.kind == WorkKind::Write
                && m.doom == Doom::No
                && !m.given
                && m.len > 0
                && m.target.is_some()
        });
        if let Some(write) = write.filter(|_| pick.is_multiple_of(2)) {
            write.pinned = true;
            let from = pick as usize / 2 % write.len;
            msg.len = msg.len.min(write.len - from);
            let target = write.target.unwrap();
            let spot = Spot {
                offset: target.offset + from,
                ..target
            };
            return (spot, Fill::Payload(write.key, from));
        }
        let spot = self.place(peer, msg.len, OPEN);
        let bytes =
            &self.oracle.regions[&(peer, spot.mr)].bytes()[spot.offset..spot.offset + msg.len];
        (spot, Fill::Bytes(bytes.to_vec()))
    }

    fn word(&mut self, peer: usize, kind: Kind, wr_id: u64, pick: u64) -> (usize, Change) {
        let adds = kind == Kind::FetchAdd;
        let fits = |word: &Word| {
            let same = word
                .attempts
                .iter()
                .all(|a| matches!(a.change, Change::Add(_)) == adds);
            word.spot.end == peer
                && !word.gone
                && word.adds == adds
                && same
                && word.attempts.len() < if adds { ADDS } else { 8 }
        };
        let word = match self.oracle.words.iter().position(fits) {
            Some(word) => word,
            None => {
                let spot = self.place(peer, 8, ATOMIC);
                let initial = if adds { 0 } else { mix(wr_id) };
                self.put(spot, &initial.to_ne_bytes());
                self.oracle.regions.get_mut(&(peer, spot.mr)).unwrap().open(
                    spot.offset,
                    8,
                    &Fill::Any,
                );
                self.oracle.words.push(Word {
                    spot,
                    initial,
                    adds,
                    gone: false,
                    attempts: Vec::new(),
                });
                self.oracle.words.len() - 1
            }
        };
        let known = &self.oracle.words[word];
        let change = if adds {
            Change::Add(known.attempts.len() as u32)
        } else {
            let swapped = |a: &Attempt| match a.change {
                Change::Swap { swap, .. } => swap,
                Change::Add(_) => 0,
            };
            let compare = match (pick % 4, known.attempts.last()) {
                (0, _) | (_, None) => known.initial,
                (_, Some(last)) => swapped(last),
            };
            Change::Swap {
                compare,
                swap: mix(wr_id ^ 0x5a),
            }
        };
        (word, change)
    }
}
