//! The receiver's side of rate hints: its inbound capacity, shared among those that send.
//!
//! The chapter on hints asks what a sender has used of its last hint, and leaves open over which time. Here that is the
//! longer of the hint interval and SRTT, which is also the time that makes a sender active, or what 16 packets take at
//! the hint where that is more: over less, packets are too coarse a measure. What it has used is held against the lowest
//! hint of this time and the one before, since a higher one may not have reached it yet.

use std::collections::HashMap;

use super::hint::NO_LIMIT;

/// A demand without limit.
pub(super) const UNLIMITED: u32 = u32::MAX;
/// The highest rate that a hint can name.
const MOST_RATE: u32 = NO_LIMIT - 1;
/// Parts of a byte, so that a rate of 1 Mb/s is one part in each ns.
const PARTS: u64 = 8_000;
/// Packets at the hint, or sent, before what a sender has used says something.
const TELLING: u64 = 16;

/// One connection that sends to this endpoint.
#[derive(Debug)]
struct Sender {
    /// Its share, Mb/s.
    rate: u32,
    /// The hint that has been sent last.
    sent_rate: u32,
    epoch: u8,
    /// Whether it is in the list of those that share.
    active: bool,
    /// Whether it was so at the latest renewal.
    settled: bool,
    latest: u64,
    srtt: u64,
    demand: u32,
    /// Since when its use is measured, the bytes of that time, and the longest packet of all times.
    since: u64,
    arrived: u64,
    longest: u32,
    /// The lowest hint since then, and of the measurement before.
    lowest: u32,
    lowest_before: u32,
}

impl Sender {
    const NEW: Self = Self {
        rate: NO_LIMIT,
        sent_rate: NO_LIMIT,
        epoch: 0,
        active: false,
        settled: false,
        latest: 0,
        srtt: 0,
        demand: UNLIMITED,
        since: 0,
        arrived: 0,
        longest: 0,
        lowest: UNLIMITED,
        lowest_before: UNLIMITED,
    };

    fn is_recent(&self, now: u64, interval: u64) -> bool {
        now.saturating_sub(self.latest) <= interval.max(self.srtt)
    }

    fn measure_from(&mut self, now: u64) {
        self.since = now;
        self.arrived = 0;
        self.lowest_before = self.lowest;
        self.lowest = UNLIMITED;
    }

    /// Renews the demand if there is enough to tell it by. What a newcomer has used is measured from its first renewal on.
    fn measure(&mut self, now: u64, interval: u64) {
        if !self.settled {
            self.settled = true;
            return self.measure_from(now);
        }
        let time = now.saturating_sub(self.since);
        if time < interval.max(self.srtt) {
            return;
        }
        let hint = u64::from(self.lowest.min(self.lowest_before));
        let allowed = hint.saturating_mul(time);
        let enough = allowed / 10 * 9;
        let packet = PARTS * u64::from(self.longest);
        let arrived = PARTS * self.arrived;
        if allowed < TELLING * packet {
            // Too short a time, unless it is plain: packets sent evenly can be one more than the time would have.
            if arrived < enough.saturating_add(packet) {
                return;
            }
            self.demand = UNLIMITED;
        } else if arrived >= enough {
            self.demand = UNLIMITED;
        } else {
            // A quarter more than has arrived; but of few packets two, or the next measurement could take them for all
            // of the hint. A demand is never 0: a sender that rests within its SRTT need not ask for leave to go on.
            let rate = (arrived + (arrived / 4).max(2 * packet)).div_ceil(time);
            self.demand = u32::try_from(rate).unwrap_or(UNLIMITED);
        }
        self.measure_from(now);
    }

    fn give(&mut self, rate: u32) {
        self.rate = rate;
        self.lowest = self.lowest.min(rate);
    }

    fn has_news(&self) -> bool {
        self.rate != self.sent_rate
    }
}

/// All that send to one endpoint, by handles of the caller's.
#[derive(Debug)]
pub(super) struct Shares {
    /// What is shared, Mb/s: 0.95 of the inbound capacity.
    shared: u32,
    interval: u64,
    senders: HashMap<u32, Sender>,
    /// Those that share, in the order in which they came.
    active: Vec<u32>,
    next_renewal: u64,
    /// What one more sender would get (chapter on hints, of newcomers).
    newcomer: u32,
    demands: Vec<u32>,
    news: Vec<u32>,
}

impl Shares {
    /// `capacity` is the inbound one in Mb/s, `interval` the hint interval that the endpoint declares, ns.
    pub(super) fn new(capacity: u32, interval: u64) -> Self {
        let shared = shared(capacity);
        Self {
            shared,
            interval,
            senders: HashMap::new(),
            active: Vec::new(),
            next_renewal: 0,
            newcomer: shared.min(MOST_RATE),
            demands: Vec::new(),
            news: Vec::new(),
        }
    }

