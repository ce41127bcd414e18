//! A tenant at work: requests one after the other, a watch that must tell of them, and a Deployment that must move.

use super::place::Access;
use crate::bench::connection::Connection;
use crate::bench::watch::Watch;
use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Between two rounds of requests: a tenant at work, not a load.
const PAUSE: Duration = Duration::from_millis(20);
const DEPLOYMENT_PAUSE: Duration = Duration::from_secs(2);
/// A client gives up then.
const PATIENCE: Duration = Duration::from_secs(10);
/// Errors that are shown.
const SHOWN: usize = 5;

/// The figures of a period of a tenant's.
#[derive(Debug, Clone, Default)]
pub struct Period {
    pub phase: &'static str,
    pub latencies: Vec<Duration>,
    /// From a create to its event.
    pub events: Vec<Duration>,
    /// From a change of the Deployment until its controller has seen it.
    pub rollouts: Vec<Duration>,
    pub errors: u64,
}

#[derive(Debug, Default)]
struct Figures {
    current: Period,
    periods: Vec<Period>,
    shown: Vec<String>,
}

/// A tenant at work until its runtime's scope ends.
#[derive(Debug)]
pub struct Tenant {
    pub name: &'static str,
    figures: Arc<Mutex<Figures>>,
}

/// A worker of a tenant's.
#[derive(Clone)]
struct Worker {
    access: Access,
    runtime: Runtime,
    figures: Arc<Mutex<Figures>>,
}

impl Tenant {
    pub(super) fn begin(runtime: &Runtime, name: &'static str, access: Access) -> Self {
        let figures: Arc<Mutex<Figures>> = Arc::default();
        let worker = Worker {
            access,
            runtime: runtime.clone(),
            figures: Arc::clone(&figures),
        };
        runtime
            .spawn("requests", worker.clone().keep(Work::Requests))
            .detach();
        runtime
            .spawn("events", worker.clone().keep(Work::Events))
            .detach();
        runtime.spawn("rollouts", worker.keep(Work::Rollouts)).detach();
        Self { name, figures }
    }

    /// What came until now is a period of this phase.
    pub(super) fn end_period(&self, phase: &'static str) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut period = std::mem::take(&mut figures.current);
        period.phase = phase;
        figures.periods.push(period);
    }

    pub fn periods(&self) -> Vec<Period> {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.periods.clone()
    }

    /// Some of the errors.
    pub fn errors(&self) -> Vec<String> {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.shown.clone()
    }
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Requests,
    Events,
    Rollouts,
}

impl Worker {
    /// Works on; a connection that broke is an error and is made again.
    async fn keep(self, work: Work) {
        loop {
            let ended = match work {
                Work::Requests => self.requests().await,
                Work::Events => self.events().await,
                Work::Rollouts => self.rollouts().await,
            };
            if let Err(error) = ended {
                self.failed(&format!("{work:?}: {error:#}"));
            }
            self.runtime.sleep(PAUSE).await;
        }
    }

    fn note(&self, note: impl FnOnce(&mut Period)) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        note(&mut figures.current);
    }

    fn failed(&self, error: &str) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.current.errors += 1;
        if figures.shown.len() < SHOWN {
            figures.shown.push(error.chars().take(300).collect());
        }
    }

    /// One request, timed; a refusal is an error and the connection is kept.
    async fn timed(&self, client: &mut Connection, method: Method, path: &str, body: String) -> Result<()> {
        let begun = self.runtime.monotonic();
        let call = async {
            match body.is_empty() {
                true => client.call(method, path, &[], Bytes::new()).await,
                false => client.send_json(method, path, body).await,
            }
        };
        match self.runtime.timeout(PATIENCE, call).await {
            Ok(Ok(_)) => {
                let took = self.runtime.monotonic() - begun;
                self.note(|period| period.latencies.push(took));
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(anyhow::anyhow!("{path}: no answer in {PATIENCE:?}")),
        }
    }

    async fn requests(&self) -> Result<()> {
        let mut client = self.access.target.connect().await?;
        let maps = format!("/api/v1/namespaces/{}/configmaps", self.access.namespace);
        loop {
            let name = format!("work-{:x}", self.runtime.random_u64());
            let one = format!("{maps}/{name}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v".repeat(512)}});
            self.timed(&mut client, Method::POST, &maps, object.to_string())
                .await?;
            self.timed(&mut client, Method::GET, &one, String::new()).await?;
            let list = format!("{maps}?limit=50");
            self.timed(&mut client, Method::GET, &list, String::new()).await?;
            let patch = json!({"data": {"k": "w"}}).to_string();
            self.timed(&mut client, Method::PATCH, &one, patch).await?;
            self.timed(&mut client, Method::DELETE, &one, String::new())
                .await?;
            self.runtime.sleep(PAUSE).await;
        }
    }

    /// Creates objects that a watch of this client's must tell of.
    async fn events(&self) -> Result<()> {
        let leases = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.access.namespace
        );
        let mut watch = Watch::open(&self.access.target, &leases).await?;
        let mut client = self.access.target.connect().await?;
        loop {
            let name = format!("told-{:x}", self.runtime.random_u64());
            let object =
                json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
            let begun = self.runtime.monotonic();
            let one = format!("{leases}/{name}");
            self.timed(&mut client, Method::POST, &leases, object.to_string())
                .await?;
            let told = async {
                loop {
                    let event = watch.next().await?;
                    if event.name() == name && event.kind == "ADDED" {
                        return anyhow::Ok(());
                    }
                }
            };
            let told = self.runtime.timeout(PATIENCE, told).await;
            ensure!(told.is_ok(), "no event of {one} in {PATIENCE:?}");
            told??;
            let took = self.runtime.monotonic() - begun;
            self.note(|period| period.events.push(took));
            self.timed(&mut client, Method::DELETE, &one, String::new())
                .await?;
            self.runtime.sleep(5 * PAUSE).await;
        }
    }

    /// Changes a Deployment and waits until its controller has seen that.
    async fn rollouts(&self) -> Result<()> {
        let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", self.access.namespace);
        let (mut client, one) = (self.access.target.connect().await?, format!("{deployments}/web"));
        if client.call(Method::GET, &one, &[], Bytes::new()).await.is_err() {
            self.timed(&mut client, Method::POST, &deployments, deployment().to_string())
                .await?;
        }
        loop {
            let patch = json!({"spec": {"replicas": 1 + self.runtime.random_u64() % 2}, "metadata": {"annotations": {
                "changed": format!("{:x}", self.runtime.random_u64())}}});
            let begun = self.runtime.monotonic();
            self.timed(&mut client, Method::PATCH, &one, patch.to_string())
                .await?;
            let seen = async {
                loop {
                    let answer = client.call(Method::GET, &one, &[], Bytes::new()).await?;
                    let object: Value = serde_json::from_slice(&answer)?;
                    if object["status"]["observedGeneration"] == object["metadata"]["generation"] {
                        return anyhow::Ok(());
                    }
                    self.runtime.sleep(PAUSE).await;
                }
            };
            let seen = self.runtime.timeout(PATIENCE, seen).await;
            ensure!(seen.is_ok(), "{one} was not reconciled in {PATIENCE:?}");
            seen??;
            let took = self.runtime.monotonic() - begun;
            self.note(|period| period.rollouts.push(took));
            self.runtime.sleep(DEPLOYMENT_PAUSE).await;
        }
    }
}

fn deployment() -> Value {
    let container =
        json!({"name": "hello", "image": "knarr.local/hello:latest", "imagePullPolicy": "IfNotPresent"});
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [container]},
        }},
    })
}
