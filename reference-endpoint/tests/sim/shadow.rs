//! What a region must hold, byte for byte.
//!
//! Every byte has one value that is known to the harness, except in ranges that are *open*: there a message is on its
//! way, and each byte has either the old value or that of the message. When the message has landed, or can land no
//! more, the range is shut and every byte is fixed again.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::payload_of;

/// What may appear in an open range.
#[derive(Debug, Clone)]
pub enum Fill {
    /// Bytes of a payload, from an offset on.
    Payload(u64, usize),
    /// These bytes.
    Bytes(Vec<u8>),
    /// Any: who writes there is not known yet.
    Any,
}

impl Fill {
    pub fn bytes(&self, len: usize) -> Option<Vec<u8>> {
        match self {
            Self::Payload(key, shift) => Some(payload_of(*key, *shift, len)),
            Self::Bytes(bytes) => Some(bytes.clone()),
            Self::Any => None,
        }
    }
}

struct Open {
    len: usize,
    /// The bytes of the message; none for any.
    bytes: Option<Vec<u8>>,
}

pub struct Shadow {
    pub va: u64,
    pub rkey: u32,
    bytes: Vec<u8>,
    open: BTreeMap<usize, Open>,
    /// Messages that were not there as a whole when nothing could arrive any more.
    partial: BTreeSet<usize>,
    /// First byte that is not handed out yet.
    pub next: usize,
}

impl Shadow {
    /// The shadow of a region that holds the payload of `key`.
    pub fn new(key: u64, len: usize, va: u64, rkey: u32) -> Self {
        let bytes = payload_of(key, 0, len);
        Self {
            va,
            rkey,
            bytes,
            open: BTreeMap::new(),
            partial: BTreeSet::new(),
            next: 0,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn set(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// A message of `len` bytes may now arrive at `offset`.
    pub fn open(&mut self, offset: usize, len: usize, fill: &Fill) {
        if len > 0 {
            let bytes = fill.bytes(len);
            let before = self.open.insert(offset, Open { len, bytes });
            assert!(before.is_none(), "harness: two messages at one place");
        }
    }

    /// The message must be there as a whole. No byte of it changes from now on.
    pub fn land(&mut self, offset: usize, memory: &[u8]) -> Result<(), String> {
        if self.partial.contains(&offset) {
            return Err("a message is complete that was not there when its stream ended".into());
        }
        let Some(Open { len, bytes }) = self.open.remove(&offset) else {
            return Ok(());
        };
        let bytes = bytes.ok_or("harness: landed without bytes")?;
        same(
            &memory[offset..offset + len],
            &bytes,
            offset,
            "a message that is complete is not there",
        )?;
        self.set(offset, &bytes);
        Ok(())
    }

    /// Who writes to an open range is known now, and how much.
    pub fn settle(&mut self, offset: usize, len: usize, fill: &Fill) {
        self.open.remove(&offset);
        self.open(offset, len, fill);
    }

    /// Nothing may arrive in the range any more; it stays as it is.
    pub fn freeze(&mut self, offset: usize, memory: &[u8]) -> Result<(), String> {
        let Some(open) = self.open.remove(&offset) else {
            return Ok(());
        };
        self.check_open(offset, &open, memory)?;
        let now = memory[offset..offset + open.len].to_vec();
        if open.bytes.is_some_and(|bytes| bytes != now) {
            self.partial.insert(offset);
        }
        self.set(offset, &now);
        Ok(())
    }

    /// Nothing has arrived in the range, nor can it any more.
    pub fn shut_untouched(&mut self, offset: usize, memory: &[u8]) -> Result<(), String> {
        self.open.remove(&offset);
        self.check(memory)
    }

    fn check_open(&self, offset: usize, open: &Open, memory: &[u8]) -> Result<(), String> {
        let Some(bytes) = &open.bytes else {
            return Ok(());
        };
        let old = &self.bytes[offset..offset + open.len];
        let now = &memory[offset..offset + open.len];
        if now == old || now == bytes {
            return Ok(());
        }
        let wrong = (0..open.len).find(|&i| now[i] != old[i] && now[i] != bytes[i]);
        wrong.map_or(Ok(()), |i| {
            Err(format!(
                "byte {} is neither the old one nor that of the message",
                offset + i
            ))
        })
    }

    /// Compares all of it.
    pub fn check(&self, memory: &[u8]) -> Result<(), String> {
        let mut at = 0;
        for (&offset, open) in &self.open {
            same(
                &memory[at..offset],
                &self.bytes[at..offset],
                at,
                "a byte has changed that belongs to no message",
            )?;
            self.check_open(offset, open, memory)?;
            at = offset + open.len;
        }
        same(
            &memory[at..],
            &self.bytes[at..],
            at,
            "a byte has changed that belongs to no message",
        )
    }
}

fn same(now: &[u8], want: &[u8], base: usize, what: &str) -> Result<(), String> {
    if now == want {
        return Ok(());
    }
    let first = (0..want.len()).find(|&i| now[i] != want[i]).unwrap_or(0);
    let wrong = (0..want.len()).filter(|&i| now[i] != want[i]).count();
    Err(format!(
        "{what}: {wrong} of {} from {} on, byte {}",
        want.len(),
        base,
        base + first
    ))
}
