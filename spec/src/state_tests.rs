use super::*;

const SOUND: &str = "\
name: door
machine: a door
states:
  - {name: shut, meaning: m, initial: true}
  - {name: open, meaning: m, final: true}
transitions:
  - {from: shut, on: push, to: open, does: d, clauses: [REL-001]}
  - {from: open, on: pull, if: dry, to: shut, does: d, requires: [read]}
  - {from: open, on: pull, if: wet, to: open, does: d}
";

fn parse(text: &str) -> Result<StateTable, (u64, String)> {
    let clauses = crate::clauses().unwrap();
    parse_states("f", text, &clauses).map_err(|e| (e.line, e.message))
}

#[test]
fn the_state_tables_of_the_specification_are_sound() {
    let tables = states().unwrap();
    let names: Vec<&str> = tables.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["connection", "path", "stream"]);
    for table in &tables {
        assert_eq!(table.file, format!("states/{}.yaml", table.name));
    }
}

#[test]
fn every_file_of_states_and_data_is_embedded() {
    for (folder, embedded) in [("states", crate::STATES), ("data", crate::DATA)] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut files: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap()))
            .collect();
        files.sort_unstable();
        let mut known: Vec<&str> = embedded.iter().map(|(file, _)| *file).collect();
        known.sort_unstable();
        assert_eq!(files, known);
    }
}

#[test]
fn faults_are_found_where_they_stand() {
    assert!(parse(SOUND).is_ok());
    for (from, to, line, words) in [
        (
            "on: push, to: open",
            "on: push, to: ajar",
            7,
            "no state `ajar`",
        ),
        ("if: wet", "if: dry", 9, "leads two ways"),
        ("if: wet, ", "", 9, "leads two ways"),
        ("REL-001", "REL-999", 7, "no clause"),
        ("[read]", "[fly]", 8, "no feature `fly`"),
        (", initial: true", "", 1, "the initial one"),
        (", final: true", "", 4, "no way leads from `shut`"),
        (
            "transitions:",
            "  - {name: ajar, meaning: m, final: true}
transitions:",
            6,
            "nothing leads to `ajar`",
        ),
        ("- {name: open", "- {name: shut", 5, "a second time"),
        ("does: d", "do: d", 7, "do"),
    ] {
        let (at, message) = parse(&SOUND.replacen(from, to, 1)).unwrap_err();
        assert!(message.contains(words), "{to}: {message}");
        assert_eq!(at, line, "{to}: {message}");
    }
}

#[test]
fn a_drawing_shows_every_state_and_every_step() {
    let drawing = draw(&parse(SOUND).unwrap());
    let expected = "\
+------+
| shut |  start
+------+
  |--- push --> open

+------+
| open |  end
+------+
  |--- pull [dry] (read) --> shut
  |--- pull [wet] ---------> (stays)
";
    assert_eq!(drawing, expected);
}
