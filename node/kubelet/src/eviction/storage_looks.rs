//! Sizes of pods' emptyDirs and logs, counted in a task of its own.
//!
//! A pod may write millions of files: a pass looks at a bounded number of names, goes on with a large tree in the next, and
//! begins a tree again only after twenty times the time that the last count of it took, so that counting costs a twentieth
//! of a thread at most. Namespaces share a pass: none keeps the others' trees from being counted by the number of its own.
//! Counts that go on hold folders open, a bounded number in all: one that begins ends the longest of the namespace that holds
//! most, which stands at what it found. The count so far is known meanwhile: a pod that is above its limit is found out before its
//! tree was seen whole. Only pods with limits are looked at, and all while the node's disk is short.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Runtime;
use node_sys::blocking::BlockingLane;
use node_sys::fs::{DiskUsage, TreeCount};
use parking_lot::Mutex;

use super::local_storage::{has_limit, is_on_disk};
use super::pod_storage::PodStorage;
use crate::config::KubeletConfig;
use crate::containers::files;
use crate::managers::ManagerContext;
use crate::pods::{namespace, spec, uid};

/// Pause between two passes.
const PASS_AFTER: Duration = Duration::from_secs(10);
/// A tree that took time is counted again after so many times as long.
const REST_PER_COUNT: u32 = 20;
/// Names that a pass looks at: about a second.
const NAMES_PER_PASS: usize = 300_000;
/// Names read in one tree, so that none keeps the others waiting.
const NAMES_PER_TREE: usize = 60_000;
/// Names that a visit of a tree costs at least: its folder is opened.
const NAMES_PER_VISIT: usize = 100;
/// Descriptors that all counts together hold: the deepest trees are counted some eight at a time.
const DESCRIPTORS_MAX: usize = 8 * TreeCount::MAX_DESCRIPTORS;
/// A pass that takes longer is stuck in the file system.
const PASS_DEADLINE: Duration = Duration::from_secs(60);

/// Counts for ever.
pub(crate) async fn run(context: ManagerContext) {
    let looks = Arc::clone(&context.workers.storage);
    let runtime = context.runtime.clone();
    let lane = BlockingLane::with_deadline(runtime.clone(), PASS_DEADLINE);
    let trees: Arc<Mutex<Trees>> = Arc::default();
    loop {
        let everyone = looks.looks_at_everyone(runtime.monotonic());
        let pods = context.pods.list();
        let wanted: Vec<Arc<Pod>> = pods
            .into_iter()
            .filter(|pod| everyone || has_limit(pod))
            .collect();
        let (own, config, clock) = (trees.clone(), context.config.clone(), runtime.clone());
        let pass = move || own.lock().pass(&config, &wanted, &clock);
        let passed = lane.run("counting the files of pods", pass).await;
        looks.passed(
            passed
                .map_err(|error| tracing::warn!(%error, "sizes of pods' files not known"))
                .ok(),
        );
        tokio::select! {
            biased;
            () = looks.wanted() => {}
            () = runtime.sleep(PASS_AFTER) => {}
        }
    }
}

/// A tree of a pod: of a volume or of a container's logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TreeName {
    Volume(String),
    Logs(String),
}

/// Namespace and uid of a pod, and a tree of it.
type Key = (String, String, TreeName);

/// Trees of pods.
#[derive(Debug, Default)]
struct Trees {
    all: BTreeMap<Key, Tree>,
    /// The tree of each namespace that the last pass did not come to.
    next: HashMap<String, Key>,
    /// The namespace with which the last pass began.
    first: String,
}

/// Knowledge of a tree.
#[derive(Debug, Default)]
struct Tree {
    count: Option<TreeCount>,
    /// The last count that came to its end.
    whole: DiskUsage,
    ended_at: Option<Duration>,
    /// Time that the count has taken so far, or the last one.
    took: Duration,
}

