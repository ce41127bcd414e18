//! Faults of the simulated disk, as a test requests them.

use super::SimDisk;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::io;

#[derive(Debug)]
pub(super) struct Faults {
    syncs: SyncFailures,
    /// One read in so many fails; none when zero.
    reads: u32,
    /// One rename or removal in so many fails; none when zero.
    names: u32,
    failed_names: u64,
    /// The power goes after so many more changes; nothing works from then until [`SimDisk::crash`].
    power: Power,
    /// Bytes that all files together may have.
    pub(super) capacity: u64,
    /// Nothing is free at any time.
    pub(super) crowded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    OnFor(u32),
    Off,
}

/// Choice of syncs that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncFailures {
    Never,
    OneIn(u32),
    Next,
}

impl SimDisk {
    /// Fails one sync in `n` from now on; zero stops it.
    pub fn fail_syncs(&self, one_in: u32) {
        self.shared.lock().faults.syncs = if one_in == 0 {
            SyncFailures::Never
        } else {
            SyncFailures::OneIn(one_in)
        };
    }

    /// The next sync fails, and only that one.
    pub fn fail_next_sync(&self) {
        self.shared.lock().faults.syncs = SyncFailures::Next;
    }

    /// Fails one read in `n` from now on; zero stops it.
    pub fn fail_reads(&self, one_in: u32) {
        self.shared.lock().faults.reads = one_in;
    }

    /// Fails one rename or removal in `n` from now on, done or not done; zero stops it.
    pub fn fail_names(&self, one_in: u32) {
        self.shared.lock().faults.names = one_in;
    }

    /// Renames and removals that failed so far.
    pub fn failed_names(&self) -> u64 {
        self.shared.lock().faults.failed_names
    }

    /// Leaves room for so many more bytes. A write beyond that is refused, or done in part and then refused; files
    /// that are removed give their room back.
    pub fn fill_after(&self, bytes: u64) {
        let mut shared = self.shared.lock();
        shared.faults.capacity = shared.used().saturating_add(bytes);
        shared.faults.crowded = false;
    }

    /// From now on another takes every byte in the moment in which it is free: files keep the room that they have,
    /// and none gets more, whatever others give back.
    pub fn crowd(&self) {
        self.shared.lock().faults.crowded = true;
    }

    /// Gives room without end.
    pub fn make_room(&self) {
        let mut shared = self.shared.lock();
        shared.faults.capacity = u64::MAX;
        shared.faults.crowded = false;
    }

    /// The power goes in the middle of what is done: after so many more writes, syncs and changes of names. From then on
    /// every call fails, until [`SimDisk::crash`] says what was kept.
    pub fn power_off_after(&self, changes: u32) {
        self.shared.lock().faults.power = Power::OnFor(changes);
    }

    /// The power does not go after all, unless it went already.
    pub fn keep_power(&self) {
        let power = &mut self.shared.lock().faults.power;
        if *power != Power::Off {
            *power = Power::On;
        }
    }

    /// Reports whether the power is off.
    pub fn is_off(&self) -> bool {
        self.shared.lock().faults.power == Power::Off
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            syncs: SyncFailures::Never,
            reads: 0,
            names: 0,
            failed_names: 0,
            power: Power::On,
            capacity: u64::MAX,
            crowded: false,
        }
    }
}

impl Faults {
    /// One more change is made, if there is power for it.
    pub(super) fn spend(&mut self) -> io::Result<()> {
        match &mut self.power {
            Power::On => return Ok(()),
            Power::OnFor(0) | Power::Off => self.power = Power::Off,
            Power::OnFor(left) => {
                *left -= 1;
                return Ok(());
            }
        }
        self.has_power()
    }

    pub(super) fn has_power(&self) -> io::Result<()> {
        if self.power == Power::Off {
            Err(io::Error::other("the power is off"))
        } else {
            Ok(())
        }
    }

    pub(super) fn power_is_back(&mut self) {
        self.syncs = SyncFailures::Never;
        self.reads = 0;
        self.names = 0;
        self.power = Power::On;
    }

    pub(super) fn sync_fails(&mut self, random: &mut ChaCha8Rng) -> bool {
        match self.syncs {
            SyncFailures::Never => false,
            SyncFailures::OneIn(n) => random.random_ratio(1, n),
            SyncFailures::Next => {
                self.syncs = SyncFailures::Never;
                true
            }
        }
    }

    /// Draws whether a rename or removal fails.
    pub(super) fn name_fails(&mut self, random: &mut ChaCha8Rng) -> bool {
        let fails = self.names > 0 && random.random_ratio(1, self.names);
        self.failed_names += u64::from(fails);
        fails
    }

    pub(super) fn read(&self, random: &mut ChaCha8Rng) -> io::Result<()> {
        if self.reads > 0 && random.random_ratio(1, self.reads) {
            return Err(io::Error::other("injected failure to read"));
        }
        Ok(())
    }
}
