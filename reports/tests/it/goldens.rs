//! Every rendering of the same small run, as committed.

use crate::sample::sample;
use metaroce_reports::table::Colour;
use metaroce_reports::{json, junit, markdown, table};

#[test]
fn table() {
    insta::assert_snapshot!("table", table::render(&sample(), Colour::Never));
}

#[test]
fn json() {
    insta::assert_snapshot!("json", json::render(&sample()).unwrap());
}

#[test]
fn junit() {
    insta::assert_snapshot!("junit", junit::render(&sample()).unwrap());
}

#[test]
fn markdown() {
    insta::assert_snapshot!("markdown", markdown::render(&sample()));
}

#[test]
fn colours_change_nothing_but_the_colour() {
    let plain = table::render(&sample(), Colour::Never);
    let coloured = table::render(&sample(), Colour::Always);
    assert!(!plain.contains('\x1b'));
    assert!(coloured.contains("\x1b[31mfail"));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        stripped.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
}
