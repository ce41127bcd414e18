//! Share of the nodes that is looked at for a pod, and where the search begins (upstream's `numFeasibleNodesToFind`).

use crate::nodes::NodeId;

/// Nodes that fit are all looked for where there are no more than so many nodes.
const MIN_FEASIBLE_NODES: usize = 100;
/// The smallest share that follows the number of nodes.
const MIN_PERCENTAGE: usize = 5;

/// The search of a profile. The next one begins where the last one ended.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// 0 follows the number of nodes.
    percentage: usize,
    /// Place in the order of nodes.
    next: usize,
}

impl Search {
    pub(crate) fn new(percentage: usize) -> Self {
        Self { percentage, next: 0 }
    }

    /// Number of nodes that fit after which the search ends.
    pub(crate) fn wanted(&self, nodes: usize) -> usize {
        if nodes < MIN_FEASIBLE_NODES {
            return nodes;
        }
        let percentage = match self.percentage {
            0 => 50_usize.saturating_sub(nodes / 125).max(MIN_PERCENTAGE),
            own => own,
        };
        (nodes.saturating_mul(percentage) / 100).max(MIN_FEASIBLE_NODES)
    }

    /// The first nodes in the order, from where the last search ended, that fit: so many of them, sorted.
    pub(crate) fn first(
        &mut self,
        order: &[NodeId],
        wanted: usize,
        mut fits: impl FnMut(NodeId) -> bool,
    ) -> Vec<NodeId> {
        let start = self.next.checked_rem(order.len()).unwrap_or(0);
        let mut found = Vec::with_capacity(wanted.min(order.len()));
        let mut looked_at = 0;
        for &node in order[start..].iter().chain(&order[..start]) {
            looked_at += 1;
            if fits(node) {
                found.push(node);
            }
            if found.len() == wanted {
                break;
            }
        }
        self.next = (start + looked_at).checked_rem(order.len()).unwrap_or(0);
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `TestNumFeasibleNodesToFind`.
    #[test]
    fn search_ends_after_a_share_of_the_nodes() {
        let wanted = |percentage, nodes| Search::new(percentage).wanted(nodes);
        assert_eq!(wanted(0, 10), 10);
        assert_eq!(wanted(40, 10), 10);
        assert_eq!(wanted(0, 1000), 420);
        assert_eq!(wanted(40, 1000), 400);
        assert_eq!(wanted(0, 6000), 300);
        assert_eq!(wanted(40, 6000), 2400);
        assert_eq!(wanted(0, 99), 99);
        assert_eq!(wanted(1, 5000), 100);
        assert_eq!(wanted(0, 100_000), 5000);
        assert_eq!(wanted(100, 5000), 5000);
    }

    #[test]
    fn search_begins_where_the_last_one_ended() {
        let mut search = Search::default();
        let order = [4, 3, 2, 1, 0];
        assert_eq!(search.first(&order, 2, |_| true), [3, 4]);
        assert_eq!(search.first(&order, 2, |node| node != 2), [0, 1]);
        assert_eq!(search.first(&order, 2, |_| true), [3, 4]);
        // All are looked at where too few fit.
        assert_eq!(search.first(&order, 2, |node| node == 3), [3]);
        assert_eq!(search.first(&order, 1, |_| true), [2]);
        assert!(search.first(&[], 1, |_| true).is_empty());
    }
}
