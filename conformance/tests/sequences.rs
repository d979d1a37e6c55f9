//! The worked sequences in `vectors/sequences`: their form, their packets and the clauses that they name.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use metaroce_spec::{
    EcnMark, End, Fate, FieldValue, Happening, PacketStep, Sequence, SequenceFile, Step,
    parse_sequences, render,
};
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{Value, parse};

/// What an implementer must be able to look up.
const WORKED: [&str; 25] = [
    "write-over-four-paths",
    "gap-and-repair",
    "lost-retransmission",
    "re-entropy",
    "path-retired-and-opened-again",
    "no-credit",
    "receiver-not-ready",
    "incast",
    "bad-key",
    "set-up-and-close",
    "set-up-refused-by-version",
    "tail-loss-and-probe",
    "ecn-marks",
    "psn-wrap-with-loss",
    "sends-out-of-order",
    "read-with-a-lost-response",
    "fetch-and-add-once",
    "late-duplicate",
    "timeouts-back-off",
    "plane-failure",
    "send-with-invalidation",
    "compare-and-swap",
    "marks-and-windows",
    "data-before-the-answer",
    "paused-and-resumed",
];
/// Wrong versions that each of them has, at least.
const WRONG_EACH: usize = 2;

#[test]
fn every_worked_sequence_is_there_with_wrong_versions() {
    let all = sequences();
    let mut wrong: BTreeMap<&str, usize> = BTreeMap::new();
    for sequence in all.values() {
        if let Some(base) = &sequence.base {
            *wrong.entry(base).or_default() += 1;
        }
    }
    for id in WORKED {
        let right = all.get(id).unwrap_or_else(|| panic!("no sequence {id}"));
        assert_eq!(right.base, None, "{id}");
    }
    for (id, right) in &all {
        if right.base.is_none() {
            assert!(
                wrong.get(id.as_str()) >= Some(&WRONG_EACH),
                "{id} has too few wrong versions"
            );
        }
    }
}

