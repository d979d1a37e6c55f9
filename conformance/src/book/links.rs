//! Whether the links of a book lead somewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::Files;

/// The anchor that mdBook gives a heading.
pub(super) fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Every link of the pages that leads to no page, to no heading of it, or out of the book: `page: target`.
pub fn dead_links(files: &Files) -> Vec<String> {
    let pages: BTreeMap<&str, BTreeSet<String>> = files
        .iter()
        .filter_map(|(path, text)| Some((path.strip_prefix("src/")?, anchors(text))))
        .collect();
    let mut dead = Vec::new();
    for (path, text) in files {
        let Some(page) = path.strip_prefix("src/") else {
            continue;
        };
        for target in targets(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => Some(page.to_owned()),
                relative => resolve(page, relative),
            };
            let known = file.and_then(|file| pages.get(file.as_str()));
            if known.is_none_or(|known| !anchor.is_empty() && !known.contains(anchor)) {
                dead.push(format!("{page}: {target}"));
            }
        }
    }
    dead
}

/// The path that a link from `page` names; `None` for one that leaves the book.
fn resolve(page: &str, relative: &str) -> Option<String> {
    if relative.contains("://") || relative.starts_with('/') {
        return None;
    }
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for part in relative.split('/') {
        match part {
            ".." => drop(path.pop()?),
            "." | "" => {}
            part => path.push(part),
        }
    }
    Some(path.join("/"))
}

/// The targets of the links of a page, code left out.
fn targets(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in prose(text) {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, behind)) = after.split_once(')') else {
                break;
            };
            all.push(target.to_owned());
            rest = behind;
        }
    }
    all
}

/// The anchors of the headings of a page. The second of the same name gets a number behind it.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for line in prose(text) {
        let Some(heading) = line
            .strip_prefix('#')
            .map(|rest| rest.trim_start_matches('#'))
            .filter(|rest| rest.starts_with(' '))
        else {
            continue;
        };
        let name = slug(heading);
        let before = times.entry(name.clone()).or_default();
        all.insert(match *before {
            0 => name.clone(),
            n => format!("{name}-{n}"),
        });
        *before += 1;
    }
    all
}

/// The lines of a page without its code: blocks between fences, and what stands between backquotes.
fn prose(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let outside = line.split('`').step_by(2);
            // In a heading the code is part of the name.
            let line = match line.starts_with('#') {
                true => line.replace('`', ""),
                false => outside.collect::<Vec<_>>().join(""),
            };
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(pages: &[(&str, &str)]) -> Files {
        let file = |(path, text): &(&str, &str)| (format!("src/{path}"), (*text).to_owned());
        pages.iter().map(file).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let files = book(&[
            (
                "a.md",
                "# A\n[b](b/c.md#two-words) [self](#a) `[code](x.md)`\n```\n[x](y.md)\n```\n",
            ),
            (
                "b/c.md",
                "## Two words\n## Two words\n[up](../a.md) [again](#two-words-1)\n",
            ),
        ]);
        assert_eq!(dead_links(&files), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let a = "# A\n[1](c.md) [2](b.md#none)\n[3](#none) [4](../b.md) [5](https://example.com) [6](/b.md)\n";
        let files = book(&[("a.md", a), ("b.md", "# B\n")]);
        let targets = [
            "c.md",
            "b.md#none",
            "#none",
            "../b.md",
            "https://example.com",
            "/b.md",
        ];
        assert_eq!(
            dead_links(&files),
            targets.map(|target| format!("a.md: {target}"))
        );
    }
}
