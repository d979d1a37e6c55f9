//! The sender's congestion windows, one for each path and one for the connection, in packets.
//!
//! What the comments call rules are the numbered ones of the chapter on congestion control. Whatever takes an `srtt`
//! takes that of the path, with the sample of the packet at hand in it.

/// Window of a path at first, and after a pause at most (rules 1 and 9).
const FIRST_WINDOW: f64 = 16.0;
/// Rule 7.
const LEAST_WINDOW: f64 = 1.0 / 16.0;
/// Rule 3.
const MOST_WINDOW: f64 = 256.0;
/// New packets of a path back to back, at most (CC-015). Those beyond go at twice the pace of a window in each SRTT, which
/// acknowledgments do not reach: only what they release all at once is spread.
const MOST_BURST: f64 = 64.0;
const PACE: f64 = 2.0;
/// Weight of the latest period in alpha (CC-006).
const GAIN: f64 = 1.0 / 16.0;
/// Stands for SRTT before the first sample, ns: half the retransmission timeout of that time.
const FIRST_SRTT: u64 = 50_000_000;
/// Changes of windows after which their sum is added up again: each one rounds it.
const CHANGES: u32 = 1024;
/// The time of what has not happened.
const NEVER: u64 = u64::MAX;

/// What is known of one path.
#[derive(Debug, Clone, Copy)]
struct Path {
    /// 0 while the path is retired.
    window: f64,
    /// How much of late has been marked, 0 to 1. A cut needs no more digits.
    alpha: f32,
    /// New packets that may follow the latest back to back.
    spare: f32,
    /// Packets newly acknowledged in the period of alpha, and how many of them were marked. A period is one SRTT.
    acked: u16,
    marked: u16,
    /// Beginning of the period of alpha.
    period: u64,
    /// Latest CE.
    marked_at: u64,
    /// Latest cut because of CE.
    cut_at: u64,
    /// Latest cut because of a gap.
    halved_at: u64,
    /// Latest new packet.
    sent_at: u64,
    starting: bool,
    open: bool,
}

const _: () = assert!(size_of::<Path>() <= 64, "a connection has many paths");

impl Path {
    /// Rule 1.
    const FIRST: Self = Self {
        window: FIRST_WINDOW,
        alpha: 1.0,
        spare: MOST_BURST as f32,
        acked: 0,
        marked: 0,
        period: NEVER,
        marked_at: NEVER,
        cut_at: NEVER,
        halved_at: NEVER,
        sent_at: NEVER,
        starting: true,
        open: true,
    };

    /// Counts for alpha, and renews it when its period is over (rule 4). The acknowledgment that ends a period belongs
    /// to it, so that a cut follows the marks which cause it.
    fn count(&mut self, now: u64, packets: u32, marked: u32, srtt: u64) {
        if self.period == NEVER {
            self.period = now;
        }
        let narrow = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        self.acked = self.acked.saturating_add(narrow(packets));
        self.marked = self.marked.saturating_add(narrow(marked));
        if !within(self.period, now, srtt) {
            // Marks of packets that the answer to a probe has reported first can come in a later period than those.
            let part = (f64::from(self.marked) / f64::from(self.acked.max(1))).min(1.0);
            self.alpha = ((1.0 - GAIN) * f64::from(self.alpha) + GAIN * part) as f32;
            self.acked = 0;
            self.marked = 0;
            self.period = now;
        }
    }

    /// When pacing lets the next new packet go (CC-011, CC-015).
    fn paced_until(&self, srtt: Option<u64>) -> Option<u64> {
        let apart = if self.sent_at == NEVER {
            return None;
        } else if self.window < 1.0 {
            span(srtt) as f64 / self.window
        } else if self.window > MOST_BURST && self.spare < 1.0 {
            (1.0 - f64::from(self.spare)) * span(srtt) as f64 / (PACE * self.window)
        } else {
            return None;
        };
        Some(self.sent_at.saturating_add(apart.ceil() as u64))
    }

