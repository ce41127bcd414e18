//! The directories of a cluster: found by the names that Knarr gives, so that a directory of anything else is never removed.

use super::guard::guard;
use anyhow::{Context, bail, ensure};
use node_sys::fs::{OpenFolder, remove_tree};
use node_sys::mount::{LinuxMounter, Mounter};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folder of a file system's own.
const LOST_AND_FOUND: &str = "lost+found";
/// Foreign names that are quoted.
const NAMES_QUOTED_MAX: usize = 5;

/// Names that Knarr gives in one kind of directory.
struct Layout {
    names: &'static [&'static str],
    /// A directory is such a one if it has one of these.
    marks: &'static [&'static str],
}

impl Layout {
    /// Reports whether a directory with these names is such a one.
    fn is_of(&self, names: &[String]) -> bool {
        let is_there = |mark: &&str| names.iter().any(|name| name == mark);
        self.marks.iter().any(is_there)
    }
}

const SERVER: Layout = Layout {
    names: &[
        "admin.kubeconfig",
        "agent",
        "pki",
        "server.log",
        "server.log.1",
        "server.pid",
        "storage",
    ],
    marks: &["pki", "server.pid", "storage"],
};
const AGENT: Layout = Layout {
    names: &[
        "agent.log",
        "agent.log.1",
        "agent.pid",
        "checkpoints",
        "client-ca.crt",
        "cluster-facts.json",
        "cni",
        "cni-agent",
        "cni-plugins",
        "cni-state",
        "containerd",
        "cpu_manager_state",
        "device-plugins",
        "dns-zone",
        "dra_manager_state",
        "graceful_node_shutdown_state",
        "host-settings",
        "image_manager",
        "images",
        "kube-proxy.kubeconfig",
        "kubeconfig",
        "kubelet.crt",
        "kubelet.key",
        "local-volumes",
        "logs",
        "memory_manager_state",
        "oom-watcher",
        "plugins",
        "plugins_registry",
        "pod-resources",
        "pods",
        "run",
    ],
    marks: &["agent.pid", "client-ca.crt", "containerd", "kubeconfig"],
};
/// Names in `pki`: those of certificates and keys.
const PKI: &[&str] = &[
    "apiserver",
    "apiserver-kubelet-client",
    "ca",
    "front-proxy-ca",
    "front-proxy-client",
    "sa",
];
/// Beginnings of names in `storage`.
const STORAGE: &[&str] = &["ACTIVE", "LOCK", "checkpoint-", "log-", "reserve-", "restore.tmp"];
/// Beginnings of paths, in an agent's directory, on which the agent mounts. Mounts elsewhere are the operator's disks.
const MOUNTS: &[&str] = &["containerd/namespace", "containerd/state", "pods", "run"];

/// The directories of one cluster, without links on the way to them.
#[derive(Debug)]
pub(crate) struct Directories {
    /// The server's; absent on a machine that only has an agent.
    pub(super) server: Option<PathBuf>,
    /// The agent's, whether below the server's or elsewhere; absent beside a server without an agent.
    pub(super) agent: Option<PathBuf>,
}

impl Directories {
    /// Recognises the directories of a cluster.
    ///
    /// # Errors
    /// The directory is absent, is one of the system's or of a user's, or holds something else.
    pub(super) fn find(data_dir: &Path) -> anyhow::Result<Self> {
        let dir = existing(data_dir, "there is nothing to remove")?;
        guard(&dir)?;
        let names = names(&dir)?;
        if SERVER.is_of(&names) {
            holds_only(&dir, &names, SERVER.names)?;
            hold_only_own_files(&dir)?;
            let agent = agent_of(&dir)?;
            return Ok(Self {
                server: Some(dir),
                agent,
            });
        }
        ensure!(AGENT.is_of(&names), "{}", no_cluster(&dir));
        check_agent(&dir)?;
        Ok(Self {
            server: None,
            agent: Some(dir),
        })
    }

