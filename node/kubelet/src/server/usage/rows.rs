//! Figures of groups: the machine, all pods together, each pod, its sandbox and its containers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use node_sys::blocking::BlockingLane;
use node_sys::cgroup::GroupFigures;
use node_sys::machine::memory_bytes;
use node_sys::proc_figures::{
    DiskFigures, FileBudget, FileSystem, LinkFigures, OpenFiles, block_device_name, disks, file_systems,
    links, mounts, open_file_limit, open_files,
};

use super::listing::{ListedPod, running_pods};
use crate::containers::groups::PodGroups;
use crate::containers::resources::Qos;
use crate::managers::ManagerContext;
use crate::pods::{name, namespace, uid};

/// A reading that takes longer is stuck in a file system.
const DEADLINE: Duration = Duration::from_secs(60);
/// Groups are read for so long; those that are left then are left out.
const READING_TIME: Duration = Duration::from_secs(30);
/// Names and time that the open files of all groups may take.
const FILE_NAMES_MAX: usize = 262_144;
const FILES_TIME: Duration = Duration::from_secs(10);

/// Everything at one moment.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Time of the reading.
    pub(crate) now: Timestamp,
    /// Groups that are there.
    pub(crate) rows: Vec<Row>,
    /// Time was over before all groups were read.
    pub(crate) cut: bool,
    /// The page made of them, once it was requested.
    pub(crate) page: OnceLock<Bytes>,
}

/// Kind of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// The whole machine.
    Machine,
    /// A group of pods.
    Pods,
    /// A pod.
    Pod,
    /// A pod's sandbox, which holds its network.
    Sandbox,
    /// A container of a pod.
    Container,
}

/// A group, and the labels of its figures; the names are cAdvisor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupName {
    pub(crate) kind: RowKind,
    /// Path of the group.
    pub(crate) id: String,
    /// Name of the container in its pod.
    pub(crate) container: String,
    /// Image of the container.
    pub(crate) image: String,
    /// The runtime's id of the container.
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// Uid of the pod.
    pub(crate) pod_uid: String,
    /// Time of creation, where the runtime says it.
    pub(crate) created_at: Option<Timestamp>,
}

/// Figures of a group.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) group: GroupName,
    pub(crate) figures: GroupFigures,
    /// Names of the block devices in [`GroupFigures::io`], in its order.
    pub(crate) devices: Vec<String>,
    pub(crate) files: OpenFiles,
    /// Files that the first process may open at once.
    pub(crate) open_file_limit: Option<u64>,
    /// Links of the machine, or of a sandbox.
    pub(crate) links: Vec<LinkFigures>,
    /// File systems of the machine, each with its disk.
    pub(crate) file_systems: Vec<(FileSystem, DiskFigures)>,
}

/// The lane of all readings: one that is stuck keeps the next from beginning.
pub(super) fn lane(context: &ManagerContext) -> BlockingLane {
    BlockingLane::with_deadline(context.runtime.clone(), DEADLINE)
}

/// Reads all groups.
pub(super) async fn read(context: &ManagerContext, lane: &BlockingLane) -> Result<Reading, String> {
    let listed = running_pods(&context.workers.control.cri).await;
    let listed = listed.map_err(|error| error.message())?;
    let booted_at = Timestamp::from_second(context.facts.machine.booted_at_seconds).ok();
    let groups = groups(
        context.config.groups(),
        &context.config.pause_image,
        booted_at,
        &context.pods.list(),
        listed,
    );
    let cgroups = Arc::clone(&context.workers.control.cgroups);
    let now = context.runtime.now();
    let runtime = context.runtime.clone();
    let reading = lane.run("reading the figures of groups", move || {
        let until = runtime.monotonic() + READING_TIME;
        let mut files = FileBudget::new(runtime.clone(), FILE_NAMES_MAX, FILES_TIME);
        let mut devices = Devices::default();
        rows(
            groups,
            || runtime.monotonic() >= until,
            |group| {
                let figures = cgroups.figures(&group.id)?;
                Some(row(group, figures, &mut devices, &mut files))
            },
        )
    });
    let (rows, cut) = reading.await.map_err(|error| error.to_string())?;
    Ok(Reading {
        now,
        rows,
        cut,
        page: OnceLock::new(),
    })
}

/// Groups that are to be read: of a pod without a sandbox none.
fn groups(
    paths: PodGroups<'_>,
    pause_image: &str,
    booted_at: Option<Timestamp>,
    pods: &[Arc<Pod>],
    mut listed: HashMap<String, ListedPod>,
) -> Vec<GroupName> {
    let classes = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];
    let mut groups = vec![GroupName {
        created_at: booted_at,
        ..GroupName::of(RowKind::Machine, "/".to_owned())
    }];
    groups.extend(classes.map(|class| GroupName::of(RowKind::Pods, paths.of_class(class))));
    for pod in pods {
        if let Some(listed) = listed.remove(uid(pod)) {
            groups.extend(groups_of(paths, pause_image, pod, listed));
        }
    }
    groups
}

