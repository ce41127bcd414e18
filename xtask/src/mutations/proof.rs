//! Building the tests that must fail, and running them.

use super::Outcome;
use crate::config::Config;
use crate::process;
use crate::test_programs::{self, Program};
use anyhow::{Context, Result};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A proof hangs that takes longer; and one that takes ten times as long as on the code as it is, and two minutes more.
pub(super) const LONGEST: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_secs(120);
/// coreutils' `timeout` ends with one of them when it ended the program.
const TIMED_OUT: [i32; 2] = [124, 137];
/// Lines that are shown of a build that fails.
const SHOWN_LINES: usize = 20;

/// Tests of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proof {
    pub package: &'static str,
    /// As cargo has it: `--lib` or `--test` and a name, then words of the tests' names.
    pub words: &'static [&'static str],
}

impl Proof {
    /// The program's name, where it is not the library's own.
    pub(super) fn program(self) -> Option<&'static str> {
        (self.words.first() == Some(&"--test")).then(|| self.words[1])
    }

    /// Arguments of cargo that name the program, and those of the program.
    fn split(self) -> (&'static [&'static str], &'static [&'static str]) {
        self.words.split_at(1 + usize::from(self.program().is_some()))
    }

    pub(super) fn describe(self) -> String {
        format!("{} {}", self.package, self.words.join(" "))
    }
}

/// Builds the program of a proof; none where it does not compile, which is shown.
pub(super) fn build(config: &Config, proof: Proof) -> Result<Option<Program>> {
    let mut cargo = process::cargo(&config.root);
    cargo.args(["test", "--quiet", "--no-run"]);
    cargo.args(["--message-format", "json-render-diagnostics", "-p", proof.package]);
    cargo.args(proof.split().0);
    let ended = cargo.output().context("starting cargo")?;
    if !ended.status.success() {
        let text = String::from_utf8_lossy(&ended.stderr);
        let lines: Vec<&str> = text.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"));
        return Ok(None);
    }
    let key = (proof.package.to_owned(), proof.program().map(str::to_owned));
    let mut programs = test_programs::built(&String::from_utf8_lossy(&ended.stdout));
    let program = programs.remove(&key);
    program
        .with_context(|| format!("cargo has built no tests of {}", proof.describe()))
        .map(Some)
}

/// The time in which a proof that took so long on the code as it is must end.
pub(super) fn bound(took: Duration) -> Duration {
    (took * 10 + SHORTEST).min(LONGEST)
}

/// Runs a proof whose program is built.
pub(super) fn prove(proof: Proof, program: &Program, bound: Duration) -> Result<Outcome> {
    let mut test = timeout(bound);
    test.arg(&program.path);
    test.arg("--quiet").args(proof.split().1);
    let mut test = program.command(test, proof.package);
    test.stdout(Stdio::null()).stderr(Stdio::null());
    outcome(&mut test)
}

fn timeout(bound: Duration) -> Command {
    let mut command = process::command("timeout");
    command.args(["--kill-after=10", &bound.as_secs_f64().to_string()]);
    command
}

fn outcome(test: &mut Command) -> Result<Outcome> {
    let status = test.status().context("starting a proof")?;
    Ok(match status.code() {
        Some(0) => Outcome::Survived,
        Some(code) if TIMED_OUT.contains(&code) => Outcome::Hung,
        _ => Outcome::Noticed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_name_a_program_and_tests() {
        let proof = |words| Proof { package: "a", words };
        let lib = proof(&["--lib", "x::", "y"]);
        assert_eq!(lib.program(), None);
        assert_eq!(lib.split(), (&["--lib"][..], &["x::", "y"][..]));
        let test = proof(&["--test", "t", "x"]);
        assert_eq!(test.program(), Some("t"));
        assert_eq!(test.split(), (&["--test", "t"][..], &["x"][..]));
    }

    #[test]
    fn proof_passes_fails_or_hangs() {
        let check = |script: &str, expected: Outcome| {
            let mut test = timeout(Duration::from_millis(500));
            test.args(["sh", "-c", script]);
            assert_eq!(outcome(&mut test).unwrap(), expected, "{script}");
        };
        check("true", Outcome::Survived);
        check("exit 101", Outcome::Noticed);
        check("kill -ABRT $$", Outcome::Noticed);
        check("sleep 1000000", Outcome::Hung);
    }

    #[test]
    fn proof_has_ten_times_as_long() {
        let check = |took, expected| {
            assert_eq!(bound(Duration::from_secs(took)), Duration::from_secs(expected));
        };
        check(0, 120);
        check(10, 220);
        check(100, 600);
    }
}
