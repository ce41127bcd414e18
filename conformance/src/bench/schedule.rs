//! Pods bound to nodes that exist only as objects.

use super::load::{self, now};
use super::scenarios::{Bench, namespace, pause};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Method, header};
use std::sync::Arc;
use std::time::Duration;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/scheduling/pods";
/// Longest wait for the last pod.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two questions for the pods still without a node.
const PAUSE: Duration = Duration::from_millis(50);
const CLIENTS: usize = 64;

impl Bench {
    /// Fills a cluster of fake Ready nodes with pods and waits until all have a node.
    pub(super) async fn schedule(&mut self) -> Result<()> {
        let (nodes, pods) = (self.sizes.nodes, self.sizes.scheduled);
        namespace(&self.target, "scheduling").await?;
        let make: load::Operation = Arc::new(|client, number| {
            Box::pin(async move {
                client.send_json(Method::POST, NODES, node(number)).await?;
                // Admission taints what has not been seen Ready by the node lifecycle controller.
                let untainted = r#"{"spec":{"taints":null}}"#.to_owned();
                client
                    .send_json(Method::PATCH, &format!("{NODES}/fake-{number}"), untainted)
                    .await?;
                Ok(())
            })
        });
        load::run(&self.target, &self.server, CLIENTS, nodes, make).await?;
        let (cpu, start) = (self.server.cpu()?, now());
        let create: load::Operation = Arc::new(|client, number| {
            Box::pin(async move {
                client.send_json(Method::POST, PODS, pod(number)).await?;
                Ok(())
            })
        });
        let created = load::run(&self.target, &self.server, CLIENTS, pods, create).await?;
        while self.without_node().await? {
            ensure!(start.elapsed() < PATIENCE, "pods still wait for a node");
            pause(PAUSE).await;
        }
        let (wall, cpu) = (start.elapsed(), self.server.cpu()? - cpu);
        let text = format!(
            "{:.2} s wall until the last is bound ({:.2} s of it creating), {:.0} µs CPU each in all",
            wall.as_secs_f64(),
            created.wall.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / pods as f64
        );
        self.add(format!("{pods} pods created and bound on {nodes} nodes"), text);
        Ok(())
    }

    async fn without_node(&self) -> Result<bool> {
        let mut client = self.target.connect().await?;
        let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let path = format!("{PODS}?fieldSelector=spec.nodeName%3D&limit=1");
        let list = client
            .call(Method::GET, &path, &[(header::ACCEPT, partial)], Bytes::new())
            .await?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        let items = list["items"].as_array().context("a list without items")?;
        Ok(!items.is_empty())
    }
}

fn node(number: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"fake-{number}","labels":{{"kubernetes.io/hostname":"fake-{number}","topology.kubernetes.io/zone":"zone-{}"}}}},"status":{{"capacity":{{"cpu":"32","memory":"128Gi","pods":"110"}},"allocatable":{{"cpu":"32","memory":"128Gi","pods":"110"}},"conditions":[{{"type":"Ready","status":"True","reason":"KubeletReady","message":"a fake node"}}]}}}}"#,
        number % 3
    )
}

fn pod(number: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"pod-{number}","labels":{{"app":"app-{}"}}}},"spec":{{"containers":[{{"name":"main","image":"registry.example/bench/main:v1.2.3","resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}}}}}}]}}}}"#,
        number % 20
    )
}