impl Trees {
    /// Blocks.
    fn pass(
        &mut self,
        config: &KubeletConfig,
        pods: &[Arc<Pod>],
        clock: &Runtime,
    ) -> HashMap<String, PodStorage> {
        let mut paths: BTreeMap<String, BTreeMap<Key, PathBuf>> = BTreeMap::new();
        for pod in pods {
            let key = |name| (namespace(pod).to_owned(), uid(pod).to_owned(), name);
            let trees = trees_of(config, pod).into_iter();
            let own = paths.entry(namespace(pod).to_owned()).or_default();
            own.extend(trees.map(|(name, path)| (key(name), path)));
        }
        let is_wanted = |key: &Key| paths.get(&key.0).is_some_and(|own| own.contains_key(key));
        self.all.retain(|key, _| is_wanted(key));
        self.next.retain(|namespace, _| paths.contains_key(namespace));
        let mut left = NAMES_PER_PASS;
        let (before, after): (Vec<_>, Vec<_>) =
            paths.iter().partition(|(namespace, _)| **namespace <= self.first);
        let all: Vec<_> = after.into_iter().chain(before).collect();
        for (at, (_, own)) in all.iter().enumerate() {
            left -= self.pass_of_namespace(own, left / (all.len() - at), clock);
        }
        self.first = all
            .first()
            .map(|(namespace, _)| (*namespace).clone())
            .unwrap_or_default();
        self.sizes(pods)
    }

    /// Goes on with the trees of one namespace, by so many names, and returns how many that took.
    fn pass_of_namespace(&mut self, paths: &BTreeMap<Key, PathBuf>, names: usize, clock: &Runtime) -> usize {
        let Some(((namespace, ..), _)) = paths.first_key_value() else {
            return 0;
        };
        let begin = self.next.remove(namespace);
        let from = begin.as_ref();
        let (before, after): (Vec<_>, Vec<_>) = paths
            .iter()
            .partition(|(key, _)| from.is_some_and(|from| *key < from));
        let mut left = names;
        for (key, path) in after.into_iter().chain(before) {
            if left == 0 {
                self.next.insert(namespace.clone(), key.clone());
                break;
            }
            left -= self.visit(key, path, left.min(NAMES_PER_TREE), clock).min(left);
        }
        names - left
    }

    /// Goes on with a tree that is due, and returns the names that this costs.
    fn visit(&mut self, key: &Key, path: &Path, names: usize, clock: &Runtime) -> usize {
        let began = clock.monotonic();
        let known = self.all.get(key);
        if known.is_none_or(|tree| tree.count.is_none() && tree.is_due(began)) {
            self.make_room(began);
        }
        let tree = self.all.entry(key.clone()).or_default();
        if !tree.is_due(began) {
            return 0;
        }
        let used = tree.go_on(path, names).max(NAMES_PER_VISIT);
        tree.rest_after(began, clock.monotonic());
        used
    }

    /// Ends counts until the deepest tree has room: of the namespace that holds most the one that took longest.
    fn make_room(&mut self, now: Duration) {
        let held = |tree: &Tree| tree.count.as_ref().map_or(0, TreeCount::descriptors);
        let mut by_namespace: HashMap<String, usize> = HashMap::new();
        for ((namespace, ..), tree) in self.all.iter().filter(|(_, tree)| tree.count.is_some()) {
            *by_namespace.entry(namespace.clone()).or_default() += held(tree);
        }
        while by_namespace.values().sum::<usize>() + TreeCount::MAX_DESCRIPTORS > DESCRIPTORS_MAX {
            let Some((namespace, all)) = by_namespace.iter_mut().max_by_key(|(_, held)| **held) else {
                return;
            };
            let own = self
                .all
                .iter_mut()
                .filter(|(key, tree)| key.0 == *namespace && tree.count.is_some());
            let Some((_, longest)) = own.max_by_key(|(_, tree)| tree.took) else {
                return;
            };
            *all -= held(longest);
            longest.give_up(now);
        }
    }

    fn sizes(&self, pods: &[Arc<Pod>]) -> HashMap<String, PodStorage> {
        let known: HashSet<&str> = pods.iter().map(|pod| uid(pod)).collect();
        let mut sizes: HashMap<String, PodStorage> = HashMap::new();
        for ((_, uid, name), tree) in &self.all {
            if !known.contains(uid.as_str()) {
                continue;
            }
            let storage = sizes.entry(uid.clone()).or_default();
            match name {
                TreeName::Volume(name) => storage.volumes.insert(name.clone(), tree.usage()),
                TreeName::Logs(name) => storage.logs.insert(name.clone(), tree.usage()),
            };
        }
        sizes
    }
}

