//! `cargo xtask owners`: owners of fields at the real kube-apiserver, recorded; CI compares ours with the record.

use anyhow::Result;

use crate::config::Config;
use crate::tenants;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write the answers into `conformance/owners`; otherwise they are compared with what stands there, which shows
    /// whether upstream answers twice alike.
    #[arg(long)]
    record: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    tenants::ask(config, "owners", arguments.record)
}
