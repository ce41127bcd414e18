//! Scenarios that are measured, in their order: each leaves what the next one needs.

use super::connection::{Connection, Target};
use super::load::{self, Cost, now};
use super::process::Processes;
use super::rollout::Kwok;
use super::server::Server;
use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Method, header};
use http_body_util::BodyExt;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub work: String,
    pub figure: String,
}

impl Figure {
    /// Says it on stderr at once: the whole takes minutes.
    pub(super) fn told(work: impl Into<String>, figure: impl Into<String>) -> Self {
        let told = Self {
            work: work.into(),
            figure: figure.into(),
        };
        eprintln!("{}: {}", told.work, told.figure);
        told
    }
}

/// Amounts of everything; the defaults are the issue's.
#[derive(Debug, Clone)]
pub struct Sizes {
    pub pods: usize,
    pub single_creates: usize,
    pub gets: usize,
    pub patches: usize,
    /// Applies of each kind, changed and unchanged.
    pub applies: usize,
    pub watchers: usize,
    pub changes: usize,
    pub nodes: usize,
    pub scheduled: usize,
    /// Pods that are started on a real node.
    pub started: usize,
    pub idle: Duration,
    /// Only these of [`PARTS`] of an API server's run; all when there are none. Later ones need the pods of `creates`.
    pub only: Vec<String>,
}

/// Parts of an API server's run.
pub const PARTS: [&str; 9] = [
    "idle", "creates", "reads", "rates", "applies", "lists", "watches", "restart", "delete",
];

impl Sizes {
    fn has(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == part)
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            pods: 10_000,
            single_creates: 500,
            gets: 20_000,
            patches: 4_000,
            applies: 2_000,
            watchers: 1_000,
            changes: 200,
            nodes: 1_000,
            scheduled: 5_000,
            started: 30,
            idle: Duration::from_secs(20),
            only: Vec::new(),
        }
    }
}

const NAMESPACE: &str = "bench";
pub(super) const PODS: &str = "/api/v1/namespaces/bench/pods";

/// A run against one server.
#[derive(Debug)]
pub struct Bench {
    pub(super) target: Target,
    /// Present when the server was started here and may be killed.
    running: Option<Server>,
    /// From its exec until it was ready.
    started: Option<Duration>,
    pub(super) server: Processes,
    pub(super) sizes: Sizes,
    figures: Vec<Figure>,
}

impl Bench {
    /// Takes a server that became ready `started` after its exec.
    pub fn of_started(running: Server, target: Target, started: Duration, sizes: Sizes) -> Self {
        let server = running.processes();
        Self {
            target,
            server,
            running: Some(running),
            started: Some(started),
            sizes,
            figures: Vec::new(),
        }
    }

    /// Takes a server that another runs.
    pub fn of_running(target: Target, server: Processes, sizes: Sizes) -> Self {
        Self {
            target,
            running: None,
            started: None,
            server,
            sizes,
            figures: Vec::new(),
        }
    }

    /// A whole control plane: at rest, then with pods to place.
    ///
    /// # Errors
    /// The server refused or broke a request.
    pub async fn run_control_plane(mut self) -> Result<Vec<Figure>> {
        if let Some(started) = self.started {
            self.add(
                "control plane, exec → /readyz, first start",
                milliseconds(started),
            );
        }
        self.idle("control plane, idle").await?;
        self.schedule().await?;
        self.idle("control plane, idle with those pods and nodes").await?;
        Ok(self.figures)
    }

    /// A whole control plane that brings up a large Deployment on nodes that kwok plays.
    ///
    /// # Errors
    /// The server refused or broke a request, or not all pods became Ready.
    pub async fn run_rollout(mut self, kwok: &Kwok) -> Result<Vec<Figure>> {
        self.rollout(kwok).await?;
        Ok(self.figures)
    }

