//! The node agent as a process of its own: started in its own session, so that it outlives the server, adopted when it
//! already runs, and started again whenever it ends while the server runs.

use super::arguments::ServerArguments;
use super::identities::node_name;
use super::paths::Paths;
use anyhow::Context;
use machinery_runtime::Runtime;
use node_sys::exec::Daemon;
use node_sys::supervise::Supervised;
use std::ffi::OsString;
use std::time::Duration;

/// Longest time from the request to end until the agent has ended.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts an agent with these settings and restarts it when it ends, as long as the server runs.
pub(super) async fn supervise_agent(
    arguments: &ServerArguments,
    paths: &Paths,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let agent = Supervised {
        name: "node agent",
        daemon: Daemon {
            program: std::env::current_exe().context("finding this program")?,
            args: agent_arguments(arguments, paths)?,
            env: Vec::new(),
            log: paths.in_agent("agent.log"),
            pid_file: paths.in_agent("agent.pid"),
        },
        socket: None,
    };
    end_outdated(&agent, runtime).await;
    // The first failure is the user's to see; later ones go to the log.
    agent.ensure().context("starting the node agent")?;
    // The task ends with the server, the agent does not.
    let own = runtime.clone();
    let keep = move || agent.clone().keep_running(own.clone());
    runtime.keep("node agent", keep).detach();
    Ok(())
}

/// Ends an agent that was started with other settings, or that is of another file than this server, as after an update;
/// pods and containerd outlive it.
async fn end_outdated(agent: &Supervised, runtime: &Runtime) {
    let Some(running) = agent.running() else {
        return;
    };
    let words = running.command_line().unwrap_or_default();
    if words.is_empty() {
        return;
    }
    let why = match words[1..] == agent.daemon.args {
        false => "it has other settings",
        true if running.runs_own_program() == Some(false) => "it is of another binary",
        true => return,
    };
    tracing::info!(pid = running.pid, why, "restarting the node agent");
    running.terminate();
    if runtime.timeout(END_TIMEOUT, running.ended()).await.is_err() {
        tracing::warn!(
            pid = running.pid,
            "the node agent did not end in time and goes on as it is"
        );
    }
}

fn agent_arguments(arguments: &ServerArguments, paths: &Paths) -> anyhow::Result<Vec<OsString>> {
    let flags: [(&str, OsString); 6] = [
        ("--data-dir", paths.agent().into()),
        ("--kubeconfig", paths.in_agent("kubeconfig").into()),
        ("--hostname-override", node_name(arguments)?.into()),
        ("--cluster-domain", arguments.cluster_domain.clone().into()),
        (
            "--cluster-cidr",
            arguments.controllers.cluster_cidr.to_string().into(),
        ),
        (
            "--service-cluster-ip-range",
            arguments.service_cluster_ip_range.to_string().into(),
        ),
    ];
    let mut all = vec![OsString::from("agent")];
    all.extend(
        flags
            .into_iter()
            .flat_map(|(name, value)| [OsString::from(name), value]),
    );
    all.extend(arguments.node.given_but("hostname-override"));
    Ok(all)
}
