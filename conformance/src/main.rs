//! The command behind `cargo xtask diff` and `cargo xtask conformance`: it talks to servers that run already.

#![allow(clippy::print_stdout, reason = "a command line tool speaks on stdout")]

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;
use conformance::differential::{case, client::Client, known, run};
use conformance::facts::Facts;
use conformance::owners;
use conformance::suite;
use conformance::tenants::{self, run as run_tenants};
use machinery_runtime::Runtime;

#[derive(Debug, Parser)]
enum Arguments {
    /// Run the differential cases.
    Diff(Diff),
    /// Merge a junit report of upstream's suite into the results.
    Record(Record),
    /// Send every tenant's requests to a server; record the answers or compare with the record.
    Tenants(Recorded),
    /// Send the requests about owners of fields to a server; record the answers or compare with the record.
    Owners(Recorded),
}

#[derive(Debug, clap::Args)]
struct Diff {
    /// The kubeconfig of the real kube-apiserver.
    #[arg(long)]
    upstream: PathBuf,
    /// The kubeconfig of our server.
    #[arg(long)]
    ours: PathBuf,
    /// Only cases whose id contains one of these.
    #[arg(long)]
    only: Vec<String>,
    /// Show at most so many failing cases in full.
    #[arg(long, default_value_t = 40)]
    show: usize,
    /// Write the differences of every case that fails into this file.
    #[arg(long)]
    report: Option<PathBuf>,
    /// The list of known differences.
    #[arg(long)]
    known: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Record {
    /// What ginkgo wrote.
    #[arg(long)]
    junit: PathBuf,
    /// The results to merge into.
    #[arg(long)]
    results: PathBuf,
    /// Tell without writing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct Recorded {
    /// The kubeconfig of an administrator.
    #[arg(long)]
    server: PathBuf,
    /// Write the answers as what upstream says.
    #[arg(long)]
    record: bool,
}

fn main() -> std::process::ExitCode {
    match run_command() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run_command() -> Result<()> {
    // Fails only when one is installed already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Arguments::parse() {
        Arguments::Diff(arguments) => runtime()?.block_on(diff(&arguments)),
        Arguments::Tenants(arguments) => runtime()?.block_on(tenants(&arguments)),
        Arguments::Owners(arguments) => runtime()?.block_on(owners(&arguments)),
        Arguments::Record(arguments) => {
            suite::record(&arguments.junit, &arguments.results, arguments.dry_run)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

async fn sender(arguments: &Recorded) -> Result<run_tenants::Sender> {
    let kubeconfig = kube::config::Kubeconfig::read_from(&arguments.server)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    // A refusal is an answer.
    config.default_retry = false;
    Ok(run_tenants::Sender {
        client: kube::Client::try_from(config)?,
        runtime: Runtime::real(),
    })
}

async fn tenants(arguments: &Recorded) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sender = sender(arguments).await?;
    if arguments.record {
        return tenants::record_all(root, &sender).await;
    }
    judge(&tenants::compare_all(root, &sender).await?)
}

async fn owners(arguments: &Recorded) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sender = sender(arguments).await?;
    if arguments.record {
        return owners::record(root, &sender).await;
    }
    judge(&owners::compare(root, &sender).await?)
}

/// Shows what differs.
fn judge(lines: &[String]) -> Result<()> {
    println!("{}", lines.join("\n"));
    if !lines.is_empty() {
        bail!(
            "{} requests are answered otherwise than upstream answers them",
            lines.len()
        );
    }
    Ok(())
}

async fn diff(arguments: &Diff) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let facts = Facts::read(&root.join("../machinery/api/facts"))?;
    let mut cases = case::read_all(&root.join("cases"), &facts)?;
    if !arguments.only.is_empty() {
        cases.retain(|case| arguments.only.iter().any(|part| case.id.contains(part)));
    }
    let runtime = Runtime::real();
    let runner = run::Runner {
        facts,
        upstream: Client::new(&arguments.upstream, &runtime).await?,
        ours: Client::new(&arguments.ours, &runtime).await?,
        runtime,
    };
    let known = match &arguments.known {
        Some(path) => known::read(path)?,
        None => known::read(&root.join("known_differences.tsv"))?,
    };
    let mut shown = 0;
    let outcomes = runner
        .run(&cases, |outcome| {
            let failed = known::unexplained(outcome, &known).next().is_some();
            if failed && shown < arguments.show {
                shown += 1;
                println!("{}\n  {}", outcome.id, outcome.differences.join("\n  "));
            }
        })
        .await;
    if let Some(path) = &arguments.report {
        let lines = outcomes
            .iter()
            .filter(|outcome| known::unexplained(outcome, &known).next().is_some())
            .map(|outcome| format!("{}\n  {}\n", outcome.id, outcome.differences.join("\n  ")));
        std::fs::write(path, lines.collect::<String>())?;
    }
    let judgement = known::judge(&outcomes, &known);
    for entry in &judgement.stale {
        println!(
            "{} differs no more in {}: remove it from the known differences",
            entry.case, entry.line
        );
    }
    println!(
        "{} passed, {} failed, {} differ only as known",
        judgement.passed, judgement.failed, judgement.known
    );
    if judgement.failed > 0 || !judgement.stale.is_empty() {
        bail!("the answers differ");
    }
    Ok(())
}