    /// Recognises the directory of an agent that has joined a cluster of another machine.
    ///
    /// # Errors
    /// Those of [`Self::find`], and a directory of a server or in one's: with it a cluster would be removed, not a node.
    pub(crate) fn find_agent(data_dir: &Path) -> anyhow::Result<Self> {
        let found = Self::find(data_dir)?;
        let dir = found.agent.as_deref().unwrap_or(data_dir);
        let is_servers = |dir: &Path| names(dir).is_ok_and(|names| SERVER.is_of(&names));
        ensure!(
            found.server.is_none() && !dir.parent().is_some_and(is_servers),
            "{} belongs to a server, with which the cluster would go; `knarr uninstall` removes it",
            data_dir.display()
        );
        Ok(found)
    }

    /// The directory of the agent, where there is one.
    pub(crate) fn agent(&self) -> Option<&Path> {
        self.agent.as_deref()
    }

    /// The directories of a cluster of which nothing is to be removed: whatever else lies there is left out of account.
    ///
    /// # Errors
    /// The directory is absent, or not one of a cluster.
    pub(crate) fn locate(data_dir: &Path) -> anyhow::Result<Self> {
        let dir = existing(data_dir, "there is no cluster")?;
        let names = names(&dir)?;
        if SERVER.is_of(&names) {
            let agent = dir.join("agent").canonicalize().ok();
            agent.iter().try_for_each(|agent| has_owner_of(&dir, agent))?;
            return Ok(Self {
                server: Some(dir),
                agent,
            });
        }
        ensure!(AGENT.is_of(&names), "{}", no_cluster(&dir));
        Ok(Self {
            server: None,
            agent: Some(dir),
        })
    }

    /// Both, the outer one first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        [&self.server, &self.agent]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
    }

    pub(super) fn list(&self) -> Vec<String> {
        let inside = |path: &&Path| {
            self.server
                .as_deref()
                .is_some_and(|server| *path != server && path.starts_with(server))
        };
        let own = self.all().filter(|path| !inside(path));
        own.map(|path| format!("directory   {}", path.display()))
            .collect()
    }

    /// Removes them with all that is in them. No link is followed; nothing may be mounted inside them any more. A directory on
    /// which a disk is mounted stays, empty.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        // The agent's first: after an interruption the server's still leads to it.
        for (folder, layout) in [(&self.agent, &AGENT), (&self.server, &SERVER)] {
            let Some(folder) = folder else { continue };
            empty(folder, layout)?;
            match fs::remove_dir(folder) {
                // A disk is mounted there, or on the agent's directory in it.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty
                    ) =>
                {
                    super::say(&format!("{} stays: a disk is mounted there", folder.display()))?;
                }
                removed => removed.with_context(|| format!("removing {}", folder.display()))?,
            }
        }
        Ok(())
    }
}

/// Empties a directory of the cluster. Users may rename those above it: what is opened is looked at once more, and emptied whatever
/// takes its name meanwhile.
fn empty(folder: &Path, layout: &Layout) -> anyhow::Result<()> {
    let opened = OpenFolder::open(folder).with_context(|| format!("opening {}", folder.display()))?;
    let is_disk = is_mount_point(folder);
    let names = opened
        .names(usize::MAX)
        .with_context(|| format!("reading {}", folder.display()))?;
    let names = names.into_iter().map(|entry| entry.name);
    let mut names: Vec<String> = names
        .filter(|name| !(is_disk && name == LOST_AND_FOUND))
        .collect();
    holds_only(folder, &names, layout.names)?;
    // The marks last, by which what is left after an interruption is recognised.
    names.sort_by_key(|name| SERVER.marks.contains(&name.as_str()) || AGENT.marks.contains(&name.as_str()));
    for name in names.iter().filter(|name| !opened.is_mount_point(name)) {
        let removed = remove_entry(&opened.path().join(name));
        removed.with_context(|| format!("removing {}", folder.join(name).display()))?;
    }
    Ok(())
}

/// The directory without links on the way to it; `problem` is the error for one that is absent.
fn existing(data_dir: &Path, problem: &str) -> anyhow::Result<PathBuf> {
    match data_dir.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{problem}: {} does not exist", data_dir.display())
        }
        found => found.with_context(|| format!("--data-dir {}", data_dir.display())),
    }
}

fn no_cluster(dir: &Path) -> String {
    format!(
        "{} is not the data directory of a cluster: it has neither {} nor {}",
        dir.display(),
        SERVER.marks.join(", "),
        AGENT.marks.join(", ")
    )
}

