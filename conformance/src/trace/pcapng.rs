//! Capture files: both taps in one pcapng, what the injector did as packet comments, and a mark at the end that tells a
//! whole file from one that was cut.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};

use super::{Note, Observation, Side};

/// Largest frame, bytes: an IP packet.
const SNAP_LENGTH: u32 = 65_535;
/// Largest block, bytes: a frame and a comment of every rule.
const LARGEST_BLOCK: usize = 1 << 17;
/// Low bits of the packet flags: towards the harness, away from it.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Why a capture could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, {place}: {message}", file = file.display())]
pub struct TraceError {
    /// The file.
    pub file: PathBuf,
    /// Frame, or part of the file.
    pub place: String,
    /// What is wrong.
    pub message: String,
}

/// Writes a capture while a test runs.
pub struct TraceWriter {
    file: PathBuf,
    writer: PcapNgWriter<BufWriter<File>>,
    frames: [u64; 2],
    last: u64,
}

impl TraceWriter {
    /// Creates the file. `headers` says where the IP headers in it come from.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn create(path: &Path, headers: &str) -> Result<Self, TraceError> {
        let fail = |message: String| TraceError {
            file: path.into(),
            place: "start".into(),
            message,
        };
        let file = File::create(path).map_err(|e| fail(e.to_string()))?;
        let section = SectionHeaderBlock {
            options: vec![
                SectionHeaderOption::UserApplication(
                    concat!("metaroce ", env!("CARGO_PKG_VERSION")).into(),
                ),
                SectionHeaderOption::Common(CommonOption::Comment(headers.to_owned().into())),
            ],
            ..SectionHeaderBlock::default()
        };
        let mut writer =
            PcapNgWriter::with_section_header(BufWriter::with_capacity(1 << 16, file), section)
                .map_err(|e| fail(e.to_string()))?;
        for side in Side::BOTH {
            let mut interface = InterfaceDescriptionBlock::new(DataLink::RAW, SNAP_LENGTH);
            let nanoseconds =
                InterfaceTsResolution::new(false, 9).map_err(|e| fail(e.to_string()))?;
            interface.options = vec![
                InterfaceDescriptionOption::IfName(side.to_string().into()),
                InterfaceDescriptionOption::IfTsResol(nanoseconds),
            ];
            writer
                .write_pcapng_block(interface)
                .map_err(|e| fail(e.to_string()))?;
        }
        Ok(Self {
            file: path.into(),
            writer,
            frames: [0; 2],
            last: 0,
        })
    }

    /// Adds a packet at a tap.
    ///
    /// # Errors
    /// [`TraceError`], a full disk among them.
    pub fn write(&mut self, observation: &Observation) -> Result<(), TraceError> {
        let side = observation.tap.index();
        let flags = if observation.from == observation.tap {
            INBOUND
        } else {
            OUTBOUND
        };
        let mut options = vec![EnhancedPacketOption::Flags(flags)];
        for note in &observation.notes {
            let text = format!("rule={} action={}", note.rule, note.action);
            options.push(EnhancedPacketOption::Common(CommonOption::Comment(
                text.into(),
            )));
        }
        let block = EnhancedPacketBlock {
            interface_id: u32::from(observation.tap == Side::B),
            timestamp: Duration::from_nanos(observation.time_ns),
            original_len: u32::try_from(observation.frame.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(&observation.frame),
            options,
        };
        self.frames[side] += 1;
        self.last = observation.time_ns;
        let frame = self.frames[0] + self.frames[1];
        self.writer
            .write_pcapng_block(block)
            .map(drop)
            .map_err(|e| self.error(format!("frame {frame}"), e))
    }

    /// Hands everything so far to the system, so that a run that is killed leaves it behind.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn flush(&mut self) -> Result<(), TraceError> {
        let flushed = self.writer.get_mut().flush();
        flushed.map_err(|e| self.error(format!("frame {}", self.frames[0] + self.frames[1]), e))
    }

    /// Writes the closing mark, and hands everything to the system.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn finish(mut self) -> Result<(), TraceError> {
        for side in Side::BOTH {
            let block = InterfaceStatisticsBlock {
                interface_id: u32::from(side == Side::B),
                timestamp: Duration::from_nanos(self.last),
                options: vec![InterfaceStatisticsOption::IsbIfRecv(
                    self.frames[side.index()],
                )],
            };
            self.writer
                .write_pcapng_block(block)
                .map_err(|e| self.error("end".into(), e))?;
        }
        let flushed = self.writer.get_mut().flush();
        flushed.map_err(|e| self.error("end".into(), e))
    }

    fn error(&self, place: String, error: impl std::error::Error) -> TraceError {
        TraceError {
            file: self.file.clone(),
            place,
            message: with_cause(&error),
        }
    }
}

/// An error with what the system says below it: the library's own words do not tell a full disk from a broken one.
fn with_cause(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        text = format!("{text}: {cause}");
        below = cause.source();
    }
    text
}

