//! The steps of one apply: every operation on sets of fields takes them from one budget.

use super::FieldSet;
use crate::patch::MAX_STEPS;
use crate::tree::{Exceeded, Tree};
use std::cell::Cell;

/// Elements of sets and nodes of documents that one apply may still look at.
#[derive(Debug)]
pub struct Steps(Cell<u64>);

impl Default for Steps {
    /// The steps that a patch may take.
    fn default() -> Self {
        Self::new(MAX_STEPS)
    }
}

impl Steps {
    pub fn new(steps: u64) -> Self {
        Self(Cell::new(steps))
    }

    /// Steps that are left.
    pub fn left(&self) -> u64 {
        self.0.get()
    }

    /// # Errors
    /// There are not so many left.
    pub fn charge(&self, steps: usize) -> Result<(), Exceeded> {
        let left = self.0.get().checked_sub(steps as u64);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Exceeded::Steps)
    }

    /// A document is walked once.
    ///
    /// # Errors
    /// There are not enough left.
    pub fn read(&self, document: &Tree) -> Result<(), Exceeded> {
        self.charge(document.node_count())
    }

    /// Adds the paths of the other set.
    ///
    /// # Errors
    /// There are not enough left.
    pub fn absorb(&self, set: &mut FieldSet, other: &FieldSet) -> Result<(), Exceeded> {
        self.charge(other.size())?;
        set.absorb(other);
        Ok(())
    }

    /// The paths of both sets together.
    ///
    /// # Errors
    /// There are not enough left.
    pub fn union(&self, set: &FieldSet, other: &FieldSet) -> Result<FieldSet, Exceeded> {
        self.charge(set.size())?;
        let mut all = set.clone();
        self.absorb(&mut all, other)?;
        Ok(all)
    }

    /// The paths that are in both sets.
    ///
    /// # Errors
    /// There are not enough left.
    pub fn intersection(&self, set: &FieldSet, other: &FieldSet) -> Result<FieldSet, Exceeded> {
        self.charge(set.size())?;
        Ok(set.intersection(other))
    }

    /// The paths of the first set that are not in the other one.
    ///
    /// # Errors
    /// There are not enough left.
    pub fn difference(&self, set: &FieldSet, other: &FieldSet) -> Result<FieldSet, Exceeded> {
        self.charge(set.size())?;
        Ok(set.difference(other))
    }
}
