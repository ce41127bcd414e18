//! A Deployment and its sets, as plans handle them.

use crate::views::{DeploymentView, ReplicaSetView};
use machinery_client::Object;
use std::sync::Arc;

/// A set as plans handle it.
pub(super) type SetRef = Arc<Object<ReplicaSetView>>;
/// A Deployment as plans handle it.
pub(super) type DeploymentRef = Arc<Object<DeploymentView>>;

/// A set's new size.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    pub(super) set: SetRef,
    pub(super) to: i32,
}
