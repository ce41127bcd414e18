//! A server with its node: from exec to Ready, at rest, and pods from their creation until they run.
//!
//! Everything is seen as a client of the API sees it. The container runtime's part of a pod's start is measured
//! beside it by another program, which asks the runtime for the same without any of us.

use super::connection::Target;
use super::load::{self, Cost, now};
use super::process::{self, Processes};
use super::runtime::Direct;
use super::scenarios::{Figure, megabytes, milliseconds, namespace, pause};
use super::server::Server;
use super::watch::Watch;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Method;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const NAMESPACE: &str = "bench";
const PODS: &str = "/api/v1/namespaces/bench/pods";
/// ConfigMap that every pod's first volume waits for.
const AUTHORITY: &str = "/api/v1/namespaces/bench/configmaps/kube-root-ca.crt";
const NODES: &str = "/api/v1/nodes";
/// Longest wait for a pod, an endpoint or a connection.
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval of reads of what cannot be watched.
const PAUSE: Duration = Duration::from_millis(20);

/// Command to start, its files, and the amount of work.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// `knarr server` with its arguments.
    pub command: Vec<String>,
    /// File to which the server writes its kubeconfig.
    pub kubeconfig: PathBuf,
    /// By its name in their arguments the cluster's processes are known.
    pub data_dir: PathBuf,
    /// The program that starts pods without us.
    pub direct: Direct,
    /// Number of pods that are started.
    pub pods: usize,
    /// Time for which an idle node is watched.
    pub idle: Duration,
}

/// Measures a node, from nothing on; what runs at the end is the caller's to take down.
///
/// # Errors
/// The cluster does not come up, or something took longer than two minutes.
pub async fn run(options: NodeOptions) -> Result<Vec<Figure>> {
    let begun = now();
    let (server, target, ready) = Server::start(options.command.clone(), options.kubeconfig.clone()).await?;
    let mut bench = NodeBench {
        options,
        server,
        target,
        figures: Vec::new(),
    };
    bench
        .node_ready("first start, containerd too", None, begun, ready)
        .await?;
    bench.at_rest("idle, no pods").await?;
    namespace(&bench.target, NAMESPACE).await?;
    bench.wait_for_authority().await?;
    let running = follow_running(&bench.target).await?;
    for (clients, how) in [(1, "one after another"), (bench.options.pods, "at once")] {
        let whole = bench.pods(clients, how, &running).await?;
        let rest = format!("idle, {} pods started {how}", bench.options.pods);
        bench.at_rest(&rest).await?;
        bench.remove_pods(how, &running).await?;
        bench.runtime_alone(clients, how, whole).await?;
    }
    bench.start_again().await?;
    Ok(bench.figures)
}

struct NodeBench {
    options: NodeOptions,
    server: Server,
    target: Target,
    figures: Vec<Figure>,
}

impl NodeBench {
    fn add(&mut self, work: &str, text: String) {
        self.figures.push(Figure::told(work, text));
    }

    /// Waits for a node (of this name) to be Ready for the first time.
    async fn node_ready(
        &mut self,
        how: &str,
        name: Option<&str>,
        begun: Instant,
        ready: Duration,
    ) -> Result<()> {
        let mut nodes = Watch::open(&self.target, NODES).await?;
        let seen = async {
            loop {
                let event = nodes.next().await?;
                if name.is_none_or(|name| event.name() == name) && is_ready(&event.object) {
                    return anyhow::Ok(begun.elapsed());
                }
            }
        };
        let took = within("a node to be Ready", seen).await??;
        let text = format!("{} (/readyz after {})", milliseconds(took), milliseconds(ready));
        self.add(&format!("exec → node Ready, {how}"), text);
        Ok(())
    }

    async fn at_rest(&mut self, work: &str) -> Result<()> {
        let groups = process::of_cluster(&self.options.data_dir);
        let before: Vec<Duration> = groups.iter().map(|(_, all)| all.cpu()).collect::<Result<_>>()?;
        pause(self.options.idle).await;
        let mut parts = Vec::new();
        for ((name, all), before) in groups.iter().zip(before) {
            let share = (all.cpu()?.saturating_sub(before)).as_secs_f64() / self.options.idle.as_secs_f64();
            let count = match all.0.len() {
                1 => String::new(),
                many => format!("{many} × "),
            };
            let memory = megabytes(all.resident()?);
            parts.push(format!(
                "{count}{name} {memory}, {:.2} % of a core",
                share * 100.0
            ));
        }
        self.add(work, parts.join("; "));
        Ok(())
    }

    async fn wait_for_authority(&self) -> Result<()> {
        let mut client = self.target.connect().await?;
        let found = async {
            while client
                .call(Method::GET, AUTHORITY, &[], Bytes::new())
                .await
                .is_err()
            {
                pause(PAUSE).await;
            }
        };
        within("the namespace to be usable", found).await
    }

