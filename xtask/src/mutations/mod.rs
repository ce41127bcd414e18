//! `cargo xtask mutations`: breaks the code in one place after the other, and each time a proof must fail.
//!
//! A mutation that every test survives means that the line it breaks is not guarded. Every proof is run once on the code
//! as it is, where it must pass: a proof that fails anyway guards nothing. Each mutation then costs one build of its
//! crate and one run of its proof: about a minute on two cores, three hours for all. Not a part of `ci`.

mod boundary;
mod quota;
mod storage;
mod volumes;
mod walls;

use crate::config::Config;
use crate::process;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Selection of mutations.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only those whose name contains this text.
    #[arg(default_value = "")]
    name: String,
}

/// Mutations of one crate, and the tests that must fail.
struct Suite {
    package: &'static str,
    /// From the project's root; the files are below it.
    folder: &'static str,
    mutations: &'static [Mutation],
}

/// One line, broken.
struct Mutation {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// The proof that must notice.
    proof: &'static [&'static str],
}

/// A proof, with the crate that it is of.
type Proof = (&'static str, &'static [&'static str]);

fn suites() -> impl Iterator<Item = &'static Suite> {
    std::iter::once(&storage::SUITE)
        .chain(quota::SUITES)
        .chain(walls::SUITES)
        .chain(boundary::SUITES)
        .chain(volumes::SUITES)
}

/// The result of one mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The proof failed.
    Noticed,
    /// The proof did not end in [`PROOF_SECONDS`].
    Hung,
    /// The proof passed.
    Survived,
    /// The line to break is not there once, or what is broken does not compile.
    Unusable,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Hung => "noticed (the proof hangs)",
            Self::Survived => "SURVIVED",
            Self::Unusable => "UNUSABLE",
        }
    }

    fn is_noticed(self) -> bool {
        matches!(self, Self::Noticed | Self::Hung)
    }
}

/// A proof that takes longer hangs: each passes in a minute where nothing else runs.
const PROOF_SECONDS: u64 = 600;
/// coreutils' `timeout` ends with it when it ended the program.
const TIMED_OUT: i32 = 124;

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let all = suites().flat_map(|suite| suite.mutations.iter().map(move |own| (suite, own)));
    let wanted: Vec<_> = all
        .filter(|(_, own)| own.name.contains(&arguments.name))
        .collect();
    let proofs: BTreeSet<Proof> = wanted
        .iter()
        .map(|(suite, own)| (suite.package, own.proof))
        .collect();
    for proof in proofs {
        println!("==> the code as it is: {} {}", proof.0, proof.1.join(" "));
        process::run(&mut test(config, proof, true)).context("the code as it is must compile")?;
        if prove(config, proof)? != Outcome::Survived {
            bail!("{} fails on the code as it is", proof.1.join(" "));
        }
    }
    report(&wanted, |(suite, mutation)| attempt(config, suite, mutation))
}

/// Tries each, says what came of it, and fails where one was not noticed.
fn report(
    wanted: &[(&Suite, &Mutation)],
    attempt: impl Fn((&Suite, &Mutation)) -> Result<Outcome>,
) -> Result<()> {
    let mut bad = Vec::new();
    for (suite, mutation) in wanted {
        let begun = now();
        let outcome = attempt((suite, mutation))?;
        println!(
            "{:<28} {:>4} s  {}",
            outcome.word(),
            begun.elapsed().as_secs(),
            mutation.name
        );
        if !outcome.is_noticed() {
            bad.push(format!("{} ({})", mutation.name, outcome.word()));
        }
    }
    println!(
        "{} of {} mutations noticed",
        wanted.len() - bad.len(),
        wanted.len()
    );
    if bad.is_empty() {
        return Ok(());
    }
    bail!("not noticed: {}", bad.join("; "))
}

#[expect(clippy::disallowed_methods, reason = "a tool says how long its work took")]
fn now() -> Instant {
    Instant::now()
}

fn attempt(config: &Config, suite: &Suite, mutation: &Mutation) -> Result<Outcome> {
    let proof = (suite.package, mutation.proof);
    let folder = config.root.join(suite.folder);
    let broken = match Broken::new(folder.join(mutation.file), mutation) {
        Ok(broken) => broken,
        Err(error) => {
            println!("{error:#}");
            return Ok(Outcome::Unusable);
        }
    };
    let outcome = if process::run(&mut test(config, proof, true)).is_ok() {
        prove(config, proof)
    } else {
        Ok(Outcome::Unusable)
    };
    drop(broken);
    outcome
}

/// Runs a proof that is built.
fn prove(config: &Config, proof: Proof) -> Result<Outcome> {
    let status = test(config, proof, false).status().context("starting a proof")?;
    Ok(match status.code() {
        Some(0) => Outcome::Survived,
        Some(TIMED_OUT) => Outcome::Hung,
        _ => Outcome::Noticed,
    })
}

fn test(config: &Config, (package, proof): Proof, is_built_only: bool) -> Command {
    let cargo = process::cargo(&config.root);
    let mut command = process::command("timeout");
    command.current_dir(&config.root);
    for (name, value) in cargo.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if is_built_only {
        // No bound: a machine that does other things may take long to build.
        command.args(["0", "cargo", "test", "--quiet", "-p", package, "--no-run"]);
    } else {
        command.args([&PROOF_SECONDS.to_string(), "cargo", "test", "--quiet"]);
        command.args(["-p", package]);
    }
    command.args(proof);
    command.stdout(Stdio::null());
    command.stderr(Stdio::null());
    command
}

/// A file with a mutation in it; dropping it puts the file right again.
struct Broken {
    path: PathBuf,
    right: String,
}

impl Broken {
    fn new(path: PathBuf, mutation: &Mutation) -> Result<Self> {
        let right = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if right.matches(mutation.from).count() != 1 {
            bail!("{:?} is not in {} exactly once", mutation.from, path.display());
        }
        fs::write(&path, right.replace(mutation.from, mutation.to))?;
        Ok(Self { path, right })
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.right) {
            println!("{} is still broken: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of a mutated line changes its mutation too.
    #[test]
    fn mutations_are_found_in_the_code() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let rows = suites().flat_map(|suite| suite.mutations.iter().map(move |mutation| (suite, mutation)));
        let lost = rows.filter(|(suite, mutation)| {
            let path = root.join(suite.folder).join(mutation.file);
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.matches(mutation.from).count() != 1
        });
        let lost: Vec<&str> = lost.map(|(_, mutation)| mutation.name).collect();
        assert_eq!(lost, [""; 0]);
    }
}
