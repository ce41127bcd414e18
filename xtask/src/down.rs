//! `cargo xtask down`: removes what `up` made, by `knarr uninstall`, and network namespaces where it has some. Further nodes go first.

use crate::config::Config;
use crate::host::Host;
use crate::up::{self, Arguments, NODES_MAX, further_data_dir};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let host = Host::existing(arguments.isolated.clone());
    remove_further(config, arguments, &host)?;
    if !arguments.data_dir.try_exists()? {
        println!(
            "there is nothing to remove: {} does not exist",
            arguments.data_dir.display()
        );
        return host.remove();
    }
    print!(
        "{}",
        host.remove_cluster(
            &binary(config, arguments, &arguments.data_dir)?,
            &arguments.data_dir
        )?
    );
    Ok(())
}

/// The binary that is given, or that of the process that runs here, or one built now.
fn binary(config: &Config, arguments: &Arguments, data_dir: &Path) -> Result<PathBuf> {
    let runs = || {
        ["server.pid", "agent.pid"]
            .iter()
            .find_map(|record| program(&data_dir.join(record)))
    };
    match arguments.binary.is_none().then(runs).flatten() {
        Some(program) => Ok(program),
        None => up::binary(config, arguments),
    }
}

/// The file of a process, by the record that it left, where it is a `knarr` that is still there.
fn program(record: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(record).ok()?;
    let pid: u32 = text.split_whitespace().next()?.parse().ok()?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    (program.file_name()? == "knarr" && program.try_exists().ok()?).then_some(program)
}

/// Removes all nodes but the first.
pub(crate) fn remove_further(config: &Config, arguments: &Arguments, first: &Host) -> Result<()> {
    for number in (2..=NODES_MAX).rev() {
        let Some(host) = first.existing_beside(&number.to_string()) else {
            return Ok(());
        };
        let data_dir = further_data_dir(&arguments.data_dir, number);
        if data_dir.try_exists()? {
            print!(
                "{}",
                host.remove_cluster(&binary(config, arguments, &data_dir)?, &data_dir)?
            );
        } else {
            host.remove()?;
        }
    }
    // The conformance suite's own place.
    match first.existing_beside("suite") {
        Some(suite) => suite.remove(),
        None => Ok(()),
    }
}
