//! Prefers nodes whose shares of CPU and memory in use come closer to each other by taking the pod.

use crate::framework::{Cycle, MAX_NODE_SCORE, Plugin, Score};
use crate::nodes::NodeId;

#[derive(Debug)]
pub(super) struct NodeResourcesBalancedAllocation;

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    /// Pods that ask for nothing do not move the balance and are not rated.
    fn score<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let (requests, nodes) = (&cycle.pod.shape.requests, cycle.nodes);
        if requests.milli_cpu == 0 && requests.memory == 0 {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            let cpu = (nodes.requested_milli_cpu[node], nodes.allocatable_milli_cpu[node]);
            let memory = (nodes.requested_memory[node], nodes.allocatable_memory[node]);
            let before = balance(cpu, memory);
            let after = balance(
                (cpu.0 + requests.milli_cpu, cpu.1),
                (memory.0 + requests.memory, memory.1),
            );
            MAX_NODE_SCORE / 2 + (MAX_NODE_SCORE / 2 + after - before) / 2
        }))
    }
}

/// 100 less the standard deviation of both shares; of two values that is half their distance.
fn balance(cpu: (i64, i64), memory: (i64, i64)) -> i64 {
    let deviation = match (share(cpu), share(memory)) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "between 0 and 100"
    )]
    let score = ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64;
    score
}

fn share((requested, allocatable): (i64, i64)) -> Option<f64> {
    if allocatable == 0 {
        return None;
    }
    #[allow(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    let share = requested as f64 / allocatable as f64;
    Some(share.min(1.0))
}
