//! Steps of a command: their names on stdout, and cargo.

use crate::config::Config;
use crate::process;
use anyhow::Result;

/// Prints the name of the step that begins.
pub(crate) fn step(name: &str) {
    println!("==> {name}");
}

/// Runs cargo in the root, to its end.
pub(crate) fn cargo(config: &Config, arguments: &[&str]) -> Result<()> {
    process::run(process::cargo(&config.root).args(arguments))
}
