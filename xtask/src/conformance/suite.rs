//! One run of upstream's suite: the specs that are chosen, ginkgo that runs them, and the record of what came of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::host::Host;

use crate::config::Config;
use crate::process;

/// Specs that have failed are run again where they are no more than these.
pub(super) const AGAIN_MAX: usize = 60;

/// Slowest specs, which wait for a continue token to expire.
const SLOWEST: &str = "should return chunks of results for list calls with an expired token|should support continue listing from the last key if the original version has been compacted away";

/// The specs to run, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
    /// Only specs whose name matches this regular expression; may be given more than once.
    #[arg(long)]
    focus: Vec<String>,
    /// Only the specs named in this file, one a line; what follows a tab is passed over.
    #[arg(long, conflicts_with = "focus")]
    list: Option<PathBuf>,
    /// Only specs whose labels fit, in ginkgo's language: 'Conformance && !Serial'.
    #[arg(long)]
    label: Option<String>,
    /// Number of specs at a time.
    #[arg(long, default_value_t = 4)]
    procs: u32,
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

/// One call of ginkgo.
#[derive(Debug)]
pub(super) struct Phase {
    pub name: String,
    pub skip: Vec<String>,
    focus: Vec<String>,
    label: Option<String>,
    procs: u32,
    timeout: String,
}

/// The cluster, and the network in which the suite runs.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub kubeconfig: &'a Path,
    /// The machine's own network where there is none.
    pub host: Option<&'a Host>,
    pub nodes: u8,
}

impl Chosen {
    /// Reports whether nothing is chosen, which is everything.
    pub(super) fn is_all(&self) -> bool {
        self.focus.is_empty() && self.list.is_none() && self.label.is_none()
    }

    /// The phase of the specs that are chosen, or of `otherwise` where none are.
    pub(super) fn phase(&self, name: &str, otherwise: impl FnOnce() -> Result<Vec<String>>) -> Result<Phase> {
        let focus = match &self.list {
            _ if !self.focus.is_empty() => self.focus.clone(),
            Some(list) => vec![alternatives(&names(list)?)],
            None if self.label.is_some() => Vec::new(),
            None => otherwise()?,
        };
        let slowest = self.quick.then(|| SLOWEST.to_owned());
        Ok(Phase {
            name: name.to_owned(),
            skip: self.skip.iter().cloned().chain(slowest).collect(),
            focus,
            label: self.label.clone(),
            procs: self.procs,
            timeout: self.timeout.clone(),
        })
    }

    /// All specs of a label; serial ones one by one.
    pub(super) fn labelled(&self, name: &str, label: &str) -> Phase {
        let slowest = self.quick.then(|| SLOWEST.to_owned());
        Phase {
            name: name.to_owned(),
            skip: self.skip.iter().cloned().chain(slowest).collect(),
            focus: Vec::new(),
            label: Some(label.to_owned()),
            procs: if name == "serial" { 1 } else { self.procs },
            timeout: self.timeout.clone(),
        }
    }

    /// The phase of these specs again, one at a time.
    pub(super) fn again(&self, names: &[String]) -> Phase {
        Phase {
            name: "again".to_owned(),
            skip: Vec::new(),
            focus: vec![alternatives(names)],
            label: None,
            procs: 1,
            timeout: self.timeout.clone(),
        }
    }
}

