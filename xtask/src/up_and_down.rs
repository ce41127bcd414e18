//! `up` twice and `down`, as a user types them: the second time is harmless, and afterwards nothing is left.

use crate::config::Config;
use crate::host::Host;
use crate::{down, process, up};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// In a network namespace of its own, with the debug binary that the tests have built.
pub(crate) fn run(config: &Config) -> Result<()> {
    let scratch = process::output(process::command("mktemp").args(["-d", "-t", "knarr-up.XXXXXX"]))?;
    let scratch = PathBuf::from(scratch.trim());
    let name = format!("knarr-up-{}", std::process::id());
    let arguments = up::Arguments {
        data_dir: scratch.join("data"),
        secure_port: 6443,
        isolated: Some(name.clone()),
        dev: false,
        binary: Some(config.root.join("target/debug/knarr")),
    };
    let host = Host::existing(Some(name));
    let told = up::run(config, &arguments).and_then(|()| up::run(config, &arguments));
    // Whatever came of it, nothing of it stays.
    let removed = down::run(config, &arguments);
    told?;
    removed?;
    nothing_is_left(&arguments.data_dir, &host)?;
    Ok(fs::remove_dir_all(scratch)?)
}

fn nothing_is_left(data_dir: &Path, host: &Host) -> Result<()> {
    let text = data_dir.to_string_lossy().into_owned();
    if data_dir.try_exists()? {
        bail!("down left {text}");
    }
    if let Some(namespace) = host.network_namespace()
        && namespace.try_exists()?
    {
        bail!("down left the network namespace {}", namespace.display());
    }
    if fs::read_to_string("/proc/self/mountinfo")?.contains(&text) {
        bail!("down left mounts below {text}");
    }
    let processes = processes_with(&text)?;
    if !processes.is_empty() {
        bail!("down left the processes {}", processes.join(", "));
    }
    for controller in fs::read_dir("/sys/fs/cgroup").context("listing cgroups")? {
        let left = controller?
            .path()
            .join(host.cgroup_root().trim_start_matches('/'));
        if left.try_exists()? {
            bail!("down left the cgroup {}", left.display());
        }
    }
    Ok(())
}

/// Pids of processes whose command line has this text.
fn processes_with(text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_string_lossy().into_owned();
        let is_process = pid.chars().all(|character| character.is_ascii_digit());
        // What ended meanwhile is not left.
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if is_process && String::from_utf8_lossy(&words).contains(text) {
            found.push(pid);
        }
    }
    Ok(found)
}
