//! `cargo xtask down`: removes what `up` made. Processes first, then what they left in the kernel, then the files.
//!
//! Only what names the cluster's own data directory is touched: processes whose command line does and their containers,
//! cgroups that nothing is left in, mounts below it, the network namespace and the tables that carry Knarr's name.

use crate::config::Config;
use crate::host::Host;
use crate::process;
use crate::up::Arguments;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) fn run(_: &Config, arguments: &Arguments) -> Result<()> {
    // First those who would restart a container, then the containers.
    println!("==> stopping processes");
    end("TERM", &processes_naming(&arguments.data_dir)?);
    wait_for_end(&arguments.data_dir);
    println!("==> stopping containers");
    let left = processes_naming(&arguments.data_dir)?;
    end("KILL", &children(&left)?);
    end("KILL", &left);
    wait_for_end(&arguments.data_dir);
    println!("==> removing cgroups, mounts, links and rules");
    for cgroup in pod_cgroups()? {
        // The kernel refuses while something runs in it: a task that is still leaving, or another cluster's pod.
        let _ = fs::remove_dir(cgroup);
    }
    unmount(&arguments.data_dir)?;
    let host = Host::existing(arguments.isolated.clone());
    remove_network(&host);
    host.remove()?;
    println!("==> removing {}", arguments.data_dir.display());
    match fs::remove_dir_all(&arguments.data_dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| arguments.data_dir.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Processes whose arguments name the directory: server, agent, containerd and its shims.
fn processes_naming(data_dir: &Path) -> Result<BTreeSet<u32>> {
    let wanted = data_dir.display().to_string();
    let own = [std::process::id(), std::os::unix::process::parent_id()];
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let ours = ["knarr", "containerd"].iter().any(|name| {
            line.split('\0')
                .next()
                .is_some_and(|program| program.rsplit('/').next().is_some_and(|p| p.starts_with(name)))
        });
        if ours && line.contains(&wanted) && !own.contains(&pid) {
            found.insert(pid);
        }
    }
    Ok(found)
}

fn end(signal: &str, pids: &BTreeSet<u32>) {
    for pid in pids {
        let mut kill = process::command("kill");
        // A process that ended meanwhile is what was wanted.
        let _ = kill
            .args(["-s", signal, &pid.to_string()])
            .stderr(std::process::Stdio::null())
            .status();
    }
}

/// How long processes get to end by themselves, in tenths of a second.
const PATIENCE: u32 = 50;

fn wait_for_end(data_dir: &Path) {
    for _ in 0..PATIENCE {
        if processes_naming(data_dir).is_ok_and(|left| left.iter().all(|pid| is_shim(*pid))) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Shims outlive containerd on purpose; they end with their containers.
fn is_shim(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("containerd-shim"))
}

/// Every cgroup of a pod, in every hierarchy, innermost first.
fn pod_cgroups() -> Result<Vec<PathBuf>> {
    let root = Path::new("/sys/fs/cgroup");
    let mut tops = vec![root.join("kubepods")];
    for entry in fs::read_dir(root)? {
        tops.push(entry?.path().join("kubepods"));
    }
    let mut found = Vec::new();
    for top in tops {
        collect(&top, &mut found);
    }
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        collect(&entry.path(), found);
    }
    found.push(folder.to_owned());
}

/// What runs in containers: the processes whose parent is one of these shims.
fn children(parents: &BTreeSet<u32>) -> Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if parent.is_some_and(|parent: u32| parents.contains(&parent)) {
            found.insert(pid);
        }
    }
    Ok(found)
}

/// Unmounts everything below the directory, innermost first.
fn unmount(data_dir: &Path) -> Result<()> {
    let wanted = format!("{}/", data_dir.display());
    let table = fs::read_to_string("/proc/self/mounts")?;
    let mounts: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|point| point.starts_with(&wanted))
        .collect();
    for point in mounts.iter().rev() {
        if !process::command("umount")
            .args(["--lazy", point])
            .status()?
            .success()
        {
            bail!("{point} stays mounted");
        }
    }
    Ok(())
}

/// The pods' bridge and the tables; a namespace takes its own with it.
fn remove_network(host: &Host) {
    if host.is_isolated() {
        return;
    }
    let quiet = |program: &str, arguments: &[&str]| {
        // Absent is as good as removed.
        let _ = host
            .command(program)
            .args(arguments)
            .stderr(std::process::Stdio::null())
            .status();
    };
    quiet("ip", &["link", "delete", "knarr0"]);
    for table in ["knarr-proxy", "knarr-network", "knarr-dns"] {
        quiet("nft", &["delete", "table", "ip", table]);
    }
}
