//! A sequence as a plain-text diagram: initiator on the left, acceptor on the right, time going down.

use super::{
    ConnectionState, End, EventStep, Fate, FieldValue, Happening, PacketStep, Sequence, Step,
};

/// Widest line.
const WIDTH: usize = 100;
/// A time in microseconds with three decimals.
const TIME: usize = 11;
/// Between the two time lines.
const LANE: usize = WIDTH - 2 * (TIME + 2);

/// Draws a sequence in lines of at most 100 columns. Times are in microseconds; a packet stands at its sending, and its arrival
/// is the time at the other side. PSNs are hexadecimal.
pub fn render(sequence: &Sequence) -> String {
    let mut lines = vec![
        sequence.title.clone(),
        "=".repeat(sequence.title.chars().count()),
        String::new(),
    ];
    wrap(&sequence.shows, &mut lines);
    if let (Some(base), Some(because)) = (&sequence.base, &sequence.because) {
        lines.push(String::new());
        wrap(&format!("Not as in {base}: {because}"), &mut lines);
    }
    lines.push(String::new());
    for (number, connection) in sequence.connections.iter().enumerate() {
        wrap(&about(sequence, number, connection), &mut lines);
    }
    lines.push(String::new());
    let (left, right) = ("initiator", "acceptor");
    let gap = LANE - left.len() - right.len();
    lines.push(format!("{:>TIME$} |{left}{:gap$}{right}| us", "us", ""));
    let mut before = None;
    for (number, step) in sequence.steps.iter().enumerate() {
        let time = step.at_ns();
        // A pause long against what is around it is shown as one.
        if before.is_some_and(|before| time > before + 1_000_000) {
            lines.push(format!("{:>TIME$} :{:LANE$}:", "...", ""));
        }
        before = Some(time);
        match step {
            Step::Packet(packet) => lines.extend(packet_rows(sequence, packet)),
            Step::Event(event) => lines.extend(event_row(sequence, event)),
        }
        for broken in sequence
            .violates
            .iter()
            .filter(|broken| broken.step == number)
        {
            lines.push(format!(
                "{:>TIME$} |{:^LANE$}|",
                "",
                format!("^^^ breaks {} ^^^", broken.clause)
            ));
        }
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
    }
    lines.join("\n") + "\n"
}

/// One line about a connection.
fn about(sequence: &Sequence, number: usize, connection: &ConnectionState) -> String {
    let name = if sequence.connections.len() > 1 {
        format!("#{number} ")
    } else {
        String::new()
    };
    let paths = if connection.paths == 1 {
        "1 path".to_owned()
    } else {
        format!("{} paths", connection.paths)
    };
    let mut text = format!(
        "{name}{} to {}, {paths}, P = {}, AckDelay {} and {} us",
        connection.initiator.address,
        connection.acceptor.address,
        connection.payload_size,
        connection.initiator.ack_delay_us,
        connection.acceptor.ack_delay_us,
    );
    if connection.planes() > 1 {
        text += &format!(", {} planes", connection.planes());
    }
    if !connection.features.is_empty() {
        text += &format!(", {}", connection.features.join(" "));
    }
    text
}

fn wrap(text: &str, lines: &mut Vec<String>) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
}

fn time(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// A text that fits between the time lines with `room` columns to spare.
fn fit(text: String, room: usize) -> String {
    let most = LANE - room;
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most - 2).chain("..".chars()).collect()
}

fn packet_rows(sequence: &Sequence, packet: &PacketStep) -> Vec<String> {
    let label = fit(label(sequence, packet), 16);
    let mut rows = vec![row(packet, &label, packet.fate.arrives_ns())];
    if let Fate::Duplicated { again_ns, .. } = packet.fate {
        rows.push(row(packet, "the same once more", Some(again_ns)));
    }
    rows
}

