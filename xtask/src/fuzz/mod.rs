//! `cargo xtask fuzz`: many hostile inputs for every parser and engine that has a fuzz target, from a seed.
//!
//! The targets are tests; here they are built optimised, with assertions, all at once (one by one cargo would choose other
//! features of what they share, and build that again), and shown so many inputs each. A failure names the
//! seed, which `--from` shows again: the same seed makes the same input. Inputs that were shown are counted in
//! `conformance/fuzz.tsv`, a line for each run of a target, so that several runs add up; a run without `--from` goes on
//! where the last one of its target ended.

#[cfg(test)]
mod coverage;

use crate::config::Config;
use crate::process;
use crate::test_programs::{self, Programs};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Runs that were, relative to the repository.
const RUNS: &str = "conformance/fuzz.tsv";
const HEAD: &str = "package\ttarget\tfrom\tinputs\tmilliseconds\tcommit";

/// A crate's targets.
struct Targets {
    package: &'static str,
    /// The test program, where it is not the library's own.
    program: Option<&'static str>,
    /// Words that the names of these tests have.
    names: &'static [&'static str],
    /// Of the inputs requested, these are shown one in so many: each of theirs starts a server.
    one_in: u64,
}

const fn targets(package: &'static str, names: &'static [&'static str]) -> Targets {
    Targets {
        package,
        program: None,
        names,
        one_in: 1,
    }
}

const TARGETS: [Targets; 20] = [
    targets("machinery-schema", &["fuzz::"]),
    targets("machinery-cel", &["fuzz::"]),
    targets("machinery-semantics", &["fuzz_never_panics"]),
    targets("machinery-api", &["document_of_any_bytes"]),
    targets("machinery-x509", &["certificates_of_any_bytes"]),
    Targets {
        program: Some("fuzz"),
        ..targets("machinery-meta", &["answered"])
    },
    targets(
        "apiserver-registry",
        &["fuzz_never_panics", "conversion_answers_of_any_bytes"],
    ),
    targets("apiserver-admission", &["webhook_answers_of_any_bytes"]),
    Targets {
        program: Some("fuzz"),
        ..targets("apiserver-endpoints", &["answered"])
    },
    Targets {
        program: Some("hostile_writes"),
        one_in: 1_000,
        ..targets("apiserver-endpoints", &["answered"])
    },
    targets("apiserver-auth", &["jwt_altered_token_does_not_verify"]),
    targets("apiserver-server", &["of_any_bytes"]),
    targets("apiserver-storage", &["log_format_record_fuzz_never_panics"]),
    Targets {
        program: Some("snapshot"),
        ..targets("apiserver-storage", &["any_bytes"])
    },
    targets(
        "node-kubelet",
        &[
            "spdy_headers_fuzz_never_panics",
            "spdy_frame_fuzz_never_panics",
            "log_line_fuzz_never_panics",
            "env_file_fuzz_never_panics",
            "pull_secret_fuzz_never_panics",
            "credential_plugin_answer_fuzz_never_panics",
            "oom_lines_fuzz_never_panics",
        ],
    ),
    targets("node-cri", &["archive_fuzz_never_panics"]),
    targets("node-plugin-api", &["authority_fuzz_never_panics"]),
    targets(
        "node-network",
        &[
            "cni_call_of_any_bytes",
            "listeners_are_read_as_the_kernel",
            "host_port_elements_are_read",
        ],
    ),
    targets(
        "node-dns",
        &["fuzz_never_panics", "answer_to_another_question_is_none"],
    ),
    targets(
        "node-sys",
        &[
            "dbus_messages_fuzzed",
            "flow_is_read_and_named",
            "links_are_read_from_whole_messages",
            "netlink_messages_round_trip",
            "element_is_read_with_the_time",
            "nftables_error_of_any_message",
            "nftables_watch_reports_removed",
            "routes_of_ours_are_read",
        ],
    ),
];

/// Number of runs, first seed, and targets.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Inputs for each target.
    #[arg(long, default_value_t = 100_000)]
    inputs: u64,
    /// A target ends after this time at the latest, in seconds: slow ones get as much of it as fast ones.
    #[arg(long)]
    seconds: Option<u64>,
    /// The seed of the first input; without, the first that no counted run has shown.
    #[arg(long)]
    from: Option<u64>,
    /// Only this crate.
    #[arg(long)]
    package: Option<String>,
    /// Targets of a crate at a time.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// The profile that targets are built in; `dev` finds as much, more slowly, with what other tests have built.
    #[arg(long, default_value = "fuzz")]
    profile: String,
    /// Shows nothing and says how many inputs were counted.
    #[arg(long)]
    counted: bool,
}

/// A line of the file of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    package: String,
    target: String,
    from: u64,
    inputs: u64,
    milliseconds: u64,
}

impl Run {
    /// Parses `package, target, from, inputs, milliseconds`; what follows is for readers.
    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.split('\t');
        Some(Self {
            package: cells.next()?.to_owned(),
            target: cells.next()?.to_owned(),
            from: cells.next()?.parse().ok()?,
            inputs: cells.next()?.parse().ok()?,
            milliseconds: cells.next()?.parse().ok()?,
        })
    }

    fn until(&self) -> u64 {
        self.from.saturating_add(self.inputs)
    }

    fn per_second(&self) -> u64 {
        self.inputs.saturating_mul(1_000) / self.milliseconds.max(1)
    }
}

