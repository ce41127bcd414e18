//! Keeps as many pods as `spec.replicas` of a ReplicationController requests: the controller of ReplicaSets over another kind,
//! as upstream's is.
//!
//! Its objects have a map for a selector and no `terminatingReplicas`. Never: a rule of its own.

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::replica_set;
use crate::views::ReplicationControllerView;
use futures::future::BoxFuture;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "replicationcontroller-controller",
    queue: "replicationmanager",
    service_account: "replication-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    replica_set::run::<ReplicationControllerView>(context, &ROW)
}
