use super::*;

const CHAPTER: &str = "06-reliability.md";

/// A clause with everything it needs.
fn clause(id: &str, statement: &str) -> String {
    format!(
        "#### {id}\n\n{statement}\n\n- role: sender\n- source: project, a reason\n- observed: wire\n\n"
    )
}

fn defect(text: &str) -> (usize, Defect) {
    let error = parse_chapter(CHAPTER, text).unwrap_err();
    assert_eq!(error.chapter, CHAPTER);
    (error.line, error.defect)
}

#[test]
fn a_clause_has_all_its_parts() {
    let text = "# Title\n\nAn introduction.\n\n#### REL-007\n\nA sender MUST NOT do\n`that` to IBV_WC_ERR.\n\n\
                - role: sender\n- source: public P7, a gap shows\n  a loss\n- observed: none\n- exception: hidden\n";
    let clauses = parse_chapter(CHAPTER, text).unwrap();
    let expected = Clause {
        id: "REL-007".into(),
        level: Level::MustNot,
        role: Role::Sender,
        source: Source::Public {
            statement: 7,
            paraphrase: "a gap shows a loss".into(),
        },
        observability: Observability::None,
        text: "A sender MUST NOT do that to IBV_WC_ERR.".into(),
        revision: 1,
        requires: Vec::new(),
        exception: Some("hidden".into()),
        chapter: CHAPTER.into(),
        line: 5,
    };
    assert_eq!(clauses, [expected]);
}

#[test]
fn loose_lists_and_further_headings_are_fine() {
    let text = "#### REL-001\n\nIt MUST.\n\n- role: sender\n\n- source: project, x\n\n- observed: wire\n\n## More\n\nText.\n";
    let clauses = parse_chapter(CHAPTER, text).unwrap();
    assert_eq!(clauses.len(), 1);
    assert_eq!(clauses[0].exception, None);
}

#[test]
fn a_clause_can_be_amended_and_require_features() {
    let text = clause("REL-001", "It MUST.").trim_end().to_owned()
        + "\n- revision: 3\n- requires: read, atomics\n";
    let clauses = parse_chapter(CHAPTER, &text).unwrap();
    assert_eq!(clauses[0].revision, 3);
    assert_eq!(clauses[0].requires, ["read", "atomics"]);
}

#[test]
fn revisions_and_features_are_checked() {
    for (bullet, value) in [
        ("revision", "1"),
        ("revision", "02"),
        ("revision", "two"),
        ("requires", "flying"),
        ("requires", "read, read"),
        ("requires", "read,"),
    ] {
        let text = clause("REL-001", "It MUST.").trim_end().to_owned()
            + &format!("\n- {bullet}: {value}\n");
        let found = value.to_owned();
        assert_eq!(defect(&text), (8, Defect::BadBullet { bullet, found }));
    }
}

#[test]
fn retired_ids_are_not_used_again() {
    let clauses = parse_chapter(CHAPTER, &clause("REL-001", "It MUST.")).unwrap();
    let gone = |id: &str| Retired {
        id: id.into(),
        since: "0.2.0".into(),
        why: "w".into(),
    };
    assert_eq!(refuse_retired(&clauses, &[gone("REL-002")]), Ok(()));
    let error = refuse_retired(&clauses, &[gone("REL-002"), gone("REL-001")]).unwrap_err();
    let id = "REL-001".into();
    assert_eq!((error.line, error.defect), (1, Defect::Retired { id }));
}

#[test]
fn generated_blocks_stand_between_clauses() {
    let block = "<!-- table CBH -->\n```text\n| it MUST\n```\n\n| a | b |\n|---|---|\n| c | d |\n<!-- end -->\n\n";
    let block = block.replace("MUST", "must");
    let text = block.clone()
        + &clause("REL-001", "It MUST.")
        + &block
        + "A remark.\n\n"
        + &clause("REL-002", "It MUST.");
    assert_eq!(parse_chapter(CHAPTER, &text).unwrap().len(), 2);
    let cut = text.replacen("<!-- end -->", "", 1);
    let marker = "<!-- table CBH -->".to_owned();
    assert_eq!(defect(&cut), (1, Defect::Unpaired { marker }));
    let marker = "<!-- end -->".to_owned();
    assert_eq!(defect("<!-- end -->\n"), (1, Defect::Unpaired { marker }));
    let (line, _) = defect("<!-- features -->\n");
    assert_eq!(line, 1);
    // Nothing but a statement and bullets stands in a clause itself.
    let inside = clause("REL-001", "It MUST.").replace("- role", "<!-- a remark -->\n\n- role");
    let bullet = "role";
    let id = "REL-001".to_owned();
    assert_eq!(defect(&inside), (1, Defect::MissingBullet { id, bullet }));
}

