//! The mirror's bytes as they are counted for the quota, and reservations of writes that it has not received yet.

use super::mirror::Mirror;
use crate::live::Live;
use crate::quota::{Held, Ledger, Reserved};
use crate::{Entry, Quota};
use machinery_meta::Revision;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) ledger: Ledger,
    /// Room of writes that etcd has done, by their revisions, until the mirror has them.
    settling: BTreeMap<Revision, Vec<Reserved>>,
    /// The revision that the mirror has reached.
    reached: Revision,
}

/// Room of one write, which is given back with it. A write whose caller goes away is counted when the mirror has it.
#[derive(Debug)]
pub(super) struct Reservation {
    mirror: Arc<Mirror>,
    reserved: Option<Reserved>,
}

impl Account {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            ledger: Ledger::of(quota, std::iter::empty()),
            settling: BTreeMap::new(),
            reached: Revision::ZERO,
        }
    }

    /// One entry takes another's place.
    pub(super) fn change(&mut self, old: Option<&Entry>, new: Option<&Entry>) {
        self.ledger.change(old.map(Held::of), new.map(Held::of));
    }

    /// The mirror has every change up to here.
    pub(super) fn reached(&mut self, revision: Revision) {
        self.reached = revision;
        let later = self.settling.split_off(&revision.next());
        for reserved in std::mem::replace(&mut self.settling, later)
            .into_values()
            .flatten()
        {
            self.ledger.release(&reserved);
        }
    }

    /// The mirror has read everything again. Returns the bytes that its former state takes.
    pub(super) fn replaced(&mut self, old: &Live, new: &Live) -> u64 {
        for reserved in std::mem::take(&mut self.settling).into_values().flatten() {
            self.ledger.release(&reserved);
        }
        self.reached = new.revision;
        old.root.values().for_each(|entry| self.change(Some(entry), None));
        new.root.values().for_each(|entry| self.change(None, Some(entry)));
        old.root.values().map(|entry| entry.footprint() as u64).sum()
    }

    /// Differences from what the mirror holds, where no write is under way.
    #[cfg(test)]
    pub(super) fn differences(&self, live: &Live) -> Vec<String> {
        let mut found = self
            .ledger
            .differences(&Ledger::of(Quota::default(), live.root.values()));
        found.extend((!self.settling.is_empty()).then(|| format!("{:?} is left", self.settling)));
        found
    }

    fn settle(&mut self, reserved: Reserved, revision: Revision) {
        if revision <= self.reached {
            self.ledger.release(&reserved);
        } else {
            self.settling.entry(revision).or_default().push(reserved);
        }
    }
}

impl Reservation {
    pub(super) fn new(mirror: Arc<Mirror>, reserved: Reserved) -> Self {
        Self {
            mirror,
            reserved: Some(reserved),
        }
    }

    /// The write has this revision: its room is counted there once the mirror has it.
    pub(super) fn written(mut self, revision: Revision) {
        if let Some(reserved) = self.reserved.take() {
            self.mirror.account().settle(reserved, revision);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.mirror.account().ledger.release(&reserved);
        }
    }
}
