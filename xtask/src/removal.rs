//! Removing a cluster from a machine. Processes first, then what they left in the kernel, then the files.
//!
//! Only what is the cluster's own is touched: processes whose command line names its data directory and what runs in
//! their containers, its groups, mounts below its directory, its network namespace, and in the machine's own network the
//! links, addresses and tables that carry Knarr's name.

use crate::host::Host;
use crate::process;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Removes the cluster that keeps its things in `data_dir` and runs on `host`; `say` is told each step.
pub fn remove(data_dir: &Path, host: &Host, say: impl Fn(&str)) -> Result<()> {
    let folders = folders(data_dir);
    // First those who would start something again, then what they started.
    say("stopping processes");
    for program in STARTERS {
        let running = processes_naming(&folders, program);
        end("TERM", &running);
        wait_for_end(&running);
        end("KILL", &running);
        wait_for_end(&running);
    }
    say("stopping containers");
    let shims = processes_naming(&folders, "containerd-shim");
    let inside = descendants(&shims);
    end("KILL", &inside);
    end("KILL", &shims);
    wait_for_end(&[shims, inside].concat());
    say("removing cgroups, mounts, links and rules");
    remove_groups(host);
    folders.iter().try_for_each(|folder| unmount(folder))?;
    remove_traces(data_dir);
    remove_network(data_dir, host);
    host.remove()?;
    folders.iter().rev().try_for_each(|folder| {
        say(&format!("removing {}", folder.display()));
        remove_folder(folder)
    })
}

/// The data directory, and that of the agent where it lies elsewhere.
fn folders(data_dir: &Path) -> Vec<PathBuf> {
    let agent = data_dir.join("agent");
    let linked = fs::symlink_metadata(&agent).is_ok_and(|found| found.is_symlink());
    let elsewhere = linked.then(|| agent.canonicalize().ok()).flatten();
    [data_dir.to_owned()].into_iter().chain(elsewhere).collect()
}

/// Removes a folder with all that is in it, however deep; a disk that is mounted there stays, and is empty.
fn remove_folder(folder: &Path) -> Result<()> {
    for entry in files(folder) {
        process::run(
            process::command("rm")
                .args(["-rf", "--one-file-system", "--"])
                .arg(entry),
        )?;
    }
    match fs::remove_dir(folder) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ResourceBusy) => {
            Err(error).with_context(|| folder.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Supervisors, from the top: each restarts what is below it.
const STARTERS: [&str; 3] = ["knarr server", "knarr agent", "containerd "];

/// Processes of a command that have one of the directories among their arguments.
fn processes_naming(folders: &[PathBuf], command: &str) -> Vec<u32> {
    let is_within = |word: &str| folders.iter().any(|folder| Path::new(word).starts_with(folder));
    let is_ours = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let (program, rest) = line.split_once(' ').unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        format!("{name} {rest}").starts_with(command) && rest.split(' ').any(is_within)
    };
    all_processes().into_iter().filter(is_ours).collect()
}

fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn end(signal: &str, pids: &[u32]) {
    for pid in pids {
        let mut kill = process::command("kill");
        // A process that ended meanwhile is what was wanted.
        let _ = kill
            .args(["-s", signal, &pid.to_string()])
            .stderr(Stdio::null())
            .status();
    }
}

/// Time for processes to end, and for groups to become empty, in steps of a [`TICK`].
const PATIENCE: u32 = 100;
const TICK: Duration = Duration::from_millis(50);

fn wait_for_end(pids: &[u32]) {
    for _ in 0..PATIENCE {
        if pids.iter().all(|pid| stat(*pid).is_none()) {
            return;
        }
        std::thread::sleep(TICK);
    }
}

/// The parent of a process that has not ended.
fn stat(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold blanks and parentheses itself.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.next()?.parse().ok())?
}

/// Processes of containers: everything below these shims.
fn descendants(parents: &[u32]) -> Vec<u32> {
    let all: Vec<(u32, u32)> = all_processes()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect();
    let mut found: BTreeSet<u32> = parents.iter().copied().collect();
    loop {
        let before = found.len();
        let children = all
            .iter()
            .filter(|(_, parent)| found.contains(parent))
            .map(|(pid, _)| *pid);
        let children: Vec<u32> = children.collect();
        found.extend(children);
        if found.len() == before {
            return found.into_iter().filter(|pid| !parents.contains(pid)).collect();
        }
    }
}

/// The groups of all pods, in every hierarchy. A process that was killed leaves its group a moment later; what stays
/// occupied is somebody else's.
fn remove_groups(host: &Host) {
    let name = match host.is_isolated() {
        true => host.cgroup_root(),
        false => "kubepods".to_owned(),
    };
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let tops = hierarchies
        .chain([root.to_owned()])
        .map(|path| path.join(name.trim_start_matches('/')));
    let mut groups = Vec::new();
    tops.for_each(|top| collect(&top, &mut groups));
    for _ in 0..PATIENCE {
        // Innermost first, so that one pass is enough when nothing runs in them any more.
        groups.retain(
            |group| matches!(fs::remove_dir(group), Err(error) if error.kind() != ErrorKind::NotFound),
        );
        if groups.is_empty() {
            return;
        }
        std::thread::sleep(TICK);
    }
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

/// Removes files that containerd keeps elsewhere for each container: the socket of the shim, and the result of the network plugin.
fn remove_traces(data_dir: &Path) {
    let tasks = data_dir.join("agent/containerd/state/io.containerd.runtime.v2.task/k8s.io");
    let results: Vec<PathBuf> = files("/var/lib/cni/results");
    for task in files(&tasks) {
        let address = fs::read_to_string(task.join("address")).unwrap_or_default();
        if let Some(socket) = address.trim().strip_prefix("unix://") {
            // Gone is as good as removed.
            let _ = fs::remove_file(socket);
        }
        let id = task
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let named = results.iter().filter(|path| path.to_string_lossy().contains(&id));
        named.for_each(|path| drop(fs::remove_file(path)));
    }
}

fn files(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
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

/// The bridge of older agents, the tables, routes and the host's settings; a namespace takes its own with it.
fn remove_network(data_dir: &Path, host: &Host) {
    if host.is_isolated() {
        return;
    }
    restore_settings(data_dir);
    let quiet = |program: &str, arguments: &[&str]| {
        // Absent is as good as removed.
        let _ = host
            .command(program)
            .args(arguments)
            .stderr(Stdio::null())
            .status();
    };
    quiet("ip", &["link", "delete", "cni0"]);
    quiet("ip", &["address", "delete", "10.96.0.10/32", "dev", "lo"]);
    for table in ["knarr-host-ports", "knarr-proxy", "knarr-network", "knarr-dns"] {
        quiet("nft", &["delete", "table", "ip", table]);
    }
    quiet("nft", &["delete", "table", "ip6", "knarr-network"]);
    // The protocol number of the agent's routes.
    quiet("ip", &["route", "flush", "proto", "75"]);
}

/// Puts back what the agent has noted, one `NAME BEFORE AFTER` in a line, unless somebody else has changed it since.
fn restore_settings(data_dir: &Path) {
    let note = fs::read_to_string(data_dir.join("agent/host-settings")).unwrap_or_default();
    for line in note.lines() {
        let [name, before, after] = line.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let path = Path::new("/proc/sys").join(name);
        if fs::read_to_string(&path).is_ok_and(|now| now.trim() == after) {
            // A setting that cannot be put back is as harmless as it was.
            let _ = fs::write(path, before);
        }
    }
}
