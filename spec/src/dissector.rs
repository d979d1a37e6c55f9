//! The wire tables and code points as Lua data: the generated part of the Wireshark dissector.

use std::fmt::Write as _;

use crate::{CodeSpace, CodeSpaceKind, PROFILE, Table, VERSION};

/// The line in front of the generated part of `dissector/metaroce.lua`.
pub const DISSECTOR_BEGIN: &str =
    "-- BEGIN GENERATED from spec/tables by metaroce-spec: do not edit";

/// The line behind the generated part.
pub const DISSECTOR_END: &str = "-- END GENERATED";

/// The generated part of the dissector, both marker lines included: every table and every code point, in the order
/// given.
pub fn dissector_data(tables: &[Table], codes: &[CodeSpace]) -> String {
    let mut out = format!("{DISSECTOR_BEGIN}\n");
    line(&mut out, 0, &format!("local PROFILE = {}", quoted(PROFILE)));
    line(
        &mut out,
        0,
        &format!("local SPEC_VERSION = {}", quoted(VERSION)),
    );
    line(&mut out, 0, "local TABLES = {");
    for table in tables {
        table_lines(&mut out, table);
    }
    line(&mut out, 0, "}");
    line(&mut out, 0, "local CODES = {");
    for space in codes {
        space_lines(&mut out, space);
    }
    line(&mut out, 0, "}");
    line(&mut out, 0, DISSECTOR_END);
    out
}

fn table_lines(out: &mut String, table: &Table) {
    let mut head = format!(
        "{{ name = {}, length = {}",
        quoted(&table.name),
        table.length
    );
    if let Some(opcode) = table.opcode {
        let layout: Vec<String> = table.layout.iter().map(|part| quoted(part)).collect();
        _ = write!(
            head,
            ", opcode = {opcode:#04x}, layout = {{ {} }}",
            layout.join(", ")
        );
    }
    line(out, 1, &format!("{head}, fields = {{"));
    for field in &table.fields {
        let mut text = format!(
            "{{ name = {}, offset = {}, width = {}",
            quoted(&field.name),
            field.offset,
            field.width
        );
        if !field.allowed.is_empty() {
            let allowed: Vec<String> = field.allowed.iter().map(u64::to_string).collect();
            _ = write!(text, ", allowed = {{ {} }}", allowed.join(", "));
        }
        if let Some(min) = field.min {
            _ = write!(text, ", min = {min}");
        }
        if let Some(max) = field.max {
            _ = write!(text, ", max = {max}");
        }
        if let Some(inner) = &field.table {
            _ = write!(text, ", table = {}", quoted(inner));
        }
        _ = write!(text, ", meaning = {} }},", quoted(&field.meaning));
        line(out, 2, &text);
    }
    line(out, 1, "} },");
}

fn space_lines(out: &mut String, space: &CodeSpace) {
    let kind = match space.kind {
        CodeSpaceKind::Enumeration => "enumeration",
        CodeSpaceKind::Flags => "flags",
    };
    let head = format!(
        "{{ name = {}, field = {}, width = {}, kind = {}, reserved = {:#x}, entries = {{",
        quoted(&space.name),
        quoted(&space.field),
        space.width,
        quoted(kind),
        space.reserved
    );
    line(out, 1, &head);
    for entry in &space.entries {
        let text = format!(
            "{{ code = {:#x}, name = {}, meaning = {} }},",
            entry.code,
            quoted(&entry.name),
            quoted(&entry.meaning)
        );
        line(out, 2, &text);
    }
    line(out, 1, "} },");
}

fn line(out: &mut String, depth: usize, text: &str) {
    _ = writeln!(out, "{:1$}{text}", "", depth * 2);
}

/// A string of Lua. Bytes beyond ASCII stand as they are; control characters are written by number.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => _ = write!(out, "\\{:03}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_for_lua() {
        assert_eq!(quoted("a \"b\" \\ \n1"), r#""a \"b\" \\ \0101""#);
    }
}
