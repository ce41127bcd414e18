//! The calls of plugins.
//!
//! A scheduling cycle asks the plugins in the order of their rows: which pods may queue at all (`pre_enqueue`),
//! which nodes a pod names outright (`node_names`), which nodes it may use (`filter`), how good they are
//! (`score`, `cluster_scores`). A plugin says nothing at a point by keeping the default.
//!
//! Invariant: a plugin of [`Scope::Node`] looks at the pod's shape and at the node's own row only; its answers
//! are kept per shape and node until that row changes. A plugin that depends on other nodes has [`Scope::Cluster`].

use crate::attempt::Attempt;
pub use crate::attempt::Cycle;
pub use crate::change::{Change, NodeState};
pub use crate::cluster_events::ClusterEvents;
use crate::nodes::{NodeId, NodeTable};
use crate::pod::PodInfo;
pub use crate::rejection::Rejection;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// The best score of one plugin for one node.
pub const MAX_NODE_SCORE: i64 = 100;

/// Objects that one plugin's answer for one node depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Node,
    Cluster,
}

/// Decides for one node.
pub trait Filter {
    fn check(&self, node: NodeId) -> Result<(), Rejection>;
}

impl<F: Fn(NodeId) -> Result<(), Rejection>> Filter for F {
    fn check(&self, node: NodeId) -> Result<(), Rejection> {
        self(node)
    }
}

/// Rates one node.
pub trait Score {
    fn score(&self, node: NodeId) -> i64;
}

impl<F: Fn(NodeId) -> i64> Score for F {
    fn score(&self, node: NodeId) -> i64 {
        self(node)
    }
}

/// Rule that turns raw scores into 0 to 100 over the feasible nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalize {
    /// They already are.
    Not,
    /// In proportion to the largest.
    Highest,
    /// As [`Self::Highest`], and the smallest is the best.
    Lowest,
}

/// Nodes that a pod names outright; `None` means any.
pub type NodeNames = Option<BTreeSet<Box<str>>>;

pub trait Plugin: Send + Sync + Debug {
    /// Upstream's name.
    fn name(&self) -> &'static str;

    fn scope(&self) -> Scope {
        Scope::Node
    }

    /// Changes that may make a pod fit which this plugin rejected.
    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::NONE
    }

    /// Reports whether a change of these classes may make the pod fit.
    fn may_help(&self, _pod: &PodInfo, _change: Change<'_>) -> bool {
        true
    }

    /// Checks that the pod may be tried at all; the error is the message that gives the reason.
    fn pre_enqueue(&self, _pod: &PodInfo, _nodes: &NodeTable) -> Result<(), String> {
        Ok(())
    }

    /// Makes the counters and columns this plugin reads; [`Self::node_names`] was asked before and did not reject.
    fn prepare(&self, _attempt: &Attempt, _nodes: &mut NodeTable) {}

    /// Nodes that a plugin names, also where it rejects the pod before any node is looked at.
    fn node_names(&self, _cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        Ok(None)
    }

    /// The filter for this pod, or `None` when the plugin has no opinion on it.
    fn filter<'a>(&'a self, _cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        None
    }

    /// The score of a [`Scope::Node`] plugin, or `None` when it rates all nodes alike.
    fn score<'a>(&'a self, _cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        None
    }

    fn normalize(&self) -> Normalize {
        Normalize::Not
    }

    /// The scores of a [`Scope::Cluster`] plugin for the feasible nodes, 0 to 100 each.
    fn cluster_scores(&self, _cycle: Cycle<'_>, _feasible: &[NodeId]) -> Option<Vec<i64>> {
        None
    }
}

/// A plugin in its place: the order of registrations is the order of asking.
#[derive(Debug, Clone)]
pub struct PluginRegistration {
    pub plugin: Arc<dyn Plugin>,
    /// Of its score.
    pub weight: i64,
    /// Questions since they were last counted.
    asked: Cell<u64>,
}

impl PluginRegistration {
    pub fn new(plugin: &Arc<dyn Plugin>, weight: i64) -> Self {
        Self {
            plugin: Arc::clone(plugin),
            weight,
            asked: Cell::new(0),
        }
    }

    pub fn name(&self) -> &'static str {
        self.plugin.name()
    }

    /// Counts questions put to the plugin at this extension point.
    pub(crate) fn was_asked(&self, times: u64) {
        self.asked.set(self.asked.get().saturating_add(times));
    }

    /// Takes the questions counted so far.
    pub(crate) fn take_asked(&self) -> u64 {
        self.asked.take()
    }
}

/// The plugins of a profile by extension point, each in the order of asking.
#[derive(Debug, Default)]
pub struct PluginSet {
    pub pre_enqueue: Vec<PluginRegistration>,
    pub pre_filter: Vec<PluginRegistration>,
    pub filter: Vec<PluginRegistration>,
    pub score: Vec<PluginRegistration>,
}

impl PluginSet {
    /// Every plugin that has counters or columns to make, once.
    pub(crate) fn preparing(&self) -> Vec<Arc<dyn Plugin>> {
        let mut all: Vec<Arc<dyn Plugin>> = Vec::new();
        for row in self.filter.iter().chain(&self.score) {
            if all.iter().all(|own| own.name() != row.name()) {
                all.push(Arc::clone(&row.plugin));
            }
        }
        all
    }

    /// The plugins of these names, which rejected a pod, once each.
    pub(crate) fn rejecting(&self, rejected_by: &BTreeSet<&'static str>) -> Vec<Arc<dyn Plugin>> {
        let all = self
            .pre_enqueue
            .iter()
            .chain(&self.pre_filter)
            .chain(&self.filter);
        let mut rejecting: Vec<_> = all.filter(|row| rejected_by.contains(row.name())).collect();
        rejecting.sort_unstable_by_key(|row| row.name());
        rejecting.dedup_by_key(|row| row.name());
        rejecting.into_iter().map(|row| Arc::clone(&row.plugin)).collect()
    }

    /// The first plugin that does not let the pod be tried.
    pub(crate) fn gate(&self, pod: &PodInfo, nodes: &NodeTable) -> Option<&'static str> {
        let gate = |row: &&PluginRegistration| row.plugin.pre_enqueue(pod, nodes).is_err();
        self.pre_enqueue.iter().find(gate).map(PluginRegistration::name)
    }
}