fn row(packet: &PacketStep, label: &str, arrives: Option<u64>) -> String {
    let right = packet.from == End::Initiator;
    let note = match packet.fate {
        Fate::Lost => " x lost",
        Fate::Marked { .. } => " CE ",
        Fate::Delayed { .. } => " late ",
        Fate::Delivered { .. } | Fate::Duplicated { .. } => "",
    };
    let lost = packet.fate == Fate::Lost;
    let used = label.chars().count() + note.len() + 6;
    let line = "-".repeat(LANE.saturating_sub(used));
    let (sent, came) = (time(packet.at_ns), arrives.map(time).unwrap_or_default());
    let lane = match (right, lost) {
        (true, false) => format!("--- {label} {line}{note}>"),
        (true, true) => format!("--- {label} {}{note}", "-".repeat(line.len() / 2)),
        (false, false) => format!("<{note}{line} {label} ---"),
        (false, true) => format!("lost x {} {label} ---", "-".repeat(line.len() / 2)),
    };
    if right {
        format!("{sent:>TIME$} |{lane:<LANE$}| {came}")
    } else {
        format!("{came:>TIME$} |{lane:>LANE$}| {sent}")
    }
}

fn event_row(sequence: &Sequence, event: &EventStep) -> Option<String> {
    let mut text = happening(&event.what)?;
    if sequence.connections.len() > 1 {
        text = format!("#{} {text}", event.connection);
    }
    let text = fit(text, 6);
    let at = time(event.at_ns);
    Some(match event.side {
        End::Initiator => format!("{at:>TIME$} |* {text:<width$}|", width = LANE - 2),
        End::Acceptor => format!("{:>TIME$} |{text:>width$} *| {at}", "", width = LANE - 2),
    })
}

/// What happens at an end, in words; nothing for the end of the sequence.
fn happening(what: &Happening) -> Option<String> {
    Some(match what {
        Happening::Established { paths, streams } => {
            format!("established: {paths} paths, {streams} streams")
        }
        Happening::PostSend(work) => posted("Send", work),
        Happening::PostSendImm(work) => posted("Send with immediate data", work),
        Happening::PostSendInv(work) => posted("Send with invalidation", work),
        Happening::PostWrite(work) => posted("Write", work),
        Happening::PostWriteImm(work) => posted("Write with immediate data", work),
        Happening::PostRead(work) => posted("Read", work),
        Happening::PostFetchAdd(work) => posted("fetch and add", work),
        Happening::PostCmpSwap(work) => posted("compare and swap", work),
        Happening::PostRecv {
            stream,
            wr_id,
            rqsn,
            length,
            ..
        } => {
            format!("post receive: wr {wr_id}, stream {stream}, rqsn {rqsn}, {length} bytes")
        }
        Happening::TakeRecv {
            stream,
            wr_id,
            rqsn,
        } => {
            format!("takes receive away: wr {wr_id}, stream {stream}, rqsn {rqsn}")
        }
        Happening::Completion {
            wr_id,
            work,
            status,
            byte_len,
            ..
        } => {
            format!("completes wr {wr_id} ({work}, {byte_len} bytes): {status}")
        }
        Happening::Memory { va, hex } => {
            format!("memory at {va}: {} bytes {}", hex.len() / 2, excerpt(hex))
        }
        Happening::Invalidated { rkey } => format!("key {rkey:08x} is invalid from now on"),
        Happening::Timer { name } => format!("timer: {name}"),
        Happening::PortChange { path, source_port } => {
            format!("path {path} leaves from port {source_port} from now on")
        }
        Happening::Closed { reason } => format!("closed, reason {reason}"),
        Happening::Failed { status } => format!("failed: {status}"),
        Happening::End {} => return None,
    })
}

fn posted(name: &str, work: &super::Posted) -> String {
    format!(
        "post {name}: wr {}, stream {}, {} bytes",
        work.wr_id, work.stream, work.length
    )
}

fn excerpt(hex: &str) -> String {
    match hex.get(..8) {
        Some(start) if hex.len() > 8 => format!("{start}.."),
        _ => hex.to_owned(),
    }
}

