//! The structured allocator: devices of a node for the claims of a pod (upstream's `structured.Allocator`).
//!
//! [`requests`] looks each request's class up and counts the devices that it needs. [`search`] then tries one candidate after
//! the other for each device, and goes back where that leads nowhere: the first solution counts. A candidate must be
//! selected by the class and the request ([`candidates`]), be free with its [`counters`] and its [`capacity`], have no taint
//! that is not tolerated, and keep the claim's [`constraints`]. [`solution`] writes down what was found.
//!
//! Claims are written by tenants, and the search takes time exponential in them: each candidate and the cost of each selector
//! are steps, and a search ends with the [`Budget`] of its node or of its attempt.

mod candidates;
pub(crate) mod capacity;
mod constraints;
mod counters;
mod requests;
mod search;
mod solution;

pub(crate) use counters::Available;
pub(crate) use solution::Solution;

use super::Devices;
use super::objects::ClaimSpec;
use crate::nodes::{NodeId, NodeTable};
use crate::rejection::bounded_reason;
use machinery_meta::ObjectKey;
use std::cell::Cell;
use std::time::Duration;

/// Steps that the devices of one node may take: a tenth of a second.
const STEPS_OF_A_NODE: usize = 1 << 20;
/// Steps that the devices of all nodes may take in one attempt: about a second.
const STEPS_OF_AN_ATTEMPT: usize = 1 << 23;
/// Tenths of a second that `filterTimeout` gives a node at most, and where it says that there is no end: a minute. Pods
/// are tried one after the other.
const MAX_TENTHS: u128 = 600;

/// Steps that are left.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Steps that a node begins with.
    a_node: usize,
    of_node: Cell<usize>,
    of_attempt: Cell<usize>,
    done: Cell<usize>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(STEPS_OF_A_NODE, STEPS_OF_AN_ATTEMPT)
    }
}

impl Budget {
    pub(crate) fn new(of_node: usize, of_attempt: usize) -> Self {
        Self {
            a_node: STEPS_OF_A_NODE,
            of_node: Cell::new(of_node),
            of_attempt: Cell::new(of_attempt),
            done: Cell::new(0),
        }
    }

    /// The steps of about as much time for each node; without a time the default ones.
    pub(crate) fn of_timeout(timeout: Option<Duration>) -> Self {
        let Some(timeout) = timeout else {
            return Self::default();
        };
        let tenths = match timeout.as_millis().div_ceil(100) {
            0 => MAX_TENTHS,
            own => own.min(MAX_TENTHS),
        };
        let a_node = STEPS_OF_A_NODE.saturating_mul(usize::try_from(tenths).unwrap_or(usize::MAX));
        Self {
            a_node,
            ..Self::new(a_node, STEPS_OF_AN_ATTEMPT.max(a_node))
        }
    }

    /// Begins with the next node, unless the attempt has no steps left.
    fn next_node(&self) -> Result<(), Refusal> {
        self.of_node.set(self.a_node.min(self.of_attempt.get()));
        match self.of_node.get() {
            0 => Err(Refusal::TimedOut),
            _ => Ok(()),
        }
    }

    /// Allows one more node, as much as any.
    pub(crate) fn renew(&self) {
        self.of_attempt.set(self.a_node);
    }

    /// Takes the number of steps done since it was last taken.
    pub(crate) fn take_done(&self) -> usize {
        self.done.take()
    }

    fn spend(&self, steps: usize) -> Result<(), Refusal> {
        self.done.set(self.done.get().saturating_add(steps));
        let left = self.of_node.get().checked_sub(steps);
        self.of_attempt.set(self.of_attempt.get().saturating_sub(steps));
        self.of_node.set(left.unwrap_or(0));
        left.map(drop).ok_or(Refusal::TimedOut)
    }
}

/// A claim that has no devices yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) spec: &'a ClaimSpec,
}

/// Everything that is known where devices are looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) devices: &'a Devices,
    pub(crate) nodes: &'a NodeTable,
    pub(crate) node: NodeId,
    pub(crate) available: &'a Available,
    pub(crate) budget: &'a Budget,
}

/// No devices were found. The last two end the attempt, which is repeated after backing off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are not enough that suit.
    Unsatisfied,
    /// A pool contradicts itself; without it there are not enough.
    InvalidPools,
    /// The search was ended.
    TimedOut,
    /// A claim or a class cannot be understood, on any node.
    Broken(String),
}

impl Refusal {
    /// Upstream's words, of which claims' and classes' own are as long as tenants like: they end after 1 KiB.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Unsatisfied => "cannot allocate all claims".to_owned(),
            Self::InvalidPools => "invalid resource pools were encountered".to_owned(),
            Self::TimedOut => "timed out trying to allocate devices".to_owned(),
            Self::Broken(why) => bounded_reason(why.clone()),
        }
    }
}

/// Finds devices of the node for all of the claims.
pub(crate) fn allocate<'a>(around: Surroundings<'a>, claims: &[Wanted<'a>]) -> Result<Solution<'a>, Refusal> {
    around.budget.next_node()?;
    let (pools, steps) = around.devices.pools.near(around.nodes, around.node);
    around.budget.spend(steps)?;
    if !pools.is_empty() {
        return search::Search::new(around, pools, claims)?.run();
    }
    if let Some(why) = around.available.nowhere() {
        return Err(why);
    }
    let found = search::Search::new(around, pools, claims)?.run();
    if let Err(why) = &found {
        around.available.set_nowhere(why);
    }
    found
}
