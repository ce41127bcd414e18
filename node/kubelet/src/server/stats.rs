//! Usage in the JSON of upstream's kubelet: `/stats/summary`.
//!
//! Processors and memory of containers are the runtime's figures; the rest is read from the groups' files, and sizes of logs
//! and volumes are those that are counted while a client asks ([`StorageLooks`](crate::eviction::pod_storage::StorageLooks)).
//! A figure that is not known is left out.

use std::collections::HashMap;
use std::path::PathBuf;

use http::{Response, StatusCode};
use jiff::Timestamp;
use node_cri::v1;
use node_sys::cgroup::CgroupStats;
use node_sys::fs::{DiskUsage, FsUsage};
use node_sys::machine::swap_used_bytes;
use node_sys::proc_figures::LinkFigures;
use serde_json::{Map, Value, json};

use super::response::{Body, json as answer_json, text};
use super::usage::Usage;
use super::usage::figures::{ContainerFigures, Figures, PodFigures};
use super::usage::rows::{Row, RowKind};
use crate::eviction::pod_storage::PodStorage;
use crate::managers::ManagerContext;
use crate::pods::{name, namespace, uid};

/// Answers with the usage of the node and its pods.
pub(super) async fn summary(context: &ManagerContext, usage: &Usage) -> Response<Body> {
    let found = futures::join!(usage.figures(context), usage.rows(context));
    let (figures, reading) = match available(found) {
        Ok(available) => available,
        Err(message) => return text(StatusCode::INTERNAL_SERVER_ERROR, message),
    };
    let rows = reading.as_ref().map(|reading| reading.rows.as_slice());
    let rows = rows.unwrap_or_default();
    let storage = &context.workers.storage;
    storage.ask_for_everyone(context.runtime.monotonic());
    let known = storage.known();
    let room = rooms(context).await;
    let now = seconds(figures.now);
    let groups = by_pod(rows);
    let pods = figures.pods.iter().map(|pod| {
        let id = uid(&pod.pod);
        let of_pod = OfPod {
            figures: pod,
            rows: groups.get(id).map(Vec::as_slice).unwrap_or_default(),
            storage: known.get(id),
            volumes: context.workers.csi.usage_of(id),
        };
        of_pod.summary(&now, &room)
    });
    let pods: Vec<Value> = pods.collect();
    let node = node(context, &figures, rows, &room, &now);
    answer_json(&json!({"node": node, "pods": pods}))
}

/// Figures to answer with: those that only groups have may be absent, those of the runtime not.
fn available<F, R>(found: (Result<F, String>, Result<R, String>)) -> Result<(F, Option<R>), String> {
    let (figures, reading) = found;
    let reading = reading.inspect_err(|error| {
        tracing::warn!(%error, "reading the figures of groups failed");
    });
    Ok((figures?, reading.ok()))
}

/// Room of the file systems of the node: of volumes and logs, and of images and containers.
struct Rooms {
    node: FsUsage,
    image: FsUsage,
}

async fn rooms(context: &ManagerContext) -> Rooms {
    let (data, vitals) = (context.config.data_dir.clone(), context.vitals.clone());
    let images = image_fs(context).await;
    let work = move || {
        let node = vitals.room(&data).unwrap_or_default();
        let image = images.and_then(|path| vitals.room(&path).ok());
        Rooms {
            node,
            image: image.unwrap_or(node),
        }
    };
    let read = context.runtime.blocking(work).await;
    read.unwrap_or(Rooms {
        node: FsUsage::default(),
        image: FsUsage::default(),
    })
}

/// Folder of the file system that holds images and containers, where the runtime says.
async fn image_fs(context: &ManagerContext) -> Option<PathBuf> {
    let cri = &context.workers.control.cri;
    let answer = cri.image_fs_info(v1::ImageFsInfoRequest {}).await.ok()?;
    let found = answer.image_filesystems.into_iter().next()?;
    Some(found.fs_id?.mountpoint.into())
}

fn by_pod(rows: &[Row]) -> HashMap<&str, Vec<&Row>> {
    let mut pods: HashMap<&str, Vec<&Row>> = HashMap::new();
    for row in rows.iter().filter(|row| !row.group.pod_uid.is_empty()) {
        pods.entry(&row.group.pod_uid).or_default().push(row);
    }
    pods
}

