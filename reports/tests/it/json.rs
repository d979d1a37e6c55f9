//! The JSON against its schema, and reading it back.

use crate::sample::{HOSTILE, hostile, sample};
use metaroce_reports::json::{self, ReadError};
use metaroce_reports::{Conduct, RunResult};
use serde_json::{Value, json};

fn value(result: &RunResult) -> Value {
    serde_json::from_str(&json::render(result).unwrap()).unwrap()
}

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(json::SCHEMA).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

/// An edit, and what it does.
type Doctored = (&'static str, fn(&mut Value));

/// Edits that the shape alone gives away.
const MALFORMED: &[Doctored] = &[
    ("unknown field", |v| v["extra"] = json!(1)),
    ("unknown field in a finding", |v| {
        v["tests"][0]["findings"][0]["extra"] = json!(1)
    }),
    ("other schema", |v| v["schema"] = json!("metaroce-result/2")),
    ("missing seed", |v| {
        v.as_object_mut().unwrap().remove("seed");
    }),
    ("missing summary", |v| {
        v.as_object_mut().unwrap().remove("summary");
    }),
    ("negative seed", |v| v["seed"] = json!(-1)),
    ("seed as text", |v| v["seed"] = json!("1")),
    ("unknown verdict", |v| {
        v["clauses"][0]["verdict"] = json!("passed")
    }),
    ("unknown conduct", |v| {
        v["tests"][0]["conduct"] = json!("fine")
    }),
    ("frame as text", |v| {
        v["tests"][1]["findings"][1]["violations"][0]["frames"][0] = json!("12")
    }),
    ("fractional count", |v| {
        v["summary"]["clauses"]["pass"] = json!(1.5)
    }),
];

/// Edits of verdicts that are well formed.
const DISHONEST: &[Doctored] = &[
    ("pass without exercise", |v| {
        v["clauses"][0]["exercised"] = json!(0)
    }),
    ("pass without a test", |v| {
        v["clauses"][0]["tests"] = json!([])
    }),
    ("pass with a violation", |v| {
        v["tests"][1]["findings"][1]["verdict"] = json!("pass")
    }),
    ("inconclusive without reason", |v| {
        v["clauses"][4].as_object_mut().unwrap().remove("reason");
    }),
    ("not applicable without a pics item", |v| {
        v["clauses"][5]
            .as_object_mut()
            .unwrap()
            .remove("excluded_by");
    }),
    ("a finding not applicable", |v| {
        v["tests"][0]["findings"][0]["verdict"] = json!("not_applicable");
    }),
    ("an inconclusive test called a pass", |v| {
        v["tests"][2]["verdict"] = json!("pass")
    }),
    ("a pass in an inconclusive test", |v| {
        v["tests"][2]["findings"][1]["verdict"] = json!("pass");
    }),
    ("findings of a test not run", |v| {
        let finding = v["tests"][0]["findings"][0].clone();
        v["tests"][3]["findings"] = json!([finding]);
    }),
];

/// Edits that no schema can see.
const CHANGED: &[Doctored] = &[
    ("a failure turned into a pass", |v| {
        v["clauses"][2]["verdict"] = json!("pass");
        v["clauses"][2].as_object_mut().unwrap().remove("reason");
    }),
    ("a count", |v| v["summary"]["clauses"]["pass"] = json!(6)),
    ("an inflated exercise", |v| {
        v["clauses"][0]["exercised"] = json!(9000)
    }),
    ("a reason", |v| {
        v["clauses"][4]["reason"] = json!("no matter")
    }),
    ("a test left out", |v| {
        v["tests"].as_array_mut().unwrap().remove(1);
    }),
    ("a finding left out", |v| {
        v["tests"][1]["findings"].as_array_mut().unwrap().remove(1);
    }),
];

#[test]
fn rendered_results_are_valid() {
    let validator = validator();
    for result in [sample(), hostile()] {
        let instance = value(&result);
        let errors: Vec<String> = validator
            .iter_errors(&instance)
            .map(|error| error.to_string())
            .collect();
        assert_eq!(errors, Vec::<String>::new());
    }
}

#[test]
fn the_schema_refuses_doctored_results() {
    let validator = validator();
    for (what, edit) in MALFORMED.iter().chain(DISHONEST) {
        let mut instance = value(&sample());
        edit(&mut instance);
        assert!(!validator.is_valid(&instance), "{what} was accepted");
    }
}

#[test]
fn the_reader_refuses_doctored_results() {
    for (what, edit) in MALFORMED.iter().chain(DISHONEST).chain(CHANGED) {
        let mut instance = value(&sample());
        edit(&mut instance);
        assert!(
            json::read(&instance.to_string()).is_err(),
            "{what} was accepted"
        );
    }
}

#[test]
fn what_was_changed_is_named() {
    let mut instance = value(&sample());
    instance["clauses"][0]["exercised"] = json!(9000);
    let error = json::read(&instance.to_string()).unwrap_err();
    assert_eq!(
        error,
        ReadError::Changed {
            place: "clause PKT-001".into()
        }
    );
    let mut instance = value(&sample());
    instance["tests"][1]["findings"][1]["verdict"] = json!("pass");
    let error = json::read(&instance.to_string()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the result was changed after it was made: clause REL-007 in test loss-recovery does not follow from its tests"
    );
}

#[test]
fn errors_name_line_and_column() {
    let text = json::render(&sample()).unwrap();
    let line = text
        .lines()
        .position(|line| line.contains("\"seed\""))
        .unwrap()
        + 1;
    let broken = text.replace("\"seed\"", "\"sead\"");
    let error = json::read(&broken).unwrap_err();
    let ReadError::Text {
        line: found,
        column,
        ref message,
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((found, column), (line, 8));
    assert!(message.starts_with("unknown field `sead`"), "{message}");
    assert!(!message.contains(" at line "), "{message}");
    assert!(
        error
            .to_string()
            .starts_with(&format!("line {line}, column 8: "))
    );

    let cut = &text[..text.len() / 2];
    let last = cut.lines().count();
    let error = json::read(cut).unwrap_err();
    assert!(
        matches!(error, ReadError::Text { line, .. } if line == last),
        "{error}"
    );
    let twice = text.replacen(
        "\"link\": \"sim\"",
        "\"link\": \"sim\", \"link\": \"sim\"",
        1,
    );
    let error = json::read(&twice).unwrap_err();
    assert!(
        error.to_string().contains("duplicate field `link`"),
        "{error}"
    );
}

#[test]
fn another_version_is_named_even_with_fields_unknown_here() {
    let text = r#"{"schema": "metaroce-result/7", "new": true}"#;
    let error = json::read(text).unwrap_err();
    assert_eq!(
        error,
        ReadError::Version {
            found: "metaroce-result/7".into()
        }
    );
}

#[test]
fn what_is_written_is_read_back_and_written_alike() {
    for result in [sample(), hostile()] {
        let text = json::render(&result).unwrap();
        let read = json::read(&text).unwrap();
        assert_eq!(read, result);
        assert_eq!(json::render(&read).unwrap(), text);
    }
}

#[test]
fn hostile_text_is_kept_whole_and_without_raw_controls() {
    let text = json::render(&hostile()).unwrap();
    assert!(text.chars().all(|c| c == '\n' || u32::from(c) >= 0x20));
    let back: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(back["iut"]["name"], HOSTILE);
    assert_eq!(
        value(&hostile())["tests"][1]["conduct"],
        json!(Conduct::Error)
    );
}
