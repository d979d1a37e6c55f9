//! Shared receive queues: receives that several streams take from, bound to a message when its first packet arrives.

use std::collections::{BTreeMap, VecDeque};

use super::inbox::Receive;

/// Receives that are set aside for one stream at a time, at most. A few are enough to keep it going: more would only
/// take them from the others.
const MOST_ASIDE: usize = 64;

/// One queue.
#[derive(Default)]
struct Queue {
    receives: VecDeque<Receive>,
    /// Receives that were promised to streams and not yet bound.
    promised: usize,
    streams: usize,
    /// Streams, with their connections, that were refused credit for want of receives.
    hungry: VecDeque<Who>,
}

/// A stream and its connection.
pub(super) type Who = (u32, u16);

/// All shared receive queues of an endpoint.
#[derive(Default)]
pub(super) struct Srqs {
    queues: BTreeMap<u32, Queue>,
    next: u32,
    /// Order of posting among the receives of all queues.
    order: u64,
}

impl Srqs {
    pub(super) fn create(&mut self) -> u32 {
        let id = self.next;
        self.next += 1;
        self.queues.insert(id, Queue::default());
        id
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.queues.contains_key(&id)
    }

    /// Removes a queue; false while streams take from it.
    pub(super) fn remove(&mut self, id: u32) -> Option<bool> {
        let unused = self.queues.get(&id)?.streams == 0;
        if unused {
            self.queues.remove(&id);
        }
        Some(unused)
    }

    /// Adds a receive. False when there is no such queue.
    pub(super) fn post(&mut self, id: u32, receive: Receive) -> bool {
        let order = self.order;
        let queue = self.queues.get_mut(&id);
        let receive = Receive { order, ..receive };
        let posted = queue.map(|queue| queue.receives.push_back(receive));
        self.order += 1;
        posted.is_some()
    }

    /// The stream that has waited longest for a receive.
    pub(super) fn next_hungry(&mut self, id: u32) -> Option<Who> {
        self.queues.get_mut(&id)?.hungry.pop_front()
    }

    /// Counts a stream that takes from the queue.
    pub(super) fn attach(&mut self, id: u32) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.streams += 1;
        }
    }

    /// Forgets a stream and takes back what was promised to it.
    pub(super) fn detach(&mut self, id: u32, who: Who, promised: usize) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.streams = queue.streams.saturating_sub(1);
            queue.promised = queue.promised.saturating_sub(promised);
            queue.hungry.retain(|other| *other != who);
        }
    }

    /// Sets receives aside for a stream that has `aside` of them already; returns how many more. All promises together
    /// never exceed what the queue holds (RCV-016), and one stream gets no more than its even part while others may want
    /// theirs.
    pub(super) fn promise(&mut self, id: u32, who: Who, aside: usize) -> usize {
        let Some(queue) = self.queues.get_mut(&id) else {
            return 0;
        };
        let free = queue.receives.len().saturating_sub(queue.promised);
        let even = (queue.receives.len() / queue.streams.max(1)).clamp(1, MOST_ASIDE);
        let more = even.saturating_sub(aside).min(free);
        queue.promised += more;
        if more + aside == 0 && !queue.hungry.contains(&who) {
            queue.hungry.push_back(who);
        }
        more
    }

    /// Takes the oldest receive for a message that was promised one (RCV-015).
    pub(super) fn bind(&mut self, id: u32) -> Option<Receive> {
        let queue = self.queues.get_mut(&id)?;
        let receive = queue.receives.pop_front()?;
        queue.promised = queue.promised.saturating_sub(1);
        Some(receive)
    }

    /// Takes a receive away from the queue. The promises stand: a message that meets none draws an RNR.
    pub(super) fn withdraw(&mut self, id: u32, wr_id: u64) -> Option<Receive> {
        let queue = self.queues.get_mut(&id)?;
        let at = queue.receives.iter().rposition(|r| r.wr_id == wr_id)?;
        queue.receives.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Buffer;

    fn receive(wr_id: u64) -> Receive {
        Receive {
            wr_id,
            order: 0,
            buffer: Buffer::default(),
            overrun: false,
            begun: false,
        }
    }

    #[test]
    fn promises_never_exceed_what_is_there() {
        let mut srqs = Srqs::default();
        let id = srqs.create();
        for _ in 0..3 {
            srqs.attach(id);
        }
        assert_eq!(srqs.promise(id, (0, 0), 0), 0);
        for wr_id in 0..4 {
            assert!(srqs.post(id, receive(wr_id)));
        }
        let promised: usize = (0..3).map(|_| srqs.promise(id, (0, 0), 0)).sum();
        assert_eq!(
            (
                promised,
                srqs.promise(id, (0, 0), 0),
                srqs.promise(id, (0, 0), 0)
            ),
            (3, 1, 0)
        );
        let bound: Vec<u64> = (0..5)
            .filter_map(|_| srqs.bind(id))
            .map(|r| r.wr_id)
            .collect();
        assert_eq!(bound, [0, 1, 2, 3]);
        assert!(!srqs.post(id + 1, receive(0)));
    }

    #[test]
    fn a_stream_that_goes_gives_back_its_part() {
        let mut srqs = Srqs::default();
        let id = srqs.create();
        srqs.attach(id);
        srqs.post(id, receive(1));
        assert_eq!(srqs.promise(id, (0, 0), 0), 1);
        srqs.attach(id);
        assert_eq!(srqs.promise(id, (0, 0), 0), 0);
        srqs.detach(id, (0, 0), 1);
        assert_eq!(srqs.promise(id, (0, 0), 0), 1);
        assert_eq!(srqs.withdraw(id, 1).map(|r| r.wr_id), Some(1));
        assert_eq!(srqs.bind(id).map(|r| r.wr_id), None);
    }

    #[test]
    fn a_queue_goes_when_no_stream_takes_from_it() {
        let mut srqs = Srqs::default();
        let id = srqs.create();
        srqs.attach(id);
        assert_eq!((srqs.remove(id), srqs.has(id)), (Some(false), true));
        srqs.detach(id, (0, 0), 0);
        assert_eq!((srqs.remove(id), srqs.has(id)), (Some(true), false));
        assert_eq!(srqs.remove(id), None);
    }
}
