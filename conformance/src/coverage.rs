//! What covers each clause: monitors, tests, mutants, golden packets and worked sequences.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::monitors;
use crate::run::RunError;

/// Which tests exercise each clause, as a run in simulated time shows it: one line for each clause, `REL-031: a b c`.
/// `metaroce clauses --tests` gives the text anew.
pub const EXERCISED: &str = include_str!("exercised.list");

/// Golden packets and worked sequences: path below `vectors`, and text.
pub const VECTORS: &[(&str, &str)] = &include!("vectors.list");

/// The clause that an invalid golden packet breaks, by the kind of its error, its type and the field at fault. Limits of
/// the tables have no clause of their own.
fn broken(kind: &str, packet: &str, field: &str) -> Option<&'static str> {
    let plain = matches!(packet, "SEND" | "WRITE");
    Some(match (kind, packet, field) {
        ("bad_crc", ..) => "PKT-002",
        ("truncated" | "overlong", ..) => "PKT-009",
        ("unknown_version", ..) => "PKT-001",
        ("reserved_nonzero" | "reserved_flags", ..) => "PKT-003",
        ("padding_nonzero", ..) => "PKT-007",
        ("misaligned", ..) => "PKT-006",
        ("unexpected_pad", ..) => "PKT-008",
        ("path_nonzero" | "epoch_nonzero", ..) => "PKT-010",
        ("dcid_nonzero", "OPEN", _) => "CONN-001",
        ("dcid_nonzero", ..) => "ERR-021",
        ("dcid_zero", ..) => "PKT-022",
        ("sack_bit_zero", ..) => "REL-011",
        ("flag_not_allowed", ..) if plain => "PKT-014",
        ("flag_not_allowed", ..) => "PKT-018",
        ("message_too_long", ..) => "STRM-012",
        ("outside_message", ..) => "PKT-027",
        ("empty_payload", ..) => "PKT-028",
        ("wrong_som", ..) => "STRM-015",
        ("wrong_eom", ..) => "STRM-016",
        ("rqsn_nonzero", "WRITE", _) => "STRM-008",
        ("rqsn_nonzero", ..) => "PKT-020",
        ("immediate_nonzero", "WRITE", _) => "PKT-013",
        ("immediate_nonzero", ..) => "PKT-021",
        ("address_wraps", ..) => "PKT-025",
        ("unaligned_address", ..) => "OPS-032",
        ("fixed_value", "FILL", _) => "PKT-023",
        ("fixed_value", "STREAM_RESET", _) => "PKT-032",
        ("fixed_value", "READ_REQ", _) => "PKT-019",
        ("fixed_value", _, "compare") => "PKT-031",
        ("fixed_value", _, "offset") => "PKT-029",
        ("fixed_value", "ATOMIC_RESP", "len") => "PKT-033",
        ("fixed_value", _, "len") => "OPS-032",
        _ => return None,
    })
}

/// What covers one clause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Monitors that judge it in a run.
    pub monitors: Vec<Judge>,
    /// Tests that exercise it.
    pub tests: Vec<String>,
    /// Mutants of the reference that break it.
    pub mutants: Vec<Judge>,
    /// Worked sequences that keep to it.
    pub kept_in: Vec<Place>,
    /// Worked sequences that break it.
    pub broken_in: Vec<Place>,
    /// Golden packets that break it.
    pub packets: Vec<Place>,
}

/// A monitor or a mutant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judge {
    /// Its name.
    pub name: String,
    /// What it looks for or does.
    pub what: String,
}

/// A sequence or a packet in a file of vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its id.
    pub id: String,
    /// The file, below `vectors`.
    pub file: String,
}

/// What covers each clause, by id. Clauses that nothing covers are left out.
///
/// # Errors
/// [`RunError::Harness`] when a file of vectors cannot be read.
pub fn coverage() -> Result<BTreeMap<String, Coverage>, RunError> {
    let mut all: BTreeMap<String, Coverage> = BTreeMap::new();
    for entry in monitors::catalogue() {
        let judge = Judge {
            name: entry.file.trim_end_matches(".rs").to_owned(),
            what: entry.purpose.to_owned(),
        };
        let of = all.entry(entry.clause.to_owned()).or_default();
        of.monitors.push(judge);
    }
    for (clause, tests) in exercised() {
        all.entry(clause.to_owned()).or_default().tests =
            tests.into_iter().map(str::to_owned).collect();
    }
    #[cfg(feature = "reference")]
    for mutant in metaroce_endpoint::mutants::all() {
        let judge = Judge {
            name: mutant.id.to_owned(),
            what: mutant.what.to_owned(),
        };
        let of = all.entry(mutant.clause.to_owned()).or_default();
        of.mutants.push(judge);
    }
    for (file, text) in VECTORS {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| RunError::Harness(format!("vectors/{file}: {e}")))?;
        packets(file, &value, &mut all);
        sequences(file, &value, &mut all);
    }
    Ok(all)
}

/// The lines of [`EXERCISED`].
fn exercised() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = EXERCISED.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(clause, tests)| (clause, tests.split_whitespace().collect()))
}

