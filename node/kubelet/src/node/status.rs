//! The Node's status: looked at often while it is not well, seldom once it is, written when it differs.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerImage, Node, NodeStatus};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use machinery_runtime::{Runtime, Watched};
use node_cri::{CriClient, v1};
use serde_json::{Map, Value, json};

use super::facts::{self, Health, NodeFacts};
use super::pressure::Pressure;
use crate::api::events::{EventType, NodeEvents};
use crate::config::KubeletConfig;
use crate::csi::Csi;
use crate::devices::NodeDevices;
use crate::devices::manager::DeviceManager;

/// Interval of looks once the node is ready.
pub(crate) const LOOK_AFTER: Duration = Duration::from_secs(10);
/// Until then, after this part of the time it has not been, within these bounds.
const LOOK_SOON: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
const LOOK_SOON_PART: u32 = 8;
/// A runtime that says nothing for so long is down; upstream's `baseRuntimeSyncThreshold`.
const RUNTIME_SILENCE: Duration = Duration::from_secs(30);
/// Written at least this often, so that the heartbeat shows.
pub(crate) const WRITE_AFTER: Duration = Duration::from_secs(300);
/// Changes of devices are written no more often.
const DEVICES_PAUSE: Duration = Duration::from_secs(1);
/// Upstream's `nodeStatusMaxImages`.
pub(crate) const IMAGES_MAX: usize = 50;
/// Upstream's `MaxNamesPerImageInNodeStatus`.
const IMAGE_NAMES_MAX: usize = 5;
/// A longer name of an image is left out; a registry's host, a path, a tag and a digest have some 700 bytes at most.
const IMAGE_NAME_BYTES_MAX: usize = 1_024;
/// Bytes of the names of all images: some 130 for each of five names of 50 images.
const IMAGES_BYTES_MAX: usize = 32 << 10;

/// Keeps the status true.
pub(crate) struct StatusKeeper {
    /// Clock.
    pub(crate) runtime: Runtime,
    /// The API.
    pub(crate) client: Client,
    /// The container runtime.
    pub(crate) cri: CriClient,
    /// Recorder of events.
    pub(crate) events: NodeEvents,
    /// The node's configuration.
    pub(crate) config: Arc<KubeletConfig>,
    /// Facts that do not change.
    pub(crate) facts: NodeFacts,
    /// Resources that the node is short of.
    pub(crate) pressure: Arc<Watched<Pressure>>,
    /// The machine goes down.
    pub(crate) shutting_down: Arc<Watched<bool>>,
    /// Devices of plugins.
    pub(crate) devices: Arc<DeviceManager>,
    /// Volumes of drivers.
    pub(crate) csi: Csi,
}

impl std::fmt::Debug for StatusKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusKeeper").finish_non_exhaustive()
    }
}

