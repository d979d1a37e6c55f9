//! A scenario: everything that is decided by the seed before a run begins.

use crate::chance::Chance;
use crate::draw::{conn, kind, link, long, wrong};
use crate::net::LinkPlan;
use metaroce_endpoint::core::{Features, Service, StreamConfig};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CmpSwap,
    FetchAdd,
}

impl Kind {
    pub fn consumes(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm | Self::SendInv | Self::WriteImm
        )
    }
}

/// What is wrong with work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A key that there is not.
    Key,
    /// A region that has been deregistered.
    Gone,
    /// Beyond the end of the region, or before it.
    Bounds,
    /// A region that does not permit it.
    Access,
    /// A region of another protection domain.
    Domain,
    /// An atomic operation on half a word.
    Unaligned,
    /// A region that is deregistered while the work is under way.
    Going,
}

#[derive(Debug, Clone, Copy)]
pub struct Post {
    pub kind: Kind,
    pub len: usize,
    pub signalled: bool,
    pub solicited: bool,
    pub fence: bool,
    pub inline: bool,
    pub wrong: Option<Wrong>,
}

/// What the program at one side of a connection does. Streams are picked among those that were opened so far.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    Post(Post),
    Receive {
        short: bool,
    },
    Withdraw,
    Open,
    Reset,
    Move {
        path: u16,
        port: u16,
        plane: Option<u8>,
    },
    Retire {
        path: u16,
    },
    Plane {
        plane: u8,
        up: bool,
    },
    Close,
    Abort,
    /// A region goes.
    Deregister(u32),
    /// The endpoint at this side forgets everything and starts anew.
    Restart,
    /// The clock of everybody jumps forward, ns.
    Jump(u64),
}

#[derive(Debug, Clone)]
pub struct Planned {
    pub at: u64,
    pub conn: usize,
    pub side: usize,
    /// Picks the stream.
    pub pick: u64,
    pub action: Action,
}

#[derive(Debug, Clone)]
pub struct ConnPlan {
    /// Initiator and acceptor.
    pub ends: [usize; 2],
    /// What each offers.
    pub services: [Service; 2],
    pub srq: [bool; 2],
    /// Bytes of a receive, and so the longest Send.
    pub receive: usize,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub theme: &'static str,
    pub ends: usize,
    pub planes: u8,
    pub ack_delay_us: u16,
    pub capacity_mbps: Option<u32>,
    pub spray_run: u8,
    pub ipv6: bool,
    /// The driver runs timers late, up to this, ns.
    pub late_timers: u64,
    /// Packets that the driver takes at a time; 0 for all.
    pub per_poll: u32,
    pub conns: Vec<ConnPlan>,
    pub link: LinkPlan,
    pub actions: Vec<Planned>,
    pub scrub: bool,
    /// The latest planned action, ns.
    pub stop: u64,
    /// Something is planned that work or connections may fail of.
    pub harm: bool,
    /// The last close, if nothing closes before: by which side, or by both.
    pub closer: usize,
}

const THEMES: [&str; 15] = [
    "calm", "loss", "heavy", "bursts", "outage", "reorder", "marks", "queue", "damage", "many",
    "wrong", "closing", "severed", "restart", "hasty",
];

