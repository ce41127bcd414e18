//! Cgroups of a cluster's pods.

use super::files::entries;
use machinery_runtime::Runtime;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for groups to become empty, in steps: a process that was killed leaves its group a moment later.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Groups below the parent of all pods' groups, in every hierarchy, the innermost first.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<PathBuf>,
    /// Names of the groups of this cluster's pods.
    pods: BTreeSet<String>,
}

impl Groups {
    /// Groups below `cgroup_root`, the agent's flag; `pods` is the folder of the pods' volumes, by uid.
    pub(super) fn find(cgroup_root: &str, pods: &Path) -> Self {
        Self::find_in(Path::new(node_sys::cgroup::CGROUP_ROOT), cgroup_root, pods)
    }

    fn find_in(root: &Path, cgroup_root: &str, pods: &Path) -> Self {
        let parent = cgroup_root.trim_matches('/');
        let mut found = Self::default();
        let hierarchies = entries(root)
            .into_iter()
            .filter(|path| path.is_dir() && !path.is_symlink());
        for hierarchy in hierarchies.chain([root.to_owned()]) {
            collect(&hierarchy.join(parent).join("kubepods"), &mut found.all);
            if !parent.is_empty() && hierarchy.join(parent).is_dir() {
                found.all.push(hierarchy.join(parent));
            }
        }
        let uids = entries(pods).into_iter();
        let name = |path: PathBuf| Some(format!("pod{}", path.file_name()?.to_str()?));
        found.pods = uids.filter_map(name).collect();
        found
    }

    pub(super) fn list(&self) -> Option<String> {
        let count = self.all.len();
        (count > 0).then(|| format!("cgroups     {count}"))
    }

    /// Removes what is empty: the groups of this cluster's pods, and if nothing runs in any other, those too.
    pub(super) async fn remove(&self, runtime: &Runtime) {
        let (mut own, mut others): (Vec<_>, Vec<_>) =
            self.all.iter().cloned().partition(|group| self.is_pods(group));
        for _ in 0..ATTEMPTS {
            remove_empty(&mut own);
            if own.is_empty() {
                break;
            }
            runtime.sleep(PAUSE).await;
        }
        // Groups in which something runs are those of another node's pods, and so are empty ones beside them.
        if !others.iter().any(|group| is_occupied(group)) {
            remove_empty(&mut others);
        }
    }

    fn is_pods(&self, group: &Path) -> bool {
        let mut names = group.components().filter_map(|part| part.as_os_str().to_str());
        names.any(|name| self.pods.contains(name))
    }
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    if !folder.is_dir() {
        return;
    }
    for inner in entries(folder).into_iter().filter(|path| path.is_dir()) {
        collect(&inner, found);
    }
    found.push(folder.to_owned());
}

fn remove_empty(groups: &mut Vec<PathBuf>) {
    groups.retain(|group| matches!(fs::remove_dir(group), Err(error) if error.kind() != ErrorKind::NotFound));
}

fn is_occupied(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| !pids.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(root: &Path, occupied: bool) -> (Groups, PathBuf, PathBuf) {
        let kubepods = root.join("cgroup/memory/own/kubepods");
        let (ours, other) = (kubepods.join("burstable/podours"), kubepods.join("podother"));
        for folder in [ours.join("container"), other.clone(), root.join("pods/ours")] {
            fs::create_dir_all(folder).unwrap();
        }
        if occupied {
            fs::write(other.join("cgroup.procs"), "17\n").unwrap();
        }
        (
            Groups::find_in(&root.join("cgroup"), "/own", &root.join("pods")),
            ours,
            other,
        )
    }

    fn remove(groups: &Groups) {
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        executor.block_on(async { groups.remove(&Runtime::real()).await });
    }

    #[test]
    fn uninstall_removes_the_groups_of_its_pods() {
        let folder = tempfile::tempdir().unwrap();
        let (found, ours, _) = groups(folder.path(), false);
        remove(&found);
        assert!(!ours.try_exists().unwrap());
        assert!(!folder.path().join("cgroup/memory/own").try_exists().unwrap());
    }

    #[test]
    fn uninstall_leaves_the_groups_of_another_nodes_pods() {
        let folder = tempfile::tempdir().unwrap();
        let (found, ours, other) = groups(folder.path(), true);
        remove(&found);
        assert!(!ours.try_exists().unwrap() && other.try_exists().unwrap());
        assert!(
            folder
                .path()
                .join("cgroup/memory/own/kubepods/burstable")
                .try_exists()
                .unwrap()
        );
    }
}
