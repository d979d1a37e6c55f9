//! Every mutant changes what a session does; none is ever active in a session that is not told to be one.

use super::link::{Link, Weather};
use metaroce_endpoint::mutants;
use metaroce_wire::metaroce::Opcode;
use serde_json::json;

const SECOND: u64 = 1_000_000_000;

/// What the harness does over a link.
struct Scenario {
    name: &'static str,
    seed: u64,
    weather: Weather,
    run: fn(&mut Link),
}

const CALM: Weather = Weather {
    loss: 0,
    twice: 0,
    marked: 0,
    erased: 0,
    spoiled: 0,
    first: &[],
    dead_path: None,
};

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "loss, duplicates and marks",
        seed: 1,
        weather: Weather {
            loss: 60,
            twice: 40,
            marked: 100,
            erased: 30,
            ..CALM
        },
        run: exchange,
    },
    Scenario {
        name: "packets that must be refused",
        seed: 2,
        weather: Weather {
            spoiled: 250,
            loss: 20,
            ..CALM
        },
        run: exchange,
    },
    Scenario {
        name: "control that is lost",
        seed: 3,
        weather: Weather {
            first: &[
                (Opcode::CONFIRM_ACK, 1),
                (Opcode::STREAM_OPEN, 1),
                (Opcode::CLOSE_ACK, 1),
            ],
            ..CALM
        },
        run: exchange,
    },
    Scenario {
        name: "receives that come late",
        seed: 4,
        weather: CALM,
        run: starved,
    },
    Scenario {
        name: "a write that is refused",
        seed: 5,
        weather: CALM,
        run: refused_write,
    },
    Scenario {
        name: "writes over one another, and duplicates of them",
        seed: 9,
        weather: Weather { twice: 700, ..CALM },
        run: overwritten,
    },
    Scenario {
        name: "a send that is too long",
        seed: 8,
        weather: CALM,
        run: long_send,
    },
    Scenario {
        name: "a service that is not there",
        seed: 6,
        weather: CALM,
        run: no_service,
    },
    Scenario {
        name: "a path that is dead",
        seed: 7,
        weather: Weather {
            dead_path: Some(1),
            ..CALM
        },
        run: exchange,
    },
];

struct Region {
    mr: u64,
    va: String,
    rkey: u64,
}

fn register(link: &mut Link, side: usize, len: u64, remote_write: bool) -> Region {
    let body = json!({"len": len, "fill": 170, "remote_write": remote_write});
    let region = link.call(side, "register", body);
    Region {
        mr: region["mr"].as_u64().unwrap(),
        va: region["va"].as_str().unwrap().into(),
        rkey: region["rkey"].as_u64().unwrap(),
    }
}

fn open(link: &mut Link, change: serde_json::Value) {
    link.open(1, change.clone());
    link.open(0, change);
    link.run(SECOND / 2);
}

fn finish(link: &mut Link) {
    link.run(30 * SECOND);
    for side in 0..2 {
        link.events(side);
        link.call(side, "counters", json!({"conn": 0}));
    }
    link.call(0, "close", json!({"conn": 0}));
    link.run(8 * SECOND);
    link.events(0);
    link.events(1);
}

/// Sends and Writes in both directions.
fn exchange(link: &mut Link) {
    open(link, json!({}));
    let mut places = Vec::new();
    for side in 0..2usize {
        let peer = 1 - side;
        for n in 0..12u64 {
            let (stream, len) = (n % 2 * 2, [5000, 1, 257, 0, 1023, 30_001][n as usize % 6]);
            let from = register(link, side, len, false);
            let fill =
                json!({"mr": from.mr, "offset": 0, "hex": "5b".repeat(len.min(64) as usize)});
            link.call(side, "write_memory", fill);
            let to = register(link, peer, len + 64, true);
            let mut post = json!({"conn": 0, "stream": stream, "wr_id": n, "mr": from.mr, "offset": 0, "len": len});
            if n < 6 {
                let receive = json!({"conn": 0, "stream": stream, "wr_id": n, "mr": to.mr, "offset": 0, "len": len});
                link.call(peer, "post_recv", receive);
                link.call(side, "post_send", post);
            } else {
                post["va"] = json!(to.va);
                post["rkey"] = json!(to.rkey);
                link.call(side, "post_write", post);
            }
            places.push((peer, json!({"mr": to.mr, "offset": 0, "len": len + 64})));
            link.run(2_000_000);
        }
    }
    finish(link);
    for (side, whole) in places {
        link.call(side, "digest", whole);
    }
}

/// More Sends than receives, and more messages than the window allows.
fn starved(link: &mut Link) {
    open(link, json!({"msg_window": 4, "streams": 1}));
    for (side, peer) in [(0, 1), (1, 0)] {
        let from = register(link, side, 3000, false);
        let to = register(link, peer, 3000, true);
        for n in 0..24u64 {
            let mut post =
                json!({"conn": 0, "stream": 0, "wr_id": n, "mr": from.mr, "offset": 0, "len": 600});
            if n < 12 {
                link.call(side, "post_send", post);
            } else {
                post["va"] = json!(to.va);
                post["rkey"] = json!(to.rkey);
                link.call(side, "post_write", post);
            }
        }
        for n in 0..12u64 {
            link.run(300_000_000);
            let receive =
                json!({"conn": 0, "stream": 0, "wr_id": n, "mr": to.mr, "offset": 0, "len": 600});
            link.call(peer, "post_recv", receive);
        }
    }
    finish(link);
}

