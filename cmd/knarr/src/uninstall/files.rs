//! Files of a cluster outside its directories: what containerd keeps of each container elsewhere, and the agent's record in
//! `/run/knarr`.

use super::directory::Directories;
use anyhow::Context;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Results of CNI plugins, by the name of the network, of the sandbox and of the link.
const CNI_RESULTS: &str = "/var/lib/cni/results";
/// Sockets of shims.
const SHIM_SOCKETS: &str = "/run/containerd/s";
/// A longer address of a socket, or path of a record, is none.
const PATH_BYTES_MAX: u64 = 4_096;

/// The files.
#[derive(Debug, Default)]
pub(super) struct Traces(Vec<PathBuf>);

impl Traces {
    pub(super) fn find(directories: &Directories) -> Self {
        let Some(agent) = &directories.agent else {
            return Self::default();
        };
        let results = entries(Path::new(CNI_RESULTS));
        let mut found = Vec::new();
        for task in entries(&agent.join("containerd/state/io.containerd.runtime.v2.task/k8s.io")) {
            found.extend(socket_of(&task));
            let id = task
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let is_its = |path: &&PathBuf| path.to_string_lossy().contains(&id);
            found.extend(results.iter().filter(is_its).cloned());
        }
        Self(found)
    }

    pub(super) fn list(&self) -> Vec<String> {
        match self.0.len() {
            0 => Vec::new(),
            count => vec![format!(
                "files       {count} below {CNI_RESULTS} and {SHIM_SOCKETS}"
            )],
        }
    }

    pub(super) fn remove(&self) -> anyhow::Result<()> {
        self.0.iter().try_for_each(|path| remove_file(path))
    }
}

/// The socket of a container's shim, where containerd has written down one of its own.
fn socket_of(task: &Path) -> Option<PathBuf> {
    let address = node_sys::fs::read_head(&task.join("address"), PATH_BYTES_MAX).ok()?;
    let text = String::from_utf8(address).ok()?;
    let socket = PathBuf::from(text.trim().strip_prefix("unix://")?);
    (socket.parent()? == Path::new(SHIM_SOCKETS)).then_some(socket)
}

pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes a file that may be gone.
pub(super) fn remove_file(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninstall_takes_no_socket_from_elsewhere() {
        let task = tempfile::tempdir().unwrap();
        let written = |address: &str| {
            fs::write(task.path().join("address"), address).unwrap();
            socket_of(task.path())
        };
        assert_eq!(
            written("unix:///run/containerd/s/ab\n"),
            Some("/run/containerd/s/ab".into())
        );
        for other in [
            "unix:///etc/passwd",
            "unix:///run/containerd/s/../x",
            "/run/containerd/s/ab",
            "",
        ] {
            assert_eq!(written(other), None, "{other}");
        }
    }
}
