//! Completion queues and their notifications.

use std::collections::VecDeque;

use super::device::Device;
use super::error::Error;
use super::types::{AsyncEvent, Cq, Wc};
use crate::core::Status;

/// A completion queue.
pub(super) struct CqRecord {
    capacity: usize,
    queue: VecDeque<Wc>,
    overrun: bool,
    /// Whoever waits: for any completion, or with true for a solicited one.
    armed: Option<bool>,
}

impl Device {
    /// Makes a completion queue for `capacity` completions.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::Invalid`] for a queue without room.
    pub fn create_cq(&mut self, capacity: usize) -> Result<Cq, Error> {
        if capacity == 0 {
            return Err(Error::Invalid("a completion queue needs room"));
        }
        let limits = self.limits;
        if capacity > limits.max_cqe {
            return Err(limit("entries of a completion queue", limits.max_cqe));
        }
        if self.cqs.len() >= limits.max_cq {
            return Err(limit("completion queues", limits.max_cq));
        }
        let cq = Cq(self.next_number());
        let record = CqRecord {
            capacity,
            queue: VecDeque::new(),
            overrun: false,
            armed: None,
        };
        self.cqs.insert(cq, record);
        Ok(cq)
    }

    /// Removes a completion queue, and what has not been polled with it.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InUse`] while a queue pair or the listener completes there.
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), Error> {
        self.cq(cq)?;
        let uses = |init: &super::QpInit| init.send_cq == cq || init.recv_cq == cq;
        if let Some(by) = self.user(uses) {
            let (what, id) = ("completion queue", cq.0);
            return Err(Error::InUse { what, id, by });
        }
        self.cqs.remove(&cq);
        self.notifications.retain(|other| *other != cq);
        Ok(())
    }

    /// Takes up to `most` completions, oldest first.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Overrun`] when everything has been taken that came before completions were lost.
    pub fn poll_cq(&mut self, cq: Cq, most: usize) -> Result<Vec<Wc>, Error> {
        let record = self.cq(cq)?;
        if record.queue.is_empty() && record.overrun && most > 0 {
            return Err(Error::Overrun(cq.0));
        }
        let count = record.queue.len().min(most);
        Ok(record.queue.drain(..count).collect())
    }

    /// Asks for one notification: at the next completion that comes, or with `solicited_only` at the next one that the
    /// peer wants to be noticed (VERB-010) or that is an error. Poll once more after this call: for what has come before
    /// it there is none.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Overrun`] for a queue to which no completion comes any more.
    pub fn req_notify(&mut self, cq: Cq, solicited_only: bool) -> Result<(), Error> {
        self.check_cq(cq)?;
        let record = self.cq(cq)?;
        // Whoever waits for any completion is not put off by one that waits for fewer.
        record.armed = Some(solicited_only && record.armed != Some(false));
        Ok(())
    }

    /// The queue for which the next notification is.
    pub fn next_notification(&mut self) -> Option<Cq> {
        self.notifications.pop_front()
    }

    fn cq(&mut self, cq: Cq) -> Result<&mut CqRecord, Error> {
        let (what, id) = ("completion queue", cq.0);
        self.cqs.get_mut(&cq).ok_or(Error::NotFound { what, id })
    }

    /// Whether a queue can take completions.
    pub(super) fn check_cq(&self, cq: Cq) -> Result<(), Error> {
        let (what, id) = ("completion queue", cq.0);
        match self.cqs.get(&cq) {
            None => Err(Error::NotFound { what, id }),
            Some(record) if record.overrun => Err(Error::Overrun(id)),
            Some(_) => Ok(()),
        }
    }

    /// Adds a completion. One that finds no room is lost, and the queue with it: from then on no queue pair that
    /// completes there leaves RESET and ERR.
    pub(super) fn complete(&mut self, cq: Cq, wc: Wc, solicited: bool) {
        let Some(record) = self.cqs.get_mut(&cq) else {
            return;
        };
        if record.overrun {
            return;
        }
        if record.queue.len() >= record.capacity {
            record.overrun = true;
            self.events.push_back(AsyncEvent::CqError { cq });
            self.overruns.push(cq);
        } else {
            record.queue.push_back(wc);
        }
        // A queue that has failed wakes everybody.
        let wakes =
            |only: &mut bool| !*only || solicited || wc.status != Status::Success || record.overrun;
        if record.armed.take_if(wakes).is_some() {
            self.notifications.push_back(cq);
        }
    }
}

pub(super) fn limit(what: &'static str, limit: usize) -> Error {
    Error::Limit { what, limit }
}
