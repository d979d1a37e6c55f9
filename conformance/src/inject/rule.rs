//! The rules, as they stand in a scenario.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::trace::Side;
use crate::units::{DurationNs, Percent};

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
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Who sent it.
    pub from: Option<Side>,
    /// Kind of packet.
    pub class: Option<Class>,
    /// Name of the opcode, as in the wire tables.
    pub opcode: Option<String>,
    /// Path.
    pub path: Option<Numbers>,
    /// PSN, counted from the first of its direction: 0 is the first packet of a path. Data only.
    pub psn: Option<Numbers>,
    /// Stream. Data only.
    pub stream: Option<u16>,
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
}

/// A number, or a range of them with both ends: `3` or `"3..8"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    first: u32,
    last: u32,
}

impl Numbers {
    pub(super) fn hold(self, number: u32) -> bool {
        (self.first..=self.last).contains(&number)
    }

    fn count(self) -> u64 {
        u64::from(self.last - self.first) + 1
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Numbers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number such as 3, or a range such as \"3..8\"")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Numbers, E> {
                let number = u32::try_from(number).map_err(E::custom)?;
                Ok(Numbers {
                    first: number,
                    last: number,
                })
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Numbers, E> {
                let range = text
                    .split_once("..")
                    .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
                match range {
                    Some((first, last)) if first <= last => Ok(Numbers { first, last }),
                    _ => Err(E::custom(format!("{text:?} is no range such as \"3..8\""))),
                }
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// What a rule does to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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
    /// It is marked CE, when it is ECN-capable.
    MarkCe,
    /// It comes as Not-ECT.
    ClearEcn,
    /// One of its bits is flipped.
    Corrupt(Corrupt),
}

impl Action {
    /// The name, as in a scenario.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Delay(_) => "delay",
            Self::Duplicate(_) => "duplicate",
            Self::Reorder(_) => "reorder",
            Self::MarkCe => "mark_ce",
            Self::ClearEcn => "clear_ecn",
            Self::Corrupt(_) => "corrupt",
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
    /// Packets of its path and direction that overtake it.
    pub behind: u16,
    /// After this time it comes all the same.
    #[serde(default = "most_held")]
    pub at_most: DurationNs,
}

fn most_held() -> DurationNs {
    DurationNs::from_nanos(20_000_000)
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

/// A schedule that no implementation could survive, or that says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule}: {message}")]
pub struct Infeasible {
    /// Name of the rule.
    pub rule: String,
    /// Why.
    pub message: String,
}

/// Longest delay, ns: a packet is not to outlive a connection.
const LONGEST_DELAY: u64 = 5_000_000_000;
/// Transmissions of one packet that may all be lost: fewer than the repetitions after which anyone gives up.
const MOST_LOSSES: u64 = 5;

/// Refuses rules that nobody could survive: what is lost must at some time come through.
///
/// # Errors
/// [`Infeasible`].
pub fn feasible(rules: &[Rule]) -> Result<(), Infeasible> {
    let mut ids = std::collections::BTreeSet::new();
    for rule in rules {
        let check = |holds: bool, message: &str| {
            if holds {
                Ok(())
            } else {
                Err(Infeasible {
                    rule: rule.id.clone(),
                    message: message.into(),
                })
            }
        };
        check(ids.insert(&rule.id), "two rules have this name")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        check(
            !rule.id.is_empty() && rule.id.chars().all(plain),
            "a name is of letters, digits, - and _",
        )?;
        let known = metaroce_wire::metaroce::Opcode::ALL
            .iter()
            .filter_map(|opcode| opcode.name());
        let opcode = rule.matching.opcode.as_deref();
        check(
            opcode.is_none_or(|name| known.clone().any(|k| k == name)),
            "its opcode is not in the wire tables",
        )?;
        let destroys = match rule.action {
            Action::Drop => true,
            Action::Corrupt(corrupt) => {
                check(corrupt.bit < 8, "a byte has bits 0 to 7")?;
                true
            }
            Action::Delay(delay) => {
                check(
                    delay.nanos() <= LONGEST_DELAY,
                    "a delay above 5s outlives a connection",
                )?;
                false
            }
            Action::Duplicate(duplicate) => {
                check(
                    duplicate.after.nanos() <= LONGEST_DELAY,
                    "a delay above 5s outlives a connection",
                )?;
                false
            }
            Action::Reorder(reorder) => {
                check(reorder.behind >= 1, "behind 0 reorders nothing")?;
                check(
                    reorder.at_most.nanos() <= LONGEST_DELAY,
                    "a delay above 5s outlives a connection",
                )?;
                false
            }
            Action::MarkCe | Action::ClearEcn => false,
        };
        if !destroys {
            continue;
        }
        let chance = rule.chance.map_or(1.0, Percent::probability);
        let bounded = rule.matching.transmission.is_some() || rule.times.is_some();
        check(
            chance <= 0.5 || bounded,
            "every such packet is lost for ever: give transmission, times or a chance of at most 50%",
        )?;
        let times = rule.times.unwrap_or(0);
        let of_one = rule.matching.psn.is_some_and(|psn| psn.count() == 1);
        check(
            times <= MOST_LOSSES || !of_one || rule.matching.transmission.is_some(),
            "one packet is lost more often than anyone repeats it",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<Rule> {
        crate::yaml::from_str(text).unwrap()
    }

    #[test]
    fn what_nobody_survives_is_refused() {
        for bad in [
            "[{id: x, action: drop}]",
            "[{id: x, match: {class: data}, action: drop}]",
            "[{id: x, chance: 60%, action: drop}]",
            "[{id: x, action: {corrupt: {byte: 1, bit: 0}}}]",
            "[{id: x, action: {delay: 6s}}]",
            "[{id: x, match: {path: 0, psn: 3}, times: 9, action: drop}]",
            "[{id: x, times: 1, action: drop}, {id: x, times: 1, action: drop}]",
            "[{id: 'x y', times: 1, action: drop}]",
            "[{id: x, match: {opcode: RIGHT}, times: 1, action: drop}]",
        ] {
            assert!(feasible(&rules(bad)).is_err(), "{bad}");
        }
        for good in [
            "[{id: x, chance: 10%, action: drop}]",
            "[{id: x, match: {path: 1, psn: '3..5', transmission: 1}, action: drop}]",
            "[{id: x, match: {opcode: OPEN}, times: 2, action: drop}]",
            "[{id: x, action: mark_ce}]",
            "[{id: x, action: {reorder: {behind: 2}}}]",
        ] {
            assert_eq!(feasible(&rules(good)), Ok(()), "{good}");
        }
    }

    #[test]
    fn unknown_keys_and_bad_ranges_are_refused() {
        for bad in [
            "[{id: x, when: 3, action: drop}]",
            "[{id: x, match: {psn: '8..3'}, action: drop}]",
            "[{id: x, action: explode}]",
        ] {
            assert!(crate::yaml::from_str::<Vec<Rule>>(bad).is_err(), "{bad}");
        }
    }
}
