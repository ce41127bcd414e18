//! `cargo xtask tenants`: what tenants get at the real kube-apiserver, recorded; CI compares ours with the record.

use anyhow::Result;

use crate::config::Config;
use crate::process;
use crate::upstream::{self, Upstream};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write the answers into `conformance/tenants`; otherwise they are compared with what stands there, which shows
    /// whether upstream answers twice alike.
    #[arg(long)]
    record: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    process::run(process::cargo(&config.root).args([
        "build",
        "--quiet",
        "--package",
        "conformance",
        "--bin",
        "conformance",
    ]))?;
    let upstream = Upstream::start(
        config,
        &config.root.join("target/tenants"),
        upstream::Options::default(),
    )?;
    let mut command = process::command(config.root.join("target/debug/conformance"));
    command.arg("tenants").arg("--server").arg(&upstream.kubeconfig);
    if arguments.record {
        command.arg("--record");
    }
    process::run(&mut command)
}