impl Tree {
    fn is_due(&self, now: Duration) -> bool {
        let rest = (self.took * REST_PER_COUNT).max(PASS_AFTER / 2);
        self.count.is_some()
            || self
                .ended_at
                .is_none_or(|ended| now.saturating_sub(ended) >= rest)
    }

    /// Counts on by so many names, and returns how many that took.
    fn go_on(&mut self, path: &Path, names: usize) -> usize {
        if self.count.is_none() {
            self.took = Duration::ZERO;
            self.count = TreeCount::begin(path).ok();
        }
        let Some(count) = &mut self.count else {
            self.whole = DiskUsage::default();
            return 0;
        };
        let used = count.go_on(names);
        if count.is_through() {
            if count.is_deeper() {
                tracing::warn!(path = %path.display(), "a part of a pod's files lies too deep to be counted");
            }
            self.whole = count.counted();
            self.count = None;
        }
        used
    }

    /// Ends a count before its end: at least what it has found is there.
    fn give_up(&mut self, now: Duration) {
        self.whole = self.usage();
        self.count = None;
        self.ended_at = Some(now);
    }

    fn rest_after(&mut self, began: Duration, now: Duration) {
        self.took += now.saturating_sub(began);
        self.ended_at = self.count.is_none().then_some(now);
    }

    /// The last whole count, or more where the one that goes on has found more.
    fn usage(&self) -> DiskUsage {
        let counted = self.count.as_ref().map(TreeCount::counted).unwrap_or_default();
        DiskUsage {
            bytes: self.whole.bytes.max(counted.bytes),
            inodes: self.whole.inodes.max(counted.inodes),
        }
    }
}

