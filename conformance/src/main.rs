//! The command behind `cargo xtask diff` and `cargo xtask conformance`: it talks to servers that run already.

#![allow(clippy::print_stdout, reason = "a command line tool speaks on stdout")]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;
use conformance::differential::outcome::Outcome;
use conformance::differential::report::failure;
use conformance::differential::run::Server;
use conformance::differential::{Suite, known};
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
    /// The kubeconfig of the real kube-apiserver; without, its recorded answers are read.
    #[arg(long)]
    upstream: Option<PathBuf>,
    /// The kubeconfig of our server.
    #[arg(long, required_unless_present = "record")]
    ours: Option<PathBuf>,
    /// Write upstream's answers into `conformance/recordings`.
    #[arg(long, requires = "upstream", conflicts_with = "ours")]
    record: bool,
    /// Only cases whose id contains one of these.
    #[arg(long)]
    only: Vec<String>,
    /// Send the generated cases to our server and show the answers with faults that need no kube-apiserver to be seen.
    #[arg(long, conflicts_with_all = ["record", "upstream"])]
    faults: bool,
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
    /// Reports of ginkgo; of several the last one counts that has the spec.
    #[arg(long, required = true)]
    junit: Vec<PathBuf>,
    /// The results to merge into.
    #[arg(long)]
    results: PathBuf,
    /// Features that are known to be missing: specs of the label Conformance that did not run are counted by them.
    #[arg(long)]
    missing: Option<PathBuf>,
    /// Report without writing.
    #[arg(long)]
    dry_run: bool,
    /// Print the names of specs that have failed, and nothing else.
    #[arg(long)]
    only_failed: bool,
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
        Arguments::Record(arguments) => record(&arguments),
    }
}

fn record(arguments: &Record) -> Result<()> {
    let reports = suite::Reports::read(&arguments.junit)?;
    if arguments.only_failed {
        reports.failed().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if let Some(missing) = &arguments.missing {
        println!("{}", suite::left_out(&reports, missing)?);
    }
    suite::record(&reports, &arguments.results, arguments.dry_run)
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
    let suite = Suite::read(root, &arguments.only)?;
    let upstream = match &arguments.upstream {
        Some(kubeconfig) => Some(suite.server(kubeconfig).await?),
        None => None,
    };
    let Some(ours) = &arguments.ours else {
        let recorded = suite.record(&upstream.context("--upstream")?).await?;
        println!("{recorded} cases recorded");
        return Ok(());
    };
    let ours = suite.server(ours).await?;
    if arguments.faults {
        return faults(&suite, &ours).await;
    }
    let known = match &arguments.known {
        Some(path) => known::read(path)?,
        None => known::read(&root.join("known_differences.tsv"))?,
    };
    let (mut shown, for_telling) = (0, known.clone());
    let tell = |outcome: &Outcome| {
        if let Some(text) = failure(outcome, &for_telling)
            && shown < arguments.show
        {
            shown += 1;
            println!("{text}");
        }
    };
    let report = match upstream {
        None => suite.replay(&ours, known, tell).await?,
        Some(upstream) => suite.live(upstream, &ours, known, tell).await,
    };
    if let Some(path) = &arguments.report {
        let lines = report.failures().map(|text| format!("{text}\n"));
        std::fs::write(path, lines.collect::<String>())?;
    }
    println!("{}", report.summary());
    if !report.is_good() {
        bail!("the answers differ");
    }
    Ok(())
}

async fn faults(suite: &Suite, ours: &Server) -> Result<()> {
    let (count, faulty) = suite.faults(ours).await?;
    for outcome in &faulty {
        println!("{}: {}", outcome.id, outcome.differences.join(", "));
    }
    println!("{count} generated cases, {} answered with a fault", faulty.len());
    Ok(())
}
