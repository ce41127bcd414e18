//! `cargo xtask down`: removes what `up` made, by `knarr uninstall`, and the network namespace where it has one.

use crate::config::Config;
use crate::host::Host;
use crate::up::{self, Arguments};
use anyhow::Result;

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let host = Host::existing(arguments.isolated.clone());
    if !arguments.data_dir.try_exists()? {
        println!(
            "there is nothing to remove: {} does not exist",
            arguments.data_dir.display()
        );
        return host.remove();
    }
    print!(
        "{}",
        host.remove_cluster(&up::binary(config, arguments)?, &arguments.data_dir)?
    );
    Ok(())
}