    /// Notes that a new packet leaves.
    fn on_sent(&mut self, now: u64, srtt: Option<u64>) {
        let before = std::mem::replace(&mut self.sent_at, now);
        if self.window <= MOST_BURST || before == NEVER {
            self.spare = MOST_BURST as f32 - 1.0;
            return;
        }
        let pause = now.saturating_sub(before) as f64;
        let more = pause * PACE * self.window / span(srtt) as f64;
        self.spare = ((f64::from(self.spare) + more).min(MOST_BURST) - 1.0) as f32;
    }
}

/// The windows of one connection. Paths go by their number.
///
/// That of the connection is the larger of the sum of the others and 1 at all times, and so is not kept by itself: it
/// begins as the sum, is raised and cut by as much as the sum is, and the rules let it be neither above the sum nor
/// below 1. It holds back what the windows of the paths do not: a path takes a whole packet where its window has room
/// for a part of one.
#[derive(Debug)]
pub(super) struct Congestion {
    paths: Vec<Path>,
    /// Sum of the windows of the paths.
    sum: f64,
    changes: u32,
}

impl Congestion {
    pub(super) fn new(paths: usize) -> Self {
        Self {
            paths: vec![Path::FIRST; paths],
            sum: FIRST_WINDOW * paths as f64,
            changes: 0,
        }
    }

    /// Whether a new packet may go out on `path` (CC-001, CC-002, CC-011, CC-015). With nothing in flight one always may, but
    /// for pacing: every window is more than nothing. In flight is what is neither acknowledged nor known to be lost.
    pub(super) fn room(
        &self,
        path: usize,
        now: u64,
        path_in_flight: u32,
        all_in_flight: u32,
        srtt: Option<u64>,
    ) -> bool {
        self.path_room(path, path_in_flight)
            && f64::from(all_in_flight) < self.connection_window()
            && self.next_room(path, srtt).is_none_or(|at| now >= at)
    }

    /// Whether the window of `path` alone has room, as that of a retired one never has. What only a timeout has shown to
    /// be lost waits for this (rule 5).
    pub(super) fn path_room(&self, path: usize, path_in_flight: u32) -> bool {
        f64::from(path_in_flight) < self.paths[path].window
    }

    /// When pacing lets the next new packet of `path` go; nothing when its window does not pace it.
    pub(super) fn next_room(&self, path: usize, srtt: Option<u64>) -> Option<u64> {
        self.paths[path].paced_until(srtt)
    }

    /// Whether one more packet on `path` fills its window. It then had better ask for an acknowledgment.
    pub(super) fn uses_up(&self, path: usize, path_in_flight: u32) -> bool {
        f64::from(path_in_flight) + 1.0 >= self.paths[path].window
    }

    /// Whether one more packet on any path fills the window of the connection.
    pub(super) fn uses_up_all(&self, all_in_flight: u32) -> bool {
        f64::from(all_in_flight) + 1.0 >= self.connection_window()
    }

    /// Notes that a new packet leaves on `path`; retransmissions are not paced.
    pub(super) fn on_sent(&mut self, path: usize, now: u64, srtt: Option<u64>) {
        self.paths[path].on_sent(now, srtt);
    }

    /// Takes an acknowledgment that advances, or the answer to a probe (rules 2 to 4): `packets` is how many it is the first
    /// of all to report, `tested` how many of those were in flight when a window was used up (CC-013), and `marked` its new
    /// CE, also of packets that an answer to a probe has reported before.
    pub(super) fn on_acked(
        &mut self,
        path: usize,
        now: u64,
        (packets, tested): (u32, u32),
        marked: u32,
        srtt: Option<u64>,
    ) {
        let state = &mut self.paths[path];
        if !state.open || packets == 0 && marked == 0 {
            return;
        }
        if srtt.is_some() {
            state.count(now, packets, marked, span(srtt));
        }
        if marked == 0 {
            self.grow(path, tested);
            return;
        }
        state.starting = false;
        state.marked_at = now;
        if !within(state.cut_at, now, span(srtt)) {
            state.cut_at = now;
            let cut = state.window * (1.0 - f64::from(state.alpha) / 2.0);
            self.set(path, cut.max(LEAST_WINDOW));
        }
    }