fn groups_of(paths: PodGroups<'_>, pause_image: &str, pod: &Pod, listed: ListedPod) -> Vec<GroupName> {
    let of_pod = |kind, id| GroupName {
        namespace: namespace(pod).to_owned(),
        pod: name(pod).to_owned(),
        pod_uid: uid(pod).to_owned(),
        ..GroupName::of(kind, id)
    };
    let sandbox = GroupName {
        image: pause_image.to_owned(),
        created_at: Some(listed.created_at),
        name: listed.sandbox_id.clone(),
        ..of_pod(RowKind::Sandbox, paths.of_container(pod, &listed.sandbox_id))
    };
    let containers = listed.containers.into_iter().map(|own| GroupName {
        image: own.image,
        container: own.name,
        created_at: Some(own.created_at),
        name: own.id.clone(),
        ..of_pod(RowKind::Container, paths.of_container(pod, &own.id))
    });
    let mut groups = vec![of_pod(RowKind::Pod, paths.of_pod(pod)), sandbox];
    groups.extend(containers);
    groups
}

impl GroupName {
    fn of(kind: RowKind, id: String) -> Self {
        Self {
            kind,
            id,
            container: String::new(),
            image: String::new(),
            name: String::new(),
            namespace: String::new(),
            pod: String::new(),
            pod_uid: String::new(),
            created_at: None,
        }
    }
}

/// Reads the groups that are there until time is over, and reports whether groups were left then. Blocks.
fn rows(
    groups: Vec<GroupName>,
    is_over: impl Fn() -> bool,
    mut read: impl FnMut(GroupName) -> Option<Row>,
) -> (Vec<Row>, bool) {
    let mut rows = Vec::new();
    for group in groups {
        if is_over() {
            return (rows, true);
        }
        rows.extend(read(group));
    }
    (rows, false)
}

fn row(group: GroupName, mut figures: GroupFigures, devices: &mut Devices, files: &mut FileBudget) -> Row {
    if group.kind == RowKind::Machine {
        figures
            .limits
            .memory_bytes
            .get_or_insert_with(|| memory_bytes().1);
    }
    let processes = &figures.tasks.processes;
    let first = processes.first().copied();
    let own = |kind: RowKind| matches!(kind, RowKind::Sandbox | RowKind::Container);
    let links = match group.kind {
        // The node's network is the agent's.
        RowKind::Machine => i32::try_from(std::process::id()).ok().map(links),
        RowKind::Sandbox => first.map(links),
        _ => None,
    };
    let has_disks = group.kind == RowKind::Machine;
    Row {
        devices: figures.io.iter().map(|io| devices.name(io.device)).collect(),
        files: open_files(processes, files),
        open_file_limit: first.filter(|_| own(group.kind)).and_then(open_file_limit),
        links: links.unwrap_or_default(),
        file_systems: if has_disks { with_disks() } else { Vec::new() },
        figures,
        group,
    }
}

fn with_disks() -> Vec<(FileSystem, DiskFigures)> {
    let disks = disks();
    let all = file_systems(&mounts()).into_iter();
    all.map(|own| {
        let disk = disks.get(&own.device).copied().unwrap_or_default();
        (own, disk)
    })
    .collect()
}

/// Names of block devices that were looked up; of one that is gone its numbers.
#[derive(Debug, Default)]
struct Devices(BTreeMap<(u64, u64), String>);

impl Devices {
    fn name(&mut self, device: (u64, u64)) -> String {
        let unknown = || format!("{}:{}", device.0, device.1);
        let name = || block_device_name(device).unwrap_or_else(unknown);
        self.0.entry(device).or_insert_with(name).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::usage::listing::ListedContainer;
    use node_sys::cgroup::CgroupDriver;

    #[test]
    fn groups_are_the_machine_the_pods_and_what_runs_in_them() {
        let pod = |uid: &str| {
            let pod = serde_json::json!({
                "metadata": {"name": uid, "namespace": "shop", "uid": uid},
                // Of another image by now than what runs.
                "spec": {"containers": [{"name": "main", "image": "web:2"}]},
            });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let listed = ListedPod {
            sandbox_id: "s1".to_owned(),
            containers: vec![ListedContainer {
                id: "c1".to_owned(),
                name: "main".to_owned(),
                image: "web:1".to_owned(),
                ..ListedContainer::default()
            }],
            ..ListedPod::default()
        };
        let listed = HashMap::from([("u".to_owned(), listed)]);
        let paths = PodGroups {
            root: "/",
            driver: CgroupDriver::Cgroupfs,
        };
        let found = groups(paths, "pause:1", None, &[pod("u"), pod("waits")], listed);
        let found: Vec<_> = found
            .iter()
            .map(|own| {
                (
                    own.id.as_str(),
                    own.container.as_str(),
                    own.image.as_str(),
                    own.pod.as_str(),
                )
            })
            .collect();
        let expected = [
            ("/", "", "", ""),
            ("/kubepods", "", "", ""),
            ("/kubepods/burstable", "", "", ""),
            ("/kubepods/besteffort", "", "", ""),
            ("/kubepods/besteffort/podu", "", "", "u"),
            ("/kubepods/besteffort/podu/s1", "", "pause:1", "u"),
            ("/kubepods/besteffort/podu/c1", "main", "web:1", "u"),
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn groups_that_were_read_in_time_are_kept() {
        let groups = || vec![GroupName::of(RowKind::Pods, "/kubepods".to_owned()); 3];
        let read = |seconds: i32| {
            let spent = std::cell::Cell::new(0);
            let (rows, cut) = rows(
                groups(),
                || spent.get() >= seconds,
                |group| {
                    spent.set(spent.get() + 1);
                    let mut files = FileBudget::new(machinery_runtime::Runtime::real(), 1, FILES_TIME);
                    let (figures, mut devices) = (GroupFigures::default(), Devices::default());
                    Some(row(group, figures, &mut devices, &mut files))
                },
            );
            (rows.len(), cut)
        };
        assert_eq!((read(2), read(3)), ((2, true), (3, false)));
    }
}
