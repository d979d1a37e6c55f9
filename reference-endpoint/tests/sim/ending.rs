//! How a run ends: all completes, the world falls silent, and every connection is closed.

use crate::oracle::HalfId;
use crate::plan::{Action, Kind, MS, Post, S};
use crate::world::{Conn, World, note};

impl World {
    // ---- the end ------------------------------------------------------------------------------------------------

    /// Runs all that is planned, lets everything complete, and closes.
    pub fn play(&mut self) {
        self.start();
        self.pass(self.plan.stop + self.plan.stop / 2 + 1);
        let outages = self.net.plan.outages.iter().map(|o| o.until);
        let healed = outages.filter(|until| *until < self.now + 100 * S).max();
        self.pass(healed.unwrap_or(0).saturating_sub(self.now));
        self.start_again();
        self.settle();
        self.check_silence();
        for n in 0..self.conns.len() {
            let sides = if self.plan.closer == 2 {
                0..2
            } else {
                self.plan.closer..self.plan.closer + 1
            };
            if self.conns[n].over == [false; 2] {
                sides.for_each(|side| self.end(n, side, Action::Close));
            }
            for end in self.conns[n].ends {
                self.drain(end);
            }
            self.run(60 * S, "the connection does not end", |w| {
                w.conns[n].over == [true; 2]
            });
        }
        self.pass(30 * S);
        assert!(
            self.next_time().is_none(),
            "timers run though all connections are over"
        );
        self.oracle
            .finish(&self.ends)
            .unwrap_or_else(|e| panic!("at the end: {e}"));
        note(|| String::from("over"));
    }

    /// Posts the receives that are missing, and one last work on every stream that shows that all before it is done.
    fn settle(&mut self) {
        for conn in &self.conns {
            for (side, &end) in conn.ends.iter().enumerate() {
                for plane in 0..=self.plan.planes {
                    let handle = conn.handles[side].unwrap_or(u32::MAX);
                    self.ends[end].set_plane(self.now, handle, plane, true).ok();
                }
            }
        }
        let ids: Vec<HalfId> = self.oracle.halves.keys().copied().collect();
        for id in ids {
            let half = self.oracle.half(id);
            if half.open && !half.ended && !self.conns[id.0].over[id.1] {
                let kind = Kind::Write;
                let last = Post {
                    kind,
                    len: 0,
                    signalled: true,
                    solicited: false,
                    fence: false,
                    inline: false,
                    wrong: None,
                };
                self.post(id, last, 0);
            }
        }
        let limit = self.now + 150 * S;
        let mut round = 0;
        loop {
            for end in 0..self.ends.len() {
                self.drain(end);
            }
            if self.is_settled() {
                return;
            }
            assert!(
                self.now < limit,
                "not everything completes: {}",
                self.left()
            );
            self.post_missing(round);
            self.pass((5 * MS) << (round / 32).min(6));
            round += 1;
        }
    }

    fn is_settled(&self) -> bool {
        let conn_over = |id: &HalfId| self.conns[id.0].over == [true; 2];
        let over_on_one = |c: &Conn| c.over[0] != c.over[1];
        let done = self.oracle.halves.iter().all(|(id, half)| {
            let peer = self.oracle.halves.get(&(id.0, 1 - id.1, id.2));
            let all = peer.map_or(0, |p| p.consuming.len());
            // A stream that was refused has never been there for the peer.
            let never = !half.opened && peer.is_some_and(|p| p.ended);
            let received = half.consumed == all || half.rx_failed || never;
            conn_over(id) || half.ended || (half.outstanding() == 0 && received)
        });
        done && !self
            .conns
            .iter()
            .any(|c| over_on_one(c) || (!c.opening.is_empty() && c.over != [true; 2]))
    }

    fn post_missing(&mut self, round: u32) {
        let ids: Vec<HalfId> = self.oracle.halves.keys().copied().collect();
        for id in ids {
            let wanted = self.oracle.half((id.0, 1 - id.1, id.2)).consuming.len();
            let half = self.oracle.half(id);
            let usable = half.open && !half.ended && !half.rx_failed;
            let shared = half.srq.is_some();
            let have = if shared {
                half.consumed
            } else {
                half.slots.len()
            };
            let holes = half.slots.iter().skip(half.consumed).any(Option::is_none);
            let more = have < wanted || holes;
            if usable
                && more
                && !self.conns[id.0].over[id.1]
                && (!shared || round.is_multiple_of(8))
            {
                self.receive(id, false);
            }
        }
    }

    /// With nothing to do hardly anything may happen.
    fn check_silence(&mut self) {
        self.pass(10 * S);
        let steps = self.pass(10 * S);
        assert!(
            steps <= 20 + 20 * self.conns.len() as u64,
            "{steps} steps within 10 s though nothing is to be done"
        );
    }
}
