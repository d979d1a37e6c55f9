//! Schedules that nobody could survive are refused before they run.

use std::collections::BTreeSet;

use metaroce_wire::metaroce::Opcode;

use super::rule::{Action, Class, Match, Rule};
use crate::trace::Side;
use crate::units::{DurationNs, Percent};

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
/// Longest name and most rules: a packet's comments must fit their block whatever acts on it.
const LONGEST_NAME: usize = 64;
const MOST_RULES: usize = 256;

/// Refuses rules that nobody could survive: what is lost must at some time come through.
///
/// # Errors
/// [`Infeasible`].
pub fn feasible(rules: &[Rule]) -> Result<(), Infeasible> {
    let mut ids = BTreeSet::new();
    for (index, rule) in rules.iter().enumerate() {
        check(rule, index < MOST_RULES, "there are 256 rules at most")?;
        check(rule, ids.insert(&rule.id), "two rules have this name")?;
        check_rule(rule)?;
    }
    for side in Side::BOTH {
        for class in [Class::Data, Class::Ack, Class::Nak, Class::Control] {
            check_together(rules, side, class)?;
        }
    }
    Ok(())
}

fn check(rule: &Rule, holds: bool, message: &str) -> Result<(), Infeasible> {
    if holds {
        Ok(())
    } else {
        Err(Infeasible {
            rule: rule.id.clone(),
            message: message.into(),
        })
    }
}

fn check_rule(rule: &Rule) -> Result<(), Infeasible> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    check(
        rule,
        !rule.id.is_empty() && rule.id.len() <= LONGEST_NAME && rule.id.chars().all(plain),
        "a name is of 1 to 64 letters, digits, - and _",
    )?;
    check_match(rule, &rule.matching)?;
    check(
        rule,
        rule.times.is_none_or(|times| times >= rule.needed()),
        "it may not act as often as it must: at_least is above times",
    )?;
    let waits = |wait: DurationNs| {
        let message = "a delay above 5s outlives a connection";
        check(rule, wait.nanos() <= LONGEST_DELAY, message)
    };
    match &rule.action {
        Action::Drop
        | Action::MarkCe
        | Action::ClearEcn
        | Action::SourcePort(_)
        | Action::Stranger => Ok(()),
        Action::Truncate(size) => check(
            rule,
            size.bytes() < u64::from(u16::MAX),
            "no packet is longer than that",
        ),
        Action::Corrupt(corrupt) => check(rule, corrupt.bit < 8, "a byte has bits 0 to 7"),
        Action::Delay(delay) => waits(*delay),
        Action::Duplicate(duplicate) => waits(duplicate.after),
        Action::Reorder(reorder) => {
            check(rule, reorder.behind >= 1, "behind 0 reorders nothing")?;
            waits(reorder.at_most)
        }
        Action::HoldUntil(hold) => {
            check_match(rule, &hold.packet)?;
            let message = "any packet would end the hold: say which one it waits for";
            check(rule, hold.packet != Match::default(), message)?;
            waits(hold.at_most)
        }
    }?;
    if destroys(rule) {
        check_losses(rule)
    } else {
        Ok(())
    }
}

fn check_match(rule: &Rule, matching: &Match) -> Result<(), Infeasible> {
    let known = |name: &str| Opcode::ALL.iter().any(|o| o.name() == Some(name));
    let opcode = matching.opcode.as_deref();
    let message = "its opcode is not in the wire tables";
    check(rule, opcode.is_none_or(known), message)?;
    let message = "the transmissions of a packet count from 1";
    check(rule, matching.transmission != Some(0), message)
}

/// Whether the packet does not come through as it was.
fn destroys(rule: &Rule) -> bool {
    matches!(
        rule.action,
        Action::Drop | Action::Corrupt(_) | Action::Truncate(_) | Action::Stranger
    )
}

