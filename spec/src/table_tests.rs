use super::*;

const GOOD: &str = "\
name: THING
length: 4
fields:
  - {name: kind, offset: 0, width: 8, meaning: \"kind\", min: 1, max: 3}
  - {name: rsvd, offset: 8, width: 24, meaning: \"reserved\", allowed: [0]}
";

const CODE: &str = "\
- name: kinds
  field: THING.kind
  width: 8
  kind: flags
  reserved: 0x3f
  entries:
    - {code: 0x80, name: ONE, meaning: \"one\"}
    - {code: 0x40, name: TWO, meaning: \"two\"}
";

#[test]
fn a_table_reads() {
    let table = parse_table("thing.yaml", GOOD).unwrap();
    assert_eq!(
        (table.name.as_str(), table.length, table.opcode),
        ("THING", 4, None)
    );
    assert_eq!(table.fields[1].line, 5);
    let allowed: Vec<u64> = (0..=5).filter(|&v| table.fields[0].allows(v)).collect();
    assert_eq!(allowed, [1, 2, 3]);
    assert!(table.fields[1].allows(0) && !table.fields[1].allows(1));
}

#[test]
fn doctored_tables_are_refused_where_they_are_wrong() {
    let cases = [
        ("offset: 8", "offset: 9", 5, "a gap"),
        ("offset: 8", "offset: 7", 5, "an overlap"),
        ("width: 24", "width: 16", 2, "24 bits"),
        ("length: 4", "length: 5", 2, "32 bits"),
        ("width: 8", "width: 0", 4, "no bits"),
        ("name: rsvd", "name: kind", 5, "second time"),
        ("name: rsvd", "name: Rsvd", 5, "snake case"),
        ("name: THING", "name: Thing", 1, "capitals"),
        ("max: 3", "max: 256", 4, "does not fit"),
        ("allowed: [0]", "allowed: [0x1000000]", 5, "does not fit"),
        ("min: 1", "colour: 1", 4, "colour"),
        ("length: 4", "length: 4\nlength: 4", 3, "length"),
        ("length: 4", "length: four", 2, ""),
        ("width: 24", "width: 4294967295", 5, "too wide"),
    ];
    for (old, new, line, says) in cases {
        let doctored = GOOD.replacen(old, new, 1);
        assert_ne!(doctored, GOOD);
        let error = parse_table("thing.yaml", &doctored).unwrap_err();
        assert_eq!(error.file, "thing.yaml");
        assert_eq!(error.line, line, "{new}: {error}");
        assert!(error.column > 0, "{new}: {error}");
        assert!(error.message.contains(says), "{new}: {error}");
    }
}

#[test]
fn doctored_codes_are_refused_where_they_are_wrong() {
    assert_eq!(parse_codes("codes.yaml", CODE).unwrap()[0].entries.len(), 2);
    let cases = [
        ("code: 0x40", "code: 0x80", 8, "second time"),
        ("code: 0x40", "code: 0x60", 8, "single bit"),
        ("code: 0x40", "code: 0x20", 8, "single bit"),
        ("code: 0x40", "code: 0x100", 8, "does not fit"),
        ("name: TWO", "name: ONE", 8, "second time"),
        ("name: TWO", "name: two", 8, "capitals"),
        ("reserved: 0x3f", "reserved: 0x3e", 1, "reserved bits"),
        ("kind: flags", "kind: enumeration", 1, "reserved bits"),
        ("kind: flags", "kind: fruit", 4, "fruit"),
    ];
    for (old, new, line, says) in cases {
        let doctored = CODE.replacen(old, new, 1);
        assert_ne!(doctored, CODE);
        let error = parse_codes("codes.yaml", &doctored).unwrap_err();
        assert_eq!(error.line, line, "{new}: {error}");
        assert!(error.message.contains(says), "{new}: {error}");
    }
    let twice = format!("{CODE}{CODE}");
    assert_eq!(parse_codes("codes.yaml", &twice).unwrap_err().line, 9);
}

/// The real tables, changed by `doctor`, and what is wrong with them then.
fn refused(doctor: impl FnOnce(&mut Vec<Table>, &mut Vec<CodeSpace>)) -> String {
    let (mut tables, mut codes) = (tables().unwrap(), codes().unwrap());
    doctor(&mut tables, &mut codes);
    validate_set(&tables, &codes).unwrap_err().to_string()
}

fn named<'t>(tables: &'t mut [Table], name: &str) -> &'t mut Table {
    tables.iter_mut().find(|t| t.name == name).unwrap()
}

#[test]
fn doctored_sets_are_refused() {
    let said = refused(|t, _| t.push(t[0].clone()));
    assert!(said.contains("table CBH a second time"), "{said}");
    let said = refused(|t, _| named(t, "OPEN").layout = vec!["OPEN".into(), "crc".into()]);
    assert!(said.contains("starts with CBH"), "{said}");
    let said = refused(|t, _| named(t, "WRITE").layout[2] = "TAG".into());
    assert!(said.contains("does not exist"), "{said}");
    let said = refused(|t, _| named(t, "NAK").layout = vec!["CBH".into(), "crc".into()]);
    assert!(said.contains("fields of its own"), "{said}");
    let said = refused(|t, _| named(t, "MSGH").layout = vec!["CBH".into()]);
    assert!(said.contains("only a packet"), "{said}");
    let said = refused(|t, _| named(t, "OPEN").fields[0].table = Some("MSGH".into()));
    assert!(said.contains("no whole MSGH"), "{said}");
    let said = refused(|t, _| named(t, "NAK").opcode = Some(0x43));
    assert!(said.contains("0x43 NAK"), "{said}");
    let said = refused(|t, _| named(t, "NAK").opcode = Some(0x41));
    assert!(said.contains("0x41 NAK"), "{said}");
    let said = refused(|_, c| c[0].entries[0].name = "SENT".into());
    assert!(said.contains("0x01 SEND"), "{said}");
    let said = refused(|_, c| c[1].field = "CBH.colour".into());
    assert!(said.contains("CBH.colour"), "{said}");
    let said = refused(|_, c| c[1].width = 16);
    assert!(said.contains("16 bits"), "{said}");
}

#[test]
fn packets_have_the_lengths_of_the_chapters() {
    let tables = tables().unwrap();
    let length = |name: &str| tables.iter().find(|t| t.name == name).unwrap().length;
    // Bytes from the start of the packet to the trailer.
    let whole = |packet: &Table| -> u32 {
        let headers = packet
            .layout
            .iter()
            .filter(|p| !["payload", "pad", "crc"].contains(&p.as_str()));
        headers.map(|part| length(part)).sum()
    };
    let sizes: BTreeMap<&str, u32> = tables
        .iter()
        .filter(|t| t.opcode.is_some())
        .map(|t| (t.name.as_str(), whole(t)))
        .collect();
    let expected = BTreeMap::from([
        ("SEND", 32),
        ("SEND_IMM", 36),
        ("SEND_INV", 36),
        ("WRITE", 48),
        ("WRITE_IMM", 48),
        ("READ_REQ", 48),
        ("CMP_SWAP", 64),
        ("FETCH_ADD", 64),
        ("FILL", 32),
        ("READ_RESP", 32),
        ("ATOMIC_RESP", 40),
        ("ACK", 40),
        ("ACK_SACK", 72),
        ("NAK", 32),
        ("OPEN", 204),
        ("ACCEPT", 204),
        ("CONFIRM", 360),
        ("CONFIRM_ACK", 24),
        ("REJECT", 32),
        ("CLOSE", 20),
        ("CLOSE_ACK", 20),
        ("PATH_PROBE", 20),
        ("PATH_PROBE_ACK", 64),
        ("PATH_CHANGE", 24),
        ("PATH_RETIRE", 24),
        ("PATH_RETIRED", 52),
        ("RATE_HINT", 20),
        ("RQ_CREDIT", 24),
        ("STREAM_RESET", 24),
        ("STREAM_RESET_ACK", 20),
        ("STREAM_OPEN", 36),
        ("STREAM_OPEN_ACK", 36),
    ]);
    assert_eq!(sizes, expected);
}

#[test]
fn every_table_file_is_embedded_and_named_after_its_table() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tables");
    let mut on_disk: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut embedded: Vec<String> = TABLES.iter().map(|(file, _)| (*file).to_owned()).collect();
    embedded.push(CODES.0.to_owned());
    on_disk.sort_unstable();
    embedded.sort_unstable();
    assert_eq!(on_disk, embedded);
    for table in tables().unwrap() {
        assert_eq!(table.file, format!("{}.yaml", table.name.to_lowercase()));
    }
}
