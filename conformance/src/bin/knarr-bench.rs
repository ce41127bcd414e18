//! `knarr-bench --kubeconfig F -- SERVER ARGUMENTS…` starts a server, puts the load of [`conformance::bench`] on it and
//! prints the figures as JSON on stdout. `knarr-bench --kubeconfig F --pid N --pid M` measures one that runs already.
//! `--control-plane true` measures controllers and scheduler instead of the API server alone.

#![allow(clippy::print_stdout, reason = "the figures go to stdout")]

use anyhow::{Context, Result};
use conformance::bench::connection::Target;
use conformance::bench::process::Processes;
use conformance::bench::scenarios::{Bench, Sizes};
use conformance::bench::server::Server;
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut kubeconfig, mut pids, mut sizes) = (None, Vec::new(), Sizes::default());
    let (mut command, mut control_plane) = (Vec::new(), false);
    while let Some(flag) = arguments.next() {
        if flag == "--" {
            command = arguments.by_ref().collect();
            break;
        }
        let value = arguments
            .next()
            .with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--kubeconfig" => kubeconfig = Some(PathBuf::from(value)),
            "--pid" => pids.push(value.parse()?),
            "--pods" => sizes.pods = value.parse()?,
            "--control-plane" => control_plane = value.parse()?,
            "--watchers" => sizes.watchers = value.parse()?,
            other => anyhow::bail!("unknown flag {other}"),
        }
    }
    let kubeconfig = kubeconfig.context("--kubeconfig is missing")?;
    let bench = if command.is_empty() {
        Bench::of_running(Target::from_kubeconfig(&kubeconfig)?, Processes(pids), sizes)
    } else {
        let (server, target, started) = Server::start(command, kubeconfig).await?;
        Bench::of_started(server, target, started, sizes)
    };
    let figures = if control_plane {
        bench.run_control_plane().await?
    } else {
        bench.run_api().await?
    };
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}
