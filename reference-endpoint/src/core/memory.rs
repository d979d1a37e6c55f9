//! Registered memory: where data is placed, and who may place it.

use std::collections::BTreeMap;

use super::config::{Access, Buffer, Misuse, Region};

/// Address of the first region.
const FIRST_VA: u64 = 0x1000_0000;
/// Regions start on multiples of this, with at least this much nothing between them.
const GUARD: u64 = 4096;

struct Stored {
    va: u64,
    access: Access,
    bytes: Vec<u8>,
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
        random: u32,
    ) -> Result<Region, Misuse> {
        if self.regions.len() >= self.limit {
            return Err(Misuse::Limit {
                what: "regions",
                limit: self.limit,
            });
        }
        let mr = self.next_mr;
        // The low byte is random, so that a guessed or stale key is unlikely to fit.
        let rkey = mr << 8 | random & 0xff;
        let va = self.next_va;
        self.next_mr += 1;
        self.next_va += (len as u64).next_multiple_of(GUARD) + GUARD;
        self.by_key.insert(rkey, mr);
        self.regions.insert(
            mr,
            Stored {
                va,
                access,
                bytes: vec![0; len],
            },
        );
        Ok(Region { mr, va, rkey })
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

    pub(super) fn holds(&self, buffer: &Buffer) -> bool {
        self.slice(buffer, 0, buffer.len).is_some()
    }

    /// Places bytes that came from a peer into a receive. The caller has checked the length.
    pub(super) fn place(&mut self, buffer: &Buffer, offset: usize, payload: &[u8]) -> bool {
        let start = buffer.offset.saturating_add(offset);
        let Some(place) = self
            .bytes_mut(buffer.mr)
            .and_then(|b| b.get_mut(start..start + payload.len()))
        else {
            return false;
        };
        place.copy_from_slice(payload);
        true
    }

    /// Places bytes that came from a peer under a key; refuses what is not wholly inside a region opened for it.
    pub(super) fn remote_write(&mut self, rkey: u32, va: u64, payload: &[u8]) -> bool {
        let Some(region) = self
            .by_key
            .get(&rkey)
            .and_then(|mr| self.regions.get_mut(mr))
        else {
            return false;
        };
        let start = va
            .checked_sub(region.va)
            .and_then(|start| usize::try_from(start).ok());
        let place = start.and_then(|start| {
            region
                .bytes
                .get_mut(start..start.checked_add(payload.len())?)
        });
        match place {
            Some(place) if region.access.remote_write => {
                place.copy_from_slice(payload);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_or_without_permission() {
        let mut memory = Memory::new(3);
        let open = memory
            .register(10, Access { remote_write: true }, 7)
            .unwrap();
        let shut = memory.register(10, Access::default(), 7).unwrap();
        assert!(memory.remote_write(open.rkey, open.va + 5, &[1; 5]));
        assert_eq!(
            memory.bytes(open.mr).unwrap(),
            [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
        );
        assert!(!memory.remote_write(open.rkey, open.va + 6, &[1; 5]));
        assert!(!memory.remote_write(open.rkey, open.va - 1, &[1; 2]));
        assert!(!memory.remote_write(open.rkey, u64::MAX, &[1; 2]));
        assert!(!memory.remote_write(open.rkey ^ 1, open.va, &[1]));
        assert!(!memory.remote_write(shut.rkey, shut.va, &[1]));
        assert!(memory.remote_write(open.rkey, open.va + 10, &[]));
        memory.register(0, Access::default(), 0).unwrap();
        assert!(memory.register(0, Access::default(), 0).is_err());
    }
}