/// Reads the health of the runtime; an error is the message of a runtime that does not answer.
async fn health(cri: &CriClient) -> Result<Health, String> {
    let answer = cri.status(v1::StatusRequest { verbose: false }).await;
    let answer = answer.map_err(|error| error.message())?;
    let conditions = answer.status.unwrap_or_default().conditions;
    let of = |kind: &str| conditions.iter().find(|condition| condition.r#type == kind);
    let is_ready = |kind: &str| of(kind).is_some_and(|condition| condition.status);
    let complaint = |kind: &str| {
        of(kind).filter(|condition| !condition.status).map(|condition| {
            format!(
                "container runtime {} not ready: {kind}=false reason:{} message:{}",
                if kind == "NetworkReady" { "network" } else { "is" },
                condition.reason,
                condition.message
            )
        })
    };
    let complaints: Vec<String> = ["RuntimeReady", "NetworkReady"]
        .into_iter()
        .filter_map(complaint)
        .collect();
    Ok(Health {
        runtime_ready: is_ready("RuntimeReady"),
        network_ready: is_ready("NetworkReady"),
        message: complaints.join(", "),
        shutting_down: false,
    })
}

/// The runtime's last answer, and its time. A runtime that restarts answers nothing for a moment, in which its
/// containers run on: only a long silence makes the node unready.
struct RuntimeHealth(Option<(Health, Duration)>);

impl RuntimeHealth {
    /// Nothing yet; but where the node was ready when the agent last ended, its containers have run on.
    fn before(status: &NodeStatus, now: Duration) -> Self {
        let mut conditions = status.conditions.iter().flatten();
        let was_ready = conditions.any(|own| own.type_ == "Ready" && own.status == "True");
        let well = Health {
            runtime_ready: true,
            network_ready: true,
            message: String::new(),
            shutting_down: false,
        };
        Self(was_ready.then_some((well, now)))
    }

    /// Returns the health that the node reports: the answer, or the last one for as long as [`RUNTIME_SILENCE`].
    fn observe(&mut self, answer: Result<Health, String>, now: Duration) -> Health {
        match (answer, &self.0) {
            (Ok(health), _) => {
                self.0 = Some((health.clone(), now));
                health
            }
            (Err(_), Some((health, at))) if now - *at < RUNTIME_SILENCE => health.clone(),
            (Err(error), _) => Health {
                runtime_ready: false,
                network_ready: false,
                message: format!("[container runtime is down: {error}]"),
                shutting_down: false,
            },
        }
    }
}

/// The greatest images, by upstream's order: names by digest before those by tag. Every watcher of nodes receives them with each change,
/// and pods choose names: a name that finds no room is left out.
fn images_of(mut images: Vec<v1::Image>) -> Vec<ContainerImage> {
    images.sort_by_key(|image| std::cmp::Reverse(image.size));
    images.truncate(IMAGES_MAX);
    let mut room = IMAGES_BYTES_MAX;
    let listed = images.into_iter().map(|image| {
        let names = image.repo_digests.into_iter().chain(image.repo_tags);
        let short = names.filter(|name| name.len() <= IMAGE_NAME_BYTES_MAX);
        let first = short.take(IMAGE_NAMES_MAX);
        let names = first.filter(|name| {
            let left = room.checked_sub(name.len());
            room = left.unwrap_or(room);
            left.is_some()
        });
        ContainerImage {
            names: Some(names.collect()),
            size_bytes: i64::try_from(image.size).ok(),
        }
    });
    listed.collect()
}

impl StatusKeeper {
    /// Keeps it for ever, from the object as registered.
    pub(crate) async fn run(self, node: Node) {
        let mut last = node.status.clone().unwrap_or_default();
        let mut written_at = self.runtime.monotonic();
        let mut was_ready = None;
        let mut last_well = self.runtime.monotonic();
        let mut runtime_health = RuntimeHealth::before(&last, last_well);
        loop {
            let answer = health(&self.cri).await;
            let answers = answer.is_ok();
            let mut health = runtime_health.observe(answer, self.runtime.monotonic());
            let runs = health.is_ready();
            health.shutting_down = self.shutting_down.get();
            let ready = health.is_ready();
            let pressure = self.pressure.get();
            let devices = self.devices.node_devices();
            let now = self.runtime.now();
            let mut status =
                facts::status(&self.config, &self.facts, &health, &devices, pressure, now, &last);
            status.images = self.images().await.or_else(|| last.images.clone());
            let volumes = self.csi.in_use();
            if !volumes.is_empty() || status.volumes_in_use.is_some() {
                status.volumes_in_use = Some(volumes.clone());
            }
            let due = self.runtime.monotonic() - written_at >= WRITE_AFTER;
            if due || facts::differs(&last, &status) {
                match self.write(&last, &status).await {
                    Ok(()) => {
                        self.record_pressure(&node, &last, &status);
                        last = status;
                        written_at = self.runtime.monotonic();
                        self.record_readiness(&node, was_ready, ready);
                        was_ready = Some(ready);
                    }
                    Err(error) => tracing::debug!(error = %error, "node status not written"),
                }
            }
            let now = self.runtime.monotonic();
            let well = runs && answers;
            let pause = match well {
                true => LOOK_AFTER,
                false => ((now - last_well) / LOOK_SOON_PART).clamp(LOOK_SOON.0, LOOK_SOON.1),
            };
            last_well = if well { now } else { last_well };
            tokio::select! {
                biased;
                _ = self.pressure.wait_for(|now| *now != pressure) => {}
                _ = self.shutting_down.wait_for(|now| *now != health.shutting_down) => {}
                () = self.csi.in_use_differs(&volumes) => {}
                () = self.devices_differ(&devices) => {}
                () = self.runtime.sleep(pause) => {}
            }
        }
    }

    async fn devices_differ(&self, from: &NodeDevices) {
        self.runtime.sleep(DEVICES_PAUSE).await;
        self.devices.node_devices_differ(from).await;
    }

    fn record_readiness(&self, node: &Node, before: Option<bool>, ready: bool) {
        if before == Some(ready) {
            return;
        }
        let (reason, word) = if ready {
            ("NodeReady", "NodeReady")
        } else {
            ("NodeNotReady", "NodeNotReady")
        };
        let text = format!("Node {} status is now: {word}", self.config.node_name);
        self.events.node(node, EventType::Normal, reason, text);
    }

    /// Records an event for each resource that the node begins or ceases to be short of.
    fn record_pressure(&self, node: &Node, before: &NodeStatus, after: &NodeStatus) {
        let words = [
            (
                "MemoryPressure",
                "NodeHasInsufficientMemory",
                "NodeHasSufficientMemory",
            ),
            ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
            ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
        ];
        let of = |status: &NodeStatus, kind: &str| {
            let mut conditions = status.conditions.iter().flatten();
            let found = conditions.find(|condition| condition.type_ == kind);
            found.map(|condition| condition.status.clone())
        };
        for (kind, short, enough) in words {
            let now = of(after, kind);
            if of(before, kind) == now {
                continue;
            }
            let word = if now.as_deref() == Some("True") {
                short
            } else {
                enough
            };
            let text = format!("Node {} status is now: {word}", self.config.node_name);
            self.events.node(node, EventType::Normal, word, text);
        }
    }

    /// None where the runtime does not answer.
    async fn images(&self) -> Option<Vec<ContainerImage>> {
        let answer = self.cri.list_images(v1::ListImagesRequest { filter: None }).await;
        Some(images_of(answer.ok()?.images))
    }

    /// Writes only what differs: the conditions of others and their order stay as they are.
    async fn write(&self, old: &NodeStatus, new: &NodeStatus) -> Result<(), kube::Error> {
        let map = |status: &NodeStatus| match serde_json::to_value(status) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let old = map(old);
        let changed: Map<String, Value> = map(new)
            .into_iter()
            .filter(|(name, value)| old.get(name) != Some(value))
            .collect();
        let patch = json!({"status": changed});
        let api: Api<Node> = Api::all(self.client.clone());
        let name = &self.config.node_name;
        api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_status_has_few_and_short_names_of_images() {
        let image = |size: u64, digests: &[String], tags: &[String]| v1::Image {
            repo_digests: digests.to_vec(),
            repo_tags: tags.to_vec(),
            size,
            ..v1::Image::default()
        };
        let numbered = |name: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{name}{number}")).collect()
        };
        let (digests, tags) = (numbered("d", 2), numbered("t", 6));
        let long = "x".repeat(IMAGE_NAME_BYTES_MAX + 1);
        let listed = images_of(vec![
            image(1, &[], &[long, "y".into()]),
            image(2, &digests, &tags),
        ]);
        let names = |image: &ContainerImage| image.names.clone().unwrap_or_default().join(" ");
        assert_eq!(names(&listed[0]), "d0 d1 t0 t1 t2");
        assert_eq!(names(&listed[1]), "y");
        let greedy = (0..60).map(|size| image(100 + size, &[], &numbered(&"z".repeat(1_000), 100)));
        let listed = images_of(greedy.collect());
        assert_eq!((listed.len(), listed[0].size_bytes), (IMAGES_MAX, Some(159)));
        let bytes: usize = listed.iter().map(|image| names(image).len()).sum();
        assert!(bytes <= IMAGES_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn node_status_survives_short_runtime_outage() {
        let well = Health {
            runtime_ready: true,
            network_ready: true,
            message: String::new(),
            shutting_down: false,
        };
        let silence = || Err("nobody answers".to_owned());
        let at = Duration::from_secs;
        let mut runtime_health = RuntimeHealth::before(&NodeStatus::default(), at(0));
        assert!(
            !runtime_health.observe(silence(), at(0)).is_ready(),
            "without an answer so far"
        );
        assert!(runtime_health.observe(Ok(well), at(10)).is_ready());
        assert!(runtime_health.observe(silence(), at(39)).is_ready());
        assert!(!runtime_health.observe(silence(), at(40)).is_ready());
    }
}
