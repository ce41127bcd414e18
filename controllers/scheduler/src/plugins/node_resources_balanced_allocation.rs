//! Prefers nodes whose shares of the resources in use come closer to each other by taking the pod.

use super::resource_allocation::{Amounts, Rated};
use crate::config::args::NodeResourcesBalancedAllocationArgs;
use crate::framework::{Cycle, MAX_NODE_SCORE, Plugin, Score};
use crate::nodes::NodeId;

#[derive(Debug)]
pub(super) struct NodeResourcesBalancedAllocation {
    rated: Vec<Rated>,
}

impl NodeResourcesBalancedAllocation {
    pub(super) fn new(args: &NodeResourcesBalancedAllocationArgs) -> Self {
        Self {
            rated: Rated::all(&args.resources),
        }
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    /// Pods that request nothing do not move the balance and are not rated.
    fn score<'a>(&'a self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let (shape, nodes) = (&*cycle.pod.shape, cycle.nodes);
        if self.rated.iter().all(|one| one.request(shape) == 0) {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            let amounts = || {
                self.rated
                    .iter()
                    .filter_map(|one| one.requested(shape, nodes, node))
            };
            let before = balance(|| amounts().map(|own: Amounts| share(own.before, own.allocatable)));
            let after = balance(|| amounts().map(|own: Amounts| share(own.with_pod, own.allocatable)));
            MAX_NODE_SCORE / 2 + (MAX_NODE_SCORE / 2 + after - before) / 2
        }))
    }
}

/// 100 less the standard deviation of the shares; of two values that is half their distance.
fn balance<I: Iterator<Item = f64>>(shares: impl Fn() -> I) -> i64 {
    let (count, sum) = shares().fold((0.0, 0.0), |(count, sum), share| (count + 1.0, sum + share));
    let mean = sum / count;
    let squares: f64 = shares().map(|share| (share - mean) * (share - mean)).sum();
    let deviation = if count < 2.0 {
        0.0
    } else if count < 3.0 {
        // As upstream computes it, to the last bit.
        let mut both = shares();
        let (one, other) = (both.next().unwrap_or(0.0), both.next().unwrap_or(0.0));
        ((one - other) / 2.0_f64).abs()
    } else {
        (squares / count).sqrt()
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "between 0 and 100"
    )]
    let score = ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64;
    score
}

fn share(requested: i64, allocatable: i64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    let share = requested as f64 / allocatable as f64;
    share.min(1.0)
}