fn names(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    // A disk that is mounted there has a folder of its file system's own.
    let is_disk = is_mount_point(dir);
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: anyhow::Result<Vec<String>> = names.collect();
    Ok(names?
        .into_iter()
        .filter(|name| !(is_disk && name == LOST_AND_FOUND))
        .collect())
}

fn is_mount_point(dir: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
    dir.parent().is_some_and(|parent| device(parent) != device(dir))
}

/// Refuses a directory with an entry of another name.
fn holds_only(dir: &Path, names: &[String], known: &[&str]) -> anyhow::Result<()> {
    let foreign = names.iter().filter(|name| !known.contains(&plain(name)));
    refuse_foreign(dir, foreign)
}

fn refuse_foreign<'a>(dir: &Path, foreign: impl Iterator<Item = &'a String>) -> anyhow::Result<()> {
    let foreign: Vec<&str> = foreign.map(String::as_str).take(NAMES_QUOTED_MAX).collect();
    ensure!(
        foreign.is_empty(),
        "{} holds files that are not Knarr's: {}; move them away first",
        dir.display(),
        foreign.join(", ")
    );
    Ok(())
}

/// The name without what a write that was interrupted has added to it.
fn plain(name: &str) -> &str {
    let name = [".tmp", ".new"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    name.strip_prefix('.').unwrap_or(name)
}

/// Looks into the directories of the server that hold nothing but files.
fn hold_only_own_files(server: &Path) -> anyhow::Result<()> {
    let pki = server.join("pki");
    if pki.is_dir() {
        let is_own = |name: &str| {
            let (stem, end) = plain(name).rsplit_once('.').unwrap_or((name, ""));
            PKI.contains(&stem) && matches!(end, "crt" | "key" | "pub" | "srl")
        };
        refuse_foreign(&pki, names(&pki)?.iter().filter(|name| !is_own(name)))?;
    }
    let storage = server.join("storage");
    if storage.is_dir() {
        let is_own = |name: &str| {
            STORAGE
                .iter()
                .any(|begin| name.trim_start_matches('.').starts_with(begin))
        };
        refuse_foreign(&storage, names(&storage)?.iter().filter(|name| !is_own(name)))?;
    }
    refuse_mounts(server, &[])
}

/// The agent's directory of a server's, elsewhere where that is a link.
fn agent_of(server: &Path) -> anyhow::Result<Option<PathBuf>> {
    let agent = match server.join("agent").canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.with_context(|| format!("{}/agent", server.display()))?,
    };
    guard(&agent)?;
    has_owner_of(server, &agent)?;
    check_agent(&agent)?;
    Ok(Some(agent))
}

/// Refuses an agent's directory that a link of another user leads to.
fn has_owner_of(server: &Path, agent: &Path) -> anyhow::Result<()> {
    let owner = |dir: &Path| {
        let found = fs::metadata(dir);
        found
            .map(|found| found.uid())
            .with_context(|| dir.display().to_string())
    };
    let own = owner(server)?;
    ensure!(
        own == 0 || own == owner(agent)?,
        "{} belongs to another user than {}",
        agent.display(),
        server.display()
    );
    Ok(())
}

fn check_agent(agent: &Path) -> anyhow::Result<()> {
    holds_only(agent, &names(agent)?, AGENT.names)?;
    refuse_mounts(agent, MOUNTS)
}

/// Refuses where something is mounted below a directory that the agent has not mounted there.
fn refuse_mounts(dir: &Path, own: &[&str]) -> anyhow::Result<()> {
    let is_own = |inside: &Path| own.iter().any(|begin| inside.starts_with(begin));
    for point in LinuxMounter.below(dir)? {
        let inside = point.strip_prefix(dir).unwrap_or(&point);
        // The agent's directory has a look of its own.
        let is_agents = own.is_empty() && inside.starts_with("agent");
        let is_itself = inside.as_os_str().is_empty();
        ensure!(
            is_itself || is_agents || is_own(inside),
            "{} is a mount that is not Knarr's: unmount it first",
            point.display()
        );
    }
    Ok(())
}

fn remove_entry(path: &Path) -> std::io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    match found.is_dir() {
        true => remove_tree(path),
        false => fs::remove_file(path),
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
