//! What a plugin may do, and the words of a rejection.
//!
//! A scheduling cycle asks the plugins in the order of their rows: which pods may queue at all (`pre_enqueue`),
//! which nodes a pod names outright (`node_names`), which nodes it may use (`filter`), how good they are
//! (`score`, `cluster_scores`). A plugin says nothing at a point by keeping the default.
//!
//! Invariant: a plugin of [`Scope::Node`] looks at the pod's shape and at the node's own row only; its answers
//! are kept per shape and node until that row changes. What depends on other nodes is [`Scope::Cluster`].

use crate::attempt::Attempt;
use crate::nodes::{NodeId, NodeTable};
use crate::pod::PodInfo;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The best score of one plugin for one node.
pub const MAX_NODE_SCORE: i64 = 100;

/// What one plugin answers for one node depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Node,
    Cluster,
}

/// The node will not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Upstream's wording; counted over the nodes in the pod's message.
    pub reasons: Vec<Cow<'static, str>>,
    /// Preempting other pods would not help.
    pub unresolvable: bool,
}

impl Rejection {
    /// Other pods are in the way.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reasons: vec![reason.into()],
            unresolvable: false,
        }
    }

    /// The node itself is wrong for the pod.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reasons: vec![reason.into()],
            unresolvable: true,
        }
    }
}

/// The pod being placed, and the nodes.
#[derive(Debug, Clone, Copy)]
pub struct Cycle<'a> {
    pub pod: &'a PodInfo,
    pub nodes: &'a NodeTable,
    /// What is computed of the pod once, whatever number of cycles the attempt takes.
    pub attempt: &'a Attempt,
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

/// How raw scores become 0 to 100 over the feasible nodes.
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

    /// Whether the pod may be tried at all; the message says why not.
    fn pre_enqueue(&self, _pod: &PodInfo) -> Result<(), String> {
        Ok(())
    }

    /// Makes the counters and columns this plugin reads; [`Self::node_names`] was asked before and did not reject.
    fn prepare(&self, _attempt: &Attempt, _nodes: &mut NodeTable) {}

    /// Also where a plugin rejects the pod before any node is looked at.
    fn node_names(&self, _cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        Ok(None)
    }

    /// The filter for this pod, or `None` when the plugin has no opinion on it.
    fn filter<'a>(&self, _cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        None
    }

    /// The score of a [`Scope::Node`] plugin, or `None` when it rates all nodes alike.
    fn score<'a>(&self, _cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
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

/// A plugin in its place: the order of rows is the order of asking.
#[derive(Debug)]
pub struct PluginRegistration {
    pub plugin: Box<dyn Plugin>,
    pub weight: i64,
}

/// A set of things that happen in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterEvents(u32);

impl ClusterEvents {
    pub const NONE: Self = Self(0);
    pub const NODE_ADD: Self = Self(1);
    pub const NODE_ALLOCATABLE: Self = Self(1 << 1);
    pub const NODE_LABEL: Self = Self(1 << 2);
    pub const NODE_TAINT: Self = Self(1 << 3);
    /// A pod came to a node.
    pub const POD_PLACED: Self = Self(1 << 4);
    /// A pod left a node, or wants less of it.
    pub const POD_GONE: Self = Self(1 << 5);
    /// Labels of a pod on a node changed.
    pub const POD_LABEL: Self = Self(1 << 6);
    /// A pod that waits changed.
    pub const POD_SELF: Self = Self(1 << 7);
    pub const NODE_GONE: Self = Self(1 << 8);
    pub const NAMESPACE_LABEL: Self = Self(1 << 9);
    /// A volume came or changed.
    pub const VOLUME: Self = Self(1 << 10);
    /// A claim of the pod came or changed.
    pub const CLAIM: Self = Self(1 << 11);
    /// A storage class came, or makes volumes elsewhere.
    pub const CLASS: Self = Self(1 << 12);
    /// A storage class came whose claims wait for a pod.
    pub const CLASS_WAITS: Self = Self(1 << 13);
    /// A volume came, or its labels of zone and region changed.
    pub const VOLUME_ZONE: Self = Self(1 << 14);
    /// A CSINode came, or a limit of one was raised.
    pub const CSI_NODE: Self = Self(1 << 15);
    /// A CSIDriver does not track capacity any more.
    pub const CSI_DRIVER: Self = Self(1 << 16);
    /// There is more storage of a CSI driver.
    pub const CSI_CAPACITY: Self = Self(1 << 17);
    /// A volume was detached from a node.
    pub const ATTACHMENT_GONE: Self = Self(1 << 18);
    /// A pod with claims left a node.
    pub const VOLUMES_GONE: Self = Self(1 << 19);
    /// A pod that had a claim or a disk of the pod left a node.
    pub const CLAIM_FREED: Self = Self(1 << 20);
    /// Something nobody classified.
    pub const ANY: Self = Self(u32::MAX);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