impl Plan {
    pub fn new(seed: u64) -> Self {
        let theme = THEMES[seed as usize % THEMES.len()];
        let mut chance = Chance::new(seed, 0x71a9);
        let ends = if chance.below(8) == 0 { 3 } else { 2 };
        let planes = if chance.below(4) == 0 {
            chance.between(1, 3) as u8
        } else {
            0
        };
        let count = match theme {
            "many" => chance.between(2, 4),
            "restart" => 2,
            _ => 1,
        };
        let conns = (0..count)
            .map(|n| conn(&mut chance, n as usize, ends, planes))
            .collect();
        let stop = chance.pick(&[2 * MS, 20 * MS, 200 * MS, 2 * S]);
        let mut plan = Self {
            seed,
            theme,
            ends,
            planes,
            ack_delay_us: chance.pick(&[0, 8, 200, 200, 2000]),
            capacity_mbps: (chance.below(5) == 0).then(|| chance.pick(&[100, 1000, 10_000])),
            spray_run: chance.pick(&[1, 1, 4, 16]),
            ipv6: chance.below(4) == 0,
            late_timers: chance.pick(&[0, 0, 0, 0, 100 * US, 5 * MS]),
            per_poll: chance.pick(&[0, 0, 0, 1, 7]),
            conns,
            link: link(&mut chance, theme, stop, planes),
            actions: Vec::new(),
            scrub: chance.below(4) > 0,
            stop,
            harm: ["wrong", "closing", "severed", "restart", "hasty"].contains(&theme),
            closer: chance.below(3) as usize,
        };
        plan.fill(&mut chance);
        plan
    }

    /// A short exchange on two paths without any chance in it: a Send and a Write each way.
    pub fn short() -> Self {
        let service = Service {
            service_id: 1,
            paths: 2,
            streams: 2,
            first_streams: 1,
            payload_size: 256,
            msg_window: 4,
            initial_psn: Some(0xffff_ffff),
            features: Features(!Features::RESERVED.0),
            read_depth: 1,
            atomic_depth: 1,
            extra_planes: 0,
            rnr_retries: 7,
            stream: StreamConfig::default(),
        };
        let conn = ConnPlan {
            ends: [0, 1],
            services: [service; 2],
            srq: [false; 2],
            receive: 600,
        };
        let mut plan = Self {
            theme: "short",
            ends: 2,
            planes: 0,
            ack_delay_us: 0,
            capacity_mbps: None,
            spray_run: 1,
            ipv6: false,
            late_timers: 0,
            per_poll: 0,
            conns: vec![conn],
            link: LinkPlan {
                delay: 100 * US,
                heal_at: u64::MAX,
                ..LinkPlan::default()
            },
            actions: Vec::new(),
            scrub: true,
            stop: MS,
            harm: false,
            closer: 0,
            ..Self::new(0)
        };
        for side in 0..2 {
            let kinds = [Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd];
            for kind in kinds {
                let len = if kind == Kind::FetchAdd { 8 } else { 300 };
                let post = Post {
                    kind,
                    len,
                    signalled: true,
                    solicited: false,
                    fence: false,
                    inline: false,
                    wrong: None,
                };
                let receive = Action::Receive { short: false };
                let planned = Planned {
                    at: 0,
                    conn: 0,
                    side,
                    pick: 0,
                    action: Action::Post(post),
                };
                plan.actions.push(planned.clone());
                if kind == Kind::Send {
                    plan.actions.push(Planned {
                        side: 1 - side,
                        action: receive,
                        ..planned
                    });
                }
            }
        }
        plan
    }

    fn fill(&mut self, chance: &mut Chance) {
        if self.theme == "wrong" && chance.below(6) == 0 {
            for service in &mut self.conns[0].services {
                service.rnr_retries = chance.below(7) as u8;
            }
        }
        if self.theme == "restart" {
            // The second connection is between the same two, after one of them has started anew.
            self.conns[1].ends = self.conns[0].ends;
            let (at, side) = (chance.below(self.stop), chance.below(2) as usize);
            self.actions.push(Planned {
                at,
                conn: 0,
                side,
                pick: 0,
                action: Action::Restart,
            });
        }
        let few = chance.pick(&[3, 10, 30, 60]);
        for conn in 0..self.conns.len() {
            let late = chance.below(4);
            let works = chance.between(1, few) / self.conns.len() as u64 + 1;
            for _ in 0..works {
                self.work(chance, conn, late);
            }
            self.other_actions(chance, conn);
        }
        self.actions.sort_by_key(|a| a.at);
        if chance.below(16) == 0 && !["outage", "severed"].contains(&self.theme) {
            let at = chance.below(self.stop);
            let jump = Action::Jump(chance.between(1, 5) * S);
            self.actions.push(Planned {
                at,
                conn: 0,
                side: 0,
                pick: 0,
                action: jump,
            });
            self.actions.sort_by_key(|a| a.at);
        }
    }

