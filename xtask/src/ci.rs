//! `cargo xtask ci`: what `.ci/run` does, and checks that take long on a clean checkout (clippy, generated files, the docs' build), in
//! the order in which a failure is cheapest to see.

use crate::config::Config;
use crate::steps::{cargo, step};
use crate::{codegen, packages, process, test, tidy};
use anyhow::Result;

/// No choice to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(config: &Config, _: &Arguments) -> Result<()> {
    packages::ensure(packages::BUILD)?;
    step("fmt");
    cargo(config, &["fmt", "--all", "--check"])?;
    step("tidy");
    tidy::run(config, &tidy::Arguments::default())?;
    step("codegen --check");
    let table_only = !config.tools.join("kube-apiserver").is_file();
    if table_only {
        println!("SKIPPED, not passed: the facts, since upstream's tools are not built");
    }
    let arguments = codegen::Arguments {
        check: true,
        table_only,
    };
    codegen::run(config, &arguments)?;
    step("clippy");
    cargo(
        config,
        &[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    )?;
    step("test");
    test::run(config, &test::Arguments::default())?;
    step("doc");
    let mut doc = process::cargo(&config.root);
    doc.args(["doc", "--quiet", "--workspace", "--no-deps"]);
    process::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
