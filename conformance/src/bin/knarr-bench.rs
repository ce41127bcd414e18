//! `knarr-bench --kubeconfig F -- SERVER ARGUMENTS…` starts a server, puts the load of [`conformance::bench`] on it and
//! prints the figures as JSON on stdout. `knarr-bench --kubeconfig F --pid N --pid M` measures one that runs already.
//! `--only creates,watches` leaves the rest out.
//! `--control-plane true` measures controllers and scheduler instead of the API server alone, `--kwok PROGRAM` a large
//! Deployment on nodes it plays; `--node DATA-DIR` a
//! server that starts its node, with `--runtime PROGRAM` for what the container runtime takes by itself.

#![allow(clippy::print_stdout, reason = "the figures go to stdout")]

use anyhow::{Context, Result};
use conformance::bench::connection::Target;
use conformance::bench::node::{self, NodeOptions};
use conformance::bench::process::Processes;
use conformance::bench::rollout::Kwok;
use conformance::bench::runtime::Direct;
use conformance::bench::scenarios::{Bench, Figure, PARTS, Sizes};
use conformance::bench::server::Server;
use std::path::PathBuf;

#[derive(Default)]
struct Options {
    kubeconfig: Option<PathBuf>,
    pids: Vec<u32>,
    sizes: Sizes,
    control_plane: bool,
    /// Plays the nodes of a large Deployment.
    kwok: Option<PathBuf>,
    /// The data directory of a cluster with a node.
    node: Option<PathBuf>,
    runtime: Option<PathBuf>,
    cgroup_parent: String,
    command: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = read(std::env::args().skip(1))?;
    let figures = match &options.node {
        Some(data_dir) => node::run(node_options(&options, data_dir.clone())?).await?,
        None => server(options).await?,
    };
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(flag) = arguments.next() {
        if flag == "--" {
            options.command = arguments.by_ref().collect();
            break;
        }
        let value = arguments
            .next()
            .with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--kubeconfig" => options.kubeconfig = Some(PathBuf::from(value)),
            "--pid" => options.pids.push(value.parse()?),
            "--pods" => options.sizes.pods = value.parse()?,
            "--control-plane" => options.control_plane = value.parse()?,
            "--kwok" => options.kwok = Some(PathBuf::from(value)),
            "--watchers" => options.sizes.watchers = value.parse()?,
            "--only" => options.sizes.only = parts(&value)?,
            "--node" => options.node = Some(PathBuf::from(value)),
            "--runtime" => options.runtime = Some(PathBuf::from(value)),
            "--cgroup-parent" => options.cgroup_parent = value,
            other => anyhow::bail!("unknown flag {other}"),
        }
    }
    Ok(options)
}

fn parts(value: &str) -> Result<Vec<String>> {
    let unknown = value.split(',').find(|part| !PARTS.contains(part));
    anyhow::ensure!(unknown.is_none(), "--only takes some of {PARTS:?}, with commas");
    Ok(value.split(',').map(str::to_owned).collect())
}

fn node_options(options: &Options, data_dir: PathBuf) -> Result<NodeOptions> {
    Ok(NodeOptions {
        command: options.command.clone(),
        kubeconfig: options.kubeconfig.clone().context("--kubeconfig is missing")?,
        direct: Direct {
            program: options.runtime.clone().context("--runtime is missing")?,
            socket: data_dir.join("agent/containerd/containerd.sock"),
            cgroup_parent: options.cgroup_parent.clone(),
        },
        data_dir,
        pods: options.sizes.started,
        idle: options.sizes.idle,
    })
}

async fn server(options: Options) -> Result<Vec<Figure>> {
    let kubeconfig = options.kubeconfig.context("--kubeconfig is missing")?;
    let kwok = options.kwok.map(|program| Kwok {
        program,
        kubeconfig: kubeconfig.clone(),
    });
    let bench = if options.command.is_empty() {
        let target = Target::from_kubeconfig(&kubeconfig)?;
        Bench::of_running(target, Processes(options.pids), options.sizes)
    } else {
        let (server, target, started) = Server::start(options.command, kubeconfig).await?;
        Bench::of_started(server, target, started, options.sizes)
    };
    match (kwok, options.control_plane) {
        (Some(kwok), _) => bench.run_rollout(&kwok).await,
        (None, true) => bench.run_control_plane().await,
        (None, false) => bench.run_api().await,
    }
}
