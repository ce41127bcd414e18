//! Automation: everything one does to this repository besides writing it, as `cargo xtask COMMAND`.
//!
//! One module per command; [`Command`] is the table of them. [`config`] is the only place that reads the environment,
//! [`process`] the only one that starts other programs. Nothing here is linked into what users run.

#![allow(clippy::print_stdout, reason = "a command line tool speaks on stdout")]

mod codegen;
mod conformance;
mod config;
mod diff;
mod process;
mod tools;
mod upstream;

use clap::Parser;

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
    /// Build upstream's programs (kubectl, kube-apiserver, etcd, e2e.test …) into a cache outside the tree.
    Tools(tools::Arguments),
    /// Make the facts and the table of built-in kinds again, or check that they are up to date.
    Codegen(codegen::Arguments),
    /// Send the same requests to the real kube-apiserver and to ours, and compare the answers.
    Diff(diff::Arguments),
    /// Run upstream's conformance suite against our control plane.
    Conformance(conformance::Arguments),
}

fn main() -> anyhow::Result<()> {
    let config = config::Config::read()?;
    match Arguments::parse().command {
        Command::Tools(arguments) => tools::run(&config, &arguments),
        Command::Codegen(arguments) => codegen::run(&config, &arguments),
        Command::Diff(arguments) => diff::run(&config, &arguments),
        Command::Conformance(arguments) => conformance::run(&config, &arguments),
    }
}
