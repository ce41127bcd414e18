//! `cargo xtask mutations`: breaks the code in one place after the other, and each time a proof must fail.
//!
//! A mutation that every test survives means that the line it breaks is not guarded. Every proof is run once on the code
//! as it is, where it must pass: a proof that fails anyway guards nothing. Each mutation then costs one build of its
//! crate and one run of its proof: about a minute on two cores, three hours for all. Not a part of `ci`.
//!
//! Outcomes are kept in `conformance/mutations.tsv` as each comes. `--minutes` takes those that have none or the oldest, until the
//! time is over. A broken file is put right however the run ends ([`breaking`]).

mod breaking;
mod ledger;
mod proof;

mod boundary;
mod controllers;
mod quota;
mod storage;
mod volumes;
mod walls;

use crate::config::Config;
use crate::test_programs::Program;
use anyhow::{Context, Result, bail};
use breaking::Broken;
use ledger::Ledger;
use proof::Proof;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Selection of mutations.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only those whose name contains this text.
    #[arg(default_value = "")]
    name: String,
    /// Only those whose proof is of this crate.
    #[arg(long)]
    package: Option<String>,
    /// Begins no other one after this time.
    #[arg(long)]
    minutes: Option<u64>,
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

fn suites() -> impl Iterator<Item = &'static Suite> {
    std::iter::once(&storage::SUITE)
        .chain(quota::SUITES)
        .chain(walls::SUITES)
        .chain(boundary::SUITES)
        .chain(volumes::SUITES)
        .chain(controllers::SUITES)
}

/// A mutation, with the suite that it is of.
type Row = (&'static Suite, &'static Mutation);

fn mutations() -> impl Iterator<Item = Row> {
    suites().flat_map(|suite| suite.mutations.iter().map(move |own| (suite, own)))
}

fn proof_of((suite, mutation): Row) -> Proof {
    Proof {
        package: suite.package,
        words: mutation.proof,
    }
}

/// The result of one mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The proof failed.
    Noticed,
    /// The proof did not end in time.
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

    fn of_word(word: &str) -> Option<Self> {
        let all = [Self::Noticed, Self::Hung, Self::Survived, Self::Unusable];
        all.into_iter().find(|own| own.word() == word)
    }

    fn is_noticed(self) -> bool {
        matches!(self, Self::Noticed | Self::Hung)
    }
}

/// Those that are wanted: without an outcome first, then the oldest; of one day in an order in which builds are short, by the
/// program that is built and the file that is changed.
fn selected(arguments: &Arguments, ledger: &Ledger) -> Vec<Row> {
    let is_of_package = |suite: &Suite| {
        let package = arguments.package.as_ref();
        package.is_none_or(|own| own == suite.package)
    };
    let mut rows: Vec<Row> = mutations()
        .filter(|(suite, own)| own.name.contains(&arguments.name) && is_of_package(suite))
        .collect();
    rows.sort_by_key(|row| {
        let (suite, own) = *row;
        let proof = proof_of(*row);
        let day = ledger.noticed_on(own.name);
        (day, suite.package, proof.program(), suite.folder, own.file)
    });
    rows
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let folder = config.root.join("target/mutations");
    fs::create_dir_all(&folder).context("making target/mutations")?;
    let lock = fs::File::create(folder.join("lock")).context("target/mutations/lock")?;
    lock.try_lock().context("another run breaks files of this tree")?;
    let ledger = Ledger::read(config)?;
    let rows = selected(arguments, &ledger);
    let mut run = Run {
        config,
        ledger,
        proofs: BTreeMap::new(),
        bad: Vec::new(),
    };
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let begun = now();
    let mut tried = 0;
    for row in &rows {
        if limit.is_some_and(|limit| begun.elapsed() >= limit) {
            break;
        }
        run.attempt(*row)?;
        tried += 1;
    }
    run.report(tried, rows.len() - tried)
}

/// Outcomes of a run, and proofs that it has run on the code as it is.
struct Run<'a> {
    config: &'a Config,
    ledger: Ledger,
    /// Proofs that were run on the code as it is, with the time that the broken code has; none for those that fail.
    proofs: BTreeMap<Proof, Option<Duration>>,
    /// Mutations that were not noticed, and why.
    bad: Vec<String>,
}

impl Run<'_> {
    fn attempt(&mut self, row: Row) -> Result<()> {
        let (_, mutation) = row;
        let Some(bound) = self.bound(proof_of(row))? else {
            self.bad
                .push(format!("{} (its proof fails anyway)", mutation.name));
            return Ok(());
        };
        let begun = now();
        let outcome = broken(self.config, row, bound)?;
        let took = begun.elapsed().as_secs();
        println!("{:<28} {took:>4} s  {}", outcome.word(), mutation.name);
        self.ledger.note(mutation.name, outcome)?;
        if !outcome.is_noticed() {
            self.bad.push(format!("{} ({})", mutation.name, outcome.word()));
        }
        Ok(())
    }

    /// The time that a proof has, by the one that it takes on the code as it is; none where it fails there.
    fn bound(&mut self, proof: Proof) -> Result<Option<Duration>> {
        if let Some(bound) = self.proofs.get(&proof) {
            return Ok(*bound);
        }
        println!("==> the code as it is: {}", proof.describe());
        let program = proof::build(self.config, proof)?.context("the code as it is must compile")?;
        let begun = now();
        let outcome = proof::prove(proof, &program, proof::LONGEST)?;
        let bound = (outcome == Outcome::Survived).then(|| proof::bound(begun.elapsed()));
        if bound.is_none() {
            println!("{} FAILS on the code as it is", proof.describe());
        }
        self.proofs.insert(proof, bound);
        Ok(bound)
    }

    fn report(&self, tried: usize, left: usize) -> Result<()> {
        println!(
            "{} of {tried} mutations noticed, {left} not tried",
            tried - self.bad.len()
        );
        if self.bad.is_empty() {
            return Ok(());
        }
        bail!("not noticed: {}", self.bad.join("; "))
    }
}

#[expect(clippy::disallowed_methods, reason = "a tool says how long its work took")]
fn now() -> Instant {
    Instant::now()
}

/// Breaks the line, and runs its proof.
fn broken(config: &Config, row: Row, bound: Duration) -> Result<Outcome> {
    let (suite, mutation) = row;
    let path = config.root.join(suite.folder).join(mutation.file);
    let kept = config.root.join("target/mutations/right");
    let broken = match Broken::new(path, &kept, mutation) {
        Ok(broken) => broken,
        Err(error) => {
            println!("{error:#}");
            return Ok(Outcome::Unusable);
        }
    };
    let program: Option<Program> = proof::build(config, proof_of(row))?;
    let outcome = match program {
        Some(program) => proof::prove(proof_of(row), &program, bound),
        None => Ok(Outcome::Unusable),
    };
    drop(broken);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    /// A change of a mutated line changes its mutation too.
    #[test]
    fn mutations_are_found_in_the_code() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let lost = mutations().filter(|(suite, mutation)| {
            let path = root.join(suite.folder).join(mutation.file);
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.matches(mutation.from).count() != 1
        });
        let lost: Vec<&str> = lost.map(|(_, mutation)| mutation.name).collect();
        assert_eq!(lost, [""; 0]);
    }

    /// The ledger knows them by their names.
    #[test]
    fn mutations_have_names_of_their_own() {
        let mut names = BTreeSet::new();
        let twice: Vec<&str> = mutations()
            .map(|(_, own)| own.name)
            .filter(|name| !names.insert(*name) || name.contains(['\t', '\n']))
            .collect();
        assert_eq!(twice, [""; 0]);
    }
}
