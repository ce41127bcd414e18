//! `knarr-hostile --kubeconfig F --data-dir D --seconds N -- SERVER ARGUMENTS…` starts a server and runs
//! [`conformance::hostile`] on it; `cargo xtask hostile` calls it.

#![allow(clippy::print_stdout, reason = "the tables go to stdout")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use conformance::hostile::attacks::attack_for_a_while;
use conformance::hostile::figures::Limits;
use conformance::hostile::{self, Options};
use std::path::PathBuf;
use std::time::Duration;

/// A user's.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
struct Arguments {
    /// Attacks by the orders of the standard input and reports the results; what this program calls itself with.
    #[arg(long, hide = true)]
    attack: bool,
    #[arg(long, required_unless_present = "attack")]
    kubeconfig: Option<PathBuf>,
    #[arg(long, required_unless_present = "attack")]
    data_dir: Option<PathBuf>,
    /// The server has a node.
    #[arg(long)]
    node: bool,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long)]
    only: Vec<String>,
    #[arg(long, default_value_t = 0.1)]
    max_errors_percent: f64,
    #[arg(long, default_value_t = 2.0)]
    max_memory_factor: f64,
    /// Each attack has this part of its clients; one has all.
    #[arg(long, default_value_t = 1)]
    part: usize,
    /// Nice value of the attackers' process, by which they give way to other processes of this machine.
    #[arg(long, default_value_t = 5)]
    nice: u8,
    #[arg(last = true)]
    command: Vec<String>,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    // Fails only when one is installed already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments = Arguments::parse();
    if arguments.attack {
        let orders = serde_json::from_reader(std::io::stdin())?;
        let outcomes = attack_for_a_while(orders).await?;
        println!("{}", serde_json::to_string(&outcomes)?);
        return Ok(());
    }
    let report = hostile::run(Options {
        command: arguments.command,
        kubeconfig: arguments.kubeconfig.context("--kubeconfig is missing")?,
        data_dir: arguments.data_dir.context("--data-dir is missing")?,
        node: arguments.node,
        duration: Duration::from_secs(arguments.seconds),
        only: arguments.only,
        part: arguments.part,
        nice: arguments.nice,
        patience: PATIENCE,
        limits: Limits {
            errors_percent: arguments.max_errors_percent,
            memory_factor: arguments.max_memory_factor,
        },
    });
    let report = report.await?;
    print!("{}", report.text());
    if !report.failures().is_empty() {
        bail!("{}", report.failures().join("; "));
    }
    Ok(())
}
