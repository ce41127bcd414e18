//! `up` twice, `stop`, `up` and `down`, as a user types them: the second time is harmless, a cluster that was stopped goes on, and
//! afterwards nothing is left in the kernel or on disk. The same of a cluster of two nodes.

use crate::config::Config;
use crate::host::Host;
use crate::{down, process, up};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Runs in a network namespace of its own, with the debug binary that the tests have built.
pub(crate) fn run(config: &Config) -> Result<()> {
    let scratch = process::output(process::command("mktemp").args(["-d", "-t", "knarr-up.XXXXXX"]))?;
    let scratch = PathBuf::from(scratch.trim());
    let name = format!("knarr-up-{}", std::process::id());
    let arguments = up::Arguments {
        data_dir: scratch.join("data"),
        secure_port: 6443,
        isolated: Some(name.clone()),
        nodes: 1,
        dev: false,
        binary: Some(config.root.join("target/debug/knarr")),
    };
    let host = Host::existing(Some(name));
    let started = up::run(config, &arguments)
        .and_then(|()| up::run(config, &arguments))
        .and_then(|()| other_flags_are_refused(&arguments, &host))
        .and_then(|()| stopped(&arguments, &host))
        .and_then(|()| up::run(config, &arguments));
    let removed = uninstalled(&arguments, &host);
    let two = started.is_ok().then(|| two_nodes(config, &arguments, &host));
    // Whatever came of it, nothing of it stays; there is nothing to remove by now.
    down::run(config, &arguments)?;
    started?;
    removed?;
    two.transpose()?;
    if let Some(namespace) = host.network_namespace()
        && namespace.try_exists()?
    {
        bail!("down left the network namespace {}", namespace.display());
    }
    Ok(fs::remove_dir_all(scratch)?)
}

/// Two nodes, twice; the second one is removed first.
fn two_nodes(config: &Config, arguments: &up::Arguments, host: &Host) -> Result<()> {
    let arguments = up::Arguments {
        nodes: 2,
        ..arguments.clone()
    };
    up::run(config, &arguments)?;
    up::run(config, &arguments)?;
    down::remove_further(config, &arguments, host)?;
    uninstalled(&arguments, host)
}

/// A server that runs keeps its flags, and others are not dropped without a word.
fn other_flags_are_refused(arguments: &up::Arguments, host: &Host) -> Result<()> {
    let knarr = arguments.binary.as_deref().context("there is a binary")?;
    let mut up = host.command(knarr);
    up.arg("up").arg("--data-dir").arg(&arguments.data_dir);
    let refused = up.args(["--", "--max-pods", "7"]).output()?;
    let answer = String::from_utf8_lossy(&refused.stderr);
    if refused.status.success() || !answer.contains("has other flags: --max-pods is \"110\" and not \"7\"") {
        bail!("up with other flags said: {answer}");
    }
    Ok(())
}

/// Ends the cluster with its pods; its files stay.
fn stopped(arguments: &up::Arguments, host: &Host) -> Result<()> {
    let knarr = arguments.binary.as_deref().context("there is a binary")?;
    let mut stop = host.command(knarr);
    process::run(stop.arg("stop").arg("--data-dir").arg(&arguments.data_dir))?;
    let left = processes_with(&arguments.data_dir.to_string_lossy())?;
    if !left.is_empty() {
        bail!("stop left the processes {}", left.join(", "));
    }
    Ok(())
}

/// Uninstalls the cluster as its user does, and looks for what is left while its network is there.
fn uninstalled(arguments: &up::Arguments, host: &Host) -> Result<()> {
    let knarr = arguments.binary.as_deref().context("there is a binary")?;
    process::run(&mut host.uninstall(knarr, &arguments.data_dir))?;
    nothing_is_left(&arguments.data_dir, host)?;
    let again = host.uninstall(knarr, &arguments.data_dir).output()?;
    let answer = String::from_utf8_lossy(&again.stderr);
    if again.status.success() || !answer.contains("there is nothing to remove") {
        bail!("a second uninstall said: {answer}");
    }
    Ok(())
}

fn nothing_is_left(data_dir: &Path, host: &Host) -> Result<()> {
    let text = data_dir.to_string_lossy().into_owned();
    let agent = format!("{text}/agent");
    if data_dir.try_exists()? {
        bail!("uninstall left {text}");
    }
    if fs::read_to_string("/proc/self/mountinfo")?.contains(&text) {
        bail!("uninstall left mounts below {text}");
    }
    let processes = processes_with(&text)?;
    if !processes.is_empty() {
        bail!("uninstall left the processes {}", processes.join(", "));
    }
    for controller in fs::read_dir("/sys/fs/cgroup").context("listing cgroups")? {
        let left = controller?
            .path()
            .join(host.cgroup_root().trim_start_matches('/'));
        if left.try_exists()? {
            bail!("uninstall left the cgroup {}", left.display());
        }
    }
    for record in fs::read_dir("/run/knarr")? {
        let record = record?.path();
        if fs::read_to_string(&record)?.trim() == agent {
            bail!("uninstall left {}", record.display());
        }
    }
    no_network_is_left(host)
}

/// Lines of the kernel's network that name the cluster's: tables, routes, links of pods, addresses.
const NETWORK: [(&[&str], &str); 4] = [
    (&["nft", "list", "tables"], "knarr"),
    (&["ip", "route", "show", "table", "all", "proto", "75"], " "),
    (&["ip", "-o", "link", "show"], "veth"),
    (
        &["ip", "-o", "address", "show", "dev", "lo", "scope", "global"],
        "inet ",
    ),
];

fn no_network_is_left(host: &Host) -> Result<()> {
    for (words, mark) in NETWORK {
        let found = process::output(host.command(words[0]).args(&words[1..]))?;
        if let Some(left) = found.lines().find(|line| line.contains(mark)) {
            bail!("uninstall left in the kernel: {left}");
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
