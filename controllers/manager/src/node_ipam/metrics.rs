//! `node_ipam_controller_*` (upstream's `pkg/controller/nodeipam/ipam/cidrset/metrics.go`). A free range is found without
//! tries, so there is no `cidrset_allocation_tries_per_request`.

use super::ranges::Ranges;
use crate::views::NodeView;
use machinery_client::{Change, Informer};
use machinery_runtime::metrics::{ComponentMetrics, Counter, Family, Reading};

const LABELS: &[&str] = &["clusterCIDR"];

const ALLOCATIONS: Family = Family::new(
    "node_ipam_controller_cidrset_cidrs_allocations_total",
    "[ALPHA] Counter measuring total number of CIDR allocations.",
    LABELS,
);
const RELEASES: Family = Family::new(
    "node_ipam_controller_cidrset_cidrs_releases_total",
    "[ALPHA] Counter measuring total number of CIDR releases.",
    LABELS,
);
const MOST: Family = Family::new(
    "node_ipam_controller_cirdset_max_cidrs",
    "[ALPHA] Maximum number of CIDRs that can be allocated.",
    LABELS,
);
const USAGE: Family = Family::new(
    "node_ipam_controller_cidrset_usage_cidrs",
    "[ALPHA] Gauge measuring percentage of allocated CIDRs.",
    LABELS,
);

/// The vectors, and what is read of the nodes. Cheap to clone.
#[derive(Clone)]
pub(super) struct IpamMetrics {
    allocations: Counter,
    releases: Counter,
    _usage: Reading,
}

impl IpamMetrics {
    #[expect(clippy::cast_precision_loss, reason = "at most two to the power of 32")]
    pub(super) fn new(metrics: &ComponentMetrics, ranges: Ranges, nodes: &Informer<NodeView>) -> Self {
        let (cidr, most) = (ranges.to_string(), ranges.count() as f64);
        metrics.gauges(&MOST).of(&[&cidr]).set(most);
        let (nodes, label) = (nodes.clone(), cidr.clone());
        Self {
            allocations: metrics.counters(&ALLOCATIONS).of(&[&cidr]),
            releases: metrics.counters(&RELEASES).of(&[&cidr]),
            _usage: metrics.read(&USAGE, move |samples| {
                let mut taken = 0.0;
                nodes.for_each(|node| taken += if node.pod_cidrs.is_empty() { 0.0 } else { 1.0 });
                samples.add(&[&label], taken / most);
            }),
        }
    }

    pub(super) fn allocated(&self) {
        self.allocations.inc();
    }

    /// A node with a range has gone, or has lost it.
    pub(super) fn node_changed(&self, change: &Change<NodeView>) {
        let has = |node: &NodeView| !node.pod_cidrs.is_empty();
        let had = change.old.as_ref().is_some_and(|node| has(node));
        if had && !change.new.as_ref().is_some_and(|node| has(node)) {
            self.releases.inc();
        }
    }
}
