//! Registered memory: where data is placed, and who may place or read it.

use std::collections::BTreeMap;

use super::config::{Access, Buffer, Misuse, Region};

/// Address of the first region.
const FIRST_VA: u64 = 0x1000_0000;
/// Regions start on multiples of this, with at least this much nothing between them.
const GUARD: u64 = 4096;

struct Stored {
    va: u64,
    rkey: u32,
    access: Access,
    /// The key opens it. A key that the peer has made invalid opens nothing any more, while the memory stays.
    valid: bool,
    bytes: Vec<u8>,
}

/// What a peer wants to do with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Write,
    Read,
    Atomic,
}

/// A range of a region that has passed the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    mr: u32,
    start: usize,
}

/// All regions of an endpoint.
pub(super) struct Memory {
    regions: BTreeMap<u32, Stored>,
    by_key: BTreeMap<u32, u32>,
    next_mr: u32,
    next_va: u64,
    limit: usize,
}

impl Memory {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            regions: BTreeMap::new(),
            by_key: BTreeMap::new(),
            next_mr: 1,
            next_va: FIRST_VA,
            limit,
        }
    }

    pub(super) fn register(
        &mut self,
        len: usize,
        access: Access,
        mut random: impl FnMut() -> u32,
    ) -> Result<Region, Misuse> {
        if self.regions.len() >= self.limit || self.next_mr == u32::MAX {
            return Err(Misuse::Limit {
                what: "regions",
                limit: self.limit,
            });
        }
        // The system would end the process otherwise.
        if Vec::<u8>::new().try_reserve_exact(len).is_err() {
            return Err(Misuse::NotPossible("the system has not so much memory"));
        }
        let mr = self.next_mr;
        // Random, so that a guessed or stale key is unlikely to fit.
        let mut rkey = random();
        while rkey == 0 || self.by_key.contains_key(&rkey) {
            rkey = random();
        }
        let va = self.next_va;
        self.next_mr += 1;
        let taken = (len as u64).next_multiple_of(GUARD) + GUARD;
        self.next_va = self.next_va.saturating_add(taken);
        self.by_key.insert(rkey, mr);
        self.regions.insert(
            mr,
            Stored {
                va,
                rkey,
                access,
                valid: true,
                bytes: vec![0; len],
            },
        );
        Ok(Region { mr, va, rkey })
    }

    /// Forgets a region; its handle is never given out again.
    pub(super) fn deregister(&mut self, mr: u32) -> Result<(), Misuse> {
        let region = self.regions.remove(&mr).ok_or(Misuse::NoMemory)?;
        self.by_key.remove(&region.rkey);
        Ok(())
    }

    pub(super) fn bytes(&self, mr: u32) -> Option<&[u8]> {
        self.regions.get(&mr).map(|region| region.bytes.as_slice())
    }

    pub(super) fn bytes_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
        self.regions
            .get_mut(&mr)
            .map(|region| region.bytes.as_mut_slice())
    }

    pub(super) fn slice(&self, buffer: &Buffer, offset: usize, len: usize) -> Option<&[u8]> {
        let start = buffer.offset.checked_add(offset)?;
        self.bytes(buffer.mr)?.get(start..start.checked_add(len)?)
    }

    /// Whether the buffer lies inside a region; an empty one needs none.
    pub(super) fn holds(&self, buffer: &Buffer) -> bool {
        buffer.len == 0 || self.slice(buffer, 0, buffer.len).is_some()
    }

    /// Places bytes that came from a peer into a buffer. False when the memory is gone.
    pub(super) fn place(&mut self, buffer: &Buffer, offset: usize, payload: &[u8]) -> bool {
        let start = buffer.offset.saturating_add(offset);
        let end = start.saturating_add(payload.len());
        let place = self
            .bytes_mut(buffer.mr)
            .and_then(|b| b.get_mut(start..end));
        match place {
            Some(place) => {
                place.copy_from_slice(payload);
                true
            }
            None => payload.is_empty(),
        }
    }

    /// Checks a whole message against the region of its key: the key is known and valid, of the domain of the stream,
    /// opened for the wish, and from `va` to `va + len` lies inside (MEM-004, MEM-006, MEM-007, SEC-007).
    pub(super) fn check(
        &self,
        wish: Wish,
        domain: u32,
        (va, rkey): (u64, u32),
        len: u64,
    ) -> Option<Range> {
        let mr = *self.by_key.get(&rkey)?;
        let region = self.regions.get(&mr)?;
        let allowed = match wish {
            Wish::Write => region.access.remote_write,
            Wish::Read => region.access.remote_read,
            Wish::Atomic => region.access.remote_atomic,
        };
        let start = usize::try_from(va.checked_sub(region.va)?).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        let inside = end <= region.bytes.len();
        (region.valid && allowed && region.access.domain == domain && inside)
            .then_some(Range { mr, start })
    }

    /// Places bytes into a checked range.
    pub(super) fn write(&mut self, range: Range, offset: usize, payload: &[u8]) {
        let start = range.start + offset;
        let place = self
            .bytes_mut(range.mr)
            .and_then(|bytes| bytes.get_mut(start..start + payload.len()));
        if let Some(place) = place {
            place.copy_from_slice(payload);
        }
    }

    /// Bytes of a checked range.
    pub(super) fn read(&self, range: Range, offset: usize, len: usize) -> Option<&[u8]> {
        let start = range.start + offset;
        self.bytes(range.mr)?.get(start..start + len)
    }

    /// Replaces the 8 bytes of a checked range by `change` of them, as a number of this machine; returns what they were.
    pub(super) fn exchange(
        &mut self,
        range: Range,
        change: impl FnOnce(u64) -> u64,
    ) -> Option<u64> {
        let bytes = self.bytes_mut(range.mr)?;
        let place = bytes.get_mut(range.start..)?.first_chunk_mut::<8>()?;
        let before = u64::from_ne_bytes(*place);
        *place = change(before).to_ne_bytes();
        Some(before)
    }

    /// Whether a stream of `domain` may make the key invalid (OPS-012).
    pub(super) fn can_invalidate(&self, rkey: u32, domain: u32) -> bool {
        let region = self.by_key.get(&rkey).and_then(|mr| self.regions.get(mr));
        region.is_some_and(|region| {
            region.valid && region.access.invalidate && region.access.domain == domain
        })
    }

    /// Makes a key invalid: from now on it opens nothing.
    pub(super) fn invalidate(&mut self, rkey: u32) {
        let mr = self.by_key.get(&rkey);
        if let Some(region) = mr.and_then(|mr| self.regions.get_mut(mr)) {
            region.valid = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Keys that differ.
    fn random() -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(77, Ordering::Relaxed)
    }

    fn writable(domain: u32) -> Access {
        Access {
            remote_write: true,
            domain,
            ..Access::default()
        }
    }

    #[test]
    fn nothing_is_opened_outside_or_without_permission() {
        let mut memory = Memory::new(3);
        let open = memory.register(10, writable(0), random).unwrap();
        let shut = memory.register(10, Access::default(), random).unwrap();
        let check = |memory: &Memory, va, rkey, len| memory.check(Wish::Write, 0, (va, rkey), len);
        let range = check(&memory, open.va + 5, open.rkey, 5).unwrap();
        memory.write(range, 1, &[1; 4]);
        assert_eq!(
            memory.bytes(open.mr).unwrap(),
            [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
        );
        for (va, rkey, len) in [
            (open.va + 6, open.rkey, 5),
            (open.va - 1, open.rkey, 2),
            (u64::MAX, open.rkey, 2),
            (open.va, open.rkey, u64::MAX),
            (open.va, open.rkey ^ 1, 1),
            (shut.va, shut.rkey, 1),
        ] {
            assert_eq!(check(&memory, va, rkey, len), None, "{va:x} {rkey:x} {len}");
        }
        assert!(check(&memory, open.va + 10, open.rkey, 0).is_some());
        assert_eq!(memory.check(Wish::Read, 0, (open.va, open.rkey), 1), None);
        assert_eq!(memory.check(Wish::Write, 1, (open.va, open.rkey), 1), None);
        memory.register(0, Access::default(), random).unwrap();
        assert!(memory.register(0, Access::default(), random).is_err());
    }

    #[test]
    fn keys_that_are_gone_or_invalid_open_nothing() {
        let mut memory = Memory::new(3);
        let access = Access {
            invalidate: true,
            ..writable(4)
        };
        let gone = memory.register(8, writable(4), random).unwrap();
        let kept = memory.register(8, access, random).unwrap();
        let opens = |memory: &Memory, region: Region| {
            memory
                .check(Wish::Write, 4, (region.va, region.rkey), 8)
                .is_some()
        };
        assert!(opens(&memory, gone) && opens(&memory, kept));
        assert!(!memory.can_invalidate(gone.rkey, 4) && !memory.can_invalidate(kept.rkey, 5));
        assert!(memory.can_invalidate(kept.rkey, 4));
        memory.invalidate(kept.rkey);
        memory.deregister(gone.mr).unwrap();
        assert!(!opens(&memory, gone) && !opens(&memory, kept));
        assert!(!memory.can_invalidate(kept.rkey, 4));
        assert!(memory.bytes(kept.mr).is_some() && memory.bytes(gone.mr).is_none());
        assert_eq!(memory.deregister(gone.mr), Err(Misuse::NoMemory));
    }

    #[test]
    fn an_exchange_returns_what_was_there() {
        let mut memory = Memory::new(1);
        let access = Access {
            remote_atomic: true,
            ..Access::default()
        };
        let region = memory.register(16, access, random).unwrap();
        let range = memory
            .check(Wish::Atomic, 0, (region.va + 8, region.rkey), 8)
            .unwrap();
        assert_eq!(
            memory.exchange(range, |before| before.wrapping_sub(1)),
            Some(0)
        );
        assert_eq!(memory.exchange(range, |before| before), Some(u64::MAX));
        assert_eq!(memory.bytes(region.mr).unwrap()[..8], [0; 8]);
    }
}
