//! `knarr node`: the node of this machine as a part of its cluster. `leave` drains it as kubectl does, removes everything of it from the
//! machine as `knarr uninstall` does, and deletes the Node object.
//!
//! The agent runs until the pods are away; the Node object goes last, as an agent that runs would register it again. Each step is
//! listed first, and without `--yes` that is all.

mod drain;

use crate::kubeconfig::KubeconfigFile;
use crate::uninstall::{self, Directories, UninstallArguments};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use drain::{Drain, Overrides};
use machinery_client::{ApiResource, Client, DeleteOptions};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Beginning of the names of nodes' users, which the kubeconfig of an agent that has joined names.
const USER_OF_NODE: &str = "system:node:";

#[derive(Args, Debug)]
pub(crate) struct NodeCommandArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Drains this node, removes it from its machine, and deletes its Node object
    Leave(LeaveArguments),
}

#[derive(Args, Debug)]
struct LeaveArguments {
    /// Data directory of the agent
    #[arg(long, default_value = "/var/lib/knarr/agent")]
    data_dir: PathBuf,
    /// Kubeconfig of an administrator: a node may not delete itself
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The Node object's name [default: the one by which the agent has joined, else the host's name]
    #[arg(long, alias = "node-name")]
    hostname_override: Option<String>,
    /// Delete pods that declare no controller
    #[arg(long)]
    force: bool,
    /// Delete pods that use emptyDir, with its data
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Delete pods, past their disruption budgets
    #[arg(long)]
    disable_eviction: bool,
    /// Seconds that each pod has to end; negative is the pod's own
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,
    /// Seconds until the node is given up as not drained; 0 is without end
    #[arg(long, default_value_t = 0)]
    timeout: u64,
    /// Parent cgroup of pods, as the agent had it
    #[arg(long, default_value = "/")]
    cgroup_root: String,
    /// Socket of an external container runtime, as the agent had it
    #[arg(long)]
    container_runtime_endpoint: Option<String>,
    /// Do what is listed
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(arguments: &NodeCommandArguments) -> anyhow::Result<()> {
    let Action::Leave(arguments) = &arguments.action;
    if !node_sys::machine::is_root() {
        bail!("removing a node needs root: run this as root");
    }
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    executor.block_on(async { leave(arguments, &Runtime::real()).await })
}

async fn leave(arguments: &LeaveArguments, runtime: &Runtime) -> anyhow::Result<()> {
    // All that could be refused is looked at before the first pod goes.
    let directories = Directories::find_agent(&arguments.data_dir)?;
    let name = name(arguments, &directories)?;
    let client = Client::from_kubeconfig(&arguments.kubeconfig, runtime.clone()).await?;
    let node = ObjectKey::new("", &name);
    client
        .get(&nodes(), &node)
        .await
        .with_context(|| format!("node {name}; --hostname-override names another"))?;
    let drain = drain(arguments, client.clone(), &name);
    for pod in drain.plan().await? {
        say(&format!("pod {}/{} on node {name}", pod.namespace, pod.name))?;
    }
    if arguments.yes {
        drain.run(runtime).await?;
    }
    let removal = UninstallArguments::of_node(
        &arguments.data_dir,
        &arguments.cgroup_root,
        arguments.container_runtime_endpoint.as_deref(),
        arguments.yes,
    );
    uninstall::of_node(&removal, &directories, runtime).await?;
    let deleted = client.delete(&nodes(), &node, &DeleteOptions::default()).await;
    match deleted {
        Err(error) if !error.is_not_found() => {
            Err(error).with_context(|| format!("this machine is free; `kubectl delete node {name}` failed"))
        }
        _ => say(&format!("node {name} has left the cluster")),
    }
}

fn drain(arguments: &LeaveArguments, client: Client, node: &str) -> Drain {
    Drain {
        client,
        node: node.to_owned(),
        overrides: Overrides {
            force: arguments.force,
            delete_emptydir_data: arguments.delete_emptydir_data,
        },
        evict: !arguments.disable_eviction,
        grace_period_seconds: Some(arguments.grace_period).filter(|seconds| *seconds >= 0),
        timeout: Some(Duration::from_secs(arguments.timeout)).filter(|timeout| !timeout.is_zero()),
    }
}

/// The Node object of this machine. Another one than the agent's would be drained, and this machine removed.
fn name(arguments: &LeaveArguments, directories: &Directories) -> anyhow::Result<String> {
    let kubeconfig = directories.agent().map(|agent| agent.join("kubeconfig"));
    let file = kubeconfig.map(|path| KubeconfigFile::read(&path)).transpose()?;
    let user = file.as_ref().and_then(KubeconfigFile::current_user);
    let joined = user.and_then(|user| user.strip_prefix(USER_OF_NODE));
    chosen(joined, arguments.hostname_override.as_deref())
}

fn chosen(joined: Option<&str>, given: Option<&str>) -> anyhow::Result<String> {
    match (joined, given) {
        (Some(joined), Some(given)) if joined != given => {
            bail!("the agent of this machine is the node {joined}, not {given}")
        }
        (Some(name), _) | (None, Some(name)) => Ok(name.to_owned()),
        (None, None) => Ok(node_sys::machine::Machine::observe().hostname.to_lowercase()),
    }
}

fn nodes() -> ApiResource {
    ApiResource {
        group: "".into(),
        version: "v1".into(),
        plural: "nodes".into(),
        kind: "Node".into(),
        namespaced: false,
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_takes_the_name_by_which_the_agent_has_joined() {
        let chosen = |joined, given| chosen(joined, given).map_err(|error| error.to_string());
        assert_eq!(chosen(Some("a"), None), Ok("a".to_owned()));
        assert_eq!(chosen(Some("a"), Some("a")), Ok("a".to_owned()));
        assert_eq!(chosen(None, Some("b")), Ok("b".to_owned()));
        let refused = "the agent of this machine is the node a, not b";
        assert_eq!(chosen(Some("a"), Some("b")), Err(refused.to_owned()));
    }
}
