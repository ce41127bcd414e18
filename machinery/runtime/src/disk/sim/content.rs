//! Bytes of one file: as a process reads them, and as a power loss leaves them.

use super::super::mem::{read_from, write_into};
use super::SECTOR_BYTES;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::io;

#[derive(Debug, Default, Clone)]
pub(super) struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Writes since the last sync, in order.
    unsynced: Vec<(u64, Vec<u8>)>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.current.len() as u64
    }

    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        write_into(&mut self.current, offset, bytes)?;
        self.unsynced.push((offset, bytes.to_vec()));
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        read_from(&self.current, offset, buffer)
    }

    /// Cuts off at once what is behind `length`, on the disk too.
    pub(super) fn truncate(&mut self, length: u64) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.current.truncate(length);
        self.durable.truncate(length);
        for (offset, bytes) in &mut self.unsynced {
            let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
            bytes.truncate(length.saturating_sub(offset));
        }
        self.unsynced.retain(|(_, bytes)| !bytes.is_empty());
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        for (offset, bytes) in std::mem::take(&mut self.unsynced) {
            write_into(&mut self.durable, offset, &bytes)?;
        }
        Ok(())
    }

    /// A sync failed: the pages are marked clean, still readable, never written again.
    pub(super) fn lose_unsynced(&mut self) {
        self.unsynced.clear();
    }

    pub(super) fn flip_bit(&mut self, bit: u64) -> bool {
        let Ok(byte) = usize::try_from(bit / 8) else {
            return false;
        };
        let mask = 1 << (bit % 8);
        let Some(current) = self.current.get_mut(byte) else {
            return false;
        };
        *current ^= mask;
        if let Some(durable) = self.durable.get_mut(byte) {
            *durable ^= mask;
        }
        true
    }

    /// Each sector becomes what it was at the last sync, or after any one of the writes since.
    pub(super) fn lose_power(&mut self, random: &mut ChaCha8Rng) {
        let mut states = vec![self.durable.clone()];
        for (offset, bytes) in std::mem::take(&mut self.unsynced) {
            let mut next = states.last().cloned().unwrap_or_default();
            // The write was accepted once, so it fits.
            if write_into(&mut next, offset, &bytes).is_ok() {
                states.push(next);
            }
        }
        let longest = states.last().map_or(0, Vec::len);
        let mut kept = vec![0; longest];
        let mut length = self.durable.len();
        for start in (0..longest).step_by(SECTOR_BYTES) {
            let end = (start + SECTOR_BYTES).min(longest);
            let state = &states[random.random_range(0..states.len())];
            if let Some(bytes) = state
                .get(start..end.min(state.len()))
                .filter(|bytes| !bytes.is_empty())
            {
                kept[start..start + bytes.len()].copy_from_slice(bytes);
                length = length.max(start + bytes.len());
            }
        }
        // The length may have grown although the last sectors were lost; they read as zeros then.
        let length = if random.random_bool(0.5) { longest } else { length };
        kept.truncate(length);
        self.durable.clone_from(&kept);
        self.current = kept;
    }
}