    /// An API server alone, as upstream's is measured.
    ///
    /// # Errors
    /// The server refused or broke a request.
    pub async fn run_api(mut self) -> Result<Vec<Figure>> {
        self.idle("idle, empty").await?;
        if self.sizes.has("creates") {
            namespace(&self.target, NAMESPACE).await?;
            self.creates().await?;
        }
        if self.sizes.has("reads") {
            self.reads().await?;
        }
        if self.sizes.has("rates") {
            self.rates().await?;
        }
        if self.sizes.has("applies") {
            self.applies().await?;
        }
        if self.sizes.has("lists") {
            self.lists().await?;
        }
        if self.sizes.has("watches") {
            self.watches().await?;
        }
        if self.sizes.has("restart") {
            self.restart().await?;
            self.idle("idle, restarted with pods stored").await?;
        }
        if self.sizes.has("delete") {
            self.delete_collection().await?;
            self.idle("idle, pods deleted").await?;
        }
        Ok(self.figures)
    }

    async fn restart(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let (target, took) = running.kill_and_restart().await?;
        self.server = running.processes();
        self.target = target;
        self.add(
            format!("kill -9 → /readyz with {} pods", self.sizes.pods),
            milliseconds(took),
        );
        Ok(())
    }

    pub(super) fn add(&mut self, work: impl Into<String>, figure: impl Into<String>) {
        self.figures.push(Figure::told(work, figure));
    }

    pub(super) fn add_cost(&mut self, work: &str, cost: &Cost) {
        let text = format!(
            "{:.0} µs CPU, {:.0}/s, p50 {:.2} ms, p99 {:.2} ms",
            cost.cpu_micros(),
            cost.per_second(),
            cost.p50.as_secs_f64() * 1e3,
            cost.p99.as_secs_f64() * 1e3
        );
        self.add(work, text);
    }

    async fn idle(&mut self, work: &str) -> Result<()> {
        if !self.sizes.has("idle") {
            return Ok(());
        }
        let before = self.server.cpu()?;
        pause(self.sizes.idle).await;
        let share = (self.server.cpu()? - before).as_secs_f64() / self.sizes.idle.as_secs_f64() * 100.0;
        let text = format!(
            "{} resident, {share:.2} % of a core",
            megabytes(self.server.resident()?)
        );
        self.add(work, text);
        Ok(())
    }

    async fn creates(&mut self) -> Result<()> {
        let create: load::Operation = Arc::new(|client, number| {
            Box::pin(async move {
                client.send_json(Method::POST, PODS, pod(number)).await?;
                Ok(())
            })
        });
        let single = self.sizes.single_creates;
        let before = self.syncs().await?;
        let cost = load::run(&self.target, &self.server, 1, single, create).await?;
        self.add_cost("create a 1.5 KB pod, 1 client", &cost);
        let between = self.syncs().await?;
        let rest: load::Operation = Arc::new(move |client, number| {
            Box::pin(async move {
                client.send_json(Method::POST, PODS, pod(single + number)).await?;
                Ok(())
            })
        });
        let cost = load::run(&self.target, &self.server, 64, self.sizes.pods - single, rest).await?;
        self.add_cost("create a 1.5 KB pod, 64 clients", &cost);
        if let (Some(before), Some(between), Some(after)) = (before, between, self.syncs().await?) {
            let text = format!(
                "{:.2} with 1 client, {:.2} with 64",
                (between - before) / single as f64,
                (after - between) / cost.operations as f64
            );
            self.add("fsyncs per create", text);
        }
        let resident = megabytes(self.server.resident()?);
        let work = format!("resident with {} pods", self.sizes.pods);
        self.add(work, resident);
        Ok(())
    }