/// A packet in a few words.
fn label(sequence: &Sequence, packet: &PacketStep) -> String {
    let view = View(packet);
    let name = packet.packet.as_str();
    let mut words = Vec::new();
    if sequence.connections.len() > 1 {
        words.push(format!("#{}", packet.connection));
    }
    words.push(name.to_owned());
    words.extend(planes(sequence, packet));
    if view.has("MSGH") {
        view.data(sequence, &mut words);
    } else if view.has("ACK") {
        view.acknowledgment(sequence, &mut words);
    } else if view.has("NAK") {
        let code = code("nak_codes", view.get("NAK", "code"));
        words.push(format!(
            "{code}, stream {} msn {} psn {:x}",
            view.get("NAK", "stream"),
            view.get("NAK", "msn"),
            view.get("NAK", "offending_psn")
        ));
        words.push(format!(
            "scope {}",
            code_lower("nak_scopes", view.get("NAK", "scope"))
        ));
    } else {
        view.control(name, &mut words);
    }
    words.join(" ")
}

/// The plane of a packet, on a connection that has more than one.
fn planes(sequence: &Sequence, packet: &PacketStep) -> Option<String> {
    if sequence.connections.get(packet.connection)?.planes() == 1 {
        return None;
    }
    Some(match packet.to_plane {
        Some(to) => format!("plane {} to {to}", packet.plane),
        None => format!("plane {}", packet.plane),
    })
}

/// The fields of a packet.
struct View<'s>(&'s PacketStep);

impl View<'_> {
    fn has(&self, layer: &str) -> bool {
        self.0.fields.contains_key(layer)
    }

    fn get(&self, layer: &str, field: &str) -> u32 {
        match self
            .0
            .fields
            .get(layer)
            .and_then(|fields| fields.get(field))
        {
            Some(FieldValue::Number(number)) => *number,
            _ => 0,
        }
    }

    fn text(&self, layer: &str, field: &str) -> &str {
        match self
            .0
            .fields
            .get(layer)
            .and_then(|fields| fields.get(field))
        {
            Some(FieldValue::Text(text)) => text,
            _ => "",
        }
    }

    fn path(&self) -> String {
        match self.get("CBH", "epoch") {
            0 => format!("path {}", self.get("CBH", "path")),
            epoch => format!("path {} epoch {epoch}", self.get("CBH", "path")),
        }
    }

    fn data(&self, sequence: &Sequence, words: &mut Vec<String>) {
        words.push(format!("{} psn {:x}", self.path(), self.get("CBH", "psn")));
        let several = sequence
            .connections
            .iter()
            .any(|connection| connection.streams > 1);
        if several {
            words.push(format!("stream {}", self.get("MSGH", "stream")));
        }
        if self.0.packet != "FILL" {
            words.push(format!("msn {}", self.get("MSGH", "msn")));
            let from = self.get("MSGH", "offset");
            let len = self.text("payload", "payload").len() / 2;
            if self.has("payload") {
                words.push(format!(
                    "[{from}..{}) of {}",
                    from as usize + len,
                    self.get("MSGH", "len")
                ));
            }
        }
        words.extend(flags("flags", self.get("CBH", "flags")));
    }

    fn acknowledgment(&self, sequence: &Sequence, words: &mut Vec<String>) {
        let cum = self.get("CBH", "psn");
        words.push(format!("{} cum {cum:x}", self.path()));
        words.extend(beyond(cum, self.text("ACK_SACK", "sack")));
        let marks = self.get("ACK", "ce_count");
        if marks > 0 {
            words.push(format!("ce {marks}"));
        }
        words.push(format!("ect {}", self.get("ACK", "ect_count")));
        if self.get("ACK", "ack_flags") & 0x4000 != 0 {
            words.push("duplicate".to_owned());
        }
        words.extend(flags("flags", self.get("CBH", "flags")));
        if sequence
            .connections
            .iter()
            .any(|connection| connection.acceptor.hint_support == 1)
        {
            words.push(match self.get("ACK", "rate_hint") {
                0x00ff_ffff => "no hint".to_owned(),
                rate => format!("hint {}: {rate} Mb/s", self.get("ACK", "hint_epoch")),
            });
        }
    }

    fn control(&self, name: &str, words: &mut Vec<String>) {
        let get = |layer: &str, field: &str| self.get(layer, field);
        if name.starts_with("PATH") {
            words.push(self.path());
        }
        words.push(format!("tid {:x}", get("CBH", "psn")));
        match name {
            "OPEN" | "ACCEPT" => words.push(format!(
                "versions {}..{}, {} paths",
                get("params", "ver_min"),
                get("params", "ver_max"),
                get("params", "paths")
            )),
            "REJECT" => words.push(format!(
                "reason {}",
                code("reject_reasons", get(name, "reason"))
            )),
            "CLOSE" | "CLOSE_ACK" => words.push(format!(
                "reason {}",
                code("close_reasons", get(name, "reason"))
            )),
            "STREAM_OPEN" | "STREAM_OPEN_ACK" => words.push(format!(
                "stream {} limit {}",
                get(name, "stream"),
                get(name, "rq_limit")
            )),
            "STREAM_RESET" => words.push(format!(
                "stream {} {} msn {}",
                get(name, "stream"),
                code("nak_codes", get(name, "code")),
                get(name, "msn")
            )),
            "STREAM_RESET_ACK" => words.push(format!("stream {}", get(name, "stream"))),
            "PATH_PROBE" | "PATH_RETIRE" => {
                words.push(format!("highest {:x}", get(name, "highest_psn")))
            }
            "PATH_PROBE_ACK" | "PATH_RETIRED" => {
                let cum = get(name, "cum_psn");
                words.push(format!("cum {cum:x}"));
                words.extend(beyond(cum, self.text(name, "sack")));
            }
            "PATH_CHANGE" => words.push(format!(
                "port {} from psn {:x}",
                get(name, "source_port"),
                get(name, "next_psn")
            )),
            "RQ_CREDIT" => match get(name, "kind") {
                0 => words.push(format!("asks, stream {}", get(name, "stream"))),
                _ => words.push(format!(
                    "tells, stream {} limit {}",
                    get(name, "stream"),
                    get(name, "rq_limit")
                )),
            },
            _ => {}
        }
    }
}

