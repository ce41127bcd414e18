//! `cargo xtask conformance`: upstream's own suite (e2e.test, run by ginkgo) against a control plane with two fake nodes, or,
//! with `--pods`, against a cluster of real nodes in network namespaces of this machine.
//!
//! Without arguments the specs of `conformance/no_pod_specs.txt` run: those that pass upstream without any pod being
//! started. With `--pods` all specs of the label `Conformance` do, but those of `conformance/missing.tsv`: first those that may
//! run side by side, then the serial ones, then once more, alone, what has failed. Results are merged into
//! `conformance/results.tsv`; a spec that passed before may not fail.

mod images;
mod missing;
mod pods;
mod suite;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::config::Config;
use crate::subject::{Controllers, Subject};
use crate::upstream::{self, Upstream};
use crate::{fake_nodes, process, tools};
use suite::{Phase, Place};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    chosen: suite::Chosen,
    /// On real nodes, with pods; needs root.
    #[arg(long, conflicts_with_all = ["kubeconfig", "upstream"])]
    pods: bool,
    /// Number of real nodes.
    #[arg(long, default_value_t = 2, requires = "pods", value_parser = clap::value_parser!(u8).range(1..=8))]
    nodes: u8,
    /// Run the specs of features that are known to be missing, too.
    #[arg(long, requires = "pods")]
    missing: bool,
    /// Start the cluster of real nodes and wait for a line on standard input instead of running specs.
    #[arg(long, requires = "pods")]
    stay: bool,
    /// Run this binary instead of building one.
    #[arg(long, value_name = "FILE", requires = "pods")]
    binary: Option<PathBuf>,
    /// Against this cluster, as it is, instead of starting one.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Against upstream's own control plane, to prove the runner; nothing is recorded.
    #[arg(long)]
    upstream: bool,
    /// Start the release binary of ours.
    #[arg(long)]
    release: bool,
    /// Do not write results.tsv.
    #[arg(long)]
    no_record: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    tools::ensure(config, &["kubectl", "ginkgo", "e2e.test"])?;
    let work = config.root.join("target/conformance");
    fs::create_dir_all(&work)?;
    if arguments.pods {
        return with_pods(config, arguments, &work);
    }
    let (_upstream, _subject, kubeconfig);
    if let Some(path) = &arguments.kubeconfig {
        kubeconfig = path.clone();
    } else if arguments.upstream {
        let options = upstream::Options {
            controllers: true,
            ..upstream::Options::default()
        };
        let upstream = Upstream::start(config, &work.join("upstream"), options)?;
        kubeconfig = upstream.kubeconfig.clone();
        _upstream = upstream;
        fake_nodes::create(config, &kubeconfig, &work)?;
    } else {
        let subject = Subject::start_with(config, &work.join("knarr"), arguments.release, Controllers::All)?;
        kubeconfig = subject.kubeconfig.clone();
        _subject = subject;
        fake_nodes::create(config, &kubeconfig, &work)?;
    }
    let place = Place {
        kubeconfig: &kubeconfig,
        host: None,
        nodes: 2,
    };
    let phase = arguments.chosen.phase("report", || suite::no_pod_specs(config))?;
    let report = suite::run(config, &place, &phase, &work.join("report"))?;
    if arguments.upstream {
        println!("junit report: {}", report.display());
    }
    suite::record(config, &[report], arguments.no_record || arguments.upstream)
}

/// Starts real nodes, runs the suite on them, and takes everything down.
fn with_pods(config: &Config, arguments: &Arguments, work: &Path) -> Result<()> {
    let images = images::ensure(config)?;
    let knarr = match &arguments.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => crate::subject::build(config, arguments.release)?,
    };
    let report = work.join("report");
    suite::empty(&report)?;
    let cluster = pods::Cluster::start(config, &images, &knarr, arguments.nodes, &report)?;
    if arguments.stay {
        return cluster.stay();
    }
    let mut reports = Vec::new();
    let outcome = run_phases(config, arguments, &cluster.place(), &report, &mut reports);
    // Results count whatever becomes of the cluster.
    let removed = cluster.remove();
    outcome?;
    suite::record(config, &reports, arguments.no_record)?;
    removed
}

/// Runs the phases one after the other; those that have failed run again, alone, before they are believed.
fn run_phases(
    config: &Config,
    arguments: &Arguments,
    place: &Place<'_>,
    report: &Path,
    reports: &mut Vec<PathBuf>,
) -> Result<()> {
    for phase in phases(config, arguments)? {
        println!("==> {}", phase.name);
        reports.push(suite::run(config, place, &phase, &report.join(&phase.name))?);
    }
    let failed = suite::failed(config, reports)?;
    // Many failures are not the machine's.
    if failed.is_empty() || failed.len() > suite::AGAIN_MAX {
        return Ok(());
    }
    println!("==> once more, alone: {} specs", failed.len());
    let again = arguments.chosen.again(&failed);
    reports.push(suite::run(config, place, &again, &report.join(&again.name))?);
    Ok(())
}

fn phases(config: &Config, arguments: &Arguments) -> Result<Vec<Phase>> {
    let mut phases = match arguments.chosen.is_all() {
        false => vec![arguments.chosen.phase("chosen", || Ok(Vec::new()))?],
        true => vec![
            arguments.chosen.labelled("parallel", "Conformance && !Serial"),
            arguments.chosen.labelled("serial", "Conformance && Serial"),
        ],
    };
    if !arguments.missing {
        for phase in &mut phases {
            phase.skip.extend(missing::patterns(config)?);
        }
    }
    Ok(phases)
}

/// A folder of its own for what a run keeps; short, as a socket's path has to be.
fn scratch() -> Result<PathBuf> {
    let folder = process::output(process::command("mktemp").args(["-d", "-t", "knarr-pods.XXXXXX"]))?;
    Ok(PathBuf::from(folder.trim()))
}
