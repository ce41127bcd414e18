//! `knarr uninstall`: removes a cluster from this machine, and nothing else.
//!
//! [`directory`] recognises the cluster's directories and refuses all others, [`processes`] are those that run, [`pods`] those in a runtime that others use too, [`kernel`] and
//! [`cgroups`] what they left in the kernel, [`files`] what lies on disk. Everything is looked at first and listed; without `--yes` that is all.

mod cgroups;
mod directory;
mod files;
mod guard;
mod kernel;
mod pods;
mod processes;

pub(crate) use directory::Directories;
pub(crate) use processes::Processes;

use anyhow::{Context, bail};
use clap::Args;
use files::Traces;
use kernel::Remains;
use machinery_runtime::Runtime;
use pods::Pods;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct UninstallArguments {
    /// Data directory of the server, or of an agent without one
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Parent cgroup of pods, as the node agent had it
    #[arg(long, default_value = "/")]
    cgroup_root: String,
    /// Socket of an external container runtime, as the node agent had it: this cluster's pods are removed from it
    #[arg(long)]
    container_runtime_endpoint: Option<String>,
    /// End the server and the node agent first; without it a cluster that runs is refused
    #[arg(long)]
    stop: bool,
    /// Remove what is listed
    #[arg(long)]
    yes: bool,
}

impl UninstallArguments {
    /// Those of an agent without a server, which runs.
    pub(crate) fn of_node(data_dir: &Path, cgroup_root: &str, endpoint: Option<&str>, yes: bool) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            cgroup_root: cgroup_root.to_owned(),
            container_runtime_endpoint: endpoint.map(str::to_owned),
            stop: true,
            yes,
        }
    }
}

/// The same within a command that has done the rest, and has found the directories before.
pub(crate) async fn of_node(
    arguments: &UninstallArguments,
    directories: &Directories,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    uninstall(arguments, directories, runtime).await
}

pub(crate) fn run(arguments: &UninstallArguments) -> anyhow::Result<()> {
    let directories = Directories::find(&arguments.data_dir)?;
    if !node_sys::machine::is_root() {
        bail!("removing a cluster needs root: run this as root");
    }
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    executor.block_on(async { uninstall(arguments, &directories, &Runtime::real()).await })
}

async fn uninstall(
    arguments: &UninstallArguments,
    directories: &Directories,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let mut running = Processes::of(directories)?;
    if !arguments.stop {
        running.refuse_keepers()?;
    }
    let traces = Traces::find(directories);
    let pods = Pods::find(arguments.container_runtime_endpoint.as_deref(), directories).await?;
    let remains = Remains::find(directories, &arguments.cgroup_root).await?;
    let lines = [
        running.list(),
        pods.list(),
        remains.list(),
        traces.list(),
        directories.list(),
    ];
    for line in lines.iter().flatten() {
        say(line)?;
    }
    if !arguments.yes {
        bail!("nothing has been removed; --yes removes what is listed");
    }
    running.end(Duration::ZERO, runtime).await?;
    // A unit of systemd, or whatever else kept them running, may have started them again.
    running = Processes::of(directories)?;
    running.refuse_any()?;
    pods.remove().await?;
    remains.remove(directories, runtime).await?;
    traces.remove()?;
    directories.remove()?;
    say("removed")
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}
