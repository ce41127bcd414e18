//! Devices of a node that is not there, for the attacker's claims: an administrator and a driver made them.

use super::traps::made;
use crate::bench::connection::Connection;
use anyhow::Result;
use serde_json::{Value, json};

/// The class of the devices.
pub(super) const CLASS: &str = "dear";
/// The node of the devices; pods that do not tolerate its taint never come to it.
pub(super) const NODE: &str = "phantom";
const SLICES: usize = 4;
const DEVICES: usize = 128;

pub(super) async fn install(client: &mut Connection) -> Result<()> {
    let room = json!({"cpu": "64", "memory": "64Gi", "pods": "1000"});
    let node = json!({"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
        "spec": {"taints": [{"key": "phantom", "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room}});
    made(client, "/api/v1/nodes", &node).await?;
    let class = json!({"metadata": {"name": CLASS}, "spec": {}});
    made(client, "/apis/resource.k8s.io/v1/deviceclasses", &class).await?;
    for number in 0..SLICES {
        made(client, "/apis/resource.k8s.io/v1/resourceslices", &slice(number)).await?;
    }
    Ok(())
}

fn slice(number: usize) -> Value {
    let devices: Vec<Value> = (0..DEVICES)
        .map(|at| json!({"name": format!("d{number}-{at}"), "attributes": {"model": {"string": "dear"}}}))
        .collect();
    let pool = json!({"name": NODE, "generation": 1, "resourceSliceCount": SLICES});
    json!({"metadata": {"name": format!("dear-{number}")},
        "spec": {"driver": "dear.example", "nodeName": NODE, "pool": pool, "devices": devices}})
}
