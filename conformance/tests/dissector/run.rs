//! Every capture of a run in simulated time.

use std::path::{Path, PathBuf};

use metaroce_conformance::evidence::CAPTURE;
use metaroce_conformance::run::{Plan, run};
use metaroce_conformance::trace::pcapng::TraceReader;
use metaroce_wire::frame::parse_ip;
use metaroce_wire::metaroce::parse;

use crate::links::{Links, Seen, links};
use crate::packets::{asked, judge};
use crate::tshark::{self, Shown};

const LINKS: [&str; 8] = [
    "metaroce.original_frame",
    "metaroce.retransmission_frame",
    "metaroce.acks_frame",
    "metaroce.acked_in",
    "metaroce.response_to",
    "metaroce.response_in",
    "metaroce.nak_of",
    "metaroce.nak_in",
];

/// Makes a run, and gives the captures of its tests.
fn captures(folder: &Path, filter: Option<&str>) -> Vec<PathBuf> {
    let plan = Plan {
        filter: filter.map(str::to_owned),
        ..Plan::reference().unwrap()
    };
    let result = run(&plan, folder, &mut |_, _, _| {}).unwrap();
    let tests = result.tests.iter();
    tests
        .map(|test| folder.join(&test.id).join(CAPTURE))
        .collect()
}

/// What a capture holds that the checks have to meet.
#[derive(Default)]
struct Met {
    frames: usize,
    bad: usize,
    retransmissions: usize,
    linked: usize,
    links: [usize; LINKS.len()],
}

fn shown_links(shown: &Shown) -> Links {
    let [
        original,
        again,
        acks,
        acked,
        request,
        response,
        refuses,
        refused,
    ] = LINKS.map(|name| {
        let values = shown.get(name).map_or(&[][..], Vec::as_slice);
        values.iter().map(|text| text.parse().unwrap()).collect()
    });
    Links {
        original,
        again,
        acks,
        acked,
        request,
        response,
        refuses,
        refused,
    }
}

/// Reads a capture with tshark, and tells what differs from the parser and from the model of the links.
fn compare(script: &Path, capture: &Path, met: &mut Met) -> Vec<String> {
    let (fields, mut asked) = asked();
    asked.extend(LINKS.map(str::to_owned));
    let shown = tshark::read(script, capture, &[], &asked);
    let mut found = Vec::new();
    let mut seen = Vec::new();
    let mut frames = 0;
    for item in TraceReader::open(capture).unwrap() {
        let (number, observation) = item.unwrap();
        let frame = parse_ip(&observation.frame).unwrap();
        let pseudo = frame.pseudo_header();
        let shown = &shown[frames];
        frames += 1;
        let said = judge(frame.payload, &pseudo, shown, &fields);
        found.extend(
            said.into_iter()
                .map(|said| format!("frame {number}: {said}")),
        );
        match parse(frame.payload, &pseudo) {
            Ok(packet) => {
                let (src, dst) = (frame.src.ip(), frame.dst.ip());
                seen.push(Seen::new(number, observation.tap, src, dst, &packet));
            }
            Err(_) => met.bad += 1,
        }
    }
    assert_eq!(frames, shown.len());
    met.frames += frames;
    let wanted = links(&seen);
    for (number, shown) in (1..).zip(&shown) {
        let default = Links::default();
        let wanted = wanted.get(&number).unwrap_or(&default);
        let shown_links = shown_links(shown);
        if shown_links != *wanted {
            found.push(format!("frame {number}: {wanted:?}, shown {shown_links:?}"));
        }
        for (count, name) in met.links.iter_mut().zip(LINKS) {
            *count += shown.get(name).map_or(0, Vec::len);
        }
    }
    // Every retransmission is linked, whichever tap saw its original; a scripted peer may send one without any.
    let again: Vec<_> = seen.iter().filter(|p| p.is_retransmission()).collect();
    let is_linked =
        |packet: &&&Seen| shown[packet.frame as usize - 1].contains_key("metaroce.original_frame");
    let linked = again.iter().filter(is_linked).count();
    let with_original = again.iter().filter(|p| p.has_original(&seen)).count();
    if linked != with_original {
        found.push(format!("{with_original} retransmissions, {linked} linked"));
    }
    met.linked += linked;
    met.retransmissions += again.len();
    found
}

#[test]
#[ignore = "needs tshark"]
fn captures_of_a_run_show_their_fields_and_links() {
    let folder = tempfile::tempdir().unwrap();
    let mut met = Met::default();
    let mut found = Vec::new();
    let captures = captures(folder.path(), None);
    for capture in &captures {
        let said = compare(&tshark::script(), capture, &mut met);
        let test = capture.parent().unwrap().file_name().unwrap();
        found.extend(
            said.iter()
                .map(|said| format!("{}: {said}", test.display())),
        );
    }
    let count = found.len();
    found.truncate(30);
    assert!(found.is_empty(), "{count}: {}", found.join("\n"));
    println!(
        "{} frames, {} bad, {} retransmissions, {} linked, links {:?}",
        met.frames, met.bad, met.retransmissions, met.linked, met.links
    );
    assert!(captures.len() > 30 && met.frames > 10_000, "{}", met.frames);
    assert!(met.bad > 10, "{} bad packets", met.bad);
    assert!(met.retransmissions > 100, "{}", met.retransmissions);
    let apart = met.retransmissions - met.linked;
    assert!(apart * 20 < met.retransmissions, "{apart} not linked");
    for (name, count) in LINKS.iter().zip(met.links) {
        assert!(count > 0, "no {name} at all");
    }
}