fn runs(text: &str) -> Vec<Run> {
    text.lines().filter_map(Run::parse).collect()
}

/// The first seed that none of these runs of a crate's targets has shown.
fn next_seed(runs: &[Run], package: &str) -> u64 {
    let of_package = runs.iter().filter(|run| run.package == package);
    of_package.map(Run::until).max().unwrap_or(0)
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let file = config.root.join(RUNS);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).context(RUNS),
    };
    let mut all = runs(&text);
    if !arguments.counted {
        let is_asked = |targets: &&Targets| {
            let package = arguments.package.as_ref();
            package.is_none_or(|own| own == targets.package)
        };
        let wanted: Vec<&Targets> = TARGETS.iter().filter(is_asked).collect();
        let programs = build(config, &arguments.profile, &wanted)?;
        for targets in wanted {
            let shown = show(config, arguments, (targets, &programs), &all)?;
            note(config, &file, &shown)?;
            all.extend(shown);
        }
    }
    tell(&all);
    Ok(())
}

/// Builds the test programs of these targets.
fn build(config: &Config, profile: &str, wanted: &[&Targets]) -> Result<Programs> {
    let mut cargo = process::cargo(&config.root);
    cargo.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.args(["--profile", profile]);
    for targets in wanted {
        cargo.args(["-p", targets.package]);
    }
    if wanted.iter().any(|targets| targets.program.is_none()) {
        cargo.arg("--lib");
    }
    let programs: BTreeSet<&str> = wanted.iter().filter_map(|targets| targets.program).collect();
    for program in programs {
        cargo.args(["--test", program]);
    }
    Ok(test_programs::built(&process::output(&mut cargo)?))
}

/// Runs a crate's targets; what each was shown.
fn show(
    config: &Config,
    arguments: &Arguments,
    (targets, programs): (&Targets, &Programs),
    before: &[Run],
) -> Result<Vec<Run>> {
    let from = arguments
        .from
        .unwrap_or_else(|| next_seed(before, targets.package));
    let inputs = (arguments.inputs / targets.one_in).max(1);
    let key = (targets.package.to_owned(), targets.program.map(str::to_owned));
    let program = programs
        .get(&key)
        .with_context(|| format!("cargo has built no tests of {}", targets.package))?;
    let folder = config.root.join("target");
    fs::create_dir_all(&folder).context("making target")?;
    let report = folder.join(format!("fuzz-report.{}", std::process::id()));
    let mut test = program.command(process::command(&program.path), targets.package);
    test.env("KNARR_FUZZ_ROUNDS", inputs.to_string());
    test.env("KNARR_FUZZ_FROM", from.to_string());
    if let Some(seconds) = arguments.seconds {
        test.env("KNARR_FUZZ_SECONDS", seconds.to_string());
    }
    test.env("KNARR_FUZZ_REPORT", &report);
    test.args(targets.names);
    test.args(["--quiet", "--test-threads", &arguments.threads.to_string()]);
    let ended = process::run(&mut test);
    let text = fs::read_to_string(&report).unwrap_or_default();
    // It may not be there when nothing ran.
    let _ = fs::remove_file(&report);
    ended?;
    let shown = runs(&text);
    for run in &shown {
        println!(
            "{:<22} {:<60} {:>12} inputs {:>9}/s",
            run.package,
            run.target,
            run.inputs,
            run.per_second()
        );
    }
    Ok(shown)
}

/// Adds runs to the file.
fn note(config: &Config, path: &Path, shown: &[Run]) -> Result<()> {
    let mut git = process::command("git");
    git.current_dir(&config.root)
        .args(["rev-parse", "--short", "HEAD"]);
    let commit = process::output(&mut git)?;
    let is_new = !path.try_exists().context(RUNS)?;
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .context(RUNS)?;
    if is_new {
        writeln!(file, "{HEAD}").context(RUNS)?;
    }
    for run in shown {
        let (package, target, commit) = (&run.package, &run.target, commit.trim());
        let (from, inputs, took) = (run.from, run.inputs, run.milliseconds);
        writeln!(file, "{package}\t{target}\t{from}\t{inputs}\t{took}\t{commit}").context(RUNS)?;
    }
    Ok(())
}

fn tell(all: &[Run]) {
    let mut by_target: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for run in all {
        let (inputs, took) = by_target.entry((&run.package, &run.target)).or_default();
        *inputs += run.inputs;
        *took += run.milliseconds;
    }
    for ((package, target), (inputs, _)) in &by_target {
        println!("{package:<22} {target:<60} {inputs:>12}");
    }
    let inputs: u64 = all.iter().map(|run| run.inputs).sum();
    let hours = all.iter().map(|run| run.milliseconds).sum::<u64>() / 3_600_000;
    println!("{inputs} inputs in all, {hours} hours");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up_and_go_on_where_they_ended() {
        let text = format!("{HEAD}\na\tx\t0\t100\t50\tc\na\ty\t0\t70\t50\tc\nb\tz\t5\t1\t0\tc\nbroken\n");
        let all = runs(&text);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].per_second(), 2_000);
        assert_eq!(
            [next_seed(&all, "a"), next_seed(&all, "b"), next_seed(&all, "c")],
            [100, 6, 0]
        );
    }
}
