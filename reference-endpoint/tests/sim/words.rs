//! The history of words that atomic operations change: everything exactly once, in one order.

use crate::oracle::{HalfId, Spot};

/// An atomic operation that was posted.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub by: HalfId,
    pub change: Change,
    /// What it has reported as the value before; none if it has failed or is under way.
    pub old: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Adds 1 to the digit of this number, of two bits each, so that a sum tells who has added, and how often.
    Add(u32),
    Swap {
        compare: u64,
        swap: u64,
    },
}

pub struct Word {
    pub spot: Spot,
    pub initial: u64,
    /// It is added to, not swapped.
    pub adds: bool,
    /// Its memory is no more.
    pub gone: bool,
    pub attempts: Vec<Attempt>,
}

/// Attempts at adding to one word, at most.
pub const ADDS: usize = 32;

impl Attempt {
    /// Whether the value shows that it has been carried out. A swap need not leave a trace.
    pub fn is_in(&self, value: u64) -> bool {
        match self.change {
            Change::Add(digit) => value >> (2 * digit) & 3 == 1,
            Change::Swap { .. } => true,
        }
    }
}

impl Word {
    pub fn value(&self, memory: &[u8]) -> u64 {
        let at = self.spot.offset;
        u64::from_ne_bytes(memory[at..at + 8].try_into().unwrap())
    }

    /// Whether there is an order of the attempts that explains what they have reported and what is there now.
    pub fn check(&self, value: u64) -> Result<(), String> {
        if self.adds {
            self.check_sum(value)
        } else {
            self.check_chain(value)
        }
    }

    fn check_sum(&self, value: u64) -> Result<(), String> {
        let fail = |what: &str| Err(format!("{what}: value {value:#x}, {:?}", self.attempts));
        let posted = self.attempts.len() as u32;
        for digit in 0..32 {
            if value >> (2 * digit) & 3 > u64::from(digit < posted) {
                return fail("an addition has been carried out twice, or was never posted");
            }
        }
        let mut known: Vec<(&Attempt, u64)> = self
            .attempts
            .iter()
            .filter_map(|a| a.old.map(|old| (a, old)))
            .collect();
        known.sort_by_key(|(_, old)| old.count_ones());
        if known
            .iter()
            .any(|(a, old)| !a.is_in(value) || a.is_in(*old))
        {
            return fail("an addition has not been carried out");
        }
        let covers = |a: u64, b: u64| a & b == a;
        for pair in known.windows(2) {
            let ((first, before), (_, after)) = (pair[0], pair[1]);
            if !covers(before, after) || !first.is_in(after) {
                return fail("no order explains the sums");
            }
        }
        if known.last().is_some_and(|(_, old)| !covers(*old, value)) {
            return fail("a sum was taken back");
        }
        for (i, later) in self.attempts.iter().enumerate() {
            let earlier = self.attempts[..i].iter().filter(|a| a.by == later.by);
            if later
                .old
                .is_some_and(|old| earlier.clone().any(|a| !a.is_in(old)))
            {
                return fail("additions of a stream were carried out of order");
            }
        }
        Ok(())
    }

    fn check_chain(&self, value: u64) -> Result<(), String> {
        let mut seen = vec![self.initial];
        let mut used = vec![false; self.attempts.len()];
        if self.chain(&mut seen, &mut used, value) {
            Ok(())
        } else {
            Err(format!(
                "no order explains the swaps: from {:#x} to {value:#x}, {:?}",
                self.initial, self.attempts
            ))
        }
    }

    /// Follows the swaps from value to value; every value is there once only.
    fn chain(&self, seen: &mut Vec<u64>, used: &mut Vec<bool>, value: u64) -> bool {
        let now = seen[seen.len() - 1];
        let done = |a: &Attempt| match a.change {
            Change::Swap { compare, .. } => a.old == Some(compare),
            Change::Add(_) => false,
        };
        let explained =
            self.attempts.iter().zip(used.iter()).all(|(a, used)| {
                (!done(a) || *used) && a.old.is_none_or(|old| seen.contains(&old))
            });
        if now == value && explained {
            return true;
        }
        for i in 0..self.attempts.len() {
            let attempt = &self.attempts[i];
            let Change::Swap { compare, swap } = attempt.change else {
                continue;
            };
            if used[i] || compare != now || !(done(attempt) || attempt.old.is_none()) {
                continue;
            }
            used[i] = true;
            seen.push(swap);
            if self.chain(seen, used, value) {
                return true;
            }
            seen.pop();
            used[i] = false;
        }
        false
    }
}
