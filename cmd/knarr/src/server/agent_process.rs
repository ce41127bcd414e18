//! The node agent as a process of its own: started in its own session, so that it outlives the server, and adopted by
//! pid and start time when it already runs.

use super::arguments::ServerArguments;
use super::identities::node_name;
use super::paths::Paths;
use anyhow::Context;
use node_sys::exec::Daemon;
use node_sys::process::ProcessIdentity;
use std::ffi::OsString;

/// Makes sure that an agent runs.
pub(super) fn ensure(arguments: &ServerArguments, paths: &Paths) -> anyhow::Result<()> {
    let pid_file = paths.in_agent("agent.pid");
    let known = std::fs::read_to_string(&pid_file)
        .ok()
        .and_then(|text| ProcessIdentity::from_text(&text));
    if let Some(running) = known.filter(ProcessIdentity::is_alive) {
        tracing::info!(pid = running.pid, "the node agent runs already");
        return Ok(());
    }
    let daemon = Daemon {
        program: std::env::current_exe().context("finding this program")?,
        args: agent_arguments(arguments, paths)?,
        env: Vec::new(),
        log: paths.in_agent("agent.log"),
    };
    let started = daemon.start().context("starting the node agent")?;
    tracing::info!(pid = started.pid, log = %paths.in_agent("agent.log").display(), "started the node agent");
    std::fs::write(&pid_file, started.to_text()).with_context(|| format!("writing {}", pid_file.display()))
}

fn agent_arguments(arguments: &ServerArguments, paths: &Paths) -> anyhow::Result<Vec<OsString>> {
    let flags: [(&str, OsString); 6] = [
        ("--data-dir", paths.agent().into()),
        ("--kubeconfig", paths.in_agent("kubeconfig").into()),
        ("--hostname-override", node_name(arguments)?.into()),
        ("--cluster-domain", arguments.cluster_domain.clone().into()),
        ("--cluster-cidr", arguments.cluster_cidr.to_string().into()),
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
    Ok(all)
}
