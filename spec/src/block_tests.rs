use super::*;
use crate::CHAPTERS;

#[test]
fn markers_are_read_and_other_comments_are_not() {
    let table = Marker::Table("CBH".to_owned());
    assert_eq!(Marker::read("  <!-- table CBH -->\n"), Some(table));
    assert_eq!(Marker::read("<!--timers-->"), Some(Marker::Timers));
    for other in [
        "<!-- table -->",
        "<!-- a remark -->",
        "table CBH",
        "<!-- end",
    ] {
        assert_eq!(Marker::read(other), None, "{other}");
    }
}

#[test]
fn every_block_can_be_made_and_others_not() {
    for marker in all().unwrap() {
        assert!(render(&marker).unwrap().len() > 40, "{marker:?}");
    }
    assert!(render(&Marker::Table("XYZ".to_owned())).is_err());
    assert!(render(&Marker::Codes("xyz".to_owned())).is_err());
    assert!(render(&Marker::States("xyz".to_owned())).is_err());
}

#[test]
fn rewriting_changes_blocks_alone_and_once() {
    let text = "before\n<!-- features -->\nwhat was\n<!-- end -->\nafter\n";
    let new = rewrite(text).unwrap();
    assert!(
        new.starts_with("before\n<!-- features -->\n\n| feature"),
        "{new}"
    );
    assert!(
        new.ends_with("\n\n<!-- end -->\nafter\n") && !new.contains("what was"),
        "{new}"
    );
    assert_eq!(rewrite(&new).unwrap(), new);
    let open = "before\n<!-- features -->\nwhat was\n";
    assert_eq!(rewrite(open).unwrap(), open);
    assert!(rewrite(&text.replace("features", "table XYZ")).is_err());
}

/// With METAROCE_UPDATE=1 the blocks are put right in the files instead.
#[test]
fn the_blocks_of_the_chapters_are_what_the_tables_give() {
    let update = std::env::var_os("METAROCE_UPDATE").is_some();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("chapters");
    for (name, _, embedded) in CHAPTERS {
        let file = folder.join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        let new = rewrite(&text).unwrap();
        if update && new != text {
            std::fs::write(&file, &new).unwrap();
        } else if !update {
            let differs = text.lines().zip(new.lines()).position(|(a, b)| a != b);
            let line = differs.map(|line| line + 1);
            assert!(
                text == new,
                "{name}, line {line:?}: not what the tables give, run with METAROCE_UPDATE=1"
            );
            assert!(text == *embedded, "{name} is not what was embedded");
        }
    }
}

#[test]
fn every_block_stands_in_exactly_one_chapter() {
    let mut placed: Vec<Marker> = Vec::new();
    for (_, _, text) in CHAPTERS {
        placed.extend(markers(text));
    }
    let missing: Vec<Marker> = all()
        .unwrap()
        .into_iter()
        .filter(|marker| !placed.contains(marker))
        .collect();
    assert_eq!(missing, [], "no chapter has these");
    let count = placed.len();
    placed.sort();
    placed.dedup();
    assert_eq!(count, placed.len(), "a block stands in two places");
}
