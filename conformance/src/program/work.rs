//! The work of a test: what is posted, and whether memory then holds it.

use super::{CHUNK, MARGIN, Program, call};
use crate::evidence::{MemoryPart, What, WorkKind};
use crate::iut::{PartyError, Post, Registered, Request};
use crate::payload::{FILL, hex, pattern, sha256};
use crate::scenario::{Transfer, Work};
use crate::testbed::{BedError, Testbed};
use crate::trace::Side;

/// A message on its way.
pub(super) struct Message {
    pub(super) from: Side,
    pub(super) kind: WorkKind,
    pub(super) wr_id: u64,
    /// The receive's id, for a Send.
    pub(super) recv_id: u64,
    pub(super) len: u64,
    pub(super) seed: u64,
    /// Region at the receiver.
    pub(super) mr: u32,
    /// What the sender and, for a Send, the receiver reported.
    pub(super) statuses: [Option<String>; 2],
}

/// A receive that is posted after its Send.
pub(super) struct Late {
    /// When, ns.
    pub(super) due: u64,
    to: Side,
    post: Post,
}

impl Message {
    pub(super) fn done(&self) -> bool {
        self.statuses[0].is_some() && (self.kind == WorkKind::Write || self.statuses[1].is_some())
    }

    pub(super) fn arrived(&self) -> bool {
        let good = |status: &Option<String>| status.as_deref() == Some("IBV_WC_SUCCESS");
        good(&self.statuses[usize::from(self.kind == WorkKind::Send)])
    }
}

