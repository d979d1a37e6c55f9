//! A scenario: everything that is decided by the seed before a run begins.

use crate::api::{Features, Service, StreamConfig, WHOLE};
use crate::chance::Chance;
use crate::net::{Dark, LinkPlan, Outage};

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
    pub conns: Vec<ConnPlan>,
    pub link: LinkPlan,
    pub actions: Vec<Planned>,
    pub scrub: bool,
    /// The latest planned action, ns.
    pub stop: u64,
    /// Something is planned that work or connections may fail of.
    pub harm: bool,
    /// The last close, if nothing closes before: by which side.
    pub closer: usize,
}

const THEMES: [&str; 12] = [
    "calm", "loss", "heavy", "bursts", "outage", "reorder", "marks", "queue", "damage", "many",
    "wrong", "closing",
];

impl Plan {
    pub fn new(seed: u64) -> Self {
        let theme = THEMES[(seed % THEMES.len() as u64) as usize];
        let mut chance = Chance::new(seed, 0x71a9);
        let ends = if chance.below(8) == 0 { 3 } else { 2 };
        let planes = if WHOLE && chance.below(4) == 0 {
            chance.between(1, 3) as u8
        } else {
            0
        };
        let count = if theme == "many" {
            chance.between(2, 4)
        } else {
            1
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
            capacity_mbps: (WHOLE && chance.below(5) == 0)
                .then(|| chance.pick(&[100, 1000, 10_000])),
            spray_run: chance.pick(&[1, 1, 4, 16]),
            conns,
            link: link(&mut chance, theme, stop, planes),
            actions: Vec::new(),
            scrub: chance.below(4) > 0,
            stop,
            harm: theme == "wrong" || theme == "closing",
            closer: chance.below(2) as usize,
        };
        plan.fill(&mut chance);
        plan
    }