fn trees_of(config: &KubeletConfig, pod: &Pod) -> Vec<(TreeName, PathBuf)> {
    let folder = files::pod_folder(config, uid(pod));
    let volumes = spec(pod).volumes.iter().flatten();
    let on_disk = volumes.filter(|volume| volume.empty_dir.as_ref().is_some_and(is_on_disk));
    let volumes = on_disk.map(|volume| {
        let path = node_volume::empty_dir_path(&folder, &volume.name);
        (TreeName::Volume(volume.name.clone()), path)
    });
    let logs = files::log_folder(config, pod);
    let containers = crate::pods::all_containers(pod).map(|(_, container)| {
        let path = logs.join(&container.name);
        (TreeName::Logs(container.name.clone()), path)
    });
    volumes.chain(containers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Arc<Pod> {
        let volume =
            |name: &str, medium: &str| serde_json::json!({"name": name, "emptyDir": {"medium": medium}});
        let pod = serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": uid},
            "spec": {"containers": [{"name": "main"}], "volumes": [volume("disk", ""), volume("memory", "Memory")]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn storage_of_pods_is_counted_in_passes() {
        let folder = tempfile::tempdir().unwrap();
        let config = KubeletConfig::for_data_dir(folder.path().to_owned());
        let simulation = machinery_runtime::Simulation::new(1);
        let clock = simulation.runtime();
        let (one, other) = (pod("one"), pod("other"));
        let volume = node_volume::empty_dir_path(&files::pod_folder(&config, "one"), "disk");
        std::fs::create_dir_all(&volume).unwrap();
        std::fs::write(volume.join("file"), vec![1; 1 << 20]).unwrap();
        let logs = files::log_folder(&config, &one).join("main");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join("0.log"), vec![1; 1 << 16]).unwrap();
        simulation.run(async move {
            let mut trees = Trees::default();
            let known = trees.pass(&config, &[one.clone(), other], &clock);
            assert!(known["one"].volumes["disk"].bytes >= 1 << 20);
            assert!(known["one"].logs["main"].bytes >= 1 << 16);
            assert_eq!(known["one"].volumes.len(), 1, "what is in memory is not counted");
            assert_eq!(known["other"].volumes["disk"], DiskUsage::default());
            std::fs::remove_file(volume.join("file")).unwrap();
            let before = trees.pass(&config, std::slice::from_ref(&one), &clock);
            assert_eq!(before["one"], known["one"], "it is not due yet");
            assert!(!before.contains_key("other"));
            clock.sleep(PASS_AFTER).await;
            let after = trees.pass(&config, std::slice::from_ref(&one), &clock);
            assert!(after["one"].volumes["disk"].bytes < 1 << 20);
            assert_eq!(trees.all.len(), 2);
        });
    }

    #[test]
    fn storage_of_many_deep_trees_holds_few_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let config = KubeletConfig::for_data_dir(folder.path().to_owned());
        let simulation = machinery_runtime::Simulation::new(1);
        let clock = simulation.runtime();
        let pods: Vec<Arc<Pod>> = (0..20).map(|number| pod(&format!("{number:02}"))).collect();
        for number in 0..20 {
            let mut deep =
                node_volume::empty_dir_path(&files::pod_folder(&config, &format!("{number:02}")), "disk");
            (0..300).for_each(|_| deep.push("d"));
            std::fs::create_dir_all(&deep).unwrap();
        }
        simulation.run(async move {
            let mut trees = Trees::default();
            let at = Duration::from_secs;
            for (number, pod) in pods.iter().enumerate() {
                trees.make_room(at(number as u64));
                for (name, path) in trees_of(&config, pod) {
                    let tree = trees
                        .all
                        .entry(("n".to_owned(), uid(pod).to_owned(), name))
                        .or_default();
                    tree.go_on(&path, 290);
                    tree.rest_after(clock.monotonic(), clock.monotonic());
                }
                let held = trees.all.values().filter_map(|tree| tree.count.as_ref());
                let held: usize = held.map(TreeCount::descriptors).sum();
                assert!(held <= DESCRIPTORS_MAX, "{held} descriptors after {number} pods");
            }
            let first = &trees.all[&(
                "n".to_owned(),
                "00".to_owned(),
                TreeName::Volume("disk".to_owned()),
            )];
            assert!(first.usage().inodes > 200, "what was found stands");
        });
    }

    #[test]
    fn storage_of_a_pod_is_known_beside_thousands_of_empty_trees() {
        let folder = tempfile::tempdir().unwrap();
        let config = KubeletConfig::for_data_dir(folder.path().to_owned());
        let simulation = machinery_runtime::Simulation::new(1);
        let clock = simulation.runtime();
        let crowd = |number: usize| {
            let volumes: Vec<_> = (0..100)
                .map(|at| serde_json::json!({"name": format!("v{at}"), "emptyDir": {}}))
                .collect();
            let pod = serde_json::json!({
                "metadata": {"name": "p", "namespace": "a-crowd", "uid": format!("{number:03}")},
                "spec": {"containers": [], "volumes": volumes},
            });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let mut pods: Vec<Arc<Pod>> = (0..60).map(crowd).collect();
        pods.push(pod("victim"));
        let volume = node_volume::empty_dir_path(&files::pod_folder(&config, "victim"), "disk");
        std::fs::create_dir_all(&volume).unwrap();
        std::fs::write(volume.join("file"), vec![1; 1 << 20]).unwrap();
        simulation.run(async move {
            let mut trees = Trees::default();
            let known = trees.pass(&config, &pods, &clock);
            assert!(known["victim"].volumes["disk"].bytes >= 1 << 20);
            assert!(
                trees.next.contains_key("a-crowd"),
                "six thousand trees take more than one pass"
            );
            let looked_at = trees.all.len();
            assert!(looked_at > 1_000, "{looked_at} trees in a pass");
            trees.pass(&config, &pods, &clock);
            assert!(trees.all.len() > looked_at, "it goes on where it ended");
        });
    }

    #[test]
    fn storage_of_a_large_tree_is_known_before_its_end() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..100 {
            std::fs::write(folder.path().join(format!("{number}")), "x").unwrap();
        }
        let mut tree = Tree::default();
        let at = Duration::from_secs;
        assert!(tree.is_due(at(0)));
        tree.go_on(folder.path(), 50);
        tree.rest_after(at(0), at(1));
        assert_eq!(tree.usage().inodes, 51);
        assert!(tree.is_due(at(1)), "it goes on");
        tree.go_on(folder.path(), 1000);
        tree.rest_after(at(11), at(12));
        assert_eq!(tree.usage().inodes, 101);
        assert!(!tree.is_due(at(12 + 39)));
        assert!(
            tree.is_due(at(12 + 40)),
            "twenty times the two seconds that it took"
        );
        tree.go_on(folder.path(), 10);
        assert_eq!(tree.usage().inodes, 101, "the last whole count stands meanwhile");
    }
}
