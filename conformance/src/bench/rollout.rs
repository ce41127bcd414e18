//! A large Deployment whose pods become Ready on kwok's nodes: what it costs the control plane, controllers, endpoints and
//! scheduler together.

use super::load::{self, now};
use super::scenarios::{Bench, namespace, pause};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Stages by which kwok plays the kubelets.
const STAGES: &str = include_str!("kwok.yaml");
const NODES: &str = "/api/v1/nodes";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/rollout/deployments";
/// Each takes 110 pods.
const KWOK_NODES: usize = 100;
const REPLICAS: usize = 10_000;
const CLIENTS: usize = 16;
/// Longest wait for the last pod.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between two questions.
const PAUSE: Duration = Duration::from_millis(200);

/// The program that plays the agent of every node with a certain label.
#[derive(Debug, Clone)]
pub struct Kwok {
    pub program: PathBuf,
    pub kubeconfig: PathBuf,
}

/// Ends with its scenario.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Kwok {
    #[expect(
        clippy::disallowed_methods,
        reason = "a load generator stands outside the product"
    )]
    fn start(&self) -> Result<Running> {
        let stages = self.kubeconfig.with_extension("stages.yaml");
        std::fs::write(&stages, STAGES)?;
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--config").arg(stages);
        command.args(["--manage-nodes-with-label-selector", "type=kwok"]);
        command.args(["--cidr", "10.128.0.0/9", "--node-ip", "192.0.2.1"]);
        command.args(["--node-lease-duration-seconds", "40"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Running(command.spawn().context("starting kwok")?))
    }
}

impl Bench {
    /// Time from the Deployment's creation until all of its pods are Ready.
    pub(super) async fn rollout(&mut self, kwok: &Kwok) -> Result<()> {
        namespace(&self.target, "rollout").await?;
        let make: load::Operation = Arc::new(|client, number| {
            Box::pin(async move {
                client.send_json(Method::POST, NODES, node(number)).await?;
                Ok(())
            })
        });
        load::run(&self.target, &self.server, CLIENTS, KWOK_NODES, make).await?;
        let running = kwok.start()?;
        let (start, mut cpu) = (now(), Duration::ZERO);
        let mut client = self.target.connect().await?;
        let mut begun = None;
        loop {
            ensure!(start.elapsed() < PATIENCE, "not all pods became Ready");
            match begun {
                None if self.nodes_are_ready().await? => {
                    (begun, cpu) = (Some(now()), self.server.cpu()?);
                    client.send_json(Method::POST, DEPLOYMENTS, deployment()).await?;
                }
                Some(begun) if self.replicas_are_ready().await? => {
                    let (wall, cpu) = (begun.elapsed(), self.server.cpu()? - cpu);
                    let text = format!("{:.1} s wall, {:.2} s CPU", wall.as_secs_f64(), cpu.as_secs_f64());
                    self.add(
                        format!("Deployment of {REPLICAS} pods Ready on kwok's nodes"),
                        text,
                    );
                    drop(running);
                    return Ok(());
                }
                _ => pause(PAUSE).await,
            }
        }
    }

    async fn nodes_are_ready(&self) -> Result<bool> {
        let list = self.ask(&format!("{NODES}?labelSelector=type%3Dkwok")).await?;
        let items = list["items"].as_array().context("a list without items")?;
        let is_ready = |node: &serde_json::Value| {
            let conditions = node["status"]["conditions"].as_array();
            let ready = conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            ready && node["spec"]["taints"].is_null()
        };
        Ok(items.iter().all(is_ready))
    }

    async fn replicas_are_ready(&self) -> Result<bool> {
        let deployment = self.ask(&format!("{DEPLOYMENTS}/large")).await?;
        Ok(deployment["status"]["readyReplicas"] == REPLICAS)
    }

    async fn ask(&self, path: &str) -> Result<serde_json::Value> {
        let mut client = self.target.connect().await?;
        let body = client.call(Method::GET, path, &[], Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }
}

fn node(number: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"kwok-{number}","labels":{{"type":"kwok","kubernetes.io/hostname":"kwok-{number}"}}}},"status":{{"capacity":{{"cpu":"32","memory":"256Gi","pods":"110"}},"allocatable":{{"cpu":"32","memory":"256Gi","pods":"110"}}}}}}"#
    )
}

fn deployment() -> String {
    format!(
        r#"{{"metadata":{{"name":"large"}},"spec":{{"replicas":{REPLICAS},"selector":{{"matchLabels":{{"app":"large"}}}},"template":{{"metadata":{{"labels":{{"app":"large"}}}},"spec":{{"nodeSelector":{{"type":"kwok"}},"containers":[{{"name":"main","image":"registry.example/bench/main:v1.2.3","resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}}}}}}]}}}}}}}}"#
    )
}