fn packets(file: &str, value: &Value, all: &mut BTreeMap<String, Coverage>) {
    for vector in list(&value["vectors"]) {
        let error = &vector["invalid"]["error"];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, packet) = (word(&error["kind"]), word(&value["packet"]));
        let clause = broken(&kind, &packet, &word(&error["field"]));
        if let (Some(clause), Some(place)) = (clause, place(file, vector)) {
            all.entry(clause.to_owned())
                .or_default()
                .packets
                .push(place);
        }
    }
}

fn sequences(file: &str, value: &Value, all: &mut BTreeMap<String, Coverage>) {
    for sequence in list(&value["sequences"]) {
        let Some(place) = place(file, sequence) else {
            continue;
        };
        for clause in list(&sequence["satisfies"]) {
            if let Some(clause) = clause.as_str() {
                let of = all.entry(clause.to_owned()).or_default();
                of.kept_in.push(place.clone());
            }
        }
        for broken in list(&sequence["violates"]) {
            if let Some(clause) = broken["clause"].as_str() {
                let of = all.entry(clause.to_owned()).or_default();
                of.broken_in.push(place.clone());
            }
        }
    }
}

fn place(file: &str, value: &Value) -> Option<Place> {
    let id = value["id"].as_str()?.to_owned();
    let file = file.to_owned();
    Some(Place { id, file })
}

/// The elements of an array; none of anything else.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Which tests exercise each clause, found by running the suite against the reference in simulated time: the text of
/// [`EXERCISED`].
///
/// # Errors
/// [`RunError`].
#[cfg(feature = "reference")]
pub fn find_exercised(progress: &mut dyn FnMut(usize, usize, &str)) -> Result<String, RunError> {
    use std::fmt::Write as _;

    use crate::run::{Plan, run};
    let plan = Plan::reference()?;
    let name = format!("metaroce-exercised-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let result = run(&plan, &folder, progress);
    // What cannot be removed is in the folder for temporary files.
    let _left = std::fs::remove_dir_all(&folder);
    let mut text = String::new();
    for clause in result?.clauses {
        if !clause.tests.is_empty() {
            let _ = writeln!(text, "{}: {}", clause.id, clause.tests.join(" "));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Vec<String> {
        let clauses = metaroce_spec::clauses().unwrap();
        clauses.into_iter().map(|clause| clause.id).collect()
    }

    #[test]
    fn rules_and_vectors_speak_of_clauses_that_exist() {
        let ids = ids();
        let all = coverage().unwrap();
        for clause in all.keys() {
            assert!(ids.contains(clause), "{clause}");
        }
        assert!(!all["PKT-002"].packets.is_empty());
        let of = |clause: &str| -> Vec<&str> {
            let packets = &all[clause].packets;
            packets.iter().map(|packet| packet.file.as_str()).collect()
        };
        for file in of("PKT-014") {
            assert!(
                file.ends_with("/send.json") || file.ends_with("/write.json"),
                "{file}"
            );
        }
        assert_eq!(of("CONN-001").len(), 1);
        assert!(of("OPS-032").len() > 4);
        assert!(!all["REL-031"].monitors.is_empty());
    }

    #[test]
    fn the_tests_that_exercise_clauses_exist() {
        let scenarios = crate::scenario::built_in().unwrap();
        let known: Vec<&str> = scenarios.iter().map(|s| s.scenario.id.as_str()).collect();
        let mut lines = 0;
        for (clause, tests) in exercised() {
            lines += 1;
            assert!(!tests.is_empty(), "{clause}");
            for test in tests {
                let scenario = test.split('.').next().unwrap();
                assert!(known.contains(&scenario), "{clause}: {test}");
            }
        }
        assert!(lines > 100, "{lines} clauses");
    }

    /// With METAROCE_UPDATE=1 the list is written anew instead.
    #[test]
    fn every_file_of_vectors_is_embedded() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for folder in ["packets", "sequences"] {
            let Ok(entries) = std::fs::read_dir(root.join("../vectors").join(folder)) else {
                continue;
            };
            for entry in entries {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.ends_with(".json") {
                    files.push(format!("{folder}/{name}"));
                }
            }
        }
        files.sort();
        if std::env::var_os("METAROCE_UPDATE").is_some() {
            let line = |file: &String| {
                format!("    (\"{file}\", include_str!(\"../../vectors/{file}\")),\n")
            };
            let lines: String = files.iter().map(line).collect();
            let list = root.join("src/vectors.list");
            std::fs::write(list, format!("[\n{lines}]\n")).unwrap();
        } else {
            let known: Vec<&str> = VECTORS.iter().map(|(file, _)| *file).collect();
            assert_eq!(files, known, "run with METAROCE_UPDATE=1");
        }
    }

    #[test]
    fn a_sequence_covers_what_it_keeps_and_what_it_breaks() {
        let text = r#"{"sequences": [
            {"id": "a", "satisfies": ["REL-001"], "violates": []},
            {"id": "a--b", "satisfies": [], "violates": [{"clause": "REL-002", "step": 3}]}]}"#;
        let mut all = BTreeMap::new();
        sequences(
            "sequences/a.json",
            &serde_json::from_str(text).unwrap(),
            &mut all,
        );
        assert_eq!(all["REL-001"].kept_in[0].id, "a");
        assert_eq!(all["REL-002"].broken_in[0].id, "a--b");
        assert!(all["REL-002"].kept_in.is_empty());
    }
}
