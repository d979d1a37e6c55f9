//! The clauses by chapter, source, role and feature.

use std::fmt::Write as _;

use metaroce_spec::{CHAPTERS, Clause, Role, STATEMENTS, Source, TableError};

use super::{Files, Material};

pub(super) fn pages(material: &Material, files: &mut Files) -> Result<(), TableError> {
    let mut put = |name: &str, text: String| {
        files.insert(format!("src/indexes/{name}.md"), text);
    };
    put("chapters", by_chapter(material));
    put("sources", by_source(material));
    put("roles", by_role(material));
    put("features", by_feature(material)?);
    put("uncovered", uncovered(material));
    Ok(())
}

/// Title of a chapter: its first heading.
pub(super) fn title(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches('#').trim()
}

fn by_chapter(material: &Material) -> String {
    let mut out = format!(
        "# Clauses by chapter\n\n{} clauses.\n",
        material.clauses.len()
    );
    for (name, prefix, text) in CHAPTERS {
        let of = material.clauses.iter().filter(|c| c.chapter == *name);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "\n## {prefix}\n\n[{}](../chapters/{name})\n",
            title(text)
        );
        table(&mut out, material, of);
    }
    out
}

fn by_source(material: &Material) -> String {
    let mut out = String::from(
        "# Clauses by source\n\nA clause rests on a published statement, paraphrased here, or on a choice of this project.\n",
    );
    for number in 1..=STATEMENTS {
        let rests = |clause: &&Clause| matches!(&clause.source, Source::Public { statement, .. } if *statement == number);
        let _ = writeln!(
            out,
            "\n## P{number}\n\n{}\n",
            super::pages::statement(number)
        );
        table(&mut out, material, material.clauses.iter().filter(rests));
    }
    out.push_str("\n## project\n\n");
    let own = |clause: &&Clause| matches!(&clause.source, Source::Project { .. });
    table(&mut out, material, material.clauses.iter().filter(own));
    out
}

fn by_role(material: &Material) -> String {
    let mut out = String::from("# Clauses by role\n");
    for role in Role::ALL {
        let _ = writeln!(out, "\n## {role}\n");
        let of = material.clauses.iter().filter(|c| c.role == *role);
        table(&mut out, material, of);
    }
    out
}

fn by_feature(material: &Material) -> Result<String, TableError> {
    let mut out = String::from(
        "# Clauses by feature\n\nWhat an implementation may leave out. A clause that requires features binds where all of them are claimed and agreed.\n",
    );
    for feature in metaroce_spec::features()? {
        let _ = writeln!(
            out,
            "\n## {}\n\n{}: {}. Agreed by: {}.\n",
            feature.id, feature.name, feature.meaning, feature.agreed
        );
        let of = material.clauses.iter();
        let of = of.filter(|clause| clause.requires.contains(&feature.id));
        table(&mut out, material, of);
    }
    out.push_str("\n## none\n\nThese always bind.\n\n");
    let of = material.clauses.iter().filter(|c| c.requires.is_empty());
    table(&mut out, material, of);
    Ok(out)
}

fn uncovered(material: &Material) -> String {
    let mut out = String::from(
        "# Clauses without a monitor\n\n## Excepted\n\nNobody outside an implementation can tell, for the reason given.\n\n",
    );
    let bare: Vec<&Clause> = material
        .clauses
        .iter()
        .filter(|clause| material.of(&clause.id).monitors.is_empty())
        .collect();
    for clause in &bare {
        if let Some(reason) = &clause.exception {
            let _ = writeln!(out, "- {}: {reason}", material.link(&clause.id, "../"));
        }
    }
    out.push_str("\n## Not judged yet\n\n");
    let open = bare.iter().filter(|clause| clause.exception.is_none());
    table(&mut out, material, open.copied());
    out
}

fn table<'c>(out: &mut String, material: &Material, clauses: impl Iterator<Item = &'c Clause>) {
    let mut clauses = clauses.peekable();
    if clauses.peek().is_none() {
        out.push_str("None.\n");
        return;
    }
    out.push_str(
        "| clause | level | role | observed | judged | statement |\n|---|---|---|---|---|---|\n",
    );
    for clause in clauses {
        let of = material.of(&clause.id);
        let judged = match (of.monitors.is_empty(), &clause.exception) {
            (false, _) => "yes",
            (true, Some(_)) => "excepted",
            (true, None) => "not yet",
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {judged} | {} |",
            material.link(&clause.id, "../"),
            clause.level,
            clause.role,
            clause.observability,
            clause.text.replace('|', "\\|")
        );
    }
}