    /// Takes a timeout of `path` (rule 5).
    pub(super) fn on_timeout(&mut self, path: usize) {
        let state = &mut self.paths[path];
        state.starting = false;
        let to = state.window.min(1.0);
        self.set(path, to);
    }

    /// Takes a gap that counts as evidence on a path whose ECN is off (rule 6).
    pub(super) fn on_gap_without_ecn(&mut self, path: usize, now: u64, srtt: Option<u64>) {
        let state = &mut self.paths[path];
        if !state.open || within(state.halved_at, now, span(srtt)) {
            return;
        }
        state.halved_at = now;
        state.starting = false;
        let to = (state.window / 2.0).max(LEAST_WINDOW);
        self.set(path, to);
    }

    /// Takes a retransmission timeout's time without anything in flight on `path` (rule 9).
    pub(super) fn on_pause(&mut self, path: usize) {
        let to = self.paths[path].window.min(FIRST_WINDOW);
        self.set(path, to);
    }

    /// Takes such a time for the whole connection (CC-014).
    pub(super) fn on_pause_of_all(&mut self) {
        (0..self.paths.len()).for_each(|path| self.on_pause(path));
    }

    /// Whether new packets had better go on another path (CC-012).
    pub(super) fn is_hot(&self, path: usize, now: u64, srtt: Option<u64>) -> bool {
        within(self.paths[path].marked_at, now, span(srtt))
    }

    /// Takes the window of a path that is retired out of that of the connection.
    pub(super) fn retire(&mut self, path: usize) {
        self.paths[path].open = false;
        self.set(path, 0.0);
    }

    /// Starts a path that is opened again by rule 1.
    pub(super) fn reopen(&mut self, path: usize) {
        self.retire(path);
        self.paths[path] = Path {
            window: 0.0,
            ..Path::FIRST
        };
        self.set(path, FIRST_WINDOW);
    }

    /// Window of a path, packets; 0 while it is retired.
    pub(super) fn window(&self, path: usize) -> f64 {
        self.paths[path].window
    }

    pub(super) fn alpha(&self, path: usize) -> f64 {
        f64::from(self.paths[path].alpha)
    }

    /// The connection's, at least 1 (CC-008).
    pub(super) fn connection_window(&self) -> f64 {
        self.sum.max(1.0)
    }

    /// Rules 2 and 3. Each packet finds the sum as the one before has left it: an acknowledgment of many adds no more
    /// than as many of one.
    fn grow(&mut self, path: usize, packets: u32) {
        let Path {
            window, starting, ..
        } = self.paths[path];
        let (mut grown, mut sum) = (window, self.sum);
        // No path has more than its largest window to acknowledge.
        for _ in 0..packets.min(MOST_WINDOW as u32) {
            let step = if starting { 1.0 } else { 1.0 / sum.max(1.0) };
            let next = (grown + step).min(MOST_WINDOW);
            sum += next - grown;
            grown = next;
        }
        self.set(path, grown);
    }

    fn set(&mut self, path: usize, to: f64) {
        self.sum += to - self.paths[path].window;
        self.paths[path].window = to;
        self.changes += 1;
        if self.changes == CHANGES {
            self.changes = 0;
            self.sum = self.paths.iter().map(|path| path.window).sum();
        }
    }
}

/// What counts as one SRTT, ns.
fn span(srtt: Option<u64>) -> u64 {
    srtt.unwrap_or(FIRST_SRTT).max(1)
}

/// Whether `then` is less than `span` before `now`.
fn within(then: u64, now: u64, span: u64) -> bool {
    then != NEVER && now.saturating_sub(then) < span
}

#[cfg(test)]
mod tests;