    fn fill(&mut self, chance: &mut Chance) {
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
        if chance.below(16) == 0 && self.theme != "outage" {
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
            signalled: !WHOLE || chance.below(4) > 0,
            solicited: WHOLE && chance.below(8) == 0,
            fence: WHOLE && chance.below(8) == 0,
            inline: WHOLE && chance.below(6) == 0,
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
            let action = if WHOLE && chance.below(2) == 0 {
                Action::Abort
            } else {
                Action::Close
            };
            push(chance, action);
            if chance.below(4) == 0 {
                push(chance, Action::Close);
            }
        }
        if !WHOLE {
            return;
        }
        for _ in 0..chance.below(4) {
            push(chance, Action::Open);
        }
        for _ in 0..chance.below(3) {
            push(chance, Action::Withdraw);
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

fn long(chance: &mut Chance, size: usize) -> usize {
    match chance.below(40) {
        0 => 1 << 20,
        1..=4 => 256 * 1024,
        _ => 32 * size,
    }
}

fn kind(chance: &mut Chance, plan: &ConnPlan, side: usize) -> Kind {
    if !WHOLE {
        return chance.pick(&[Kind::Send, Kind::Write]);
    }
    let agreed = plan.agreed();
    let asked = plan.services[1 - side];
    loop {
        let kind = chance.pick(&[
            Kind::Send,
            Kind::SendImm,
            Kind::SendInv,
            Kind::Write,
            Kind::Write,
            Kind::WriteImm,
            Kind::Read,
            Kind::CmpSwap,
            Kind::FetchAdd,
        ]);
        let possible = match kind {
            Kind::SendImm | Kind::WriteImm => agreed.has(Features::IMM),
            Kind::SendInv => agreed.has(Features::INV),
            Kind::Read => asked.read_depth > 0,
            Kind::CmpSwap | Kind::FetchAdd => asked.atomic_depth > 0,
            _ => true,
        };
        if possible {
            return kind;
        }
    }
}

fn wrong(chance: &mut Chance, kind: Kind) -> Option<Wrong> {
    let any = [
        Wrong::Key,
        Wrong::Access,
        Wrong::Bounds,
        Wrong::Gone,
        Wrong::Domain,
        Wrong::Unaligned,
    ];
    let wrong = if WHOLE {
        chance.pick(&any)
    } else {
        chance.pick(&any[..2])
    };
    match kind {
        Kind::Write | Kind::WriteImm | Kind::Read => (wrong != Wrong::Unaligned).then_some(wrong),
        Kind::CmpSwap | Kind::FetchAdd => Some(wrong),
        Kind::SendInv => Some(Wrong::Key),
        _ => None,
    }
}

impl ConnPlan {
    pub fn agreed(&self) -> Features {
        Features(self.services[0].features.0 & self.services[1].features.0)
    }
}

fn conn(chance: &mut Chance, n: usize, ends: usize, planes: u8) -> ConnPlan {
    let pairs = [[0, 1], [2, 1], [1, 0], [0, 2]];
    let pair = if ends == 3 {
        pairs[(n + 1) % 4]
    } else {
        pairs[(n % 2) * 2]
    };
    let first = chance.pick(&[1, 1, 2, 3, 8]);
    let services = [0, 1].map(|_| service(chance, first, planes));
    ConnPlan {
        ends: pair,
        services,
        srq: [0, 1].map(|_| WHOLE && chance.below(5) == 0),
        receive: chance.pick(&[600, 5_000, 20_000, 20_000, 70_000]),
    }
}

fn service(chance: &mut Chance, first: u16, extra_planes: u8) -> Service {
    let near_wrap = Some(0xffff_ffff_u32.wrapping_sub(chance.below(200) as u32));
    let mut features = Features(!Features::RESERVED.0);
    if chance.below(3) == 0 {
        features = Features(features.0 & chance.below(1 << 16) as u16);
    }
    Service {
        service_id: 1,
        paths: chance.pick(&[1, 2, 3, 4, 8, 8, 16, 64]),
        streams: first + chance.below(8) as u16,
        first_streams: first,
        payload_size: chance.pick(&[256, 512, 1024, 1024, 4096, 8192]),
        msg_window: chance.pick(&[1, 2, 3, 8, 64, 1024]),
        initial_psn: if chance.below(2) == 0 {
            near_wrap
        } else {
            None
        },
        features,
        read_depth: chance.pick(&[0, 1, 2, 16]),
        atomic_depth: chance.pick(&[0, 1, 2, 16]),
        extra_planes,
        rnr_retries: 7,
        stream: StreamConfig::default(),
    }
}

fn link(chance: &mut Chance, theme: &'static str, stop: u64, planes: u8) -> LinkPlan {
    let delay = chance.pick(&[2 * US, 20 * US, 300 * US, 300 * US, 5 * MS, 40 * MS]);
    let mut link = LinkPlan {
        delay,
        jitter: chance.pick(&[0, delay / 10, delay, 4 * delay]),
        heal_at: if chance.below(3) == 0 { stop } else { u64::MAX },
        ..LinkPlan::default()
    };
    match theme {
        "loss" | "many" | "closing" | "wrong" => {
            let all = chance.pick(&[0, 1, 10, 50]);
            link.loss = [all; 3];
        }
        "heavy" => {
            link.loss = chance.pick(&[[120, 0, 0], [0, 150, 0], [120, 120, 20], [0, 400, 10]])
        }
        "bursts" => link.burst = (chance.between(1, 12) as u32, chance.pick(&[4, 16, 64])),
        "outage" => {
            let of = match chance.below(4) {
                0 => Dark::Port(chance.below(2) as usize, 50_000 + chance.below(8) as u16),
                1 => Dark::From(chance.below(2) as usize),
                2 if planes > 0 => Dark::Plane(chance.below(u64::from(planes) + 1) as u8),
                _ => Dark::All,
            };
            let from = chance.below(stop);
            let long = if matches!(of, Dark::Port(..)) && WHOLE {
                3 * S
            } else {
                300 * MS
            };
            link.outages.push(Outage {
                from,
                until: from + chance.below(long),
                of,
            });
        }
        "reorder" => {
            link.reorder = chance.pick(&[10, 100, 300]);
            link.loss = [chance.pick(&[0, 10, 50]); 3];
        }
        "marks" => {
            link.marked = chance.pick(&[10, 300, 1000]);
            link.bleached = chance.pick(&[0, 300, 1000]);
            link.loss = [chance.pick(&[0, 20]); 3];
        }
        "queue" => {
            let rate = chance.pick(&[20_000_000, 200_000_000, 2_000_000_000]);
            let backlog = chance.pick(&[2 * MS, 10 * MS]);
            link.rate = Some((rate, backlog));
            link.mark_from = (chance.below(2) == 0).then_some(backlog / 4);
        }
        "damage" => {
            link.corrupt = chance.pick(&[5, 50]);
            link.cut = chance.pick(&[0, 20]);
        }
        _ => {}
    }
    if theme != "calm" {
        link.twice = chance.pick(&[0, 10, 100]);
    }
    link
}
