//! One agent on a machine: pods, service rules and port 10250 of a second one, of another data directory, would be in the way of
//! the first one's.
//!
//! An agent writes down its data directory, for its network namespace, and looks first at what is written there: whether that
//! other agent, or its containerd with its pods, still runs. A lock beside the record, held for the agent's life, makes one
//! agent of two that start at once. An agent that wrote nothing is noticed by its port.

use crate::process_table::Table;
use anyhow::{Context, bail};
use node_sys::process::ProcessIdentity;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Emptied by a restart of the machine, as processes are.
pub(crate) const RECORDS: &str = "/run/knarr";
/// A longer path is none.
const PATH_BYTES_MAX: u64 = 4_096;

/// The record of the network namespace that this process is in.
pub(crate) fn record() -> anyhow::Result<PathBuf> {
    let namespace = std::fs::metadata("/proc/self/ns/net").context("reading /proc/self/ns/net")?;
    node_sys::fs::make_own_folder(Path::new(RECORDS)).with_context(|| format!("making {RECORDS}"))?;
    Ok(Path::new(RECORDS).join(format!("agent.{}", namespace.ino())))
}

/// The machine is this agent's for as long as it is kept. No program that the agent starts has its file.
#[derive(Debug)]
#[must_use]
pub(crate) struct Claim {
    _lock: File,
}

/// Makes this data directory the machine's, and sees that the port is free.
///
/// # Errors
/// What runs of another one, and what to do about it.
pub(crate) fn claim(record: &Path, data_dir: &Path, port: u16) -> anyhow::Result<Claim> {
    let lock = locked(record)?;
    let own = data_dir
        .canonicalize()
        .with_context(|| format!("--data-dir {}", data_dir.display()))?;
    let other = recorded(record);
    if !other.as_os_str().is_empty() && other != own {
        is_left(&other)?;
    }
    if port != 0 {
        match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
                "port {port} is in use, by another node agent it seems: end it first, and the server that keeps it running; \
                 `ss -ltnp 'sport = :{port}'` shows the process"
            ),
            // Whatever else is wrong with it is reported where it is bound to stay.
            _ => {}
        }
    }
    let text = format!("{}\n", own.display());
    node_sys::fs::write_atomically(record, text.as_bytes(), 0o600)
        .with_context(|| format!("writing {}", record.display()))?;
    Ok(Claim { _lock: lock })
}

/// Refuses while the agent of another data directory, or its containerd with its pods, runs.
pub(crate) fn refuse_another(record: &Path, data_dir: &Path) -> anyhow::Result<()> {
    let other = recorded(record);
    // A directory that is yet to be made belongs to no agent.
    let own = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    match other.as_os_str().is_empty() || other == own {
        true => Ok(()),
        false => is_left(&other),
    }
}

fn recorded(record: &Path) -> PathBuf {
    let text = node_sys::fs::read_head(record, PATH_BYTES_MAX).unwrap_or_default();
    PathBuf::from(String::from_utf8_lossy(&text).trim())
}

/// Takes the lock beside a record.
fn locked(record: &Path) -> anyhow::Result<File> {
    let path = record.with_added_extension("lock");
    let path_of = || path.display().to_string();
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(path_of)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let other = recorded(record);
            let process = ProcessIdentity::recorded(&other.join("agent.pid"));
            let process = process.map_or_else(String::new, |agent| format!(" (process {})", agent.pid));
            bail!(
                "a node agent runs on this machine, of --data-dir {}{process}: end it first, and the server that keeps it \
                 running",
                other.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(path_of),
    }
}

