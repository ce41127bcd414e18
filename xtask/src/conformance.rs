//! `cargo xtask conformance`: upstream's own suite (e2e.test, run by ginkgo) against a control plane with two fake nodes.
//!
//! Without arguments the specs of `conformance/no_pod_specs.txt` run: those that pass upstream without any pod being
//! started. Results are merged into `conformance/results.tsv`; a spec that passed before may not fail.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::config::Config;
use crate::subject::{Controllers, Subject};
use crate::upstream::{self, Upstream};
use crate::{fake_nodes, process, tools};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only specs whose name matches this regular expression; may be given more than once.
    #[arg(long)]
    focus: Vec<String>,
    /// Only the specs named in this file, one a line.
    #[arg(long, conflicts_with = "focus")]
    list: Option<PathBuf>,
    /// Only specs whose labels fit, in ginkgo's language: 'Conformance && !Serial'.
    #[arg(long)]
    label: Option<String>,
    /// Number of specs at a time.
    #[arg(long, default_value_t = 4)]
    procs: u32,
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
    /// Leave out the spec that waits ten minutes for a compaction.
    #[arg(long)]
    quick: bool,
    /// Leave out specs whose name matches this regular expression; may be given more than once.
    #[arg(long)]
    skip: Vec<String>,
    /// Time limit in ginkgo's spelling; specs that have not ended by then have failed.
    #[arg(long, default_value = "1h")]
    timeout: String,
}

/// Slowest specs, which wait for a continue token to expire.
const SLOWEST: &str = "should return chunks of results for list calls with an expired token|should support continue listing from the last key if the original version has been compacted away";

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    tools::ensure(config, &["kubectl", "ginkgo", "e2e.test"])?;
    let work = config.root.join("target/conformance");
    fs::create_dir_all(&work)?;
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
    let report = run_suite(config, arguments, &kubeconfig, &work.join("report"))?;
    if arguments.upstream {
        println!("junit report: {}", report.display());
    }
    record(config, &report, arguments.no_record || arguments.upstream)
}

fn run_suite(config: &Config, arguments: &Arguments, kubeconfig: &Path, out: &Path) -> Result<PathBuf> {
    if out.try_exists()? {
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out)?;
    let report = out.join("junit.xml");
    let mut ginkgo = process::command(config.tools.join("ginkgo"));
    ginkgo
        .arg(format!("--procs={}", arguments.procs))
        .arg(format!("--timeout={}", arguments.timeout))
        .args(["--no-color", "-v"])
        .arg("--junit-report=junit.xml")
        .arg(format!("--output-dir={}", out.display()));
    for focus in focuses(config, arguments)? {
        ginkgo.arg(format!("--focus={focus}"));
    }
    let slowest = arguments.quick.then(|| SLOWEST.to_owned());
    for skip in arguments.skip.iter().cloned().chain(slowest) {
        ginkgo.arg(format!("--skip={skip}"));
    }
    if let Some(label) = &arguments.label {
        ginkgo.arg(format!("--label-filter={label}"));
    }
    let log = out.join("log.txt");
    println!("running the suite; its log is {} …", log.display());
    let log = fs::File::create(log)?;
    let status = ginkgo
        .arg(config.tools.join("e2e.test"))
        .arg("--")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg("--provider=skeleton")
        .arg(format!(
            "--kubectl-path={}",
            config.tools.join("kubectl").display()
        ))
        .args(["--disable-log-dump", "--num-nodes=2"])
        .arg("--allowed-not-ready-nodes=0")
        .arg(format!("--report-dir={}", out.display()))
        // kubectl caches discovery in HOME.
        .env("HOME", out)
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("starting ginkgo")?;
    if !report.try_exists()? {
        bail!("ginkgo ended with {status} and left no report");
    }
    Ok(report)
}

/// Returns the specs to run, as regular expressions.
fn focuses(config: &Config, arguments: &Arguments) -> Result<Vec<String>> {
    if !arguments.focus.is_empty() {
        return Ok(arguments.focus.clone());
    }
    let list = match (&arguments.list, &arguments.label) {
        (Some(list), _) => list.clone(),
        (None, Some(_)) => return Ok(Vec::new()),
        (None, None) => config.root.join("conformance/no_pod_specs.txt"),
    };
    let names = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let names: Vec<_> = names
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(escape)
        .collect();
    Ok(vec![names.join("|")])
}

fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len() + 16);
    for character in name.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn record(config: &Config, report: &Path, dry_run: bool) -> Result<()> {
    let mut build = process::cargo(&config.root);
    build.args(["build", "--quiet", "--workspace", "--bin", "conformance"]);
    process::run(&mut build)?;
    let mut command = process::command(config.root.join("target/debug/conformance"));
    command
        .args(["record", "--junit"])
        .arg(report)
        .arg("--results")
        .arg(config.root.join("conformance/results.tsv"));
    if dry_run {
        command.arg("--dry-run");
    }
    process::run(&mut command)
}