impl Program<'_> {
    pub(super) fn post_work(&mut self) -> Result<(), BedError> {
        for work in &self.scenario.work {
            if self.failed {
                // The connection ended in a pause: nothing more can be posted to it.
                return Ok(());
            }
            let (kind, transfer): (WorkKind, &Transfer) = match work {
                Work::Pause(span) => {
                    self.wait(span.nanos(), |_| false)?;
                    continue;
                }
                Work::Settle(span) => {
                    self.wait(span.nanos(), |program| {
                        program.messages.iter().all(Message::done) || program.failed
                    })?;
                    continue;
                }
                Work::Write(transfer) => (WorkKind::Write, transfer),
                Work::Send(transfer) => (WorkKind::Send, transfer),
                Work::Recv(transfer) => (WorkKind::Recv, transfer),
            };
            for _ in 0..transfer.count {
                if kind == WorkKind::Recv {
                    self.post_receive(transfer)?;
                    continue;
                }
                let len = transfer.size.bytes();
                let late = transfer.late.map(|late| late.nanos());
                self.post_message(transfer.from, kind, transfer.stream, len, late)?;
            }
        }
        Ok(())
    }

    /// Posts a receive for what a tester sends.
    pub(super) fn post_receive(&mut self, transfer: &Transfer) -> Result<(), BedError> {
        let (to, len) = (transfer.from.other(), transfer.size.bytes());
        let stream = transfer.stream * 2;
        let wr_id = self.next_wr_id;
        self.next_wr_id += 2;
        let region = Request::Register {
            len,
            fill: FILL,
            remote_write: false,
        };
        let region: Registered = call(self.bed, to, &region)?;
        let post = Post {
            conn: 0,
            stream,
            wr_id,
            mr: region.mr,
            offset: 0,
            len,
        };
        self.post_recv(to, post)
    }

    pub(super) fn post_message(
        &mut self,
        from: Side,
        kind: WorkKind,
        stream: u16,
        len: u64,
        late: Option<u64>,
    ) -> Result<(), BedError> {
        let stream = stream * 2;
        let wr_id = self.next_wr_id;
        self.next_wr_id += 2;
        let seed = self.seed.rotate_left(17) ^ wr_id;
        let to = from.other();
        let peer_is_tester = self.bed.tester().is_some();
        let target = if peer_is_tester {
            Registered {
                mr: 0,
                va: "0x10000".into(),
                rkey: 1,
            }
        } else {
            call(
                self.bed,
                to,
                &Request::Register {
                    len: len + 2 * MARGIN,
                    fill: FILL,
                    remote_write: kind == WorkKind::Write,
                },
            )?
        };
        let va = parse_va(&target.va).ok_or_else(|| bad_va(to, &target.va))?;
        let source: Registered = call(
            self.bed,
            from,
            &Request::Register {
                len: len.max(1),
                fill: 0,
                remote_write: false,
            },
        )?;
        self.fill(from, source.mr, seed, len)?;
        let post = Post {
            conn: 0,
            stream,
            wr_id,
            mr: source.mr,
            offset: 0,
            len,
        };
        let bytes = u32::try_from(len).unwrap_or(u32::MAX);
        let posted = |kind, wr_id, remote| What::Posted {
            stream,
            wr_id,
            kind,
            len: bytes,
            remote,
        };
        if kind == WorkKind::Send {
            if peer_is_tester {
                self.note(from, posted(kind, wr_id, None));
                return self.call_ok(from, &Request::PostSend(post));
            }
            let recv = Post {
                wr_id: wr_id + 1,
                mr: target.mr,
                offset: MARGIN,
                ..post.clone()
            };
            self.place_receive(to, recv, late)?;
            self.note(from, posted(kind, wr_id, None));
            self.call_ok(from, &Request::PostSend(post))?;
        } else {
            let va = va.wrapping_add(MARGIN);
            self.note(from, posted(kind, wr_id, Some((va, target.rkey))));
            self.call_ok(
                from,
                &Request::PostWrite {
                    post,
                    va: format!("{va:#x}"),
                    rkey: target.rkey,
                },
            )?;
        }
        if !peer_is_tester {
            self.messages.push(Message {
                from,
                kind,
                wr_id,
                recv_id: wr_id + 1,
                len,
                seed,
                mr: target.mr,
                statuses: [None, None],
            });
        }
        Ok(())
    }

    /// Posts a receive now, or `late` ns from now. Receives of a stream keep their order: none overtakes one that waits.
    fn place_receive(&mut self, to: Side, post: Post, late: Option<u64>) -> Result<(), BedError> {
        let same = |other: &&Late| other.to == to && other.post.stream == post.stream;
        let before = self.late.iter().rev().find(same).map(|late| late.due);
        let wanted = late.map(|late| self.bed.now() + late);
        let Some(due) = before.max(wanted) else {
            return self.post_recv(to, post);
        };
        let at = self.late.partition_point(|other| other.due <= due);
        self.late.insert(at, Late { due, to, post });
        Ok(())
    }

    /// Posts the receives whose time has come. Once a connection is over, nothing more can be posted to it.
    pub(super) fn post_late(&mut self) -> Result<(), BedError> {
        let now = self.bed.now();
        while let Some(late) = self.late.pop_front_if(|late| late.due <= now) {
            if !self.failed {
                self.post_recv(late.to, late.post)?;
            }
        }
        Ok(())
    }

    fn post_recv(&mut self, to: Side, post: Post) -> Result<(), BedError> {
        let posted = What::Posted {
            stream: post.stream,
            wr_id: post.wr_id,
            kind: WorkKind::Recv,
            len: u32::try_from(post.len).unwrap_or(u32::MAX),
            remote: None,
        };
        self.note(to, posted);
        self.call_ok(to, &Request::PostRecv(post))
    }

    pub(super) fn fill(
        &mut self,
        side: Side,
        mr: u32,
        seed: u64,
        len: u64,
    ) -> Result<(), BedError> {
        let bytes: Vec<u8> = (0..len).map(|i| pattern(seed, i)).collect();
        for (n, chunk) in bytes.chunks(CHUNK).enumerate() {
            let offset = (n * CHUNK) as u64;
            self.call_ok(
                side,
                &Request::WriteMemory {
                    mr,
                    offset,
                    hex: hex(chunk),
                },
            )?;
        }
        Ok(())
    }

    /// Compares the memory of every message that is reported to have arrived, once; tells whether all is as it must be.
    pub(super) fn check_memory(&mut self) -> Result<bool, BedError> {
        let mut good = true;
        for message in std::mem::take(&mut self.messages) {
            if message.arrived() {
                let to = message.from.other();
                let wr_id = if message.kind == WorkKind::Send {
                    message.recv_id
                } else {
                    message.wr_id
                };
                let (len, seed) = (message.len, message.seed);
                good &= self.compare(to, message.mr, MARGIN, MemoryPart::Inside, wr_id, |_| {
                    (0..len).map(|i| pattern(seed, i)).collect()
                })?;
                for offset in [0, MARGIN + len] {
                    let sentinel = |_: &dyn Testbed| vec![FILL; MARGIN as usize];
                    good &=
                        self.compare(to, message.mr, offset, MemoryPart::Outside, wr_id, sentinel)?;
                }
            }
        }
        Ok(good)
    }

    pub(super) fn compare(
        &mut self,
        side: Side,
        mr: u32,
        offset: u64,
        part: MemoryPart,
        wr_id: u64,
        expected: impl FnOnce(&dyn Testbed) -> Vec<u8>,
    ) -> Result<bool, BedError> {
        #[derive(serde::Deserialize)]
        struct Answer {
            #[serde(deserialize_with = "crate::iut::shown")]
            sha256: String,
        }
        let expected = expected(self.bed);
        let len = expected.len() as u64;
        let seen: Answer = call(self.bed, side, &Request::Digest { mr, offset, len })?;
        let expected = sha256(&expected);
        let equal = expected == seen.sha256;
        let what = What::Memory {
            wr_id,
            part,
            len,
            expected,
            seen: seen.sha256,
        };
        self.note(side, what);
        Ok(equal)
    }
}

pub(super) fn parse_va(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

pub(super) fn bad_va(side: Side, va: &str) -> BedError {
    let what = "a va that is not 0x and hex digits".into();
    BedError::party(
        side,
        PartyError::Garbage {
            op: "register".into(),
            what,
            line: crate::iut::printable(va),
        },
    )
}