    /// Pods by as many clients, each of which waits for its pod to run; what half of them took at most.
    async fn pods(&mut self, clients: usize, how: &str, running: &Running) -> Result<Duration> {
        let count = self.options.pods;
        let all = process::of_cluster(&self.options.data_dir).into_iter();
        let ours = all.filter(|(name, _)| [process::SERVER, process::AGENT].contains(name));
        let ours = Processes(ours.flat_map(|(_, found)| found.0).collect());
        let started = load::run(&self.target, &ours, clients, count, start_pod(running));
        let cost = within("pods to run", started).await??;
        self.add(
            &format!("{count} pods, create → Running, {how}"),
            pods_text(&cost),
        );
        Ok(cost.p50)
    }

    /// The same sandboxes and containers without us.
    async fn runtime_alone(&mut self, clients: usize, how: &str, whole: Duration) -> Result<()> {
        let alone = self.options.direct.start(self.options.pods, clients)?;
        self.add(
            &format!("of it containerd and what it runs, alone, {how}"),
            alone.text(),
        );
        let own = milliseconds(whole.saturating_sub(alone.p50()));
        self.add(&format!("of it our own time, {how}"), format!("p50 {own}"));
        Ok(())
    }

    async fn remove_pods(&mut self, how: &str, running: &Running) -> Result<()> {
        let begun = now();
        let mut client = self.target.connect().await?;
        client.call(Method::DELETE, PODS, &[], Bytes::new()).await?;
        let mut running = running.clone();
        within("pods to be gone", running.wait_for(BTreeSet::is_empty)).await??;
        let work = format!("{} pods started {how}, delete of all → gone", self.options.pods);
        self.add(&work, format!("{} until the last", milliseconds(begun.elapsed())));
        // A shim outlives its pod's object for a moment.
        let gone = async {
            while process::of_cluster(&self.options.data_dir)
                .iter()
                .any(|(name, _)| *name == process::SHIMS)
            {
                pause(PAUSE).await;
            }
        };
        within("shims to be gone", gone).await
    }

    /// Server and agent are killed and start again as another node, containerd having stayed.
    async fn start_again(&mut self) -> Result<()> {
        const NAME: &str = "again";
        self.server.kill()?;
        let agent = || {
            process::of_cluster(&self.options.data_dir)
                .into_iter()
                .find(|(name, _)| *name == process::AGENT)
        };
        let (_, processes) = agent().context("there is no agent")?;
        processes.kill()?;
        let ended = async {
            while agent().is_some() {
                pause(PAUSE).await;
            }
        };
        within("the agent to end", ended).await?;
        let mut command = self.options.command.clone();
        command.push(format!("--hostname-override={NAME}"));
        let begun = now();
        let (server, target, ready) = Server::start(command, self.options.kubeconfig.clone()).await?;
        (self.server, self.target) = (server, target);
        self.node_ready("containerd running", Some(NAME), begun, ready)
            .await
    }
}

/// The names of the pods that run.
type Running = watch::Receiver<BTreeSet<String>>;

/// Follows the pods until the run ends.
async fn follow_running(target: &Target) -> Result<Running> {
    let mut pods = Watch::open(target, PODS).await?;
    #[expect(clippy::disallowed_methods, reason = "no seed decides a measurement")]
    let (sender, receiver) = watch::channel(BTreeSet::new());
    #[expect(
        clippy::disallowed_methods,
        reason = "a load generator has no cluster to end with"
    )]
    tokio::spawn(async move {
        // The watch's end is the waiting clients' to notice.
        while let Ok(event) = pods.next().await {
            let name = event.name().to_owned();
            sender.send_modify(
                |names| match (event.kind.as_str(), &event.object["status"]["phase"]) {
                    ("DELETED", _) => drop(names.remove(&name)),
                    (_, phase) if phase == "Running" => drop(names.insert(name)),
                    _ => {}
                },
            );
        }
    });
    Ok(receiver)
}

/// Creates a pod and waits until it runs.
fn start_pod(running: &Running) -> load::Operation {
    let running = running.clone();
    Arc::new(move |client, number| {
        let mut running = running.clone();
        Box::pin(async move {
            client.send_json(Method::POST, PODS, pod(number)).await?;
            running
                .wait_for(|names| names.contains(&format!("pod-{number}")))
                .await?;
            Ok(())
        })
    })
}

/// The pod that `knarr up` runs, alone and without a probe.
fn pod(number: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"pod-{number}"}},"spec":{{"containers":[{{"name":"hello","image":"knarr.local/hello:1","imagePullPolicy":"IfNotPresent"}}]}}}}"#
    )
}

fn pods_text(cost: &Cost) -> String {
    format!(
        "p50 {}, p99 {}; {:.1} ms CPU of server and agent each",
        milliseconds(cost.p50),
        milliseconds(cost.p99),
        cost.cpu_micros() / 1e3
    )
}

fn is_ready(node: &serde_json::Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    tokio::select! { biased;
        done = work => Ok(done),
        () = pause(PATIENCE) => bail!("waited {PATIENCE:?} for {what}"),
    }
}
