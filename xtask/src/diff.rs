//! `cargo xtask diff`: the differential cases of `conformance/cases`. Our answers are compared with those recorded of the
//! real kube-apiserver, or with one that runs beside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::config::Config;
use crate::process;
use crate::subject::Subject;
use crate::upstream::{self, Upstream};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only cases whose id contains this; may be given more than once.
    #[arg(long)]
    only: Vec<String>,
    /// Compare with a kube-apiserver that runs beside ours, not with recorded answers.
    #[arg(long)]
    live: bool,
    /// Send the cases to a kube-apiserver and write its answers into `conformance/recordings`.
    #[arg(long, conflicts_with_all = ["live", "knarr"])]
    record: bool,
    /// Compare a kube-apiserver with its own recorded answers: what differs then is a fault of the case or of the masks.
    #[arg(long, conflicts_with_all = ["live", "knarr", "record"])]
    upstream_again: bool,
    /// Send the generated cases to ours and show the answers with faults that need no kube-apiserver to be seen.
    #[arg(long, conflicts_with_all = ["live", "record", "upstream_again"])]
    faults: bool,
    /// The kubeconfig of a running server of ours. Without it one is started from the binary of this tree.
    #[arg(long)]
    knarr: Option<PathBuf>,
    /// The kubeconfig of a running kube-apiserver. Without it one is started where one is requested.
    #[arg(long)]
    upstream: Option<PathBuf>,
    /// Start the release binary.
    #[arg(long)]
    release: bool,
    /// Show at most so many failing cases; all of them are in target/diff/report.txt.
    #[arg(long, default_value_t = 40)]
    show: usize,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let work = config.root.join("target/diff");
    fs::create_dir_all(&work)?;
    process::run(process::cargo(&config.root).args([
        "build",
        "--quiet",
        "--package",
        "conformance",
        "--bin",
        "conformance",
    ]))?;
    let mut command = process::command(config.root.join("target/debug/conformance"));
    command.arg("diff");
    for only in &arguments.only {
        command.args(["--only", only]);
    }
    command.args(["--show", &arguments.show.to_string()]);
    command.arg("--report").arg(work.join("report.txt"));
    // They live until the command has ended.
    let (_upstream, _subject);
    if arguments.record || arguments.upstream_again || arguments.live {
        let flag = if arguments.upstream_again {
            "--ours"
        } else {
            "--upstream"
        };
        _upstream = add_upstream(config, arguments, &work, command.arg(flag))?;
    }
    if arguments.faults {
        command.arg("--faults");
    }
    if arguments.record {
        command.arg("--record");
    } else if arguments.upstream_again {
        // The known differences are ours.
        command.args(["--known", "/dev/null"]);
    } else {
        _subject = add_ours(config, arguments, &work, command.arg("--ours"))?;
    }
    process::run(&mut command)
}

/// Adds the kubeconfig of a kube-apiserver, which is started where none is given.
fn add_upstream(
    config: &Config,
    arguments: &Arguments,
    work: &Path,
    command: &mut Command,
) -> Result<Option<Upstream>> {
    if let Some(kubeconfig) = &arguments.upstream {
        command.arg(kubeconfig);
        return Ok(None);
    }
    println!("starting kube-apiserver …");
    let upstream = Upstream::start(config, &work.join("upstream"), upstream::Options::default())?;
    command.arg(&upstream.kubeconfig);
    Ok(Some(upstream))
}

/// Adds the kubeconfig of a server of ours, which is started where none is given.
fn add_ours(
    config: &Config,
    arguments: &Arguments,
    work: &Path,
    command: &mut Command,
) -> Result<Option<Subject>> {
    if let Some(kubeconfig) = &arguments.knarr {
        command.arg(kubeconfig);
        return Ok(None);
    }
    let subject = Subject::start(config, &work.join("knarr"), arguments.release)?;
    command.arg(&subject.kubeconfig);
    Ok(Some(subject))
}
