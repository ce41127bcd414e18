//! A tenant at work: requests one after the other, a watch that must deliver them, and a Deployment that must move.

use super::fixture::Access;
use crate::bench::connection::Connection;
use crate::bench::watch::Watch;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Between two rounds of requests: a tenant at work, not a load.
const PAUSE: Duration = Duration::from_millis(20);
const DEPLOYMENT_PAUSE: Duration = Duration::from_secs(2);
/// So often a client retries by itself where the answer says so, as client-go does.
const MAX_RETRIES: usize = 10;
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
    /// Answers with a `Retry-After`, which were followed.
    pub retried: u64,
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
    /// It gives an answer up then.
    patience: Duration,
    figures: Arc<Mutex<Figures>>,
}

impl Tenant {
    pub(super) fn begin(runtime: &Runtime, name: &'static str, access: Access, patience: Duration) -> Self {
        let figures: Arc<Mutex<Figures>> = Arc::default();
        let worker = Worker {
            access,
            runtime: runtime.clone(),
            patience,
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

    /// Ends a period of this phase with the requests so far.
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

    /// One request, timed with all its attempts; a refusal is an error and the connection is kept.
    async fn timed(&self, client: &mut Connection, method: Method, path: &str, body: String) -> Result<()> {
        let begun = self.runtime.monotonic();
        self.answered(client, method, path, body).await?;
        let took = self.runtime.monotonic() - begun;
        self.note(|period| period.latencies.push(took));
        Ok(())
    }

    /// The answer to a request, which is sent again where the server says when.
    async fn answered(
        &self,
        client: &mut Connection,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Bytes> {
        let body = Bytes::from(body);
        for _ in 0..=MAX_RETRIES {
            let attempt = self
                .runtime
                .timeout(self.patience, attempt(client, &method, path, &body));
            let (head, answer) = attempt
                .await
                .with_context(|| format!("{method} {path}: no answer in {:?}", self.patience))??;
            let Some(pause) = retry_after(&head) else {
                let text = String::from_utf8_lossy(&answer);
                ensure!(
                    head.status.is_success(),
                    "{method} {path}: {}: {text}",
                    head.status
                );
                return Ok(answer);
            };
            self.note(|period| period.retried += 1);
            self.runtime.sleep(pause).await;
        }
        bail!("{method} {path}: refused {} times", MAX_RETRIES + 1)
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

    /// Creates objects that a watch of this client's must deliver.
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
            let told = self.runtime.timeout(self.patience, told).await;
            ensure!(told.is_ok(), "no event of {one} in {:?}", self.patience);
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
        let found = self.answered(&mut client, Method::GET, &one, String::new());
        if found.await.is_err() {
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
                    let found = self.answered(&mut client, Method::GET, &one, String::new());
                    let answer = found.await?;
                    let object: Value = serde_json::from_slice(&answer)?;
                    if object["status"]["observedGeneration"] == object["metadata"]["generation"] {
                        return anyhow::Ok(());
                    }
                    self.runtime.sleep(PAUSE).await;
                }
            };
            let seen = self.runtime.timeout(self.patience, seen).await;
            ensure!(seen.is_ok(), "{one} was not reconciled in {:?}", self.patience);
            seen??;
            let took = self.runtime.monotonic() - begun;
            self.note(|period| period.rollouts.push(took));
            self.runtime.sleep(DEPLOYMENT_PAUSE).await;
        }
    }
}

async fn attempt(
    client: &mut Connection,
    method: &Method,
    path: &str,
    body: &Bytes,
) -> Result<(Parts, Bytes)> {
    let content = match *method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let headers = match body.is_empty() {
        true => &[][..],
        false => &[(CONTENT_TYPE, content)],
    };
    let answer = client.open(method.clone(), path, headers, body.clone()).await?;
    let (head, body) = answer.into_parts();
    Ok((head, body.collect().await?.to_bytes()))
}

/// Returns the pause that an answer requests, which client-go follows.
fn retry_after(head: &Parts) -> Option<Duration> {
    let is_temporary = head.status == StatusCode::TOO_MANY_REQUESTS || head.status.is_server_error();
    let seconds = head.headers.get(RETRY_AFTER).filter(|_| is_temporary)?;
    Some(Duration::from_secs(seconds.to_str().ok()?.parse().ok()?))
}

fn deployment() -> Value {
    let container =
        json!({"name": "hello", "image": "knarr.local/hello:1", "imagePullPolicy": "IfNotPresent"});
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [container]},
        }},
    })
}
