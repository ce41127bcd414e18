//! A node as changes of it are judged.

use crate::declared_features::DeclaredFeatures;
use crate::object::{Labels, Taint};
use crate::resources::Resources;

/// Fields of a node that plugins judge a change by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    pub name: Box<str>,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    pub allowed_pods: i64,
    pub features: DeclaredFeatures,
}
