//! What a sender makes of its peer's rate hints: whether new data may go now, and when to ask.
//!
//! Rates are in Mb/s of IP packets.

/// The rate that sets no limit.
pub(super) const NO_LIMIT: u32 = 0xff_ffff;
/// The rate that pauses new data.
const PAUSE: u32 = 0;
/// Parts of a byte, so that a rate of 1 Mb/s adds one part in each ns.
const PARTS: i64 = 8_000;
/// Full packets that can be saved up. A new one goes while nothing is owed, and no packet is as long as two that are
/// full, so that less than the 16 of HINT-008 are sent past what a hint allows.
const SAVED: i64 = 14;
/// Longest pause between probes while one RTT is not longer, ns (HINT-013).
const MOST_PAUSE: u64 = 1_000_000;
/// Unanswered probes in a row, and retransmission timeouts, until a hint has lapsed (HINT-014, HINT-019).
const LAPSE: usize = 4;
/// Units of the peer's timestamp after which an earlier one can be a later one (HINT-010).
const OLD: u64 = 1 << 30;

/// The packet that a hint was taken from.
#[derive(Debug, Clone, Copy)]
struct Source {
    timestamp: u32,
    epoch: u8,
    arrived: u64,
}

/// The series of probes after a hint of 0.
#[derive(Debug, Clone, Copy)]
struct Series {
    /// When the pause began, then the latest probe.
    latest: u64,
    probes: u32,
    /// When the first probes since the latest answer will have been unanswered, and how many of those there are.
    unanswered: [u64; LAPSE],
    in_row: usize,
}

/// The hint that a connection obeys, in the direction in which it sends.
///
/// Allowances are saved up to [`SAVED`] packets at the rate in force, and every data packet is taken off, also where that
/// leaves a debt. A new packet goes when nothing is owed. So over any time, however short, all data packets are less
/// than 16 full ones more than what the hints allow: what was saved at its beginning was at most as much, and what is
/// left at its end was not below nothing before the last new packet. Retransmissions never wait, they only run up the
/// debt (HINT-012). Before the first hint and after a lapse nothing is counted, since nothing limits that time.
#[derive(Debug)]
pub(super) struct Hint {
    peer_gives_hints: bool,
    /// [`OLD`] units of the peer's timestamp, ns.
    old: u64,
    rate: u32,
    source: Option<Source>,
    /// Latest packet with a hint.
    heard: u64,
    most_saved: i64,
    saved: i64,
    /// When `saved` was right.
    counted: u64,
    series: Series,
}

impl Hint {
    /// `full_packet` is the length of the IP packet of the shortest kind that has a full payload.
    pub(super) fn new(peer_gives_hints: bool, peer_ts_unit_ns: u64, full_packet: u32) -> Self {
        Self {
            peer_gives_hints,
            old: OLD * peer_ts_unit_ns,
            rate: NO_LIMIT,
            source: None,
            heard: 0,
            most_saved: SAVED * PARTS * i64::from(full_packet),
            saved: 0,
            counted: 0,
            series: Series::begin(0),
        }
    }

    /// Takes the hint of a packet that came `now` with `timestamp` in its base header, after [`Self::expire`].
    pub(super) fn on_hint(&mut self, now: u64, timestamp: u32, epoch: u8, rate: u32) {
        if !self.peer_gives_hints {
            return;
        }
        self.heard = now;
        let earlier = |source: &Source| {
            let behind = source.timestamp.wrapping_sub(timestamp) as i32;
            behind > 0 || behind == 0 && source.epoch.wrapping_sub(epoch) as i8 > 0
        };
        let fresh = |source: &Source| now.saturating_sub(source.arrived) < self.old;
        if self
            .source
            .is_some_and(|source| fresh(&source) && earlier(&source))
        {
            return;
        }
        self.source = Some(Source {
            timestamp,
            epoch,
            arrived: now,
        });
        self.saved = self.saved_at(now);
        self.counted = now;
        if rate == PAUSE && self.rate != PAUSE {
            self.series = Series::begin(now);
        }
        self.rate = rate;
    }