#[test]
fn no_key_word_is_refused() {
    let text = clause("REL-001", "A sender must do it.");
    let id = "REL-001".into();
    assert_eq!(defect(&text), (1, Defect::NoKeyWord { id }));
}

#[test]
fn a_clause_without_statement_is_refused() {
    let text = "\n#### REL-001\n\n- role: sender\n";
    let id = "REL-001".into();
    assert_eq!(defect(text), (2, Defect::NoKeyWord { id }));
}

#[test]
fn two_key_words_are_refused() {
    let text = clause(
        "REL-001",
        "A sender MUST do it and MAY\n\ndo more, but MUST NOT stop.",
    );
    let id = "REL-001".into();
    assert_eq!(defect(&text), (1, Defect::ManyKeyWords { id, count: 3 }));
}

#[test]
fn a_duplicate_id_is_refused() {
    let text = clause("REL-001", "It MUST.") + &clause("REL-001", "It MUST.");
    let id = "REL-001".into();
    assert_eq!(defect(&text), (9, Defect::DuplicateId { id, first: 1 }));
}

#[test]
fn descending_ids_are_refused() {
    let text = clause("REL-002", "It MUST.") + &clause("REL-001", "It MUST.");
    let (id, previous) = ("REL-001".into(), "REL-002".into());
    assert_eq!(defect(&text), (9, Defect::NotAscending { id, previous }));
}

#[test]
fn a_foreign_or_malformed_id_is_refused() {
    for id in [
        "PKT-001", "REL-1", "REL-0001", "REL-00a", "REL 001", "Losses", "RELX-001",
    ] {
        let text = clause(id, "It MUST.");
        let found = id.into();
        let prefix = "REL";
        assert_eq!(defect(&text), (1, Defect::BadId { found, prefix }));
    }
}

#[test]
fn bad_values_are_refused_where_they_stand() {
    let good = clause("REL-001", "It MUST.");
    let cases = [
        ("role", "role: sender", "role: postman", 5),
        ("role", "role: sender", "role:", 5),
        (
            "source",
            "source: project, a reason",
            "source: hearsay, a reason",
            6,
        ),
        ("source", "source: project, a reason", "source: project", 6),
        ("source", "source: project, a reason", "source: project,", 6),
        (
            "source",
            "source: project, a reason",
            "source: public P15, x",
            6,
        ),
        (
            "source",
            "source: project, a reason",
            "source: public P0, x",
            6,
        ),
        (
            "source",
            "source: project, a reason",
            "source: public P07, x",
            6,
        ),
        (
            "source",
            "source: project, a reason",
            "source: public, x",
            6,
        ),
        ("observed", "observed: wire", "observed: somewhere", 7),
        (
            "exception",
            "observed: wire",
            "observed: wire\n- exception:",
            8,
        ),
    ];
    for (name, old, new, at) in cases {
        let (line, found) = defect(&good.replace(old, new));
        assert_eq!(line, at, "{new}");
        assert!(
            matches!(found, Defect::BadBullet { bullet, .. } if bullet == name),
            "{new}: {found}"
        );
    }
}

#[test]
fn a_missing_bullet_is_refused() {
    let good = clause("REL-001", "It MUST.");
    for bullet in ["role", "source", "observed"] {
        let kept: Vec<&str> = good
            .lines()
            .filter(|line| !line.starts_with(&format!("- {bullet}:")))
            .collect();
        let id = "REL-001".into();
        assert_eq!(
            defect(&kept.join("\n")),
            (1, Defect::MissingBullet { id, bullet })
        );
    }
}

#[test]
fn an_unobservable_clause_owes_an_exception() {
    let text = clause("REL-001", "It MUST.").replace("observed: wire", "observed: none");
    let id = "REL-001".into();
    let bullet = "exception";
    assert_eq!(defect(&text), (1, Defect::MissingBullet { id, bullet }));
}

#[test]
fn unknown_and_repeated_bullets_are_refused() {
    let good = clause("REL-001", "It MUST.");
    let text = good.replace("- observed", "- colour: blue\n- observed");
    let colour = "colour: blue".into();
    assert_eq!(defect(&text), (7, Defect::UnknownBullet { text: colour }));
    let text = good.replace("- observed", "- role: receiver\n- observed");
    let bullet = "role".into();
    assert_eq!(defect(&text), (7, Defect::DuplicateBullet { bullet }));
}

