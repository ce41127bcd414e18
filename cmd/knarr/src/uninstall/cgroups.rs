//! Cgroups of a cluster's pods, of either driver.

use super::files::entries;
use machinery_runtime::Runtime;
use node_sys::cgroup::CgroupDriver;
use node_sys::systemd::SystemdManager;
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
    /// Names of the groups of this cluster's pods, without those around them.
    pods: BTreeSet<String>,
    /// Groups that are systemd's slices, the innermost first: paths below the root of a hierarchy.
    slices: Vec<PathBuf>,
}

impl Groups {
    /// Groups below `cgroup_root`, the agent's flag; `pods` is the folder of the pods' volumes, by uid.
    pub(super) fn find(cgroup_root: &str, pods: &Path) -> Self {
        Self::find_in(Path::new(node_sys::cgroup::CGROUP_ROOT), cgroup_root, pods)
    }

    fn find_in(root: &Path, cgroup_root: &str, pods: &Path) -> Self {
        let mut found = Self::default();
        for hierarchy in hierarchies(root) {
            for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
                let place = |path: String| hierarchy.join(path.trim_matches('/'));
                let parent = place(driver.path(cgroup_root.split('/')));
                let all = driver.path(cgroup_root.split('/').chain(["kubepods"]));
                let before = found.all.len();
                collect(&place(all), &mut found.all);
                if parent != hierarchy && parent.is_dir() {
                    found.all.push(parent);
                }
                if driver == CgroupDriver::Systemd {
                    let new = found.all[before..].iter();
                    let path = |group: &PathBuf| Some(group.strip_prefix(&hierarchy).ok()?.to_owned());
                    found
                        .slices
                        .extend(new.filter_map(path).filter(|path| slice(path).is_some()));
                }
            }
        }
        found
            .slices
            .sort_by_key(|path| (std::cmp::Reverse(path.components().count()), path.clone()));
        found.slices.dedup();
        let uids = entries(pods).into_iter();
        let name = |path: PathBuf| Some(format!("pod{}", path.file_name()?.to_str()?));
        let names = uids.filter_map(name);
        found.pods = names.flat_map(|name| [name.replace('-', "_"), name]).collect();
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
        self.stop_slices(runtime, |path| self.is_pods(path)).await;
        remove_soon(&mut own, runtime).await;
        // Groups in which something runs are those of another node's pods, and so are empty ones beside them.
        if !others.iter().any(|group| is_occupied(group)) {
            self.stop_slices(runtime, |path| !self.is_pods(path)).await;
            remove_empty(&mut others);
        }
    }

    /// Has systemd remove slices: it makes those again that are removed under its hands.
    async fn stop_slices(&self, runtime: &Runtime, are_chosen: impl Fn(&Path) -> bool) {
        let chosen = self.slices.iter().filter(|path| are_chosen(path));
        let names: Vec<&str> = chosen.filter_map(|path| slice(path)).collect();
        if names.is_empty() || !node_sys::systemd::is_running() {
            return;
        }
        let systemd = SystemdManager::new(runtime.clone(), None);
        for name in names {
            // What is left is empty, and ends with the machine.
            let _ = systemd.stop_slice(name).await;
        }
    }

    fn is_pods(&self, group: &Path) -> bool {
        let mut names = group.components().filter_map(|part| part.as_os_str().to_str());
        names.any(|name| {
            let own = name
                .strip_suffix(".slice")
                .and_then(|name| name.rsplit('-').next());
            self.pods.contains(own.unwrap_or(name))
        })
    }
}

/// Folders in which groups may lie: the root itself, and those in it.
fn hierarchies(root: &Path) -> Vec<PathBuf> {
    let mut found = entries(root);
    found.retain(|path| path.is_dir() && !path.is_symlink());
    found.push(root.to_owned());
    found
}

/// Name of the slice with this path.
fn slice(path: &Path) -> Option<&str> {
    path.file_name()?.to_str().filter(|name| name.ends_with(".slice"))
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

/// Removes groups as soon as they are empty.
async fn remove_soon(groups: &mut Vec<PathBuf>, runtime: &Runtime) {
    for _ in 0..ATTEMPTS {
        remove_empty(groups);
        if groups.is_empty() {
            break;
        }
        runtime.sleep(PAUSE).await;
    }
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

    #[test]
    fn uninstall_knows_slices_of_its_pods() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let all = root.join("cgroup/memory/own.slice/own-kubepods.slice");
        let ours = all.join("own-kubepods-burstable.slice/own-kubepods-burstable-podo_1.slice");
        let other = all.join("own-kubepods-podother.slice");
        for folder in [
            &ours.join("cri-containerd-7.scope"),
            &other,
            &root.join("pods/o-1"),
        ] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(other.join("cgroup.procs"), "17\n").unwrap();
        let found = Groups::find_in(&root.join("cgroup"), "/own", &root.join("pods"));
        assert_eq!(found.slices.len(), 5);
        assert_eq!(
            slice(&found.slices[0]),
            Some("own-kubepods-burstable-podo_1.slice"),
            "the innermost first"
        );
        remove(&found);
        assert!(!ours.try_exists().unwrap() && other.try_exists().unwrap());
    }
}