    /// Takes another inbound capacity, as when a plane fails; it counts from the next renewal on.
    pub(super) fn set_capacity(&mut self, capacity: u32) {
        self.shared = shared(capacity);
        self.newcomer = self.newcomer.min(self.shared);
    }

    /// Takes a data packet, duplicates and retransmissions included. `srtt` is what is known of the round trip. Tells
    /// whether the sender has a hint of which it has not been told, as one has that was not active (HINT-007).
    pub(super) fn on_arrival(
        &mut self,
        now: u64,
        handle: u32,
        ip_bytes: u32,
        srtt: Option<u64>,
    ) -> bool {
        let sender = self.is_active_now(now, handle);
        sender.srtt = srtt.unwrap_or(0);
        sender.longest = sender.longest.max(ip_bytes);
        sender.arrived += u64::from(ip_bytes);
        sender.has_news()
    }

    /// Takes a PATH_PROBE: it makes a sender active that is paused.
    pub(super) fn on_paused_probe(&mut self, handle: u32, now: u64) {
        if self
            .senders
            .get(&handle)
            .is_some_and(|sender| sender.rate == 0)
        {
            self.is_active_now(now, handle);
        }
    }

    /// The hint to send to `handle` now: its epoch and rate. The epoch counts what is sent (HINT-002).
    pub(super) fn hint(&mut self, handle: u32) -> (u8, u32) {
        let Some(sender) = self.senders.get_mut(&handle) else {
            return (0, NO_LIMIT);
        };
        if sender.has_news() {
            sender.epoch = sender.epoch.wrapping_add(1);
            sender.sent_rate = sender.rate;
        }
        (sender.epoch, sender.rate)
    }

    /// Renews all shares if it is time (HINT-006). Returns whom to send a hint of which it has not been told: in an
    /// acknowledgment if one goes within the interval, in a RATE_HINT otherwise (HINT-007).
    pub(super) fn renew(&mut self, now: u64) -> &[u32] {
        self.news.clear();
        if self.deadline().is_none_or(|at| now < at) {
            return &self.news;
        }
        self.next_renewal = now.saturating_add(self.interval);
        self.demands.clear();
        self.active.retain(|handle| {
            let Some(sender) = self.senders.get_mut(handle) else {
                return false;
            };
            sender.active = sender.is_recent(now, self.interval);
            if sender.active {
                sender.measure(now, self.interval);
                self.demands.push(sender.demand);
            } else if sender.has_news() {
                self.news.push(*handle);
            }
            sender.active
        });
        let level = max_min(self.shared, &mut self.demands).min(MOST_RATE);
        for handle in &self.active {
            let Some(sender) = self.senders.get_mut(handle) else {
                continue;
            };
            sender.give(sender.demand.min(level));
            if sender.has_news() {
                self.news.push(*handle);
            }
        }
        self.demands.push(UNLIMITED);
        self.newcomer = max_min(self.shared, &mut self.demands).min(MOST_RATE);
        &self.news
    }

    /// When shares are renewed next: never while nobody is active.
    pub(super) fn deadline(&self) -> Option<u64> {
        (!self.active.is_empty()).then_some(self.next_renewal)
    }

    /// Forgets a connection that has ended.
    pub(super) fn forget(&mut self, handle: u32) {
        self.senders.remove(&handle);
        self.active.retain(|&other| other != handle);
    }

    /// The sender, active now. One that was not gets its share at once; for the sum it counts from the next renewal on.
    fn is_active_now(&mut self, now: u64, handle: u32) -> &mut Sender {
        let sender = self.senders.entry(handle).or_insert(Sender::NEW);
        sender.latest = now;
        if !sender.active {
            if self.active.is_empty() {
                self.next_renewal = now.saturating_add(self.interval);
            }
            self.active.push(handle);
            sender.active = true;
            sender.settled = false;
            sender.demand = UNLIMITED;
            sender.lowest = UNLIMITED;
            sender.give(self.newcomer);
        }
        sender
    }
}

fn shared(capacity: u32) -> u32 {
    (u64::from(capacity) * 95 / 100) as u32
}

/// The max-min shares of `capacity`: sorts `demands`, and returns the largest share. Everyone has the lesser of this and
/// its demand. When all demands are met, it is without limit.
pub(super) fn max_min(capacity: u32, demands: &mut [u32]) -> u32 {
    demands.sort_unstable();
    let mut left = capacity;
    let mut many = demands.len() as u32;
    for &demand in demands.iter() {
        let even = left / many;
        if demand > even {
            return even;
        }
        left -= demand;
        many -= 1;
    }
    UNLIMITED
}

#[cfg(test)]
mod tests;
