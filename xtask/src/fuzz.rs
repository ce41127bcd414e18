//! `cargo xtask fuzz`: many hostile inputs for every parser and engine that has a fuzz target, from a seed.
//!
//! The targets are tests; here they are built optimised, with assertions, and shown so many inputs each. A failure names the
//! seed, which `--from` shows again: the same seed makes the same input.

use crate::config::Config;
use crate::process;
use anyhow::Result;

/// Crates with fuzz targets, and words that the names of these tests have.
const TARGETS: [(&str, &[&str]); 4] = [
    ("machinery-schema", &["fuzz::"]),
    ("machinery-meta", &["are_answered"]),
    (
        "apiserver-registry",
        &["any_path_is_answered", "any_text_is_answered"],
    ),
    (
        "apiserver-endpoints",
        &["addresses_and_parameters", "media_types"],
    ),
];

/// How many, from which seed on, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Inputs for each target.
    #[arg(long, default_value_t = 100_000)]
    inputs: u64,
    /// The seed of the first input.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this crate.
    #[arg(long)]
    package: Option<String>,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    for (package, words) in TARGETS {
        if arguments.package.as_ref().is_some_and(|own| own != package) {
            continue;
        }
        let mut cargo = process::cargo(&config.root);
        cargo.env("KNARR_FUZZ_ROUNDS", arguments.inputs.to_string());
        cargo.env("KNARR_FUZZ_FROM", arguments.from.to_string());
        cargo.args(["test", "--quiet", "--profile", "fuzz", "-p", package, "--"]);
        process::run(cargo.args(words))?;
    }
    Ok(())
}
