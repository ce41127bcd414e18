//! Additions of a cycle to the kept evaluation, and the outcome of both: the nodes that fit, or why none does.

use super::FitError;
use crate::diagnosis::Diagnosis;
use crate::evaluation::{ABSENT, Answers, Evaluation, FEASIBLE, Failure};
use crate::extender::{EXTENDER, Verdict};
use crate::framework::{Filter, Rejection};
use crate::nodes::{NodeId, NodeTable};
use std::collections::HashMap;

/// Results of one cycle, on top of the kept evaluation.
pub(super) struct Overlay<'a> {
    pub(super) promised: HashMap<NodeId, Failure>,
    pub(super) filters: Vec<(&'static str, Box<dyn Filter + 'a>)>,
    /// Answer of the extenders, and the names of the nodes that it is about.
    pub(super) verdict: Option<(&'a Verdict, &'a NodeTable)>,
}

impl Overlay<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.promised.is_empty() && self.filters.is_empty() && self.verdict.is_none()
    }

    pub(super) fn fits(&self, answers: &Answers<'_>, node: NodeId) -> bool {
        answers.is_feasible(node) && self.reject(node).is_none()
    }

    pub(super) fn reject(&self, node: NodeId) -> Option<Failure> {
        if let Some(failure) = self.promised.get(&node) {
            return Some(failure.clone());
        }
        let failure = self.filters.iter().find_map(|(plugin, filter)| {
            let rejection = filter.check(node).err()?;
            Some(Failure { plugin, rejection })
        });
        failure.or_else(|| self.reject_by_extenders(node))
    }

    /// A node that no extender named in its answer is rejected without a reason.
    fn reject_by_extenders(&self, node: NodeId) -> Option<Failure> {
        let (verdict, nodes) = self.verdict?;
        let name = &nodes.names[node];
        if verdict.scores.contains_key(name) {
            return None;
        }
        let unnamed = || Rejection {
            reasons: Vec::new(),
            unresolvable: true,
        };
        Some(Failure {
            plugin: EXTENDER,
            rejection: verdict.rejected.get(name).cloned().unwrap_or_else(unnamed),
        })
    }
}

pub(super) fn feasible(evaluation: &Evaluation, overlay: &Overlay<'_>) -> Vec<NodeId> {
    let unconditional = overlay.is_empty();
    let verdicts = evaluation.verdicts.iter().enumerate();
    verdicts
        .filter(|(node, verdict)| **verdict == FEASIBLE && (unconditional || overlay.reject(*node).is_none()))
        .map(|(node, _)| node)
        .collect()
}

pub(super) fn diagnose(evaluation: &Evaluation, overlay: &Overlay<'_>, nodes: &NodeTable) -> FitError {
    let mut diagnosis = Diagnosis::new(nodes.node_count());
    let mut resolvable = Vec::new();
    let mut counts = vec![0; evaluation.failures.len()];
    for (node, verdict) in evaluation.verdicts.iter().enumerate() {
        match *verdict {
            ABSENT => {}
            FEASIBLE => {
                let Some(failure) = overlay.reject(node) else {
                    continue;
                };
                diagnosis.add(&failure.rejection, 1);
                diagnosis.plugins.insert(failure.plugin);
                if !failure.rejection.unresolvable {
                    resolvable.push(node);
                }
            }
            other => {
                counts[usize::from(other) - 1] += 1;
                if evaluation
                    .failure(other)
                    .is_some_and(|failure| !failure.rejection.unresolvable)
                {
                    resolvable.push(node);
                }
            }
        }
    }
    for (failure, count) in evaluation
        .failures
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
    {
        diagnosis.add(&failure.rejection, count);
        diagnosis.plugins.insert(failure.plugin);
    }
    FitError::Unfit {
        diagnosis: Box::new(diagnosis),
        resolvable,
    }
}