/// A Write under a wrong key, with more work behind it.
fn refused_write(link: &mut Link) {
    open(link, json!({}));
    let from = register(link, 0, 3000, false);
    let to = register(link, 1, 3000, true);
    for n in 0..4u64 {
        let post = json!({
            "conn": 0, "stream": 0, "wr_id": n, "mr": from.mr, "offset": 0, "len": 900,
            "va": to.va, "rkey": to.rkey + u64::from(n == 1),
        });
        link.call(0, "post_write", post);
    }
    finish(link);
}

/// Pairs of Writes of one packet to the same place.
fn overwritten(link: &mut Link) {
    open(link, json!({}));
    let mut places = Vec::new();
    for n in 0..16u64 {
        let to = register(link, 1, 64, true);
        for (half, byte) in ["5b", "a4"].into_iter().enumerate() {
            let from = register(link, 0, 64, false);
            let fill = json!({"mr": from.mr, "offset": 0, "hex": byte.repeat(64)});
            link.call(0, "write_memory", fill);
            let post = json!({
                "conn": 0, "stream": 0, "wr_id": 2 * n + half as u64, "mr": from.mr, "offset": 0, "len": 64,
                "va": to.va, "rkey": to.rkey,
            });
            link.call(0, "post_write", post);
        }
        places.push(json!({"mr": to.mr, "offset": 0, "len": 64}));
    }
    finish(link);
    for whole in places {
        link.call(1, "digest", whole);
    }
}

/// A Send that is longer than its receive.
fn long_send(link: &mut Link) {
    open(link, json!({}));
    let from = register(link, 0, 3000, false);
    let to = register(link, 1, 3000, true);
    let post = |mr: u64, len: u64| json!({"conn": 0, "stream": 0, "wr_id": 1, "mr": mr, "offset": 0, "len": len});
    link.call(1, "post_recv", post(to.mr, 100));
    link.call(0, "post_send", post(from.mr, 900));
    finish(link);
}

fn no_service(link: &mut Link) {
    link.open(1, json!({}));
    link.open(0, json!({"service_id": 8}));
    link.run(10 * SECOND);
    link.events(0);
}

fn transcript(scenario: &Scenario, mutant: [Option<&str>; 2]) -> Vec<Vec<u8>> {
    let mut link = Link::new(scenario.seed, mutant, scenario.weather);
    (scenario.run)(&mut link);
    link.transcript
}

#[test]
fn every_mutant_changes_something() {
    let sound: Vec<_> = SCENARIOS
        .iter()
        .map(|scenario| transcript(scenario, [None, None]))
        .collect();
    for (scenario, sound) in SCENARIOS.iter().zip(&sound) {
        assert_eq!(
            &transcript(scenario, [None, None]),
            sound,
            "{} repeats",
            scenario.name
        );
    }
    let differs = |id| {
        SCENARIOS.iter().zip(&sound).any(|(scenario, sound)| {
            [[Some(id), None], [None, Some(id)]]
                .into_iter()
                .any(|mutant| &transcript(scenario, mutant) != sound)
        })
    };
    let same: Vec<&str> = mutants::all()
        .chain(mutants::unnoticed())
        .map(|info| info.id)
        .filter(|id| !differs(*id))
        .collect();
    assert!(same.is_empty(), "these mutants change nothing: {same:?}");
}

#[test]
fn the_sound_exchange_succeeds() {
    // Otherwise the comparison above would compare failures.
    for scenario in SCENARIOS.iter().take(4) {
        let mut link = Link::new(scenario.seed, [None, None], scenario.weather);
        (scenario.run)(&mut link);
        let answers: String = link
            .lines
            .iter()
            .map(|(_, answer)| answer.as_str())
            .collect();
        assert!(
            !answers.contains("\"error\""),
            "{}: {answers}",
            scenario.name
        );
        let count = |what: &str| answers.matches(what).count();
        assert_eq!(count("\"established\""), 2, "{}", scenario.name);
        assert_eq!(count("\"closed\""), 2, "{}", scenario.name);
        assert_eq!(count("\"failed\""), 0, "{}", scenario.name);
        assert_eq!(
            count("IBV_WC_SUCCESS"),
            count("\"completion\""),
            "{}",
            scenario.name
        );
    }
}

#[test]
fn fakes_take_no_byte() {
    for fake in mutants::fakes() {
        for fake_side in 0..2 {
            let mut mutant = [None, None];
            mutant[fake_side] = Some(fake.id);
            let mut link = Link::new(8, mutant, CALM);
            open(&mut link, json!({}));
            let (from, to) = (1 - fake_side, fake_side);
            let source = register(&mut link, from, 300, false);
            let place = register(&mut link, to, 300, true);
            let post = json!({
                "conn": 0, "stream": 0, "wr_id": 1, "mr": source.mr, "offset": 0, "len": 300,
                "va": place.va, "rkey": place.rkey,
            });
            let fill = json!({"mr": source.mr, "offset": 0, "hex": "5b".repeat(300)});
            link.call(from, "write_memory", fill);
            link.call(from, "post_write", post);
            link.run(10 * SECOND);
            let whole = json!({"mr": place.mr, "offset": 0, "len": 300});
            let read = link.call(to, "read_memory", whole);
            assert_eq!(read["hex"], json!("aa".repeat(300)), "{}", fake.id);
            let done = link
                .events(from)
                .iter()
                .any(|event| event["status"] == "IBV_WC_SUCCESS");
            // Only the one that acknowledges blindly makes a sound peer believe it.
            assert_eq!(
                done,
                fake.id == "ack-everything",
                "{} as {fake_side}",
                fake.id
            );
        }
    }
}
