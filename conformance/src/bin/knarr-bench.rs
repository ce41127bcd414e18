//! `knarr-bench --kubeconfig F --pid N[,N]`: the load of [`conformance::bench`] on one server; prints JSON on stdout.

#![allow(clippy::print_stdout, reason = "the figures go to stdout")]

use anyhow::{Context, Result};
use conformance::bench::connection::Target;
use conformance::bench::process::Processes;
use conformance::bench::scenarios::{Bench, Sizes};
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut kubeconfig, mut pids, mut sizes) = (None, Vec::new(), Sizes::default());
    while let Some(flag) = arguments.next() {
        let value = arguments
            .next()
            .with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--kubeconfig" => kubeconfig = Some(PathBuf::from(value)),
            "--pid" => pids = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--pods" => sizes.pods = value.parse()?,
            "--watchers" => sizes.watchers = value.parse()?,
            other => anyhow::bail!("unknown flag {other}"),
        }
    }
    let target = Target::from_kubeconfig(&kubeconfig.context("--kubeconfig is missing")?)?;
    let figures = Bench::new(target, Processes(pids), sizes).run().await?;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}
