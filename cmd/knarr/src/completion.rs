//! `knarr completion`: a script by which a shell completes commands and flags.

use anyhow::Context;
use clap::{Args, Command, ValueEnum};
use clap_complete::aot::{Shell as Target, generate};
use std::io::Write;

/// The argument.
#[derive(Debug, Args)]
pub(crate) struct CompletionArguments {
    /// Shell that reads the script
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script for the program's `command`.
pub(crate) fn run(arguments: &CompletionArguments, mut command: Command) -> anyhow::Result<()> {
    let target = match arguments.shell {
        Shell::Bash => Target::Bash,
        Shell::Zsh => Target::Zsh,
        Shell::Fish => Target::Fish,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(target, &mut command, name, &mut script);
    std::io::stdout()
        .write_all(&script)
        .context("writing to standard output")
}