    /// The rate in force.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// Whether the hint lets a new data packet go (HINT-008, HINT-011); if not, when it will. That is never while the
    /// hint is 0.
    pub(super) fn may_send(&self, now: u64) -> Result<(), u64> {
        if self.rate == NO_LIMIT {
            return Ok(());
        }
        let owed = -self.saved_at(now);
        if self.rate == PAUSE {
            Err(u64::MAX)
        } else if owed > 0 {
            Err(now.saturating_add(owed.unsigned_abs().div_ceil(u64::from(self.rate))))
        } else {
            Ok(())
        }
    }

    /// Notes a data packet of any kind and of `ip_bytes`, retransmissions included.
    pub(super) fn on_sent(&mut self, now: u64, ip_bytes: u32) {
        self.saved = self
            .saved_at(now)
            .saturating_sub(PARTS * i64::from(ip_bytes));
        self.counted = now;
    }

    /// Whether a sender with a new data packet has to ask now (HINT-013). `rtt` is the smallest SRTT of the paths that are
    /// alive, or half the retransmission timeout before the first sample.
    pub(super) fn probe_due(&self, now: u64, rtt: u64) -> bool {
        self.rate == PAUSE && now >= self.series.next(rtt)
    }

    /// Notes that the probe is sent which was due, on a path whose retransmission timeout is `rto`.
    pub(super) fn on_probe_sent(&mut self, now: u64, rto: u64) {
        let series = &mut self.series;
        series.latest = now;
        series.probes = series.probes.saturating_add(1);
        if series.in_row < LAPSE {
            series.unanswered[series.in_row] = now.saturating_add(rto);
            series.in_row += 1;
        }
    }

    /// Notes an answer to any of those probes. Four others in a row have to stay unanswered now.
    pub(super) fn on_probe_answered(&mut self) {
        self.series.in_row = 0;
    }

    /// Lets the hint lapse if its time has come (HINT-014, HINT-019); tells whether it has. `largest_rto` is that of the
    /// paths that are alive.
    pub(super) fn expire(&mut self, now: u64, largest_rto: u64) -> bool {
        let lapses = self.lapses_at(largest_rto).is_some_and(|at| now >= at);
        if lapses {
            self.rate = NO_LIMIT;
            self.source = None;
        }
        lapses
    }

    /// When [`Self::expire`] or, for a sender that `wants` to send new data, [`Self::probe_due`] is next of interest.
    pub(super) fn deadline(&self, wants: bool, rtt: u64, largest_rto: u64) -> Option<u64> {
        let probe = (wants && self.rate == PAUSE).then(|| self.series.next(rtt));
        [probe, self.lapses_at(largest_rto)]
            .into_iter()
            .flatten()
            .min()
    }

    fn lapses_at(&self, largest_rto: u64) -> Option<u64> {
        self.source?;
        if self.rate == PAUSE {
            let row = self.series.unanswered;
            return row
                .into_iter()
                .max()
                .filter(|_| self.series.in_row == LAPSE);
        }
        Some(
            self.heard
                .saturating_add(largest_rto.saturating_mul(LAPSE as u64)),
        )
    }

    /// What has been saved up to `now`; below zero it is owed.
    fn saved_at(&self, now: u64) -> i64 {
        if self.rate == NO_LIMIT {
            return 0;
        }
        let time = i64::try_from(now.saturating_sub(self.counted)).unwrap_or(i64::MAX);
        let more = time.saturating_mul(i64::from(self.rate));
        self.saved.saturating_add(more).min(self.most_saved)
    }
}

impl Series {
    fn begin(now: u64) -> Self {
        Self {
            latest: now,
            probes: 0,
            unanswered: [0; LAPSE],
            in_row: 0,
        }
    }

    /// When the next probe is due: after one RTT, then after two, four and so on up to the longest pause.
    fn next(&self, rtt: u64) -> u64 {
        let doubled = rtt.saturating_mul(1 << self.probes.min(32));
        self.latest.saturating_add(doubled.min(MOST_PAUSE.max(rtt)))
    }
}

#[cfg(test)]
mod tests;