/// Refuses where anything of that data directory runs.
fn is_left(other: &Path) -> anyhow::Result<()> {
    let dir = other.display();
    if let Some(agent) = ProcessIdentity::recorded(&other.join("agent.pid")) {
        bail!(
            "the node agent of {dir} runs on this machine (process {}): end it first with `kill {0}`, and the server that \
             keeps it running",
            agent.pid
        );
    }
    if let Some(containerd) = ProcessIdentity::recorded(&other.join("containerd/containerd.pid")) {
        bail!(
            "containerd of {dir} runs on this machine with its pods (process {}): end them with `knarr stop --data-dir {dir}`, or \
             start the agent with that directory",
            containerd.pid
        );
    }
    // Pods outlive containerd, and those of a DaemonSet a drain.
    let shims = Table::read()?.working_below(&other.join("containerd/state"));
    if let Some(shim) = shims.first() {
        bail!(
            "pods of {dir} run on this machine (process {shim}): end them with `knarr stop --data-dir {dir}`, or start the agent \
             with that directory"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn data(&self, name: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            std::fs::create_dir_all(path.join("containerd")).unwrap();
            path
        }

        fn claim(&self, name: &str, port: u16) -> Result<Claim, String> {
            let claimed = claim(&self.folder.path().join("record"), &self.data(name), port);
            claimed.map_err(|error| error.to_string())
        }
    }

    fn machine() -> Machine {
        Machine {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    #[test]
    fn agent_of_another_data_directory_is_refused_while_the_first_ones_programs_run() {
        let machine = machine();
        drop(machine.claim("one", 0).unwrap());
        let own = ProcessIdentity::of(std::process::id()).unwrap().to_text();
        for (file, words) in [
            (
                "containerd/containerd.pid",
                "end them with `knarr stop --data-dir",
            ),
            ("agent.pid", "end it first with `kill"),
        ] {
            std::fs::write(machine.data("one").join(file), &own).unwrap();
            let refused = machine.claim("two", 0).unwrap_err();
            assert!(refused.contains(words) && refused.contains("/one "), "{refused}");
            let record = machine.folder.path().join("record");
            let looked = refuse_another(&record, &machine.folder.path().join("absent")).unwrap_err();
            assert_eq!(looked.to_string(), refused);
            refuse_another(&record, &machine.data("one")).unwrap();
            drop(machine.claim("one", 0).unwrap());
        }
        for file in ["containerd/containerd.pid", "agent.pid"] {
            std::fs::write(machine.data("one").join(file), "").unwrap();
        }
        drop(machine.claim("two", 0).unwrap());
        assert!(machine.claim("one", 0).is_ok(), "nothing of the second runs");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that nobody supervises")]
    fn agent_of_another_data_directory_is_refused_while_pods_of_the_first_run() {
        let machine = machine();
        drop(machine.claim("one", 0).unwrap());
        let task = machine.data("one").join("containerd/state/task");
        std::fs::create_dir_all(&task).unwrap();
        let mut shim = std::process::Command::new("sleep");
        let mut shim = shim.arg("1000").current_dir(&task).spawn().unwrap();
        let refused = machine.claim("two", 0).unwrap_err();
        assert!(
            refused.starts_with("pods of ") && refused.contains(&format!("(process {})", shim.id())),
            "{refused}"
        );
        drop(machine.claim("one", 0).unwrap());
        shim.kill().unwrap();
        shim.wait().unwrap();
        drop(machine.claim("two", 0).unwrap());
    }

    #[test]
    fn agent_is_refused_while_its_port_is_in_use() {
        let machine = machine();
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let refused = machine.claim("one", port).unwrap_err();
        assert!(refused.contains(&format!("port {port} is in use")), "{refused}");
        drop(other);
        drop(machine.claim("one", port).unwrap());
    }

    #[test]
    fn agent_is_refused_while_one_of_whatever_directory_has_the_claim() {
        let machine = machine();
        let first = machine.claim("one", 0).unwrap();
        for name in ["one", "two"] {
            let refused = machine.claim(name, 0).unwrap_err();
            let directory = machine.data("one").canonicalize().unwrap();
            let named = format!(
                "a node agent runs on this machine, of --data-dir {}:",
                directory.display()
            );
            assert!(refused.contains(&named), "{refused}");
        }
        drop(first);
        drop(machine.claim("two", 0).unwrap());
    }
}
