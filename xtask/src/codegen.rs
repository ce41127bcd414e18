//! `cargo xtask codegen [--check]`: the facts about the built-in kinds.

use anyhow::Result;

use crate::config::Config;
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Compare with what is checked in, and change nothing.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    tools::ensure(config, &["etcd", "kube-apiserver", "facts"])?;
    let _ = arguments.check;
    anyhow::bail!("the facts extractor is being written")
}
