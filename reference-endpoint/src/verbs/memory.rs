//! Protection domains, memory regions and shared receive queues.

use super::cq::limit;
use super::device::Device;
use super::error::{Error, PostError};
use super::types::{AccessFlags, AsyncEvent, Mr, Pd, RecvWr, Sge, Srq};
use crate::core::{Access, Buffer};

/// A memory region.
pub(super) struct MrRecord {
    mr: Mr,
    writable: bool,
}

/// A shared receive queue.
pub(super) struct SrqRecord {
    pub pd: Pd,
    pub core: u32,
    max_wr: usize,
    /// Receives that are not complete.
    pub posted: usize,
    /// An event is wanted when there are fewer.
    limit: usize,
}

impl Device {
    // ---- protection domains -------------------------------------------------------------------------------------

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn alloc_pd(&mut self) -> Result<Pd, Error> {
        if self.pds.len() >= self.limits.max_pd {
            return Err(limit("protection domains", self.limits.max_pd));
        }
        let pd = Pd(self.next_number());
        self.pds.insert(pd);
        Ok(pd)
    }

    /// Removes a protection domain.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InUse`] while it has regions, shared queues or queue pairs.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), Error> {
        self.check_pd(pd)?;
        let regions = self.mrs.values().any(|record| record.mr.pd == pd);
        let shared = self.srqs.values().any(|record| record.pd == pd);
        let by = regions.then_some("a memory region");
        let by = by.or(shared.then_some("a shared receive queue"));
        if let Some(by) = by.or_else(|| self.user(|init| init.pd == pd)) {
            let (what, id) = ("protection domain", pd.0);
            return Err(Error::InUse { what, id, by });
        }
        self.pds.remove(&pd);
        Ok(())
    }

    pub(super) fn check_pd(&self, pd: Pd) -> Result<(), Error> {
        let (what, id) = ("protection domain", pd.0);
        let known = self.pds.contains(&pd);
        known.then_some(()).ok_or(Error::NotFound { what, id })
    }

    // ---- memory regions -----------------------------------------------------------------------------------------

    /// Makes and registers `length` bytes, all zero.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] when the peer may change what the own side may not; [`Error::Core`] for the
    /// limit of regions.
    pub fn reg_mr(&mut self, pd: Pd, length: usize, access: AccessFlags) -> Result<Mr, Error> {
        self.check_pd(pd)?;
        let writable = access.has(AccessFlags::LOCAL_WRITE);
        let remote_write = access.has(AccessFlags::REMOTE_WRITE);
        let remote_atomic = access.has(AccessFlags::REMOTE_ATOMIC);
        if (remote_write || remote_atomic) && !writable {
            return Err(Error::Invalid("remote write and atomic need local write"));
        }
        let access = Access {
            remote_write,
            remote_read: access.has(AccessFlags::REMOTE_READ),
            remote_atomic,
            invalidate: access.has(AccessFlags::REMOTE_INVALIDATE),
            domain: pd.0,
        };
        let region = self.endpoint.register(length, access)?;
        let mr = Mr {
            addr: region.va,
            length,
            lkey: region.mr,
            rkey: region.rkey,
            pd,
        };
        self.mrs.insert(mr.lkey, MrRecord { mr, writable });
        self.mrs_by_addr.insert(mr.addr, mr.lkey);
        Ok(mr)
    }

    /// Forgets a region: its keys open nothing from now on, and work that needs it fails.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn dereg_mr(&mut self, mr: Mr) -> Result<(), Error> {
        let (what, id) = ("memory region", mr.lkey);
        let record = self.mrs.remove(&mr.lkey);
        let record = record.ok_or(Error::NotFound { what, id })?;
        self.mrs_by_addr.remove(&record.mr.addr);
        Ok(self.endpoint.deregister(mr.lkey)?)
    }

    /// The bytes of a region.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn bytes(&self, mr: Mr) -> Result<&[u8], Error> {
        let (what, id) = ("memory region", mr.lkey);
        let bytes = self.endpoint.memory(mr.lkey);
        bytes.ok_or(Error::NotFound { what, id })
    }

    /// The bytes of a region, to be changed.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn bytes_mut(&mut self, mr: Mr) -> Result<&mut [u8], Error> {
        let (what, id) = ("memory region", mr.lkey);
        let bytes = self.endpoint.memory_mut(mr.lkey);
        bytes.ok_or(Error::NotFound { what, id })
    }

    /// The memory that an entry names; none where it lies outside of its region, the region is not of the domain, or is
    /// to be written to and may not. An empty entry names none and is always sound.
    pub(super) fn locate(&self, pd: Pd, sge: &Sge, written: bool) -> Option<Buffer> {
        if sge.length == 0 {
            return Some(Buffer::default());
        }
        let record = self.mrs.get(&sge.lkey)?;
        let len = sge.length as usize;
        let offset = usize::try_from(sge.addr.checked_sub(record.mr.addr)?).ok()?;
        let inside = offset.checked_add(len)? <= record.mr.length;
        let allowed = record.mr.pd == pd && (record.writable || !written);
        (inside && allowed).then_some(Buffer {
            mr: sge.lkey,
            offset,
            len,
        })
    }

    /// The memory that an inline entry names by its address alone, whatever its key.
    fn locate_inline(&self, sge: &Sge) -> Option<Buffer> {
        let (_, &lkey) = self.mrs_by_addr.range(..=sge.addr).next_back()?;
        let pd = self.mrs.get(&lkey)?.mr.pd;
        self.locate(pd, &Sge { lkey, ..*sge }, false)
    }

    /// The bytes that entries name, one after the other; without a domain those are inline, and no key is looked at.
    pub(super) fn gather(&self, pd: Option<Pd>, sges: &[Sge]) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let buffer = match pd {
                Some(pd) => self.locate(pd, sge, false)?,
                None => self.locate_inline(sge)?,
            };
            let bytes = self.endpoint.memory(buffer.mr)?;
            all.extend_from_slice(bytes.get(buffer.offset..buffer.offset + buffer.len)?);
        }
        Some(all)
    }

    // ---- shared receive queues ----------------------------------------------------------------------------------

    /// Makes a shared receive queue for `max_wr` receives.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Limit`].
    pub fn create_srq(&mut self, pd: Pd, max_wr: usize) -> Result<Srq, Error> {
        self.check_pd(pd)?;
        let limits = self.limits;
        if max_wr > limits.max_srq_wr {
            return Err(limit("receives of a shared queue", limits.max_srq_wr));
        }
        if self.srqs.len() >= limits.max_srq {
            return Err(limit("shared receive queues", limits.max_srq));
        }
        let srq = Srq(self.next_number());
        let record = SrqRecord {
            pd,
            core: self.endpoint.create_srq(),
            max_wr,
            posted: 0,
            limit: 0,
        };
        self.srqs.insert(srq, record);
        Ok(srq)
    }

    /// Removes a shared queue, and its receives with it.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InUse`] while a queue pair or the listener takes from it.
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<(), Error> {
        let core = self.srq(srq)?.core;
        if let Some(by) = self.user(|init| init.srq == Some(srq)) {
            let (what, id) = ("shared receive queue", srq.0);
            return Err(Error::InUse { what, id, by });
        }
        self.endpoint.destroy_srq(core)?;
        self.srqs.remove(&srq);
        Ok(())
    }

    /// Asks for one [`AsyncEvent::SrqLimitReached`], when a shared queue has fewer than `limit` receives: at once if it has
    /// fewer already; 0 for none.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_srq_limit(&mut self, srq: Srq, limit: usize) -> Result<(), Error> {
        self.srq(srq)?.limit = limit;
        self.check_srq_limit(srq);
        Ok(())
    }

    fn check_srq_limit(&mut self, srq: Srq) {
        let low = |record: &&mut SrqRecord| record.posted < record.limit;
        if let Some(record) = self.srqs.get_mut(&srq).filter(low) {
            record.limit = 0;
            self.events.push_back(AsyncEvent::SrqLimitReached { srq });
        }
    }

    /// Posts receives to a shared queue.
    ///
    /// # Errors
    /// [`PostError`]: [`Error::NotFound`], [`Error::Limit`], and [`Error::Invalid`] for memory that cannot be received to:
    /// no queue pair is there yet to fail with it.
    pub fn post_srq_recv(&mut self, now: u64, srq: Srq, list: &[RecvWr]) -> Result<(), PostError> {
        let result = list.iter().enumerate().try_for_each(|(index, wr)| {
            let posted = self.post_one_srq(now, srq, wr);
            posted.map_err(|error| PostError { index, error })
        });
        self.drive(now);
        result
    }

    fn post_one_srq(&mut self, now: u64, srq: Srq, wr: &RecvWr) -> Result<(), Error> {
        let record = self.srq(srq)?;
        let (pd, core) = (record.pd, record.core);
        if record.posted >= record.max_wr {
            return Err(limit("receives of the shared queue", record.max_wr));
        }
        let buffer = self.locate(pd, &one_entry(&wr.sg_list)?, true);
        let buffer = buffer.ok_or(Error::Invalid("the entry names no memory to receive to"))?;
        self.endpoint.post_srq_recv(now, core, wr.wr_id, buffer)?;
        self.srq(srq)?.posted += 1;
        Ok(())
    }

    pub(super) fn srq(&mut self, srq: Srq) -> Result<&mut SrqRecord, Error> {
        let (what, id) = ("shared receive queue", srq.0);
        self.srqs.get_mut(&srq).ok_or(Error::NotFound { what, id })
    }

    /// Notes that a receive of a shared queue is complete.
    pub(super) fn srq_consumed(&mut self, srq: Srq) {
        if let Some(record) = self.srqs.get_mut(&srq) {
            record.posted = record.posted.saturating_sub(1);
            self.check_srq_limit(srq);
        }
    }
}

/// The entry of work that takes one at most.
pub(super) fn one_entry(sges: &[Sge]) -> Result<Sge, Error> {
    match sges {
        [] => Ok(Sge::default()),
        [one] => Ok(*one),
        _ => Err(Error::Invalid(
            "a receive, a Read and an atomic operation take one entry at most",
        )),
    }
}
