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
    ask(config, "tenants", arguments.record)
}

/// Runs a command of `conformance` against a kube-apiserver that is started for it.
pub(crate) fn ask(config: &Config, subject: &str, record: bool) -> Result<()> {
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
        &config.root.join("target").join(subject),
        upstream::Options::default(),
    )?;
    let mut command = process::command(config.root.join("target/debug/conformance"));
    command.arg(subject).arg("--server").arg(&upstream.kubeconfig);
    if record {
        command.arg("--record");
    }
    process::run(&mut command)
}