fn check_losses(rule: &Rule) -> Result<(), Infeasible> {
    let matching = &rule.matching;
    let once = matching.transmission.is_some();
    let message =
        "every such packet is lost for ever: give transmission, times or a chance of at most 50%";
    check(
        rule,
        chance(rule) <= 0.5 || once || rule.times.is_some(),
        message,
    )?;
    let times = rule.times.unwrap_or(0);
    let of_one = matching.psn.as_ref().is_some_and(|psn| psn.count() == 1);
    // A request of set-up is one packet as well, however often it is repeated.
    let of_control = |name: &str| {
        let named = |opcode: &&Opcode| opcode.name() == Some(name);
        let opcode = Opcode::ALL.iter().find(named);
        opcode.is_some_and(|opcode| opcode.is_control())
    };
    let control = match (&matching.opcode, &matching.class) {
        (Some(name), _) => of_control(name),
        (None, Some(classes)) => classes.any(|class| class == Class::Control),
        (None, None) => false,
    };
    check(
        rule,
        times <= MOST_LOSSES || once || !(of_one || control) || chance(rule) <= 0.5,
        "one packet is lost more often than anyone repeats it",
    )
}

fn chance(rule: &Rule) -> f64 {
    rule.chance.map_or(1.0, Percent::probability)
}

/// Several rules of chance on the same packets add up.
fn check_together(rules: &[Rule], side: Side, class: Class) -> Result<(), Infeasible> {
    let mut survives = 1.0;
    for rule in rules {
        let bounded = rule.times.is_some() || rule.matching.transmission.is_some();
        // A rule for some packets of the class only leaves the others alone; the check of each rule has to do.
        let whole = Match {
            from: rule.matching.from,
            class: rule.matching.class.clone(),
            ..Match::default()
        };
        let concerned = rule.matching.from.is_none_or(|from| from == side)
            && rule
                .matching
                .class
                .as_ref()
                .is_none_or(|classes| classes.any(|c| c == class || c == Class::Any));
        if !destroys(rule) || bounded || rule.matching != whole || !concerned {
            continue;
        }
        survives *= 1.0 - chance(rule);
        let message = "together with the rules before it, more than 50% of these packets are lost";
        check(rule, survives >= 0.5, message)?;
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
            "[{id: x, times: 1, action: {corrupt: {byte: 1, bit: 8}}}]",
            "[{id: x, action: {truncate: 40B}}]",
            "[{id: x, action: {delay: 6s}}]",
            "[{id: x, action: {duplicate: {after: 6s}}}]",
            "[{id: x, action: {reorder: {behind: 0}}}]",
            "[{id: x, action: {hold_until: {packet: {}}}}]",
            "[{id: x, action: {hold_until: {packet: {class: ack}, at_most: 60s}}}]",
            "[{id: x, match: {path: 0, psn: 3}, times: 9, action: drop}]",
            "[{id: x, match: {opcode: OPEN}, times: 6, action: drop}]",
            "[{id: x, match: {class: [nak, control]}, times: 6, action: drop}]",
            "[{id: x, match: {transmission: 0}, action: drop}]",
            "[{id: x, times: 1, at_least: 2, action: mark_ce}]",
            "[{id: x, times: 1, action: drop}, {id: x, times: 1, action: drop}]",
            "[{id: x, chance: 40%, action: drop}, {id: y, match: {class: ack}, chance: 40%, action: drop}]",
            "[{id: 'x y', times: 1, action: drop}]",
            "[{id: x, match: {opcode: RIGHT}, times: 1, action: drop}]",
        ] {
            assert!(feasible(&rules(bad)).is_err(), "{bad}");
        }
        for good in [
            "[{id: x, chance: 10%, action: drop}]",
            "[{id: x, match: {class: data}, chance: 40%, action: drop}, {id: y, match: {class: ack}, chance: 50%, action: drop}]",
            "[{id: x, match: {path: 1, psn: '3..5', transmission: 1}, action: drop}]",
            "[{id: x, match: {opcode: OPEN}, times: 2, action: drop}]",
            "[{id: x, action: mark_ce}]",
            "[{id: x, action: {source_port: 4000}}]",
            "[{id: x, action: {reorder: {behind: 2}}}]",
            "[{id: x, match: {path: 0, psn: 1}, action: {hold_until: {packet: {path: 0, psn: 4}}}}]",
        ] {
            assert_eq!(feasible(&rules(good)), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_refusal_names_the_rule_and_says_why() {
        let error = feasible(&rules("[{id: all-gone, action: drop}]")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("rule all-gone: every such packet is lost")
        );
    }
}