fn node(context: &ManagerContext, figures: &Figures, rows: &[Row], room: &Rooms, now: &str) -> Value {
    let row = |kind| rows.iter().find(move |row| row.group.kind == kind);
    let machine = row(RowKind::Machine);
    let mut memory = memory_json(&figures.node, machine, now);
    memory["availableBytes"] = node_sys::machine::memory_available_bytes().into();
    let (running, max) = context.vitals.tasks().unzip();
    let all_pods = context.config.groups().all();
    let pods = rows.iter().filter(|row| row.group.id == all_pods);
    let system = pods.map(|row| {
        object([
            ("name", Some("pods".into())),
            ("startTime", row.figures.made_at_seconds.and_then(time)),
            ("cpu", Some(cpu_json(row.figures.cpu.usage_nanoseconds, now))),
            ("memory", Some(memory_of_row(row, now))),
        ])
    });
    let swap = &context.facts.machine.swap_bytes;
    object([
        ("nodeName", Some(context.config.node_name.clone().into())),
        ("systemContainers", Some(system.collect())),
        ("startTime", Some(seconds(figures.booted_at).into())),
        (
            "cpu",
            Some(cpu_json(Some(figures.node.cpu_usage_nanoseconds), now)),
        ),
        ("memory", Some(memory)),
        ("network", machine.and_then(|row| network(&row.links, now))),
        ("fs", Some(fs_json(&room.node, None, now))),
        (
            "runtime",
            Some(
                json!({"imageFs": fs_json(&room.image, None, now), "containerFs": fs_json(&room.image, None, now)}),
            ),
        ),
        (
            "rlimit",
            Some(object([
                ("time", Some(now.into())),
                ("maxpid", max.map(Value::from)),
                ("curproc", running.map(Value::from)),
            ])),
        ),
        ("swap", Some(swap_json(Some(swap_used_bytes()), Some(*swap), now))),
    ])
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn time(at: i64) -> Option<Value> {
    Timestamp::from_second(at).ok().map(|at| seconds(at).into())
}

/// An object of the members that are known.
fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let known = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(known.collect::<Map<_, _>>())
}

fn number(value: Option<u64>) -> Option<Value> {
    value.map(Value::from)
}

fn cpu_json(usage_nanoseconds: Option<u64>, now: &str) -> Value {
    object([
        ("time", Some(now.into())),
        ("usageCoreNanoSeconds", number(usage_nanoseconds)),
    ])
}

fn memory_json(stats: &CgroupStats, row: Option<&Row>, now: &str) -> Value {
    let memory = row.map(|row| row.figures.memory).unwrap_or_default();
    object([
        ("time", Some(now.into())),
        ("usageBytes", Some(stats.memory_usage_bytes.into())),
        ("workingSetBytes", Some(stats.memory_working_set_bytes.into())),
        ("rssBytes", Some(stats.memory_rss_bytes.into())),
        ("pageFaults", number(memory.page_faults_below)),
        ("majorPageFaults", number(memory.major_page_faults_below)),
    ])
}

fn memory_of_row(row: &Row, now: &str) -> Value {
    let memory = &row.figures.memory;
    object([
        ("time", Some(now.into())),
        ("usageBytes", number(memory.usage)),
        ("workingSetBytes", number(memory.working_set())),
        ("rssBytes", number(memory.rss)),
        ("pageFaults", number(memory.page_faults_below)),
        ("majorPageFaults", number(memory.major_page_faults_below)),
    ])
}

fn swap_json(used: Option<u64>, all: Option<u64>, now: &str) -> Value {
    let left = all.zip(used).map(|(all, used)| all.saturating_sub(used));
    object([
        ("time", Some(now.into())),
        ("swapAvailableBytes", number(left)),
        ("swapUsageBytes", number(used)),
    ])
}

/// Room of a file system, and what of it is used: by all, or by one thing.
fn fs_json(room: &FsUsage, used: Option<DiskUsage>, now: &str) -> Value {
    let all = DiskUsage {
        bytes: room.capacity_bytes.saturating_sub(room.available_bytes),
        inodes: room.inodes.saturating_sub(room.inodes_free),
    };
    let used = used.unwrap_or(all);
    object([
        ("time", Some(now.into())),
        ("availableBytes", Some(room.available_bytes.into())),
        ("capacityBytes", Some(room.capacity_bytes.into())),
        ("usedBytes", Some(used.bytes.into())),
        ("inodesFree", Some(room.inodes_free.into())),
        ("inodes", Some(room.inodes.into())),
        ("inodesUsed", Some(used.inodes.into())),
    ])
}

