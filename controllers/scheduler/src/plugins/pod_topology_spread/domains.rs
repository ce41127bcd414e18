//! The domains of hard constraints, summed once per attempt: a check in the dry run of preemption adds what changed on
//! its node since.
//!
//! Invariant: a row other than the checked one has the pods that it had when the domains were summed.

use super::{Constraint, Key, columns, has_all_keys, includes, matching_pods};
use crate::footprint::hashed_bytes;
use crate::framework::{Cycle, Rejection};
use crate::nodes::{NodeId, NodeTable};

const MISMATCH: &str = "node(s) didn't match pod topology spread constraints";
const MISSING_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
/// Bytes of a selector hashed in the time of one step.
const BYTES_A_STEP: usize = 64;

/// The hard constraints of one attempt, with their domains.
#[derive(Debug)]
pub(crate) struct Spread {
    constraints: Vec<(Constraint, Domains)>,
    /// Steps of making a filter of it: its counters are looked up.
    pub(super) steps: usize,
}

impl Spread {
    pub(super) fn new(cycle: Cycle<'_>, constraints: Vec<Constraint>) -> Self {
        let keys = columns(cycle.nodes, &constraints);
        let complete: Vec<NodeId> = (0..cycle.nodes.rows())
            .filter(|node| cycle.nodes.present[*node] && has_all_keys(&keys, *node))
            .collect();
        cycle.attempt.summed(2 * constraints.len(), cycle.nodes);
        let domains: Vec<Domains> = constraints
            .iter()
            .zip(&keys)
            .map(|(one, key)| Domains::count(one, key, &complete, cycle))
            .collect();
        let bytes: usize = constraints.iter().map(|one| hashed_bytes(&one.counter)).sum();
        Self {
            steps: constraints.len() + bytes / BYTES_A_STEP,
            constraints: constraints.into_iter().zip(domains).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }

    pub(super) fn check(&self, nodes: &NodeTable, node: NodeId) -> Result<(), Rejection> {
        for (constraint, domains) in &self.constraints {
            let Some(value) = Key::of(constraint, nodes).value(node) else {
                return Err(Rejection::unresolvable(MISSING_LABEL));
            };
            let own = domains.now(constraint, value, nodes, node);
            let fewest = domains.fewest(constraint.min_domains, value, own);
            let skew = own.unwrap_or(0) + i64::from(constraint.selects_itself) - fewest;
            if skew > constraint.max_skew {
                return Err(Rejection::unschedulable(MISMATCH));
            }
        }
        Ok(())
    }
}

/// Matching pods by domain; `None` where no eligible node has the value.
#[derive(Debug)]
struct Domains {
    matching: Vec<Option<i64>>,
    /// Domains that are some.
    count: usize,
    /// The two with the fewest, by value and number: when one changes, the other is still the least of the rest.
    least: [Option<(usize, i64)>; 2],
    /// Matching pods by node when this was summed; `None` where the node is not eligible.
    summed: Vec<Option<u32>>,
}

impl Domains {
    fn count(constraint: &Constraint, key: &Key<'_>, complete: &[NodeId], cycle: Cycle<'_>) -> Self {
        let mut matching = vec![None; key.values()];
        let mut summed = vec![None; cycle.nodes.rows()];
        let counts = matching_pods(constraint, cycle.nodes);
        for &node in complete {
            let Some(value) = key.value(node) else { continue };
            if !includes(cycle, constraint, node) {
                continue;
            }
            let own = counts.get(node);
            summed[node] = Some(own);
            let slot: &mut Option<i64> = &mut matching[value];
            *slot = Some(slot.unwrap_or(0) + i64::from(own));
        }
        let mut least = [None; 2];
        for (value, own) in matching.iter().enumerate() {
            let Some(own) = *own else { continue };
            if least[0].is_none_or(|(_, fewest)| own < fewest) {
                least = [Some((value, own)), least[0]];
            } else if least[1].is_none_or(|(_, fewest)| own < fewest) {
                least[1] = Some((value, own));
            }
        }
        Self {
            count: matching.iter().flatten().count(),
            matching,
            least,
            summed,
        }
    }

    /// Pods of the node's domain as the node is now.
    fn now(&self, constraint: &Constraint, value: usize, nodes: &NodeTable, node: NodeId) -> Option<i64> {
        let all = self.matching.get(value).copied().flatten()?;
        let Some(before) = self.summed.get(node).copied().flatten() else {
            return Some(all);
        };
        let now = matching_pods(constraint, nodes).get(node);
        Some(all + i64::from(now) - i64::from(before))
    }

    /// The fewest in any domain, this one's number being `own`; nothing when there are fewer domains than requested.
    fn fewest(&self, min_domains: usize, value: usize, own: Option<i64>) -> i64 {
        if self.count < min_domains {
            return 0;
        }
        let others = self.least.iter().flatten().find(|(other, _)| *other != value);
        let others = others.map(|(_, fewest)| *fewest);
        own.into_iter().chain(others).min().unwrap_or(i64::from(i32::MAX))
    }
}
