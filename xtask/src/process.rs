//! Starting other programs and waiting for them.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// A command to be filled in. The one place where xtask makes one.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask stands outside the product and cannot use node_sys"
)]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// cargo, as the user's shell would start it in `directory`.
///
/// `cargo xtask` is itself run by cargo, which passes it the package xtask. A cargo below that passes this on to build
/// scripts, and one that looks at it (ring's) then builds itself and everything above it anew.
pub fn cargo(directory: &std::path::Path) -> Command {
    let mut command = command("cargo");
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(directory);
    command
}

/// Runs to the end, output passed through; a failure names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {}", describe(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", describe(command));
    }
    Ok(())
}

/// Runs to the end and returns what it wrote to stdout.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("starting {}", describe(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", describe(command), output.status);
    }
    String::from_utf8(output.stdout).context("output is not UTF-8")
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}
