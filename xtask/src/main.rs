//! Automation: everything one does to this repository besides writing it, as `cargo xtask COMMAND`.
//!
//! One module per command; [`Command`] is the table of them. [`config`] is the only place that reads the environment,
//! [`process`] the only one that starts other programs. Nothing here is linked into what users run.

#![allow(clippy::print_stdout, reason = "a command line tool speaks on stdout")]

mod bench;
mod ci;
mod codegen;
mod config;
mod conformance;
mod diff;
mod docs;
mod down;
mod fake_nodes;
mod fuzz;
mod hostile;
mod mutations;
mod operators;
mod owners;
mod packages;
mod steps;
mod subject;
mod tenants;
mod test;
mod test_programs;
mod tidy;
mod tools;
mod up;
mod up_and_down;
mod upstream;

use clap::Parser;
use xtask::{host, process};

/// Knarr's automation.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The table of commands; each one's arguments and `run` are in the module of its name.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Install what is missing, build, start a one-node cluster and run a first workload.
    Up(up::Arguments),
    /// Remove what `up` made.
    Down(up::Arguments),
    /// Install what is missing and run all tests.
    Test(test::Arguments),
    /// All checks before a change lands: those of CI, and clippy, generated files and the docs' build beside them.
    Ci(ci::Arguments),
    /// Check arrows between crates, numbers and links of pages, licences, reasons of dependencies, length of files.
    Tidy(tidy::Arguments),
    /// Make a site of the pages of docs/ with mdBook, which is built once.
    Docs(docs::Arguments),
    /// Break storage, walls, quotas and other code in many places, one by one; each time a proof must fail (some three hours; `--minutes` takes the oldest of `conformance/mutations.tsv`).
    Mutations(mutations::Arguments),
    /// Measures the cost of operations, upstream's server beside ours.
    Bench(bench::Arguments),
    /// Build upstream's programs (kubectl, kube-apiserver, etcd, e2e.test …) into a cache outside the tree.
    Tools(tools::Arguments),
    /// Make the facts and the table of built-in kinds again, or check that they are up to date.
    Codegen(codegen::Arguments),
    /// Send the differential cases to our server, and compare its answers with the recorded ones of the real kube-apiserver.
    Diff(diff::Arguments),
    /// Record what tenants get at the real kube-apiserver; the tests of `conformance` compare ours with it.
    Tenants(tenants::Arguments),
    /// Record the owners of fields at the real kube-apiserver; the tests of `conformance` compare ours with it.
    Owners(owners::Arguments),
    /// Show every parser and engine many hostile inputs, from a seed.
    Fuzz(fuzz::Arguments),
    /// Two tenants at work on a server that others attack: latencies, errors, memory.
    Hostile(hostile::Arguments),
    /// Run programs that others wrote for Kubernetes, each with a first scenario, against our server.
    Operators(operators::Arguments),
    /// Run upstream's conformance suite against our control plane.
    Conformance(conformance::Arguments),
}

/// An error is one line with its causes, never a backtrace.
fn main() -> std::process::ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    let config = config::Config::read()?;
    match command {
        Command::Up(arguments) => up::run(&config, arguments),
        Command::Down(arguments) => down::run(&config, arguments),
        Command::Test(arguments) => test::run(&config, arguments),
        Command::Ci(arguments) => ci::run(&config, arguments),
        Command::Tidy(arguments) => tidy::run(&config, arguments),
        Command::Docs(arguments) => docs::run(&config, arguments),
        Command::Mutations(arguments) => mutations::run(&config, arguments),
        Command::Bench(arguments) => bench::run(&config, arguments),
        Command::Tools(arguments) => tools::run(&config, arguments),
        Command::Codegen(arguments) => codegen::run(&config, arguments),
        Command::Diff(arguments) => diff::run(&config, arguments),
        Command::Tenants(arguments) => tenants::run(&config, arguments),
        Command::Owners(arguments) => owners::run(&config, arguments),
        Command::Fuzz(arguments) => fuzz::run(&config, arguments),
        Command::Hostile(arguments) => hostile::run(&config, arguments),
        Command::Operators(arguments) => operators::run(&config, arguments),
        Command::Conformance(arguments) => conformance::run(&config, arguments),
    }
}