    /// Number of times the server has synced its log, by its own metric; `None` without it.
    async fn syncs(&self) -> Result<Option<f64>> {
        let mut client = self.target.connect().await?;
        let text = client.call(Method::GET, "/metrics", &[], Bytes::new()).await?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("etcd_disk_wal_fsync_duration_seconds_count "));
        Ok(count.map(str::parse).transpose()?)
    }

    async fn reads(&mut self) -> Result<()> {
        let pods = self.sizes.pods;
        let get: load::Operation = Arc::new(move |client, number| {
            Box::pin(async move {
                let path = format!("{PODS}/pod-{}", number % pods);
                client.call(Method::GET, &path, &[], Bytes::new()).await?;
                Ok(())
            })
        });
        let cost = load::run(&self.target, &self.server, 64, self.sizes.gets, get).await?;
        self.add_cost("GET a pod, 64 clients", &cost);
        let patch: load::Operation = Arc::new(move |client, number| {
            Box::pin(async move {
                let path = format!("{PODS}/pod-{}", number % pods);
                let body = format!(r#"{{"metadata":{{"annotations":{{"bench":"{number}"}}}}}}"#);
                client.send_json(Method::PATCH, &path, body).await?;
                Ok(())
            })
        });
        let cost = load::run(&self.target, &self.server, 16, self.sizes.patches, patch).await?;
        self.add_cost("merge-patch a pod, 16 clients", &cost);
        Ok(())
    }

    async fn lists(&mut self) -> Result<()> {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let forms: [(&str, &[(header::HeaderName, &str)]); 5] = [
            ("identity", &[]),
            ("gzip", &[(header::ACCEPT_ENCODING, "gzip")]),
            (
                "protobuf",
                &[(header::ACCEPT, "application/vnd.kubernetes.protobuf")],
            ),
            ("Table", &[(header::ACCEPT, table)]),
            ("metadata only", &[(header::ACCEPT, partial)]),
        ];
        for (form, headers) in forms {
            let mut client = self.target.connect().await?;
            let work = format!("LIST {} pods, {form}", self.sizes.pods);
            match self.list(&mut client, headers).await {
                Ok(figure) => self.add(work, figure),
                Err(error) => self.add(work, format!("refused: {error:.120}")),
            }
        }
        Ok(())
    }

    async fn list(&self, client: &mut Connection, headers: &[(header::HeaderName, &str)]) -> Result<String> {
        const ROUNDS: u32 = 5;
        let before_resident = self.server.resident()?;
        self.server.reset_peak()?;
        let (cpu, start) = (self.server.cpu()?, now());
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            bytes = client.call(Method::GET, PODS, headers, Bytes::new()).await?.len();
        }
        let (wall, cpu) = (start.elapsed() / ROUNDS, (self.server.cpu()? - cpu) / ROUNDS);
        let extra = self.server.peak()?.saturating_sub(before_resident);
        Ok(format!(
            "{:.0} ms wall, {:.0} ms CPU, {:.1} MB body, {} extra",
            wall.as_secs_f64() * 1e3,
            cpu.as_secs_f64() * 1e3,
            bytes as f64 / 1e6,
            megabytes(extra)
        ))
    }

    /// Every watcher on a connection of its own; the clock starts once all watch.
    async fn watches(&mut self) -> Result<()> {
        let (watchers, changes) = (self.sizes.watchers, self.sizes.changes);
        let resident = self.server.resident()?;
        let revision = self.current_revision().await?;
        let delivered = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for _ in 0..watchers {
            tasks.push(self.watcher(&revision, delivered.clone()).await?);
        }
        let memory = self.server.resident()?.saturating_sub(resident) / watchers.max(1) as u64;
        let (cpu, start) = (self.server.cpu()?, now());
        let mut client = self.target.connect().await?;
        for number in 0..changes {
            let body = format!(r#"{{"metadata":{{"annotations":{{"watched":"{number}"}}}}}}"#);
            client
                .send_json(Method::PATCH, &format!("{PODS}/pod-{number}"), body)
                .await?;
        }
        let expected = (watchers * changes) as u64;
        while delivered.load(Ordering::Relaxed) < expected && start.elapsed() < Duration::from_secs(60) {
            pause(Duration::from_millis(5)).await;
        }
        let seen = delivered.load(Ordering::Relaxed);
        let (wall, cpu) = (start.elapsed(), self.server.cpu()? - cpu);
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        let text = format!(
            "{seen} of {expected}: {:.0} per CPU-second, {:.0}/s, {:.1} KB each",
            seen as f64 / cpu.as_secs_f64(),
            seen as f64 / wall.as_secs_f64(),
            memory as f64 / 1e3
        );
        self.add(format!("watch, {watchers} watchers × {changes} changes"), text);
        Ok(())
    }

    async fn watcher(
        &self,
        revision: &str,
        delivered: Arc<AtomicU64>,
    ) -> Result<tokio::task::JoinHandle<()>> {
        let mut client = self.target.connect().await?;
        let path = format!("{PODS}?watch=true&resourceVersion={revision}");
        let response = client.open(Method::GET, &path, &[], Bytes::new()).await?;
        anyhow::ensure!(response.status().is_success(), "watch: {}", response.status());
        #[expect(
            clippy::disallowed_methods,
            reason = "a load generator has no cluster to end with"
        )]
        Ok(tokio::spawn(async move {
            let _open = client;
            let mut body = response.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                // Every event ends in a line feed, and JSON has none inside.
                let events = frame
                    .data_ref()
                    .map_or(0, |data| data.iter().filter(|b| **b == b'\n').count());
                delivered.fetch_add(events as u64, Ordering::Relaxed);
            }
        }))
    }

    async fn current_revision(&self) -> Result<String> {
        let mut client = self.target.connect().await?;
        let list = client
            .call(Method::GET, &format!("{PODS}?limit=1"), &[], Bytes::new())
            .await?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        Ok(list["metadata"]["resourceVersion"]
            .as_str()
            .context("a list without a revision")?
            .to_owned())
    }

    async fn delete_collection(&mut self) -> Result<()> {
        let mut client = self.target.connect().await?;
        let (cpu, start) = (self.server.cpu()?, now());
        let path = format!("{PODS}?gracePeriodSeconds=0");
        let answer = client.call(Method::DELETE, &path, &[], Bytes::new()).await;
        let (wall, cpu) = (start.elapsed(), self.server.cpu()? - cpu);
        let mut text = format!("{:.2} s wall, {:.2} s CPU", wall.as_secs_f64(), cpu.as_secs_f64());
        // Upstream's request timeout ends it: that is a figure too, and not the end of the others.
        if let Err(error) = answer {
            // A cell of a table is one line.
            let error = error.to_string().replace('\n', " ");
            text = format!("not done: {error} after {text}");
        }
        self.add(format!("delete a collection of {} pods", self.sizes.pods), text);
        Ok(())
    }
}

