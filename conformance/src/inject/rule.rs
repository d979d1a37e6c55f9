//! The rules, as they stand in a scenario.

use std::fmt;
use std::num::NonZeroU16;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use crate::trace::Side;
use crate::units::{DurationNs, Percent, Size};

/// One rule.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name, unique in the scenario.
    pub id: String,
    /// Which packets.
    #[serde(default, rename = "match")]
    pub matching: Match,
    /// How likely it acts on such a packet; always when missing.
    pub chance: Option<Percent>,
    /// How often it acts, at most.
    pub times: Option<u64>,
    /// How often it must have acted for the test to mean anything. One, or none for a rule of chance, when missing.
    pub at_least: Option<u64>,
    /// What it does.
    pub action: Action,
}

impl Rule {
    /// How often the rule must have acted for the test to mean anything.
    pub fn needed(&self) -> u64 {
        self.at_least.unwrap_or(u64::from(self.chance.is_none()))
    }
}

/// Which packets a rule is for: all that fit everything it names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Who sent it.
    pub from: Option<Side>,
    /// Kind of packet, or a list of kinds.
    pub class: Option<Classes>,
    /// Name of the opcode, as in the wire tables.
    pub opcode: Option<String>,
    /// Path.
    pub path: Option<Numbers>,
    /// PSN, counted from the first of its direction: 0 is the first packet of a path. Data only.
    pub psn: Option<Numbers>,
    /// Stream. Data only.
    pub stream: Option<u16>,
    /// Message of its stream and direction, counted from the first that the stream's opening names. Data only.
    pub msn: Option<Numbers>,
    /// Offset of the payload in its message, bytes. Data only.
    pub offset: Option<Numbers>,
    /// Which time the packet passes: 1 is its first transmission.
    pub transmission: Option<u32>,
    /// Whether it is marked as a retransmission.
    pub rtx: Option<bool>,
}

/// Kinds of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Data.
    Data,
    /// Acknowledgments.
    Ack,
    /// NAKs.
    Nak,
    /// Control.
    Control,
    /// Every packet, unknown opcodes included.
    Any,
}

/// One kind of packet, or a list of them: `data` or `[data, ack]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "OneOrMore<Class>")]
pub struct Classes(Vec<Class>);

impl Classes {
    pub(super) fn any(&self, holds: impl FnMut(Class) -> bool) -> bool {
        self.0.iter().copied().any(holds)
    }
}

impl From<OneOrMore<Class>> for Classes {
    fn from(classes: OneOrMore<Class>) -> Self {
        match classes {
            OneOrMore::One(class) => Self(vec![class]),
            OneOrMore::More(classes) => Self(classes),
        }
    }
}

/// A value alone or in a list.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected one of data, ack, nak, control, any, or a list of these"
)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

/// A number, a range with both ends, or a list of these: `3`, `"3..8"` or `[0, "3..8"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    pub(super) fn hold(&self, number: u32) -> bool {
        self.0
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&number))
    }

    /// How many numbers these are, at most: ranges may overlap.
    pub(super) fn count(&self) -> u64 {
        self.0
            .iter()
            .map(|(first, last)| u64::from(last - first) + 1)
            .sum()
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Numbers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number such as 3, a range such as \"3..8\", or a list of these")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Numbers, E> {
                let number = u32::try_from(number).map_err(E::custom)?;
                Ok(Numbers(vec![(number, number)]))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Numbers, E> {
                let range = text
                    .split_once("..")
                    .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
                match range {
                    Some((first, last)) if first <= last => Ok(Numbers(vec![(first, last)])),
                    _ => Err(E::custom(format!("{text:?} is no range such as \"3..8\""))),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Numbers, A::Error> {
                let mut all = Vec::new();
                while let Some(Numbers(mut more)) = items.next_element()? {
                    all.append(&mut more);
                }
                Ok(Numbers(all))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// What a rule does to a packet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is lost.
    Drop,
    /// It comes later, and what follows it may overtake it.
    Delay(DurationNs),
    /// It comes twice.
    Duplicate(Duplicate),
    /// It comes after packets that were sent after it on its path.
    Reorder(Reorder),
    /// It comes after a later packet that the rule describes.
    HoldUntil(Box<HoldUntil>),
    /// It is marked CE, when it is ECN-capable and not yet marked.
    MarkCe,
    /// It comes as Not-ECT, when it was anything else.
    ClearEcn,
    /// One of its bits is flipped.
    Corrupt(Corrupt),
    /// Only its first bytes come, when it has more.
    Truncate(Size),
    /// It comes from another UDP source port, when it had another.
    SourcePort(NonZeroU16),
    /// It comes from an IP address that is not its sender's, with a trailer that is right for that address.
    Stranger,
}

impl Action {
    /// The name, as in a scenario.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Delay(_) => "delay",
            Self::Duplicate(_) => "duplicate",
            Self::Reorder(_) => "reorder",
            Self::HoldUntil(_) => "hold_until",
            Self::MarkCe => "mark_ce",
            Self::ClearEcn => "clear_ecn",
            Self::Corrupt(_) => "corrupt",
            Self::Truncate(_) => "truncate",
            Self::SourcePort(_) => "source_port",
            Self::Stranger => "stranger",
        }
    }
}

/// When the second copy comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duplicate {
    /// After the first.
    pub after: DurationNs,
}

/// How far behind its place a packet comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Packets of its path and direction that overtake it; what is lost or late itself overtakes nothing.
    pub behind: u16,
    /// After this time it comes all the same.
    #[serde(default = "most_held")]
    pub at_most: DurationNs,
}

fn most_held() -> DurationNs {
    DurationNs::from_nanos(20_000_000)
}

/// What a packet waits for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldUntil {
    /// The packet that lets it go, from either side, once that one has entered the link, whatever becomes of it.
    pub packet: Match,
    /// After this time it comes all the same.
    #[serde(default = "most_held")]
    pub at_most: DurationNs,
}

/// Which bit is flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corrupt {
    /// Byte of the UDP payload, modulo its length.
    pub byte: usize,
    /// Bit of that byte, 0 the least significant.
    pub bit: u8,
    /// Whether the trailer is made right again.
    #[serde(default)]
    pub reseal: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_and_bad_ranges_are_refused() {
        for bad in [
            "[{id: x, when: 3, action: drop}]",
            "[{id: x, match: {psn: '8..3'}, action: drop}]",
            "[{id: x, match: {psn: [1, x]}, action: drop}]",
            "[{id: x, match: {class: [data, dada]}, action: drop}]",
            "[{id: x, action: explode}]",
            "[{id: x, action: {delay: 2}}]",
            "[{id: x, action: {source_port: 0}}]",
            "[{id: x, action: {hold_until: {class: ack}}}]",
        ] {
            assert!(crate::yaml::from_str::<Vec<Rule>>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_and_classes_are_single_ranged_or_listed() {
        let text = "{class: [data, ack], path: [0, '2..3'], psn: 7, msn: '1..2', offset: 1024}";
        let read: Match = crate::yaml::from_str(text).unwrap();
        let path = read.path.unwrap();
        let held: Vec<u32> = (0..6).filter(|n| path.hold(*n)).collect();
        assert_eq!((held, path.count()), (vec![0, 2, 3], 3));
        assert_eq!(read.class.unwrap(), Classes(vec![Class::Data, Class::Ack]));
        let one: Match = crate::yaml::from_str("{class: any}").unwrap();
        assert_eq!(one.class.unwrap(), Classes(vec![Class::Any]));
    }
}