    /// Work at one side, and the receive for it at the other: before, at the same time, or later.
    fn work(&mut self, chance: &mut Chance, conn: usize, late: u64) {
        let plan = &self.conns[conn];
        let side = chance.below(2) as usize;
        let kind = kind(chance, plan, side);
        let size = usize::from(
            plan.services[0]
                .payload_size
                .min(plan.services[1].payload_size),
        );
        let consumes_buffer = kind.consumes() && kind != Kind::WriteImm;
        let most = if consumes_buffer {
            plan.receive
        } else {
            long(chance, size)
        };
        let wrong = (self.theme == "wrong" && chance.below(12) == 0)
            .then(|| wrong(chance, kind))
            .flatten();
        let post = Post {
            kind,
            len: if matches!(kind, Kind::CmpSwap | Kind::FetchAdd) {
                8
            } else {
                chance.length(size, most)
            },
            signalled: chance.below(4) > 0,
            solicited: chance.below(8) == 0,
            fence: chance.below(8) == 0,
            inline: chance.below(6) == 0,
            wrong,
        };
        let at = chance.below(self.stop);
        let pick = chance.below(1 << 20);
        self.actions.push(Planned {
            at,
            conn,
            side,
            pick,
            action: Action::Post(post),
        });
        if kind.consumes() && chance.below(8) > 0 {
            let at = match late {
                0 => 0,
                1 => at.saturating_sub(chance.below(self.stop / 4 + 1)),
                2 => at,
                _ => at + chance.below(self.stop / 2 + 1),
            };
            let short = self.theme == "wrong" && chance.below(16) == 0;
            self.actions.push(Planned {
                at,
                conn,
                side: 1 - side,
                pick,
                action: Action::Receive { short },
            });
        }
    }

    fn other_actions(&mut self, chance: &mut Chance, conn: usize) {
        let mut push = |chance: &mut Chance, action| {
            let at = chance.below(self.stop);
            let side = chance.below(2) as usize;
            let pick = chance.below(1 << 20);
            self.actions.push(Planned {
                at,
                conn,
                side,
                pick,
                action,
            });
        };
        if self.theme == "closing" {
            let action = if chance.below(2) == 0 {
                Action::Abort
            } else {
                Action::Close
            };
            push(chance, action);
            if chance.below(4) == 0 {
                push(chance, Action::Close);
            }
        }
        for _ in 0..chance.below(4) {
            push(chance, Action::Open);
        }
        // A message that waits for a receive is sent again and again: under heavy losses 64 of these are lost in the end.
        if !["heavy", "bursts"].contains(&self.theme) {
            for _ in 0..chance.below(3) {
                push(chance, Action::Withdraw);
            }
        }
        if self.theme == "wrong" || self.theme == "closing" {
            for _ in 0..chance.below(3) {
                push(chance, Action::Reset);
            }
        }
        for _ in 0..chance.below(3) {
            let path = chance.below(8) as u16;
            let plane = (self.planes > 0 && chance.below(2) == 0)
                .then(|| chance.below(u64::from(self.planes) + 1) as u8);
            let port = 50_000 + chance.below(256) as u16;
            push(chance, Action::Move { path, port, plane });
        }
        if chance.below(3) == 0 {
            let path = chance.below(8) as u16;
            push(chance, Action::Retire { path });
        }
        if self.planes > 0 && chance.below(3) == 0 {
            let plane = chance.below(u64::from(self.planes) + 1) as u8;
            push(chance, Action::Plane { plane, up: false });
            push(chance, Action::Plane { plane, up: true });
        }
    }
}

impl ConnPlan {
    pub fn agreed(&self) -> Features {
        Features(self.services[0].features.0 & self.services[1].features.0)
    }
}