/// Runs ginkgo, and returns its report.
pub(super) fn run(config: &Config, place: &Place<'_>, phase: &Phase, out: &Path) -> Result<PathBuf> {
    empty(out)?;
    let report = out.join("junit.xml");
    let ginkgo = config.tools.join("ginkgo");
    let mut ginkgo = match place.host {
        Some(host) => host.command(ginkgo),
        None => process::command(ginkgo),
    };
    ginkgo
        .arg(format!("--procs={}", phase.procs))
        .arg(format!("--timeout={}", phase.timeout))
        .args(["--no-color", "-v"])
        .arg("--junit-report=junit.xml")
        .arg(format!("--output-dir={}", out.display()))
        .args(phase.focus.iter().map(|focus| format!("--focus={focus}")))
        .args(phase.skip.iter().map(|skip| format!("--skip={skip}")))
        .args(phase.label.iter().map(|label| format!("--label-filter={label}")));
    of_the_suite(&mut ginkgo, config, place, out);
    let log = out.join("log.txt");
    println!("running the suite; its log is {} …", log.display());
    let log = fs::File::create(log)?;
    let status = ginkgo
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

/// The suite's program and its own flags.
fn of_the_suite(ginkgo: &mut Command, config: &Config, place: &Place<'_>, out: &Path) {
    let kubectl = config.tools.join("kubectl");
    ginkgo
        .arg(config.tools.join("e2e.test"))
        .arg("--")
        .arg(format!("--kubeconfig={}", place.kubeconfig.display()))
        .arg("--provider=skeleton")
        .arg(format!("--kubectl-path={}", kubectl.display()))
        .arg("--disable-log-dump")
        .arg(format!("--num-nodes={}", place.nodes))
        .arg("--allowed-not-ready-nodes=0")
        .arg(format!("--report-dir={}", out.display()));
}

/// Empties a folder, or makes it.
pub(super) fn empty(folder: &Path) -> Result<()> {
    if folder.try_exists()? {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}

/// The specs that pass upstream without any pod.
pub(super) fn no_pod_specs(config: &Config) -> Result<Vec<String>> {
    let list = config.root.join("conformance/no_pod_specs.txt");
    Ok(vec![alternatives(&names(&list)?)])
}

fn names(list: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(list).with_context(|| list.display().to_string())?;
    let names = text.lines().filter_map(|line| line.split('\t').next());
    Ok(names
        .filter(|name| name.starts_with('['))
        .map(str::to_owned)
        .collect())
}

/// One regular expression for all of them.
fn alternatives(names: &[String]) -> String {
    let escaped: Vec<_> = names.iter().map(|name| escape(name)).collect();
    escaped.join("|")
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

/// Merges reports into the results; the later report counts for a spec that is in two.
///
/// # Errors
/// A spec that passed before has failed.
pub(super) fn record(config: &Config, reports: &[PathBuf], dry_run: bool) -> Result<()> {
    let mut command = recorder(config, reports)?;
    command
        .arg("--missing")
        .arg(config.root.join(super::missing::LIST));
    if dry_run {
        command.arg("--dry-run");
    }
    process::run(&mut command)
}

/// Names of the specs that have failed.
pub(super) fn failed(config: &Config, reports: &[PathBuf]) -> Result<Vec<String>> {
    let names = process::output(recorder(config, reports)?.arg("--only-failed"))?;
    Ok(names.lines().map(str::to_owned).collect())
}

fn recorder(config: &Config, reports: &[PathBuf]) -> Result<Command> {
    let mut build = process::cargo(&config.root);
    build.args(["build", "--quiet", "--workspace", "--bin", "conformance"]);
    process::run(&mut build)?;
    let mut command = process::command(config.root.join("target/debug/conformance"));
    command.arg("record");
    for report in reports {
        command.arg("--junit").arg(report);
    }
    command
        .arg("--results")
        .arg(config.root.join("conformance/results.tsv"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_specs_may_be_a_table_of_results() {
        let folder = std::env::temp_dir().join(format!("xtask-suite-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let list = folder.join("list");
        let text = "spec\tresult\n# comment\n[sig-apps] Job (a) [Conformance]\tfail\t1.0\n\n[sig-node] b.c\n";
        fs::write(&list, text).expect("written");
        let names = names(&list).expect("read");
        fs::remove_dir_all(folder).expect("removed");
        assert_eq!(
            alternatives(&names),
            r"\[sig-apps\] Job \(a\) \[Conformance\]|\[sig-node\] b\.c"
        );
    }
}
