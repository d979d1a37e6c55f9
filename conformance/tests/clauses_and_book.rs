//! Finding clauses on the command line, and the specification as a book.

#![cfg(feature = "reference")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Command, Output};

use metaroce_conformance::book::{dead_links, files, write};
use metaroce_reports::exit;
use metaroce_spec::Source;
use serde_json::Value;

fn metaroce(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metaroce"));
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The ids that a query finds, as JSON; the table has to show the same.
fn found(query: &[&str]) -> Vec<String> {
    let all = [&["clauses"], query].concat();
    let output = metaroce(&[all.as_slice(), &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let ids: Vec<String> = json.as_array().unwrap().iter().map(id).collect();
    let table = metaroce(&all);
    let shown: Vec<String> = text(&table.stdout)
        .lines()
        .skip(1)
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(ids, shown, "{query:?}");
    ids
}

fn expected(keep: impl Fn(&metaroce_spec::Clause) -> bool) -> Vec<String> {
    let mut clauses = metaroce_spec::clauses().unwrap();
    clauses.retain(|clause| keep(clause));
    clauses.into_iter().map(|clause| clause.id).collect()
}

#[test]
fn each_question_finds_its_clauses() {
    use metaroce_spec::{Level, Observability, Role};
    let p7 = |source: &Source| matches!(source, Source::Public { statement: 7, .. });
    let all = expected(|_| true);
    assert_eq!(found(&[]), all);
    let rel = expected(|c| c.id.starts_with("REL-"));
    assert_eq!(found(&["--chapter", "REL"]), rel);
    assert_eq!(found(&["--chapter", "6"]), rel);
    assert_eq!(found(&["--source", "P7"]), expected(|c| p7(&c.source)));
    let own = expected(|c| matches!(c.source, Source::Project { .. }));
    assert_eq!(found(&["--source", "project"]), own);
    let never = expected(|c| c.level == Level::MustNot);
    assert_eq!(found(&["--level", "must-not"]), never);
    let acceptor = expected(|c| c.role == Role::Acceptor);
    assert_eq!(found(&["--role", "acceptor"]), acceptor);
    let memory = expected(|c| c.observability == Observability::Memory);
    assert_eq!(found(&["--observed", "memory"]), memory);
    let reads = expected(|c| c.requires.iter().any(|f| f == "read"));
    assert_eq!(found(&["--requires", "read"]), reads);
    let always = expected(|c| c.requires.is_empty());
    assert_eq!(found(&["--requires", "none"]), always);
    let word = expected(|c| {
        format!("{} {}", c.text, c.source)
            .to_lowercase()
            .contains("cookie")
    });
    assert_eq!(found(&["--text", "COOKIE"]), word);
    for some in [&rel, &own, &never, &acceptor, &memory, &always, &word] {
        assert!(!some.is_empty() && some.len() < all.len());
    }
    let both = expected(|c| p7(&c.source) && c.role == Role::Receiver);
    assert_eq!(found(&["--source", "P7", "--role", "receiver"]), both);
}

#[test]
fn uncovered_is_what_the_lock_file_calls_so() {
    let lock = text(&metaroce(&["clauses", "--lock"]).stdout);
    let open: Vec<String> = lock
        .lines()
        .filter(|line| line.ends_with("| uncovered"))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(found(&["--uncovered"]), open);
}

#[test]
fn no_answer_says_so_and_other_outputs_take_no_question() {
    let none = metaroce(&["clauses", "--text", "flux capacitor"]);
    assert_eq!(text(&none.stdout), "no clause fits\n");
    let output = metaroce(&["clauses", "--lock", "--chapter", "REL"]);
    assert_eq!(output.status.code(), Some(i32::from(exit::USAGE)));
}

#[test]
fn the_book_of_somebody_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("src/page.md");
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(&page, "mine").unwrap();
    std::fs::write(folder.path().join("book.toml"), "[book]\n").unwrap();
    let out = folder.path().to_str().unwrap();
    let output = metaroce(&["book", "--out", out]);
    assert_eq!(output.status.code(), Some(i32::from(exit::USAGE)));
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "mine");
    // What an attempt that was cut off has left behind is no obstacle and no part of the book.
    let own = folder.path().join("own");
    let rest = own.join(".metaroce-book");
    std::fs::create_dir_all(rest.join("src")).unwrap();
    std::fs::write(rest.join("src/half.md"), "").unwrap();
    write(&own).unwrap();
    assert!(own.join("src/SUMMARY.md").is_file());
    assert!(!rest.exists() && !own.join("src/half.md").exists());
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    for (arguments, word) in [
        (["--chapter", "XYZ"], "CONV"),
        (["--source", "P15"], "P14"),
        (["--level", "must-be"], "SHOULD NOT"),
        (["--role", "referee"], "acceptor"),
        (["--observed", "moon"], "memory"),
        (["--requires", "flying"], "atomics"),
    ] {
        let output = metaroce(&[&["clauses"], arguments.as_slice()].concat());
        assert_eq!(output.status.code(), Some(i32::from(exit::USAGE)));
        let message = text(&output.stderr);
        assert!(message.contains(word), "{arguments:?}: {message}");
    }
}

#[test]
fn a_clause_is_explained_with_all_that_covers_it() {
    let shown = text(&metaroce(&["explain", "rel-031"]).stdout);
    for words in [
        "REL-031 (MUST, sender)",
        "revision: ",
        "requires: nothing",
        "monitor: repair",
        "06-reliability.md:",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let json = metaroce(&["explain", "PKT-002", "--format", "json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["revision"], 1);
    for (key, id) in [("packets", "ack-bad-crc"), ("mutants", ""), ("tests", "")] {
        let all = json["coverage"][key].to_string();
        assert!(all.len() > 2 && all.contains(id), "{key}: {all}");
    }
}

/// With METAROCE_UPDATE=1 the list is written anew instead.
#[test]
fn the_list_of_what_tests_exercise_is_what_a_run_gives() {
    use metaroce_conformance::coverage::{EXERCISED, find_exercised};
    let fresh = find_exercised(&mut |_, _, _| {}).unwrap();
    if std::env::var_os("METAROCE_UPDATE").is_some() {
        let list = concat!(env!("CARGO_MANIFEST_DIR"), "/src/exercised.list");
        std::fs::write(list, fresh).unwrap();
    } else {
        assert!(
            fresh == EXERCISED,
            "src/exercised.list is stale: run with METAROCE_UPDATE=1"
        );
    }
}

#[test]
fn the_book_has_every_clause_once_and_no_dead_link() {
    let files = files().unwrap();
    assert_eq!(dead_links(&files), [""; 0]);
    let summary = &files["src/SUMMARY.md"];
    for page in files.keys().filter_map(|path| path.strip_prefix("src/")) {
        let listed = summary.contains(&format!("]({page})"));
        assert!(
            listed || page == "SUMMARY.md",
            "{page} is in no chapter of the book"
        );
    }
    for clause in metaroce_spec::clauses().unwrap() {
        let page = &files[&format!("src/chapters/{}", clause.chapter)];
        let heading = format!("#### {}\n", clause.id);
        let (_, after) = page.split_once(&heading).unwrap();
        let end = after.find("\n#").unwrap_or(after.len());
        let part = &after[..end];
        assert!(
            part.contains(&format!("> **{}** · ", clause.level)),
            "{part}"
        );
        assert!(!part.contains("\n- role:"), "{part}");
        // The box shows whatever the chapter's bullets say.
        for feature in &clause.requires {
            assert!(part.contains(&format!("features.md#{feature})")), "{part}");
        }
        if let Some(reason) = &clause.exception {
            assert!(part.contains(reason.as_str()), "{part}");
        }
        let link = format!("| [{}](", clause.id);
        let index = files["src/indexes/chapters.md"].matches(&link);
        assert_eq!(index.count(), 1);
    }
    for path in ["src/chapters/06-reliability.md", "src/judging/tests.md"] {
        let mut broken = files.clone();
        let text = broken.get_mut(path).unwrap();
        *text = text.replace("../", "../../");
        assert!(!dead_links(&broken).is_empty(), "{path}");
    }
}

#[test]
fn nothing_in_the_book_is_loaded_from_elsewhere() {
    for (path, text) in files().unwrap() {
        for sign in ["http://", "https://", "<script", "@import", "mathjax"] {
            let found = text.to_lowercase().contains(sign);
            assert!(!found, "{path} contains {sign}");
        }
    }
}

#[test]
fn a_book_is_written_over_a_book_and_over_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book");
    let first = write(&book).unwrap();
    let stale = book.join("src/stale.md");
    std::fs::write(&stale, "x").unwrap();
    assert_eq!(write(&book).unwrap(), first);
    assert!(!stale.exists() && book.join("book.toml").is_file());
    std::fs::write(folder.path().join("letter"), "x").unwrap();
    assert!(write(folder.path()).is_err());
    assert!(Path::new(&folder.path().join("letter")).is_file());
    let out = book.to_str().unwrap();
    assert_eq!(metaroce(&["book", "--out", out]).status.code(), Some(0));
}

/// The values of an attribute in a page.
fn attributes<'t>(page: &'t str, name: &str) -> Vec<&'t str> {
    let start = format!(" {name}=\"");
    let parts = page.split(start.as_str()).skip(1);
    parts.filter_map(|part| part.split('"').next()).collect()
}

/// METAROCE_BOOK names the pages that mdBook has made.
#[test]
#[ignore = "needs the pages that mdBook makes"]
fn the_built_pages_link_to_each_other_and_load_nothing_from_elsewhere() {
    let folder = std::path::PathBuf::from(std::env::var_os("METAROCE_BOOK").unwrap());
    let mut folders = vec![folder.clone()];
    let mut pages = std::collections::BTreeMap::new();
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "html" || e == "css") {
                let text = std::fs::read_to_string(&path).unwrap();
                pages.insert(path.canonicalize().unwrap(), text);
            }
        }
    }
    assert!(pages.len() > 30, "{} pages", pages.len());
    let mut links = 0;
    for (path, page) in &pages {
        let outside = [
            "src=\"http",
            "src=\"//",
            "url(http",
            "url('http",
            "url(\"http",
            "@import",
        ];
        for sign in outside {
            assert!(!page.contains(sign), "{} has {sign}", path.display());
        }
        let name = path.file_name().unwrap();
        // The page for printing holds all others, and the one for wrong addresses stands anywhere.
        if name == "print.html" || name == "404.html" || name == "toc.html" {
            continue;
        }
        for target in attributes(page, "href") {
            assert!(!target.starts_with("http"), "{}: {target}", path.display());
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let found = file.canonicalize();
            assert!(found.is_ok(), "{}: {target}", path.display());
            let there = pages.get(&found.unwrap());
            let ids = there.map(|there| attributes(there, "id"));
            let known = anchor.is_empty() || ids.is_some_and(|ids| ids.contains(&anchor));
            assert!(known, "{}: {target}", path.display());
            links += 1;
        }
    }
    assert!(links > 1000, "{links} links");
}