/// Traffic of the links; the first stands for all where one has to.
fn network(links: &[LinkFigures], now: &str) -> Option<Value> {
    let first = link_json(links.first()?);
    let mut all = json!({"time": now, "interfaces": links.iter().map(link_json).collect::<Vec<_>>()});
    if let (Some(all), Value::Object(first)) = (all.as_object_mut(), first) {
        all.extend(first);
    }
    Some(all)
}

fn link_json(link: &LinkFigures) -> Value {
    let [received, _, receive_errors, _] = link.received;
    let [sent, _, send_errors, _] = link.sent;
    json!({"name": link.name, "rxBytes": received, "rxErrors": receive_errors, "txBytes": sent, "txErrors": send_errors})
}

/// Figures of a pod.
struct OfPod<'a> {
    figures: &'a PodFigures,
    rows: &'a [&'a Row],
    storage: Option<&'a PodStorage>,
    /// Volumes of drivers.
    volumes: Vec<Value>,
}

impl OfPod<'_> {
    fn row(&self, kind: RowKind) -> Option<&Row> {
        self.rows.iter().copied().find(|row| row.group.kind == kind)
    }

    fn container_row(&self, name: &str) -> Option<&Row> {
        let mut rows = self.rows.iter().copied();
        rows.find(|row| row.group.kind == RowKind::Container && row.group.container == name)
    }

    fn summary(self, now: &str, room: &Rooms) -> Value {
        let (pod, used) = (&self.figures.pod, &self.figures.used);
        let containers = self.figures.containers.iter();
        let containers: Vec<Value> = containers.map(|own| self.container(own, now, room)).collect();
        let row = self.row(RowKind::Pod);
        let network = self
            .row(RowKind::Sandbox)
            .and_then(|row| network(&row.links, now));
        let processes: usize = self
            .rows
            .iter()
            .map(|row| row.figures.tasks.processes.len())
            .sum();
        let swap = row.map(|row| swap_json(row.figures.memory.swap, None, now));
        let ephemeral = self
            .storage
            .map(|storage| fs_json(&room.node, Some(self.local(storage)), now));
        let volumes = self.all_volumes(now, room);
        object([
            (
                "podRef",
                Some(json!({"name": name(pod), "namespace": namespace(pod), "uid": uid(pod)})),
            ),
            ("startTime", Some(seconds(self.figures.started_at).into())),
            ("containers", Some(containers.into())),
            ("cpu", Some(cpu_json(Some(used.cpu_usage_nanoseconds), now))),
            ("memory", Some(memory_json(used, row, now))),
            ("network", network),
            (
                "volume",
                Some(volumes).filter(|all| !all.is_empty()).map(Value::from),
            ),
            ("ephemeral-storage", ephemeral),
            ("process_stats", row.map(|_| json!({"process_count": processes}))),
            ("swap", swap),
        ])
    }

    /// Upstream's sum: containers' own files, their logs, and volumes on the node's disk.
    fn local(&self, storage: &PodStorage) -> DiskUsage {
        let containers = self.figures.containers.iter().map(layer);
        let logs = storage.logs.values().chain(storage.volumes.values()).copied();
        containers.chain(logs).sum()
    }

    fn all_volumes(&self, now: &str, room: &Rooms) -> Vec<Value> {
        let counted = self.storage.into_iter().flat_map(|storage| &storage.volumes);
        let counted = counted.map(|(name, used)| {
            let mut own = fs_json(&room.node, Some(*used), now);
            own["name"] = name.clone().into();
            own
        });
        self.volumes.iter().cloned().chain(counted).collect()
    }

    fn container(&self, figures: &ContainerFigures, now: &str, room: &Rooms) -> Value {
        let value = |value: Option<v1::UInt64Value>| value.map(|value| value.value.into());
        let cpu = figures.stats.cpu.unwrap_or_default();
        let memory = figures.stats.memory.unwrap_or_default();
        let row = self.container_row(&figures.name);
        let faults = row.map(|row| row.figures.memory).unwrap_or_default();
        let logs = self.storage.and_then(|storage| storage.logs.get(&figures.name));
        object([
            ("name", Some(figures.name.clone().into())),
            ("startTime", Some(seconds(figures.started_at).into())),
            (
                "cpu",
                Some(object([
                    ("time", Some(now.into())),
                    ("usageNanoCores", value(cpu.usage_nano_cores)),
                    ("usageCoreNanoSeconds", value(cpu.usage_core_nano_seconds)),
                ])),
            ),
            (
                "memory",
                Some(object([
                    ("time", Some(now.into())),
                    ("usageBytes", value(memory.usage_bytes)),
                    ("workingSetBytes", value(memory.working_set_bytes)),
                    ("rssBytes", value(memory.rss_bytes)),
                    ("pageFaults", number(faults.page_faults_below)),
                    ("majorPageFaults", number(faults.major_page_faults_below)),
                ])),
            ),
            ("rootfs", Some(fs_json(&room.image, Some(layer(figures)), now))),
            ("logs", logs.map(|used| fs_json(&room.node, Some(*used), now))),
            (
                "swap",
                row.map(|row| swap_json(row.figures.memory.swap, None, now)),
            ),
        ])
    }
}