/// The PSNs that a vector reports, runs drawn together.
fn beyond(cum: u32, sack: &str) -> Option<String> {
    let bits: Vec<u32> = sack
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .zip(0u32..)
        .flat_map(|(digit, at)| {
            (0..4)
                .filter(move |bit| digit & (8 >> bit) != 0)
                .map(move |bit| at * 4 + bit)
        })
        .collect();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for bit in bits {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == bit => *last = bit,
            _ => runs.push((bit, bit)),
        }
    }
    let psn = |bit: u32| cum.wrapping_add(1).wrapping_add(bit);
    let texts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                format!("{:x}", psn(first))
            } else {
                format!("{:x}-{:x}", psn(first), psn(last))
            }
        })
        .collect();
    (!texts.is_empty()).then(|| format!("has {}", texts.join(",")))
}

/// The names of the flags that are set.
fn flags(space: &str, value: u32) -> Option<String> {
    let entries = entries(space);
    let names: Vec<_> = entries
        .iter()
        .filter(|entry| u64::from(value) & entry.code != 0)
        .map(|entry| entry.name.as_str())
        .collect();
    (!names.is_empty()).then(|| names.join("+"))
}

fn entries(space: &str) -> Vec<crate::Entry> {
    let spaces = crate::codes().unwrap_or_default();
    spaces
        .into_iter()
        .find(|found| found.name == space)
        .map(|found| found.entries)
        .unwrap_or_default()
}

fn code(space: &str, value: u32) -> String {
    let found = entries(space)
        .into_iter()
        .find(|entry| entry.code == u64::from(value));
    found.map_or_else(|| value.to_string(), |entry| entry.name)
}

fn code_lower(space: &str, value: u32) -> String {
    code(space, value).to_lowercase()
}