/// A namespace with its default service account, made by hand where no controller does.
pub(super) async fn namespace(target: &Target, name: &str) -> Result<()> {
    let mut client = target.connect().await?;
    let namespace = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    client
        .send_json(Method::POST, "/api/v1/namespaces", namespace)
        .await?;
    let account = r#"{"metadata":{"name":"default"}}"#.to_owned();
    // Already there where the controller was faster.
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    let _ = client.send_json(Method::POST, &accounts, account).await;
    Ok(())
}

/// Waits.
#[expect(
    clippy::disallowed_methods,
    reason = "a load generator has no simulated clock"
)]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

pub(super) fn milliseconds(length: Duration) -> String {
    format!("{:.0} ms", length.as_secs_f64() * 1e3)
}

pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// A pod of about 1.5 KB once stored.
pub(super) fn pod(number: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number}","labels":{{"app":"bench","shard":"{}","pod-template-hash":"6d4cf56db6","tier":"backend"}},"annotations":{{"prometheus.io/scrape":"true","prometheus.io/port":"8080"}}}},"spec":{{"containers":[{{"name":"main","image":"registry.example/bench/main:v1.2.3","args":["--listen=:8080","--log-level=info"],"ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.name"}}}}}},{{"name":"MODE","value":"production"}}],"resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},"readinessProbe":{{"httpGet":{{"path":"/healthz","port":"http"}},"periodSeconds":5}},"volumeMounts":[{{"name":"config","mountPath":"/etc/bench"}}]}}],"volumes":[{{"name":"config","configMap":{{"name":"bench"}}}}],"terminationGracePeriodSeconds":10,"nodeSelector":{{"bench":"never"}}}}}}"#,
        number % 16
    )
}
