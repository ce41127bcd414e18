//! `cargo xtask down`: removes what `up` made.

use crate::config::Config;
use crate::host::Host;
use crate::removal;
use crate::up::Arguments;
use anyhow::Result;

pub(crate) fn run(_: &Config, arguments: &Arguments) -> Result<()> {
    let host = Host::existing(arguments.isolated.clone());
    removal::remove(&arguments.data_dir, &host, |step| println!("==> {step}"))
}
