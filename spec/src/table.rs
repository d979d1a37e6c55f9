//! Wire tables and code points out of their YAML files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::yaml::{Spanned, error, fail, read, whole};
use crate::{CODES, TABLES};

/// A header, or a packet with the headers it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Name in capitals; that of the opcode for a packet.
    pub name: String,
    /// Code point, when this is a packet.
    pub opcode: Option<u8>,
    /// Bytes of the fields below. Headers shared with other packets are in tables of their own.
    pub length: u32,
    /// The parts of a packet in wire order: names of tables, then `payload`, `pad` and `crc`. Empty for a header.
    pub layout: Vec<String>,
    /// The fields in wire order, without gap or overlap.
    pub fields: Vec<FieldSpec>,
    /// Name of the file that this table was read from.
    pub file: String,
}

/// A field of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldSpec {
    /// Name in snake case, unique within its table.
    pub name: String,
    /// Bits before it in the header; bit 0 is the most significant of the first byte.
    pub offset: u32,
    /// Width in bits.
    pub width: u32,
    /// What it says.
    pub meaning: String,
    /// The values that this version allows, where it lists them; a reserved field allows 0. For fields wider than
    /// 64 bits the only list possible is 0.
    pub allowed: Vec<u64>,
    /// The lowest value allowed, where there is a limit.
    pub min: Option<u64>,
    /// The highest value allowed, where there is a limit below that of the width.
    pub max: Option<u64>,
    /// The table of the header that stands here as a whole.
    pub table: Option<String>,
    /// Line in the file, from 1.
    pub line: u64,
}

impl FieldSpec {
    /// Whether this version allows `value` in this field.
    pub fn allows(&self, value: u64) -> bool {
        let listed = self.allowed.is_empty() || self.allowed.contains(&value);
        let above = self.min.is_none_or(|min| value >= min);
        let below = self.max.is_none_or(|max| value <= max);
        listed && above && below
    }
}

/// The code points of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CodeSpace {
    /// Name of the set.
    pub name: String,
    /// The field, as `TABLE.field`.
    pub field: String,
    /// Width of the field in bits.
    pub width: u32,
    /// Whether the values are alternatives or bits.
    pub kind: CodeSpaceKind,
    /// The bits that are zero in this version; 0 for an enumeration.
    pub reserved: u64,
    /// The code points.
    pub entries: Vec<Entry>,
}

/// How the code points of a field go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeSpaceKind {
    /// One of the values stands alone.
    Enumeration,
    /// Single bits, in any combination.
    Flags,
}

/// One code point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The number.
    pub code: u64,
    /// Name in capitals.
    pub name: String,
    /// What it says.
    pub meaning: String,
}

/// What is wrong with a table, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct TableError {
    /// File name of the table.
    pub file: String,
    /// Line, from 1; 0 where the error has no place.
    pub line: u64,
    /// Column, from 1; 0 where the error has no place.
    pub column: u64,
    /// What is wrong there.
    pub message: String,
}

/// All wire tables, checked each and together.
///
/// # Errors
/// The first [`TableError`].
pub fn tables() -> Result<Vec<Table>, TableError> {
    let tables = TABLES
        .iter()
        .map(|(file, text)| parse_table(file, text))
        .collect::<Result<Vec<_>, _>>()?;
    validate_set(&tables, &codes()?)?;
    Ok(tables)
}

