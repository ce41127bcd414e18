//! `cargo xtask diff`.

use anyhow::Result;

use crate::config::Config;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_config: &Config, _arguments: &Arguments) -> Result<()> {
    anyhow::bail!("not built yet")
}
