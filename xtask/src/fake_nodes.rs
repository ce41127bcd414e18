//! Two nodes that exist only as objects: Ready, with capacity, and without a kubelet.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::config::Config;
use crate::process;

/// Creates them through kubectl and takes away the taint that admission puts on a new node.
pub(crate) fn create(config: &Config, kubeconfig: &Path, folder: &Path) -> Result<()> {
    for index in 1..=2 {
        let name = format!("fake-{index}");
        let file = folder.join(format!("{name}.json"));
        fs::write(&file, serde_json::to_vec_pretty(&node(&name, index))?)?;
        let kubectl = || {
            let mut command = process::command(config.tools.join("kubectl"));
            command.arg("--kubeconfig").arg(kubeconfig);
            command
        };
        process::run(kubectl().args(["create", "--validate=false", "-f"]).arg(&file))?;
        process::run(kubectl().args([
            "patch",
            "node",
            &name,
            "--type=merge",
            "--patch",
            r#"{"spec":{"taints":null}}"#,
        ]))?;
    }
    Ok(())
}

fn node(name: &str, index: u32) -> Value {
    let resources = json!({"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": "a fake node",
               "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "spec": {"podCIDR": format!("10.244.{index}.0/24"), "podCIDRs": [format!("10.244.{index}.0/24")]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "addresses": [
                {"type": "InternalIP", "address": format!("192.0.2.{index}")},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "fake", "kernelVersion": "6.1",
                "kubeletVersion": "v1.37.1", "kubeProxyVersion": "v1.37.1", "containerRuntimeVersion": "containerd://1.6.20",
                "bootID": "fake", "machineID": name, "systemUUID": name,
            },
        },
    })
}
