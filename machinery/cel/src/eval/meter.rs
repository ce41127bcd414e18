//! Limits of an evaluation: its cost, its memory and its work.

use crate::value::{ErrorKind, EvalError};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cost of one call of an expression (upstream's `PerCallLimit`).
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// Cost of all validations of one object or request (upstream's `RuntimeCELCostBudget`).
pub const RUNTIME_BUDGET: u64 = 10_000_000;
/// Bytes of all strings and lists that one evaluation makes, freed ones too: as many as upstream's cost lets it make where it
/// ends by its cost. An evaluation waits for nothing, so
/// that there are no more of them than threads, and these times the bytes are all that expressions take.
pub const MAX_MEMORY: usize = 64 << 20;
/// Comparisons and visits that the cost does not count one by one.
const MAX_WORK: u64 = 20_000_000;
/// The same of all validations of one object or request.
pub const MAX_WORK_OF_OBJECT: u64 = 5 * MAX_WORK;
/// Turns of a loop, and long texts, between two looks at whether an end is wanted, which may read a clock (upstream's
/// `CheckFrequency` is 100).
const TURNS_OF_A_LOOK: u32 = 64;
/// Bytes of a text that are read in one step of work.
pub(crate) const BYTES_OF_A_STEP: u64 = 64;

/// Decides whether an evaluation is to end before it has a value.
pub trait Interrupt: fmt::Debug + Send + Sync {
    /// Reports whether an end is wanted.
    fn is_wanted(&self) -> bool;
}

impl Interrupt for AtomicBool {
    fn is_wanted(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}

/// Limits of an evaluation.
#[derive(Debug, Clone)]
pub struct Limits {
    pub cost: u64,
    /// Ends the evaluation.
    pub interrupt: Option<Arc<dyn Interrupt>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cost: PER_CALL_LIMIT,
            interrupt: None,
        }
    }
}

/// The limits, and what is used of them.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) cost: u64,
    limits: Limits,
    memory: usize,
    work: u64,
    /// Until the next look at the interrupt.
    turns: u32,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            cost: 0,
            limits,
            memory: 0,
            work: 0,
            turns: 0,
        }
    }

    /// Adds to the cost.
    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limits.cost {
            let message = "operation cancelled: actual cost limit exceeded";
            return Err(EvalError::of_kind(ErrorKind::CostLimit, message));
        }
        Ok(())
    }

    /// Counts bytes that are about to be allocated.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > MAX_MEMORY {
            let message = "operation cancelled: the expression takes more memory than is allowed";
            return Err(EvalError::of_kind(ErrorKind::ResourceLimit, message));
        }
        self.read(bytes)
    }

    /// Counts a text that is read; a caller that wants an end gets it before one that is long.
    pub(crate) fn read(&mut self, bytes: usize) -> Result<(), EvalError> {
        let steps = bytes as u64 / BYTES_OF_A_STEP;
        if steps > 0 {
            self.check_interrupt()?;
            self.work(steps)?;
        }
        Ok(())
    }

    /// Steps that were counted.
    pub(crate) fn work_done(&self) -> u64 {
        self.work
    }

    /// Counts work that the cost does not.
    pub(crate) fn work(&mut self, steps: u64) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(steps);
        if self.work > MAX_WORK {
            let message = "operation cancelled: the expression takes more work than is allowed";
            return Err(EvalError::of_kind(ErrorKind::ResourceLimit, message));
        }
        Ok(())
    }

    /// Looks at times at whether the caller wants an end, the first time at once.
    pub(crate) fn check_interrupt(&mut self) -> Result<(), EvalError> {
        let is_due = self.turns == 0;
        self.turns = (self.turns + 1) % TURNS_OF_A_LOOK;
        let interrupt = self.limits.interrupt.as_ref().filter(|_| is_due);
        match interrupt.is_some_and(|own| own.is_wanted()) {
            true => Err(EvalError::interrupted()),
            false => Ok(()),
        }
    }
}
