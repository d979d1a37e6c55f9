//! Things that must happen before a time.

use super::panel::Tally;

/// Open obligations of a monitor, at most.
const OPEN: usize = 4096;

/// Something that must happen.
#[derive(Debug, Clone)]
pub(super) struct Due<K> {
    /// What tells it from others.
    pub key: K,
    /// Since when, ns.
    pub since: u64,
    /// Until when it surely happens in time, ns. Between this and the deadline it may be late, or the machine may have
    /// held it up.
    pub sure: u64,
    /// By when, ns; the allowance is in it.
    pub deadline: u64,
    /// The frames that ask for it.
    pub frames: Vec<u64>,
    /// What must happen, in words.
    pub expected: String,
}

/// Obligations that are open.
#[derive(Debug, Clone)]
pub(super) struct Dues<K> {
    open: Vec<Due<K>>,
    overflow: bool,
}

impl<K> Default for Dues<K> {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            overflow: false,
        }
    }
}

impl<K> Dues<K> {
    pub fn add(&mut self, due: Due<K>) {
        if self.open.len() < OPEN {
            self.open.push(due);
        } else {
            self.overflow = true;
        }
    }

    pub fn any(&self, fits: impl Fn(&K) -> bool) -> bool {
        self.open.iter().any(|due| fits(&due.key))
    }

    /// Takes out what has happened.
    pub fn met(&mut self, fits: impl Fn(&K) -> bool) -> Vec<Due<K>> {
        if !self.any(&fits) {
            return Vec::new();
        }
        let (met, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|due| fits(&due.key));
        self.open = open;
        met
    }

    /// Takes out what happens at `now` in `frame`: held when surely in time, violated when surely late.
    pub fn settle(&mut self, now: u64, frame: u64, tally: &mut Tally, fits: impl Fn(&K) -> bool) {
        for mut due in self.met(fits) {
            if now <= due.sure {
                tally.held();
            } else if now <= due.deadline {
                let waited = now - due.since;
                let expected = due.expected;
                tally.met();
                tally.unsure(|| {
                    format!(
                        "{expected}: it came after {waited} ns, and the machine may have held it up"
                    )
                });
            } else {
                due.frames.push(frame);
                let seen = format!("after {} ns", now - due.since);
                tally.broken(due.frames, due.expected, seen);
            }
        }
    }

    /// Counts as violated whatever was due before `now` and still `applies`; what does not is dropped.
    pub fn expire(&mut self, now: u64, tally: &mut Tally, applies: impl Fn(&K) -> bool) {
        if self.overflow {
            tally.unsure(|| "more was due at a time than is tracked".into());
        }
        if self.open.iter().all(|due| due.deadline >= now) {
            return;
        }
        let (late, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|due| due.deadline < now);
        self.open = open;
        for due in late.into_iter().filter(|due| applies(&due.key)) {
            let waited = due.deadline.saturating_sub(due.since);
            tally.broken(due.frames, due.expected, format!("nothing in {waited} ns"));
        }
    }

    pub fn clear(&mut self) {
        self.open.clear();
    }
}
