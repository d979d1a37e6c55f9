//! What chance decides about work, services and links.

use crate::chance::Chance;
use crate::net::{Dark, LinkPlan, Outage};
use crate::plan::{ConnPlan, Kind, MS, S, US, Wrong};
use metaroce_endpoint::core::{Features, Service, StreamConfig};

pub fn long(chance: &mut Chance, size: usize) -> usize {
    match chance.below(40) {
        0 => 1 << 20,
        1..=4 => 256 * 1024,
        _ => 32 * size,
    }
}

pub fn kind(chance: &mut Chance, plan: &ConnPlan, side: usize) -> Kind {
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

pub fn wrong(chance: &mut Chance, kind: Kind) -> Option<Wrong> {
    let any = [
        Wrong::Key,
        Wrong::Access,
        Wrong::Bounds,
        Wrong::Gone,
        Wrong::Domain,
        Wrong::Unaligned,
        Wrong::Going,
    ];
    let wrong = chance.pick(&any);
    let fits = match wrong {
        Wrong::Unaligned => matches!(kind, Kind::CmpSwap | Kind::FetchAdd),
        Wrong::Going => matches!(kind, Kind::Write | Kind::WriteImm),
        _ => !matches!(kind, Kind::Send | Kind::SendImm),
    };
    let wrong = if kind == Kind::SendInv {
        Wrong::Key
    } else {
        wrong
    };
    fits.then_some(wrong)
}

pub fn conn(chance: &mut Chance, n: usize, ends: usize, planes: u8) -> ConnPlan {
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
        srq: [0, 1].map(|_| chance.below(5) == 0),
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
        stream: StreamConfig {
            max_rd_atomic: chance.pick(&[None, None, Some(1), Some(3)]),
            ..StreamConfig::default()
        },
    }
}

pub fn link(chance: &mut Chance, theme: &'static str, stop: u64, planes: u8) -> LinkPlan {
    let delay = chance.pick(&[2 * US, 20 * US, 300 * US, 300 * US, 5 * MS, 40 * MS]);
    let mut link = LinkPlan {
        delay,
        jitter: chance.pick(&[0, delay / 10, delay, 4 * delay]),
        heal_at: if chance.below(3) == 0 { stop } else { u64::MAX },
        ..LinkPlan::default()
    };
    match theme {
        "severed" => {
            let from = chance.below(stop);
            link.outages.push(Outage {
                from,
                until: u64::MAX / 2,
                of: Dark::All,
            });
        }
        "hasty" => link.loss = [chance.pick(&[0, 0, 300, 700]); 3],
        "loss" | "many" | "closing" | "wrong" | "restart" => {
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
            let long = if matches!(of, Dark::Port(..)) {
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
            if link.marked > 10 {
                // Windows fall below one packet, and in long round trips everything takes for ever.
                link.heal_at = stop;
            }
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
            link.garbage = chance.pick(&[0, 100, 1000]);
        }
        _ => {}
    }
    if theme != "calm" {
        link.twice = chance.pick(&[0, 10, 100]);
        link.late = chance.pick(&[0, 0, 5, 50]);
    }
    link
}