/// Every filter in the dissector's README is one.
#[test]
#[ignore = "needs tshark"]
fn the_filters_of_the_readme_are_filters() {
    let folder = tempfile::tempdir().unwrap();
    let captures = captures(folder.path(), Some("id(duplicates)"));
    let readme = include_str!("../../../spec/dissector/README.md");
    let cells = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `metaroce."));
    let mut tried = 0;
    for cell in cells {
        let filter = cell.split('`').next().unwrap().replace("\\|", "|");
        if ["port", "crc", "apart"].contains(&filter.as_str()) {
            continue; // Preferences.
        }
        let arguments = ["-Y".to_owned(), format!("metaroce.{filter}")];
        tshark::run(&tshark::script(), &captures[0], &[], &arguments);
        tried += 1;
    }
    assert!(tried >= 14, "{tried} filters");
}

/// Without a handshake in the capture, and with a display filter, the links are the same.
#[test]
#[ignore = "needs tshark"]
fn links_do_not_depend_on_the_pass_or_on_the_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let captures = captures(folder.path(), Some("id(ten-percent-loss)"));
    let names: Vec<String> = ["frame.number"]
        .iter()
        .chain(&LINKS)
        .map(|n| (*n).to_owned())
        .collect();
    let plain = tshark::read(&tshark::script(), &captures[0], &[], &names);
    // A read filter makes tshark keep a tree in its first pass; without one it has none there.
    let mut arguments: Vec<String> = ["-R", "metaroce", "-T", "fields"].map(str::to_owned).into();
    for name in &names {
        arguments.extend(["-e".to_owned(), name.clone()]);
    }
    let filtered = tshark::run(&tshark::script(), &captures[0], &[], &arguments);
    let rows: Vec<String> = plain
        .iter()
        .map(|shown| {
            let cell = |name| {
                shown
                    .get(name)
                    .map(|values| values.join(","))
                    .unwrap_or_default()
            };
            names.iter().map(cell).collect::<Vec<_>>().join("\t")
        })
        .collect();
    assert!(filtered.lines().eq(rows.iter().map(String::as_str)));

    // The frames of the handshake are hidden from a dissector that does not learn from them.
    let sound = std::fs::read_to_string(tshark::script()).unwrap();
    let doctored = sound
        .replace(
            "if p.name == \"OPEN\" or p.name == \"CONFIRM\" then",
            "if false then",
        )
        .replace(
            "local flow = p.name == \"ACCEPT\" and learn(p)",
            "local flow",
        );
    assert_ne!(doctored, sound);
    let file = folder.path().join("doctored.lua");
    std::fs::write(&file, doctored).unwrap();
    let without = tshark::read(&file, &captures[0], &[], &names);
    let of_data = |shown: &[Shown]| -> Vec<_> {
        let values = shown
            .iter()
            .map(|shown| [&shown.get(LINKS[0]), &shown.get(LINKS[2])].map(|v| v.cloned()));
        values.collect()
    };
    assert_eq!(of_data(&plain), of_data(&without));
}

/// The comparison notices a dissector that links wrongly.
#[test]
#[ignore = "needs tshark"]
fn doctored_links_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let filter = "id(ten-percent-loss) or id(duplicates) or id(refused-write) or id(rough-set-up) or id(lies-of-the-future)";
    let captures = captures(folder.path(), Some(filter));
    assert_eq!(captures.len(), 5);
    let sound = std::fs::read_to_string(tshark::script()).unwrap();
    let file = folder.path().join("doctored.lua");
    let cases = [
        ("result.original = original", "result.original = nil"),
        (
            "path.first[psn] = original or frame",
            "path.first[psn] = frame",
        ),
        ("original = first_elsewhere(p, flow, psn)", "original = nil"),
        ("of_original.again[#of_original.again + 1] = frame", ""),
        (
            "local is_covered = distance <= 0",
            "local is_covered = distance < 0",
        ),
        ("(7 - (distance - 1) % 8)", "((distance - 1) % 8)"),
        (
            "path.open[psn] = nil\n    end\n  end\n  if #covered",
            "end\n  end\n  if #covered",
        ),
        (
            "result.unseen = highest\n    return",
            "result.unseen = highest",
        ),
        (
            "result.request, result.request_time = entry.last",
            "result.request, result.request_time = nil",
        ),
        ("entry.open = {}\n      return", "return"),
        ("result.refuses = frame", ""),
        ("if not prefs.apart then", "if true then"),
    ];
    let mut found = captures
        .iter()
        .flat_map(|capture| compare(&tshark::script(), capture, &mut Met::default()));
    assert_eq!(found.next(), None);
    for (old, new) in cases {
        let doctored = sound.replace(old, new);
        assert_ne!(doctored, sound, "{old}");
        std::fs::write(&file, doctored).unwrap();
        let noticed = captures
            .iter()
            .any(|capture| !compare(&file, capture, &mut Met::default()).is_empty());
        assert!(noticed, "{old} to {new:?} is not noticed");
    }
}