/// Reads a capture of this suite from front to back.
pub struct TraceReader<R: Read = File> {
    file: PathBuf,
    reader: PcapNgReader<BufReader<R>>,
    frames: [u64; 2],
    told: [Option<u64>; 2],
    over: bool,
}

impl TraceReader {
    /// Opens the file.
    ///
    /// # Errors
    /// [`TraceError`] when it is not there or no pcapng.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let fail = |message: String| TraceError {
            file: path.into(),
            place: "start".into(),
            message,
        };
        let file = File::open(path).map_err(|e| fail(e.to_string()))?;
        if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            return Err(fail("the file is empty".into()));
        }
        Self::from_reader(path, file)
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads from anything; errors call it `file`.
    ///
    /// # Errors
    /// [`TraceError`] when it does not start as a pcapng.
    pub fn from_reader(file: &Path, input: R) -> Result<Self, TraceError> {
        let reader = PcapNgReader::with_capacity(BufReader::new(input), LARGEST_BLOCK);
        let reader = reader.map_err(|e| TraceError {
            file: file.into(),
            place: "start".into(),
            message: e.to_string(),
        })?;
        Ok(Self {
            file: file.into(),
            reader,
            frames: [0; 2],
            told: [None; 2],
            over: false,
        })
    }

    fn number(&self) -> u64 {
        self.frames[0] + self.frames[1]
    }

    fn error(&self, message: impl ToString) -> TraceError {
        let place = format!("after frame {}", self.number());
        TraceError {
            file: self.file.clone(),
            place,
            message: message.to_string(),
        }
    }

    fn advance(&mut self) -> Result<Option<(u64, Observation)>, TraceError> {
        loop {
            let block = match self.reader.next_block() {
                None => return self.check_end().map(|()| None),
                Some(Ok((block, _))) => block.into_owned(),
                Some(Err(error)) => {
                    let message = with_cause(&error);
                    return Err(self.error(message));
                }
            };
            if self.told != [None; 2] && !matches!(block, Block::InterfaceStatistics(_)) {
                return Err(self.error("something follows the closing mark"));
            }
            match block {
                Block::EnhancedPacket(packet) => {
                    let tap = match packet.interface_id {
                        0 => Side::A,
                        1 => Side::B,
                        other => {
                            return Err(
                                self.error(format!("interface {other}: there are two taps"))
                            );
                        }
                    };
                    self.frames[tap.index()] += 1;
                    let observation = self.observation(tap, packet)?;
                    return Ok(Some((self.number(), observation)));
                }
                Block::InterfaceStatistics(statistics) => {
                    let count = statistics.options.iter().find_map(|option| match option {
                        InterfaceStatisticsOption::IsbIfRecv(count) => Some(*count),
                        _ => None,
                    });
                    if let Some(told) = self.told.get_mut(statistics.interface_id as usize) {
                        *told = count;
                    }
                }
                Block::InterfaceDescription(interface) => self.check_interface(&interface)?,
                other => {
                    let message = format!(
                        "a block that this suite does not write: {:?}",
                        std::mem::discriminant(&other)
                    );
                    return Err(self.error(message));
                }
            }
        }
    }

    /// The two taps are described first, in order: any other interface is another program's.
    fn check_interface(&self, interface: &InterfaceDescriptionBlock<'_>) -> Result<(), TraceError> {
        let index = self.reader.interfaces().len().saturating_sub(1);
        let named = |name: &str| {
            interface.options.iter().any(
                |option| matches!(option, InterfaceDescriptionOption::IfName(found) if found == name),
            )
        };
        match Side::BOTH.get(index) {
            Some(side) if named(&side.to_string()) && interface.linktype == DataLink::RAW => Ok(()),
            _ => {
                Err(self
                    .error("an interface that is not tap a or tap b: not a capture of this suite"))
            }
        }
    }

    fn observation(
        &self,
        tap: Side,
        packet: EnhancedPacketBlock<'_>,
    ) -> Result<Observation, TraceError> {
        if packet.data.len() != packet.original_len as usize {
            return Err(self.error("a frame was cut when it was captured"));
        }
        let mut from = None;
        let mut notes = Vec::new();
        for option in &packet.options {
            match option {
                EnhancedPacketOption::Flags(flags) => {
                    from = match flags & 3 {
                        INBOUND => Some(tap),
                        OUTBOUND => Some(tap.other()),
                        _ => None,
                    };
                }
                EnhancedPacketOption::Common(CommonOption::Comment(text)) => {
                    let (rule, action) = text
                        .strip_prefix("rule=")
                        .and_then(|rest| rest.split_once(" action="))
                        .ok_or_else(|| self.error("a comment that is not rule=... action=..."))?;
                    notes.push(Note {
                        rule: rule.to_owned(),
                        action: action.to_owned(),
                    });
                }
                _ => {}
            }
        }
        let from = from.ok_or_else(|| self.error("a frame without direction"))?;
        let time_ns = u64::try_from(packet.timestamp.as_nanos()).map_err(|e| self.error(e))?;
        Ok(Observation {
            time_ns,
            tap,
            from,
            frame: packet.data.into_owned(),
            notes,
        })
    }

    fn check_end(&self) -> Result<(), TraceError> {
        for side in Side::BOTH {
            let (told, seen) = (self.told[side.index()], self.frames[side.index()]);
            match told {
                None => return Err(self.error("the closing mark is missing: the capture was cut")),
                Some(told) if told != seen => {
                    return Err(self.error(format!(
                        "tap {side} has {seen} frames, the closing mark says {told}"
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<(u64, Observation), TraceError>;

    /// The number of the frame, from 1, and what was seen. After an error, or the end, there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let item = self.advance().transpose();
        self.over = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Observation> {
        let note = Note {
            rule: "lose-one".into(),
            action: "drop".into(),
        };
        let one = |time_ns, tap, from, notes| Observation {
            time_ns,
            tap,
            from,
            frame: vec![0x45; 40],
            notes,
        };
        vec![
            one(5, Side::A, Side::A, vec![note.clone(), note]),
            one(7, Side::B, Side::A, vec![]),
            one(1_000_000_007, Side::B, Side::B, vec![]),
        ]
    }

    fn write(path: &Path) {
        let mut writer = TraceWriter::create(path, "headers are made up").unwrap();
        sample()
            .iter()
            .for_each(|observation| writer.write(observation).unwrap());
        writer.finish().unwrap();
    }

    #[test]
    fn comes_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        write(&path);
        let back: Vec<_> = TraceReader::open(&path)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(back.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(
            back.into_iter().map(|(_, o)| o).collect::<Vec<_>>(),
            sample()
        );
    }

    #[test]
    fn what_is_no_capture_of_this_suite_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        let first_error = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let first = TraceReader::open(&path).and_then(|mut reader| reader.next().unwrap());
            first.map(drop).unwrap_err().to_string()
        };
        assert!(first_error(&[]).contains("x.pcapng, start: the file is empty"));
        assert!(first_error(&[0x5a; 4000]).contains("x.pcapng, start: "));
        // A classic capture.
        assert!(first_error(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]).contains("start: "));
        // Another program's: one Ethernet interface.
        let mut foreign = PcapNgWriter::new(Vec::new()).unwrap();
        let ethernet = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
        foreign.write_pcapng_block(ethernet).unwrap();
        let error = first_error(&foreign.into_inner());
        assert!(
            error.contains("after frame 0: an interface that is not tap"),
            "{error}"
        );
        assert!(TraceReader::open(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn the_closing_mark_counts_the_frames_of_each_tap() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        write(&path);
        let whole = std::fs::read(&path).unwrap();
        // Take the second frame out, whole: its block starts with its type and length.
        let block = |at: usize| u32::from_be_bytes(whole[at..at + 4].try_into().unwrap());
        let mut starts = Vec::new();
        let mut at = 0;
        while at < whole.len() {
            starts.push((at, block(at)));
            at += block(at + 4) as usize;
        }
        let frames: Vec<usize> = starts.iter().filter(|s| s.1 == 6).map(|s| s.0).collect();
        let without = [&whole[..frames[1]], &whole[frames[2]..]].concat();
        std::fs::write(&path, without).unwrap();
        let last = TraceReader::open(&path).unwrap().last().unwrap();
        let error = last.unwrap_err().to_string();
        assert!(
            error.contains("tap b has 1 frames, the closing mark says 2"),
            "{error}"
        );
    }

    #[test]
    fn no_part_of_a_file_reads_as_a_whole_one_and_no_damage_panics() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        write(&path);
        let whole = std::fs::read(&path).unwrap();
        let complete = |bytes: &[u8]| {
            TraceReader::from_reader(&path, bytes)
                .is_ok_and(|mut reader| reader.all(|item| item.is_ok()))
        };
        assert!(complete(&whole));
        for len in 0..whole.len() {
            assert!(!complete(&whole[..len]), "{len} of {} bytes", whole.len());
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(reader) = TraceReader::from_reader(&path, damaged.as_slice()) {
                    assert!(reader.take(1000).count() < 1000);
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_garbage_panics(bytes: Vec<u8>, cut in 0usize..400, at in 0usize..400) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x.pcapng");
            write(&path);
            let mut spoilt = std::fs::read(&path).unwrap();
            let len = spoilt.len();
            spoilt.splice(at.min(len)..(at + cut).min(len), bytes);
            if let Ok(reader) = TraceReader::from_reader(&path, spoilt.as_slice()) {
                proptest::prop_assert!(reader.take(1000).count() < 1000);
            }
        }
    }
}