/// Files of a container beside its volumes.
fn layer(figures: &ContainerFigures) -> DiskUsage {
    let value = |value: Option<&v1::UInt64Value>| value.map_or(0, |value| value.value);
    let layer = figures.stats.writable_layer.as_ref();
    DiskUsage {
        bytes: value(layer.and_then(|layer| layer.used_bytes.as_ref())),
        inodes: value(layer.and_then(|layer| layer.inodes_used.as_ref())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn summary_of_a_pod_has_its_files_and_its_traffic() {
        let pod = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}"#;
        let number = |value| Some(v1::UInt64Value { value });
        let stats = v1::ContainerStats {
            writable_layer: Some(v1::FilesystemUsage {
                used_bytes: number(100),
                inodes_used: number(2),
                ..v1::FilesystemUsage::default()
            }),
            ..v1::ContainerStats::default()
        };
        let figures = PodFigures {
            pod: Arc::new(serde_json::from_str(pod).unwrap()),
            started_at: Timestamp::UNIX_EPOCH,
            used: CgroupStats::default(),
            containers: vec![ContainerFigures {
                id: "id".to_owned(),
                used: CgroupStats::default(),
                name: "main".to_owned(),
                started_at: Timestamp::UNIX_EPOCH,
                stats,
            }],
        };
        let used = |bytes| DiskUsage { bytes, inodes: 1 };
        let storage = PodStorage {
            volumes: BTreeMap::from([("data".to_owned(), used(1_000))]),
            logs: BTreeMap::from([("main".to_owned(), used(10))]),
        };
        let room = FsUsage {
            capacity_bytes: 5_000,
            available_bytes: 3_000,
            inodes: 50,
            inodes_free: 30,
            ..FsUsage::default()
        };
        let room = Rooms {
            node: room,
            image: room,
        };
        let of_pod = OfPod {
            figures: &figures,
            rows: &[],
            storage: Some(&storage),
            volumes: vec![json!({"name": "driver"})],
        };
        let told = of_pod.summary("now", &room);
        assert_eq!(told["ephemeral-storage"]["usedBytes"], 1_110);
        assert_eq!(told["ephemeral-storage"]["inodesUsed"], 4);
        assert_eq!(told["volume"][0]["name"], "driver");
        assert_eq!(
            (&told["volume"][1]["name"], &told["volume"][1]["usedBytes"]),
            (&"data".into(), &1_000.into())
        );
        let main = &told["containers"][0];
        assert_eq!(
            (&main["logs"]["usedBytes"], &main["rootfs"]["usedBytes"]),
            (&10.into(), &100.into())
        );
        assert_eq!(
            (&main["rootfs"]["availableBytes"], &main["rootfs"]["inodesFree"]),
            (&3_000.into(), &30.into())
        );
        assert!(told.get("network").is_none() && main["memory"].get("rssBytes").is_none());
    }

    #[test]
    fn summary_is_told_without_the_groups() {
        let failed = || Err::<(), _>("stuck".to_owned());
        assert_eq!(available((Ok(1), failed())), Ok((1, None)));
        assert_eq!(available((failed(), Ok(1))), Err("stuck".to_owned()));
    }

    #[test]
    fn summary_has_the_traffic_of_every_link() {
        let link = |name: &str| LinkFigures {
            name: name.to_owned(),
            received: [1, 2, 3, 4],
            sent: [5, 6, 7, 8],
        };
        let told = network(&[link("eth0"), link("net1")], "now").unwrap();
        assert_eq!(
            (&told["name"], &told["rxBytes"], &told["txErrors"]),
            (&"eth0".into(), &1.into(), &7.into())
        );
        assert_eq!(told["interfaces"][1]["name"], "net1");
        assert_eq!(network(&[], "now"), None);
    }
}
