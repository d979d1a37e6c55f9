//! The generated part of the Wireshark dissector is what the tables give. With METAROCE_UPDATE=1 it is written again.

use std::path::Path;

use metaroce_spec::{DISSECTOR_BEGIN, DISSECTOR_END, codes, dissector_data, tables};

/// `text` with `part` in place of what stands between the marker lines, markers included. None without exactly one of
/// each, in order.
fn replaced(text: &str, part: &str) -> Option<String> {
    let (before, rest) = text.split_once(&format!("{DISSECTOR_BEGIN}\n"))?;
    let (within, after) = rest.split_once(&format!("{DISSECTOR_END}\n"))?;
    let once = [before, within, after]
        .iter()
        .all(|text| !text.contains(DISSECTOR_BEGIN) && !text.contains(DISSECTOR_END));
    once.then(|| format!("{before}{part}{after}"))
}

#[test]
fn the_generated_part_is_what_the_tables_give() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("dissector/metaroce.lua");
    let text = std::fs::read_to_string(&file).unwrap();
    let part = dissector_data(&tables().unwrap(), &codes().unwrap());
    let wanted = replaced(&text, &part).expect("the marker lines, once each");
    if std::env::var_os("METAROCE_UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&file, wanted).unwrap();
    } else {
        let differ = text.lines().zip(wanted.lines()).find(|(a, b)| a != b);
        assert!(
            text == wanted,
            "run again with METAROCE_UPDATE=1; the first line that differs, there and wanted: {differ:?}"
        );
    }
}

#[test]
fn every_field_and_every_code_point_is_in_it() {
    let (tables, codes) = (tables().unwrap(), codes().unwrap());
    let part = dissector_data(&tables, &codes);
    let count = |text: &str| part.matches(text).count();
    let fields: usize = tables.iter().map(|table| table.fields.len()).sum();
    let entries: usize = codes.iter().map(|space| space.entries.len()).sum();
    let packets = tables.iter().filter(|table| table.opcode.is_some()).count();
    assert_eq!(count(", offset = "), fields);
    assert_eq!(count("{ code = "), entries);
    assert_eq!(count(", opcode = "), packets);
    // A change of any kind of value shows.
    for (what, changed) in [
        ("width", part.replacen("width = 16", "width = 8", 1)),
        ("limit", part.replacen("max = 32767", "max = 32768", 1)),
        ("code", part.replacen("code = 0x41", "code = 0x43", 1)),
        ("name", part.replacen("\"dcid\"", "\"scid\"", 1)),
    ] {
        assert_ne!(part, changed, "{what}");
        let text = format!("-- a\n{changed}-- b\n");
        assert_ne!(replaced(&text, &part).unwrap(), text, "{what}");
    }
    assert_eq!(
        replaced(&format!("a\n{part}b\n"), &part).unwrap(),
        format!("a\n{part}b\n")
    );
    assert_eq!(replaced("no markers", &part), None);
    assert_eq!(replaced(&format!("{part}{part}"), &part), None);
}
