//! Wire tables as drawings.

use std::fmt::Write as _;

use crate::{FieldSpec, Table};

/// Bits of a row.
const ROW: u32 = 32;

/// The layout of a table as Markdown: the parts of a packet, the bits with 32 to a row and the offset in bytes behind
/// each row, and the fields one by one. A field of several rows is one block with its width.
pub fn diagram(table: &Table) -> String {
    let mut out = String::new();
    if let Some(opcode) = table.opcode {
        let parts = table.layout.join(" | ");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{} (opcode {opcode:02x}): `{parts}`\n", table.name);
    }
    if table.fields.is_empty() {
        out.push_str("No field of its own: the headers above hold everything.\n");
        return out;
    }
    let _ = writeln!(out, "{}, {} bytes:\n", table.name, table.length);
    let _ = writeln!(out, "```text\n{}```\n", bits(table));
    out.push_str("| field | offset | bits | meaning | values |\n|---|---:|---:|---|---|\n");
    for field in &table.fields {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            field.name,
            field.offset,
            field.width,
            field.meaning.replace('|', "\\|"),
            values(field)
        );
    }
    out
}

/// The values that a field can have.
fn values(field: &FieldSpec) -> String {
    if let Some(table) = &field.table {
        return format!("see {table}");
    }
    let listed: Vec<String> = field.allowed.iter().map(u64::to_string).collect();
    match (listed.is_empty(), field.min, field.max) {
        (false, ..) => listed.join(", "),
        (true, None, None) => "any".to_owned(),
        (true, Some(min), None) => format!("from {min}"),
        (true, min, Some(max)) => format!("{} to {max}", min.unwrap_or(0)),
    }
}

/// A part of a field in one row, or a field of whole rows.
struct Piece {
    /// Bits before it in its row.
    start: u32,
    width: u32,
    text: String,
    /// Rows that it fills as a whole; 0 if it is part of one.
    rows: u32,
}

/// The pieces of a table, row by row, with the offset of each row in bytes.
fn rows(table: &Table) -> Vec<(u32, Vec<Piece>)> {
    let mut rows: Vec<(u32, Vec<Piece>)> = Vec::new();
    for field in &table.fields {
        let (mut at, end) = (field.offset, field.offset + field.width);
        let whole = at.is_multiple_of(ROW) && field.width > ROW && field.width.is_multiple_of(ROW);
        if whole {
            let piece = Piece {
                start: 0,
                width: ROW,
                text: format!("{} ({} bits)", field.name, field.width),
                rows: field.width / ROW,
            };
            rows.push((at / 8, vec![piece]));
            continue;
        }
        while at < end {
            let (row, start) = (at / ROW, at % ROW);
            let width = (end - at).min(ROW - start);
            let piece = Piece {
                start,
                width,
                text: field.name.clone(),
                rows: 0,
            };
            match rows.last_mut().filter(|(offset, _)| *offset == row * 4) {
                Some((_, pieces)) => pieces.push(piece),
                None => rows.push((row * 4, vec![piece])),
            }
            at += width;
        }
    }
    rows
}

/// The drawing of the bits.
fn bits(table: &Table) -> String {
    let tens: String = (0..ROW)
        .map(|bit| match bit % 10 {
            0 => format!(" {}", bit / 10),
            _ => "  ".to_owned(),
        })
        .collect();
    let ones: String = (0..ROW).map(|bit| format!(" {}", bit % 10)).collect();
    let mut out = format!("{}\n{}\n", tens.trim_end(), ones);
    let rows = rows(table);
    let mut above: &[Piece] = &[];
    for (offset, pieces) in &rows {
        out.push_str(&border(above, pieces));
        out.push_str(&row(pieces, *offset));
        above = pieces;
    }
    out.push_str(&border(above, &[]));
    out
}

/// The line between two rows, with a joint wherever a piece of either ends.
fn border(above: &[Piece], below: &[Piece]) -> String {
    let mut line = vec![b'-'; 2 * ROW as usize + 1];
    line[0] = b'+';
    for piece in above.iter().chain(below) {
        for joint in [piece.start, piece.start + piece.width] {
            line[2 * joint as usize] = b'+';
        }
    }
    String::from_utf8_lossy(&line).into_owned() + "\n"
}

fn row(pieces: &[Piece], offset: u32) -> String {
    let fill = |text: &str, width: u32| {
        let room = 2 * width as usize - 1;
        // A name that is too long is cut: the list of the fields has it in full.
        let text: String = text.chars().take(room).collect();
        format!("{text:^room$}")
    };
    if let [piece] = pieces
        && piece.rows > 0
    {
        // One line a row is enough for two; more of them are cut short by slanted sides.
        let side = if piece.rows > 2 { '/' } else { '+' };
        let (empty, text) = (fill("", ROW), fill(&piece.text, ROW));
        return format!("|{empty}|  {offset}\n{side}{text}{side}\n|{empty}|\n");
    }
    let mut line = String::from("|");
    for piece in pieces {
        line.push_str(&fill(&piece.text, piece.width));
        line.push('|');
    }
    format!("{line}  {offset}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_drawn_bit_by_bit() {
        let text = "name: T\nlength: 24\nfields:\n\
            - {name: a, offset: 0, width: 4, meaning: \"m\", allowed: [1, 2]}\n\
            - {name: a_name_too_long, offset: 4, width: 4, meaning: m}\n\
            - {name: crossing, offset: 8, width: 32, meaning: m, min: 1}\n\
            - {name: b, offset: 40, width: 24, meaning: m, max: 5}\n\
            - {name: wide, offset: 64, width: 64, meaning: m}\n\
            - {name: wider, offset: 128, width: 64, meaning: m}\n";
        let mut table = crate::parse_table("t.yaml", text).unwrap();
        table.fields[5].width = 96;
        table.length = 28;
        let expected = "\
T, 28 bytes:

```text
 0                   1                   2                   3
 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
+-------+-------+-----------------------------------------------+
|   a   |a_name_|                   crossing                    |  0
+-------+-------+-----------------------------------------------+
|   crossing    |                       b                       |  4
+---------------+-----------------------------------------------+
|                                                               |  8
+                        wide (64 bits)                         +
|                                                               |
+---------------------------------------------------------------+
|                                                               |  16
/                        wider (96 bits)                        /
|                                                               |
+---------------------------------------------------------------+
```

| field | offset | bits | meaning | values |
|---|---:|---:|---|---|
| `a` | 0 | 4 | m | 1, 2 |
| `a_name_too_long` | 4 | 4 | m | any |
| `crossing` | 8 | 32 | m | from 1 |
| `b` | 40 | 24 | m | 0 to 5 |
| `wide` | 64 | 64 | m | any |
| `wider` | 128 | 96 | m | any |
";
        assert_eq!(diagram(&table), expected);
    }

    #[test]
    fn no_name_of_the_specification_is_cut() {
        for table in crate::tables().unwrap() {
            let drawn = diagram(&table);
            for field in &table.fields {
                let count = drawn.matches(field.name.as_str()).count();
                assert!(count >= 2, "{}.{}: {drawn}", table.name, field.name);
            }
        }
    }
}
