//! `cargo xtask diff`: the differential cases of `conformance/cases`, the real kube-apiserver against ours.

use std::fs;
use std::path::PathBuf;

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
    /// The kubeconfig of a running server of ours. Without it one is started from the binary of this tree.
    #[arg(long)]
    knarr: Option<PathBuf>,
    /// The kubeconfig of a running kube-apiserver. Without it one is started.
    #[arg(long)]
    upstream: Option<PathBuf>,
    /// Start the release binary.
    #[arg(long)]
    release: bool,
    /// Compare upstream with itself: whatever differs then is a fault of the case or of the masks.
    #[arg(long)]
    upstream_twice: bool,
    /// Show at most so many failing cases in full; all of them are in target/diff/report.txt.
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
    let start = |name: &str| {
        println!("starting kube-apiserver ({name}) …");
        Upstream::start(config, &work.join(name), upstream::Options::default())
    };
    let upstream = match &arguments.upstream {
        Some(_) => None,
        None => Some(start("upstream")?),
    };
    let left = match (&arguments.upstream, &upstream) {
        (Some(path), _) => path.clone(),
        (_, Some(upstream)) => upstream.kubeconfig.clone(),
        _ => unreachable!("one of the two is there"),
    };
    let (_second, _subject, right);
    if arguments.upstream_twice {
        let second = start("upstream-again")?;
        right = second.kubeconfig.clone();
        _second = second;
    } else if let Some(path) = &arguments.knarr {
        right = path.clone();
    } else {
        let subject = Subject::start(config, &work.join("knarr"), arguments.release)?;
        right = subject.kubeconfig.clone();
        _subject = subject;
    }
    let mut command = process::command(config.root.join("target/debug/conformance"));
    command
        .arg("diff")
        .arg("--upstream")
        .arg(left)
        .arg("--ours")
        .arg(right)
        .args(["--show", &arguments.show.to_string()])
        .arg("--report")
        .arg(work.join("report.txt"));
    for only in &arguments.only {
        command.args(["--only", only]);
    }
    if arguments.upstream_twice {
        // The known differences are ours.
        command.args(["--known", "/dev/null"]);
    }
    process::run(&mut command)
}
