//! Starting other programs and waiting for them.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// A command to be filled in. The one place where xtask makes one.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask stands outside the product and cannot use node_sys"
)]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// Runs to the end, output passed through; a failure names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {}", describe(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", describe(command));
    }
    Ok(())
}


fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
