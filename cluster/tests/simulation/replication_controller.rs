//! The scenario of ReplicaSets, for ReplicationControllers: their sizes change through `scale`, pods vanish, fail, are given
//! away and found, while messages are lost.

use crate::replica_set::{SetKind, Sets};
use crate::runner::run_seeds;
use k8s_openapi::api::core::v1::ReplicationController;
use serde_json::Value;

impl SetKind for ReplicationController {
    const CONTROLLERS: &'static [&'static str] = &["replicationcontroller-controller"];

    fn selector(labels: &Value) -> Value {
        labels.clone()
    }
}

#[test]
fn replication_controller_scenario() {
    run_seeds(Sets::<ReplicationController>::default);
}