#[test]
fn key_words_outside_a_statement_are_refused() {
    let good = clause("REL-001", "It MUST.");
    let cases = [
        (
            format!("# Title\n\nAn aside that MUST\nNOT bind.\n\n{good}"),
            3,
            "MUST NOT",
        ),
        (format!("# You SHOULD\n\n{good}"), 1, "SHOULD"),
        (format!("```\nMAY\n```\n\n{good}"), 1, "MAY"),
        (
            format!("{good}\n## After\n\n- it is NOT RECOMMENDED\n"),
            12,
            "NOT RECOMMENDED",
        ),
        (format!("> quoted, OPTIONAL\n\n{good}"), 1, "OPTIONAL"),
        (
            format!("| a |\n|---|\n| REQUIRED |\n\n{good}"),
            3,
            "REQUIRED",
        ),
        (good.replace("a reason", "it SHALL be"), 6, "SHALL"),
    ];
    for (text, line, word) in cases {
        let word = word.into();
        assert_eq!(
            defect(&text),
            (line, Defect::StrayKeyWord { word }),
            "{text}"
        );
    }
}

#[test]
fn other_blocks_in_a_clause_are_refused() {
    let good = clause("REL-001", "It MUST.");
    let id = || "REL-001".to_owned();
    let text = format!("{good}An afterthought.\n");
    assert_eq!(defect(&text), (9, Defect::StrayBlock { id: id() }));
    let text = good.replace("- role", "```\ncode\n```\n\n- role");
    assert_eq!(defect(&text), (5, Defect::StrayBlock { id: id() }));
}

#[test]
fn an_unknown_chapter_is_refused() {
    let error = parse_chapter("99-nothing.md", "").unwrap_err();
    assert_eq!(error.defect, Defect::UnknownChapter);
    assert_eq!(
        error.to_string(),
        "99-nothing.md:1: not a chapter of this specification"
    );
}

#[test]
fn key_words_are_whole_words_in_capitals() {
    let words = |text| {
        key_words(text)
            .into_iter()
            .map(|(level, _)| level)
            .collect::<Vec<_>>()
    };
    assert_eq!(words("MUSTARD, a MAY_BE, IBV_MUST, may, Must"), []);
    assert_eq!(
        words("MUST. MUST NOT SHALL; SHALL NOT (REQUIRED) SHOULD SHOULD NOT"),
        [
            Level::Must,
            Level::MustNot,
            Level::Must,
            Level::MustNot,
            Level::Must,
            Level::Should,
            Level::ShouldNot
        ]
    );
    assert_eq!(
        words("RECOMMENDED, NOT RECOMMENDED, MAY, OPTIONAL"),
        [Level::Should, Level::ShouldNot, Level::May, Level::May]
    );
}

#[test]
fn the_specification_reads_and_every_clause_is_whole() {
    let all = clauses().unwrap();
    assert!(all.len() >= 400, "{} clauses", all.len());
    for (name, prefix, _) in CHAPTERS {
        let count = all.iter().filter(|c| c.chapter == *name).count();
        // The chapter on limits informs and binds nobody.
        assert_eq!(count == 0, *prefix == "LIM", "{name} has {count} clauses");
        assert!(
            all.iter()
                .filter(|c| c.chapter == *name)
                .all(|c| c.id.starts_with(prefix))
        );
    }
    for clause in &all {
        assert!(clause.text.ends_with('.'), "{}: {}", clause.id, clause.text);
        assert_eq!(clause.text, normalised(&clause.text));
        assert!(clause.text.is_ascii(), "{}", clause.id);
        let reason = match &clause.source {
            Source::Public { paraphrase, .. } => paraphrase,
            Source::Project { reason } => reason,
        };
        assert!(!reason.is_empty(), "{}", clause.id);
        let hidden = clause.observability == Observability::None;
        assert!(!hidden || clause.exception.is_some(), "{}", clause.id);
        // The line that a clause names is that of its heading.
        let text = CHAPTERS
            .iter()
            .find(|(name, _, _)| *name == clause.chapter)
            .unwrap()
            .2;
        let heading = text.lines().nth(clause.line - 1).unwrap();
        assert_eq!(heading, format!("#### {}", clause.id));
    }
    let headings = CHAPTERS.iter().flat_map(|(_, _, text)| text.lines());
    assert_eq!(
        headings.filter(|line| line.starts_with("#### ")).count(),
        all.len()
    );
}

#[test]
fn statements_are_all_different() {
    let all = clauses().unwrap();
    let texts: std::collections::BTreeSet<&str> = all.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(texts.len(), all.len());
}

#[test]
fn every_chapter_file_is_embedded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("chapters");
    let mut on_disk: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    on_disk.sort_unstable();
    let embedded: Vec<&str> = CHAPTERS.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(on_disk, embedded);
}