/// All code points.
///
/// # Errors
/// The first [`TableError`] in the file.
pub fn codes() -> Result<Vec<CodeSpace>, TableError> {
    parse_codes(CODES.0, CODES.1)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    name: Spanned<String>,
    opcode: Option<u8>,
    length: Spanned<u32>,
    #[serde(default)]
    layout: Vec<String>,
    fields: Vec<RawField>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawField {
    name: Spanned<String>,
    offset: Spanned<u32>,
    width: Spanned<u32>,
    meaning: String,
    #[serde(default)]
    allowed: Vec<Spanned<u64>>,
    min: Option<Spanned<u64>>,
    max: Option<Spanned<u64>>,
    table: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSpace {
    name: Spanned<String>,
    field: String,
    width: u32,
    kind: CodeSpaceKind,
    #[serde(default)]
    reserved: u64,
    entries: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    code: Spanned<u64>,
    name: Spanned<String>,
    meaning: String,
}

/// Reads one table and checks that its fields fill its length without gap or overlap.
///
/// # Errors
/// A [`TableError`] at the place of the first fault.
pub fn parse_table(file: &str, text: &str) -> Result<Table, TableError> {
    let raw: RawTable = read(file, text)?;
    upper_case(file, &raw.name)?;
    let mut names = BTreeSet::new();
    let mut next = 0;
    let mut fields = Vec::new();
    for field in raw.fields {
        let name = field.name.value.clone();
        if !is_name(&name, |b| b.is_ascii_lowercase()) {
            return fail(file, &field.name, format!("`{name}` is not in snake case"));
        }
        if !names.insert(name.clone()) {
            return fail(file, &field.name, format!("field `{name}` a second time"));
        }
        if field.offset.value != next {
            let found = field.offset.value;
            let what = if found > next { "a gap" } else { "an overlap" };
            let message = format!("`{name}` starts at bit {found} instead of {next}: {what}");
            return fail(file, &field.offset, message);
        }
        if field.width.value == 0 {
            return fail(file, &field.width, format!("`{name}` has no bits"));
        }
        next = next
            .checked_add(field.width.value)
            .ok_or_else(|| error(file, &field.width, format!("`{name}` is too wide")))?;
        let limits = field.min.iter().chain(&field.max);
        for value in field.allowed.iter().chain(limits) {
            if !fits(value.value, field.width.value) {
                let message = format!("{} does not fit into `{name}`", value.value);
                return fail(file, value, message);
            }
        }
        fields.push(FieldSpec {
            offset: field.offset.value,
            width: field.width.value,
            meaning: field.meaning,
            allowed: field.allowed.into_iter().map(|v| v.value).collect(),
            min: field.min.map(|v| v.value),
            max: field.max.map(|v| v.value),
            table: field.table,
            line: field.name.referenced.line(),
            name,
        });
    }
    if raw.length.value.checked_mul(8) != Some(next) {
        let length = raw.length.value;
        let message = format!("the fields have {next} bits, the length is {length} bytes");
        return fail(file, &raw.length, message);
    }
    Ok(Table {
        name: raw.name.value,
        opcode: raw.opcode,
        length: raw.length.value,
        layout: raw.layout,
        fields,
        file: file.to_owned(),
    })
}

/// Reads the code points and checks that those of a field differ, fit into it and, as flags, are single bits.
///
/// # Errors
/// A [`TableError`] at the place of the first fault.
pub fn parse_codes(file: &str, text: &str) -> Result<Vec<CodeSpace>, TableError> {
    let raw: Vec<RawSpace> = read(file, text)?;
    let mut spaces = Vec::new();
    let mut names = BTreeSet::new();
    for space in raw {
        if !names.insert(space.name.value.clone()) {
            let message = format!("`{}` a second time", space.name.value);
            return fail(file, &space.name, message);
        }
        check_entries(file, &space)?;
        let entries = space.entries.into_iter().map(|entry| Entry {
            code: entry.code.value,
            name: entry.name.value,
            meaning: entry.meaning,
        });
        spaces.push(CodeSpace {
            name: space.name.value,
            field: space.field,
            width: space.width,
            kind: space.kind,
            reserved: space.reserved,
            entries: entries.collect(),
        });
    }
    Ok(spaces)
}

fn check_entries(file: &str, space: &RawSpace) -> Result<(), TableError> {
    let (mut codes, mut names, mut bits) = (BTreeSet::new(), BTreeSet::new(), space.reserved);
    for entry in &space.entries {
        let (code, name) = (entry.code.value, &entry.name.value);
        upper_case(file, &entry.name)?;
        if !names.insert(name) {
            return fail(file, &entry.name, format!("`{name}` a second time"));
        }
        if !codes.insert(code) {
            return fail(file, &entry.code, format!("code {code:#x} a second time"));
        }
        if !fits(code, space.width) {
            let message = format!("code {code:#x} does not fit into {}", space.field);
            return fail(file, &entry.code, message);
        }
        if space.kind == CodeSpaceKind::Flags {
            if code.count_ones() != 1 || bits & code != 0 {
                let message = format!("`{name}` is not a single bit of its own");
                return fail(file, &entry.code, message);
            }
            bits |= code;
        }
    }
    let every_bit = u64::MAX >> (64 - space.width.clamp(1, 64));
    let complete = match space.kind {
        CodeSpaceKind::Flags => bits == every_bit,
        CodeSpaceKind::Enumeration => space.reserved == 0,
    };
    if !complete {
        let message = format!(
            "`{}` does not say what its reserved bits are",
            space.name.value
        );
        return fail(file, &space.name, message);
    }
    Ok(())
}

/// Checks what tables and code points say about each other: names and opcodes are unique, layouts name tables, a
/// header inside a header has its width, the opcodes are those of the code points, and code points name fields of
/// their width.
///
/// # Errors
/// The first [`TableError`]; faults between files name a file without a place.
pub fn validate_set(tables: &[Table], codes: &[CodeSpace]) -> Result<(), TableError> {
    let by_name: BTreeMap<&str, &Table> = tables.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut seen = BTreeSet::new();
    for table in tables {
        let fault = |message: String| Err(whole(&table.file, message));
        if !seen.insert(&table.name) {
            return fault(format!("table {} a second time", table.name));
        }
        check_layout(table, &by_name)?;
        for field in &table.fields {
            let Some(inner) = &field.table else { continue };
            let width = by_name.get(inner.as_str()).map(|t| t.length * 8);
            if width != Some(field.width) {
                return fault(format!("`{}` is no whole {inner}", field.name));
            }
        }
    }
    for space in codes {
        let field = space.field.split_once('.').and_then(|(table, field)| {
            let table = by_name.get(table)?;
            table.fields.iter().find(|f| f.name == field)
        });
        if field.map(|f| f.width) != Some(space.width) {
            let message = format!("{} is no field of {} bits", space.field, space.width);
            return Err(whole(CODES.0, message));
        }
    }
    let packets = tables
        .iter()
        .filter_map(|t| Some((u64::from(t.opcode?), t.name.as_str())));
    let mut by_table: Vec<_> = packets.collect();
    let opcodes = codes.iter().filter(|space| space.field == "CBH.opcode");
    let entries = opcodes.flat_map(|space| &space.entries);
    let mut by_code: Vec<_> = entries.map(|e| (e.code, e.name.as_str())).collect();
    by_table.sort_unstable();
    by_code.sort_unstable();
    if by_table != by_code {
        let odd = by_table
            .iter()
            .find(|p| !by_code.contains(p))
            .or_else(|| by_code.iter().find(|p| !by_table.contains(p)));
        let message = match odd {
            Some((code, name)) => format!("opcode {code:#04x} {name} is not in both places"),
            None => "an opcode is there twice".to_owned(),
        };
        return Err(whole(CODES.0, message));
    }
    Ok(())
}

fn check_layout(table: &Table, by_name: &BTreeMap<&str, &Table>) -> Result<(), TableError> {
    let fault = |message: &str| Err(whole(&table.file, format!("{}: {message}", table.name)));
    let parts: Vec<&str> = table.layout.iter().map(String::as_str).collect();
    let headers = match (table.opcode, parts.as_slice()) {
        (None, []) => return Ok(()),
        (None, _) => return fault("only a packet has a layout"),
        (Some(_), ["CBH", middle @ .., "payload", "pad", "crc"]) => middle,
        (Some(_), ["CBH", middle @ .., "crc"]) => middle,
        (Some(_), _) => return fault("a packet starts with CBH and ends with crc"),
    };
    if headers.iter().any(|part| !by_name.contains_key(part)) {
        return fault("the layout names a table that does not exist");
    }
    // A packet without fields of its own is all shared headers and does not appear in its layout.
    if headers.contains(&table.name.as_str()) == table.fields.is_empty() {
        return fault("a packet stands in its layout exactly if it has fields of its own");
    }
    Ok(())
}

fn upper_case(file: &str, name: &Spanned<String>) -> Result<(), TableError> {
    if is_name(&name.value, |b| b.is_ascii_uppercase()) {
        Ok(())
    } else {
        fail(file, name, format!("`{}` is not in capitals", name.value))
    }
}

/// Whether `name` is letters of one case, digits and underscores, and starts with a letter.
pub(crate) fn is_name(name: &str, letter: impl Fn(u8) -> bool) -> bool {
    name.bytes().next().is_some_and(&letter)
        && name
            .bytes()
            .all(|b| letter(b) || b.is_ascii_digit() || b == b'_')
}

fn fits(value: u64, width: u32) -> bool {
    if width > 64 {
        // A limit of 64 bits says nothing of a wider field, unless all of it is zero.
        value == 0
    } else {
        value.checked_shr(width).is_none_or(|rest| rest == 0)
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