#[test]
fn files_keep_the_schema_and_nothing_unknown_is_taken() {
    let text = std::fs::read_to_string(vectors().join("sequences.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    for (name, (file, text)) in files() {
        assert_eq!(file.subject, name);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<_> = validator
            .iter_errors(&json)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        // Nothing is lost on the way through the types either.
        assert!(
            serde_json::to_value(&file).unwrap() == json,
            "{name} is written otherwise"
        );
        for place in [
            "",
            "/sequences/0",
            "/sequences/0/steps/0",
            "/sequences/0/connections/0/initiator",
            "/sequences/0/memory",
        ] {
            let mut odd = json.clone();
            odd.pointer_mut(place).unwrap()["surprise"] = true.into();
            assert!(!validator.is_valid(&odd), "{name}{place}");
            assert!(parse_sequences(&odd.to_string()).is_err(), "{name}{place}");
        }
    }
}

#[test]
fn packets_read_strictly_and_hold_the_fields_that_are_told() {
    let (mut packets, mut problems) = (0, Vec::new());
    for (id, sequence) in sequences() {
        for (number, step) in sequence.steps.iter().enumerate() {
            let Step::Packet(packet) = step else { continue };
            packets += 1;
            if let Err(problem) = check_packet(&sequence, packet) {
                problems.push(format!("{id}, step {number}: {problem}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(packets > 1000, "{packets}");
}

/// Every kind of damage to a packet is noticed: the check above can fail.
#[test]
fn a_packet_that_was_changed_is_refused() {
    let all = sequences();
    let sequence = &all["gap-and-repair"];
    let first = sequence.steps.iter().find_map(|step| match step {
        Step::Packet(packet) => Some(packet),
        Step::Event(_) => None,
    });
    let good = first.unwrap();
    assert_eq!(check_packet(sequence, good), Ok(()));
    let refused = |change: &dyn Fn(&mut PacketStep)| {
        let mut packet = good.clone();
        change(&mut packet);
        check_packet(sequence, &packet).is_err()
    };
    assert!(refused(&|packet| packet
        .datagram
        .replace_range(40..42, "77")));
    assert!(refused(&|packet| packet.packet = "SEND".to_owned()));
    assert!(refused(&|packet| packet.from = End::Acceptor));
    assert!(refused(&|packet| packet.plane = 1));
    assert!(refused(&|packet| {
        let field = packet
            .fields
            .get_mut("MSGH")
            .unwrap()
            .get_mut("msn")
            .unwrap();
        *field = FieldValue::Number(77);
    }));
    assert!(refused(&|packet| {
        packet.fields.get_mut("MSGH").unwrap().remove("len");
    }));
}

/// The trailer covers the addresses, so that a packet fits one plane only.
#[test]
fn a_packet_belongs_to_the_planes_that_are_told() {
    let all = sequences();
    let sequence = &all["plane-failure"];
    assert!(sequence.connections[0].planes() > 1);
    let mut seen = BTreeSet::new();
    for step in &sequence.steps {
        let Step::Packet(packet) = step else { continue };
        seen.insert(packet.plane);
        assert_eq!(packet.to_plane, None);
        let mut other = packet.clone();
        other.plane = 1 - packet.plane;
        assert!(check_packet(sequence, &other).is_err());
        other.to_plane = Some(packet.plane);
        assert!(check_packet(sequence, &other).is_err());
        other.plane = 7;
        assert!(check_packet(sequence, &other).is_err());
    }
    assert_eq!(seen, BTreeSet::from([0, 1]));
    // The one way to say that two planes are joined, which no right sequence does.
    for (id, sequence) in &all {
        for step in &sequence.steps {
            let Step::Packet(packet) = step else { continue };
            let joins = packet.to_plane.is_some();
            assert!(!joins || packet.to_plane != Some(packet.plane), "{id}");
            assert!(!joins || sequence.base.is_some(), "{id}");
        }
    }
}

#[test]
fn time_goes_on_and_fates_are_possible() {
    for (id, sequence) in sequences() {
        let times: Vec<_> = sequence.steps.iter().map(Step::at_ns).collect();
        assert!(times.is_sorted(), "{id}");
        assert!(
            matches!(sequence.steps.last(), Some(Step::Event(event)) if event.what == Happening::End {}),
            "{id}"
        );
        let mut routes: BTreeMap<(usize, End, u8, u16), u64> = BTreeMap::new();
        for (number, step) in sequence.steps.iter().enumerate() {
            assert!(
                step.connection() < sequence.connections.len(),
                "{id}, step {number}"
            );
            let Step::Packet(packet) = step else { continue };
            let Some(arrives) = packet.fate.arrives_ns() else {
                continue;
            };
            assert!(arrives > packet.at_ns, "{id}, step {number}");
            match packet.fate {
                Fate::Marked { .. } => assert_eq!(packet.ecn, EcnMark::Ect0, "{id}, step {number}"),
                Fate::Duplicated { again_ns, .. } => {
                    assert!(again_ns > arrives, "{id}, step {number}")
                }
                Fate::Lost | Fate::Delivered { .. } | Fate::Delayed { .. } => {}
            }
            // A route is first-in first-out but for what is said to be delayed.
            if !matches!(packet.fate, Fate::Delayed { .. }) {
                let route = (
                    packet.connection,
                    packet.from,
                    packet.plane,
                    packet.source_port,
                );
                let before = routes.insert(route, arrives);
                assert!(before < Some(arrives), "{id}, step {number} overtakes");
            }
        }
    }
}

#[test]
fn clauses_exist_and_stand_in_one_list_only() {
    let known: BTreeSet<_> = metaroce_spec::clauses()
        .unwrap()
        .into_iter()
        .map(|clause| clause.id)
        .collect();
    for (id, sequence) in sequences() {
        let kept: BTreeSet<_> = sequence.satisfies.iter().collect();
        let broken: BTreeSet<_> = sequence
            .violates
            .iter()
            .map(|violated| &violated.clause)
            .collect();
        assert!(kept.is_disjoint(&broken), "{id}");
        for clause in kept.union(&broken) {
            assert!(known.contains(*clause), "{id}: no clause {clause}");
        }
        assert_eq!(
            broken.len(),
            sequence.violates.len(),
            "{id} names a clause twice"
        );
        for violated in &sequence.violates {
            assert!(violated.step < sequence.steps.len(), "{id}");
        }
        assert_eq!(sequence.base.is_some(), !broken.is_empty(), "{id}");
    }
}

#[test]
fn a_wrong_version_differs_from_its_right_one() {
    let all = sequences();
    for (id, sequence) in &all {
        let Some(base) = &sequence.base else { continue };
        let right = all
            .get(base)
            .unwrap_or_else(|| panic!("{id}: no sequence {base}"));
        assert_eq!(right.base, None, "{id}");
        assert!(id.starts_with(&format!("{base}--")), "{id}");
        assert_ne!(
            (&right.steps, &right.connections),
            (&sequence.steps, &sequence.connections),
            "{id}"
        );
        assert!(
            sequence
                .because
                .as_ref()
                .is_some_and(|text| !text.is_empty()),
            "{id}"
        );
    }
}

#[test]
fn diagrams_fit_a_page_and_show_every_step() {
    for (id, sequence) in sequences() {
        let drawn = render(&sequence);
        for line in drawn.lines() {
            assert!(line.chars().count() <= 100, "{id}: {line}");
        }
        let packets = sequence
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Packet(_)))
            .count();
        let arrows = drawn
            .lines()
            .filter(|line| line.contains("---") && line.contains('|'))
            .count();
        assert!(
            arrows >= packets,
            "{id}: {arrows} arrows for {packets} packets\n{drawn}"
        );
        for violated in &sequence.violates {
            assert!(
                drawn.contains(&format!("breaks {}", violated.clause)),
                "{id}"
            );
        }
    }
}

/// The same files, made again and judged by a program that shares no code with these crates.
#[test]
#[ignore = "needs python3"]
fn a_second_implementation_agrees() {
    let out = Command::new("python3")
        .arg(vectors().join("sequences.py"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let all = sequences();
    let right = all
        .values()
        .filter(|sequence| sequence.base.is_none())
        .count();
    let told = format!(
        "{right} right and {} wrong sequences, 0 faults",
        all.len() - right
    );
    assert!(said.contains(&told), "{said}");
}

/// Whether the bytes are a packet with the trailer of its addresses, and hold the fields as told.
fn check_packet(sequence: &Sequence, packet: &PacketStep) -> Result<(), String> {
    let connection = &sequence.connections[packet.connection];
    let (own, peer) = (
        connection.end(packet.from),
        connection.end(packet.from.other()),
    );
    let to_plane = packet.to_plane.unwrap_or(packet.plane);
    let (Some(source), Some(destination)) =
        (own.address_in(packet.plane), peer.address_in(to_plane))
    else {
        return Err("there is no such plane".to_owned());
    };
    let pseudo = PseudoHeader::new(source, SocketAddr::new(destination, peer.port));
    let bytes = unhex(&packet.datagram);
    let parsed = parse(&bytes, &pseudo).map_err(|error| error.to_string())?;
    let name = parsed.cbh.opcode.name();
    if name != Some(packet.packet.as_str()) {
        return Err(format!("{name:?} is told to be {}", packet.packet));
    }
    let mut fields: BTreeMap<String, BTreeMap<String, FieldValue>> = BTreeMap::new();
    parsed.visit(&mut |layer, field, value| {
        let told = packet
            .fields
            .get(layer)
            .and_then(|fields| fields.get(field));
        let value = match value {
            // Up to 32 bits a number, above that text: the told form decides, and the value has to fit it.
            Value::Int(number) => match (u32::try_from(number), told) {
                (Ok(small), Some(FieldValue::Number(_)) | None) => FieldValue::Number(small),
                _ => FieldValue::Text(format!("{number:#018x}")),
            },
            Value::Bytes(bytes) => FieldValue::Text(hex(bytes)),
        };
        fields
            .entry(layer.to_owned())
            .or_default()
            .insert(field.to_owned(), value);
    });
    if fields != packet.fields {
        return Err(format!("the packet holds {fields:?}"));
    }
    let clock = (own.clock_ns + packet.at_ns) / u64::from(own.ts_unit_ns);
    if u64::from(parsed.cbh.timestamp) != clock % (1 << 32) {
        return Err("the timestamp is not the clock at the time of sending".to_owned());
    }
    Ok(())
}

fn sequences() -> BTreeMap<String, Sequence> {
    let mut all = BTreeMap::new();
    for (file, _) in files().into_values() {
        for sequence in file.sequences {
            let id = sequence.id.clone();
            assert!(
                all.insert(id.clone(), sequence).is_none(),
                "{id} is there twice"
            );
        }
    }
    all
}

fn files() -> BTreeMap<String, (SequenceFile, String)> {
    let entries = std::fs::read_dir(vectors().join("sequences")).unwrap();
    let files: BTreeMap<_, _> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            assert_eq!(path.extension().unwrap(), "json", "{}", path.display());
            let text = std::fs::read_to_string(&path).unwrap();
            let file = parse_sequences(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (
                path.file_stem().unwrap().to_str().unwrap().to_owned(),
                (file, text),
            )
        })
        .collect();
    assert!(!files.is_empty());
    files
}

fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../vectors")
}

fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "{hex}");
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
