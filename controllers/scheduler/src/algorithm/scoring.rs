//! The best of the nodes that fit.

use crate::evaluation::Evaluation;
use crate::extender::Verdict;
use crate::framework::{Cycle, MAX_NODE_SCORE, Normalize, PluginRegistration, Scope};
use crate::meter::{ExtensionPoint, SUCCESS};
use crate::nodes::{NodeId, NodeTable};

/// Weighted scores of the feasible nodes, summed over the plugins.
pub(super) fn scores(
    rows: &[PluginRegistration],
    evaluation: &Evaluation,
    cycle: Cycle<'_>,
    feasible: &[NodeId],
) -> Vec<i64> {
    let mut totals = single_node_scores(evaluation, feasible);
    for row in rows.iter().filter(|row| row.plugin.scope() == Scope::Cluster) {
        let sampled = cycle.attempt.sampling().map(|meter| (meter, meter.now()));
        let Some(scores) = row.plugin.cluster_scores(cycle, feasible) else {
            continue;
        };
        row.was_asked(feasible.len() as u64);
        if let Some((meter, since)) = sampled {
            meter.ran(ExtensionPoint::Score, Some(row.name()), SUCCESS, since);
        }
        cycle.attempt.worked(feasible.len());
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += row.weight * score;
        }
    }
    totals
}

/// Adds what extenders say of the nodes.
pub(super) fn add_scores(totals: &mut [i64], verdict: &Verdict, nodes: &NodeTable, feasible: &[NodeId]) {
    for (total, node) in totals.iter_mut().zip(feasible) {
        let more = verdict.scores.get(&nodes.names[*node]).copied().unwrap_or(0);
        *total = total.saturating_add(more);
    }
}

fn single_node_scores(evaluation: &Evaluation, feasible: &[NodeId]) -> Vec<i64> {
    let mut totals: Vec<i64> = feasible.iter().map(|node| evaluation.fixed[*node]).collect();
    for column in &evaluation.columns {
        let highest = feasible.iter().map(|node| column.raw[*node]).max().unwrap_or(0);
        // No node stands out: all would get the same.
        if highest == 0 {
            continue;
        }
        for (total, node) in totals.iter_mut().zip(feasible) {
            let share = MAX_NODE_SCORE * column.raw[*node] / highest;
            let score = if column.normalize == Normalize::Lowest {
                MAX_NODE_SCORE - share
            } else {
                share
            };
            *total += column.weight * score;
        }
    }
    totals
}

/// The index of the highest total, any of them when there are several.
pub(super) fn pick(totals: &[i64], random: u64) -> usize {
    let highest = totals.iter().max().copied().unwrap_or(0);
    let equals = || totals.iter().enumerate().filter(|(_, total)| **total == highest);
    let count = equals().count().max(1) as u64;
    let chosen = usize::try_from(random % count).unwrap_or(0);
    equals().nth(chosen).map_or(0, |(index, _)| index)
}
