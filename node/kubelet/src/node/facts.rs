//! Fields of the Node object about the machine. Pure but for reading the machine once.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus, NodeSwapStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use node_sys::machine::Machine;

use super::pressure::Pressure;
use super::reserve::{Amounts, amount_text};
use super::taints::RegistrationTaint;
use crate::config::KubeletConfig;
use crate::containers::huge_pages;
use crate::devices::NodeDevices;

/// Everything about the node that does not change while we run.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// The machine.
    pub machine: Machine,
    /// Bytes of the file system below the data directory.
    pub storage_bytes: u64,
    /// Name and version of the runtime.
    pub runtime_version: String,
    /// It can leave out the groups that an image gives its user.
    pub supplemental_groups_policy: bool,
}

/// Features that not every node has, of those that servers and schedulers request (component-helpers' `nodedeclaredfeatures`):
/// streams by WebSocket, resizes of pods as a whole and of init containers, and ends that restart all containers. Sorted.
const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// Runtime version that upstream's kubelet reports before the runtime has answered.
const RUNTIME_UNKNOWN: &str = "containerd://Unknown";

impl NodeFacts {
    /// Reads the machine; the runtime's facts come later.
    pub fn observe(config: &KubeletConfig) -> Self {
        let storage = node_sys::fs::usage(&config.data_dir).unwrap_or_default();
        Self {
            machine: Machine::observe(),
            storage_bytes: storage.capacity_bytes,
            runtime_version: RUNTIME_UNKNOWN.to_string(),
            supplemental_groups_policy: false,
        }
    }

    /// Capacity of the machine.
    pub fn capacity(&self) -> Amounts {
        let whole = [
            ("cpu", self.machine.cpus.saturating_mul(1000)),
            ("memory", self.machine.memory_bytes / 1024 * 1024),
            ("ephemeral-storage", self.storage_bytes / 1024 * 1024),
        ];
        let whole = whole.map(|(name, amount)| (name.to_owned(), amount));
        let pages = self.machine.huge_pages.iter();
        let pages = pages.map(|(size, count)| (huge_pages::resource(*size), size.saturating_mul(*count)));
        whole
            .into_iter()
            .chain(pages)
            .map(|(name, amount)| (name, i64::try_from(amount).unwrap_or(i64::MAX)))
            .collect()
    }

    /// Bytes of all huge pages, which are no memory of any other use.
    fn huge_page_bytes(&self) -> i64 {
        let pages = self.machine.huge_pages.iter();
        let bytes = pages.map(|(size, count)| size.saturating_mul(*count));
        i64::try_from(bytes.fold(0, u64::saturating_add)).unwrap_or(i64::MAX)
    }

    /// The runtime's name alone.
    pub fn runtime_name(&self) -> &str {
        self.runtime_version.split("://").next().unwrap_or_default()
    }
}

/// Health as the conditions report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The runtime answers.
    pub runtime_ready: bool,
    /// It can give pods a network.
    pub network_ready: bool,
    /// Message of a runtime or network that is not ready.
    pub message: String,
    /// The machine goes down.
    pub shutting_down: bool,
}

impl Health {
    /// State before the runtime has answered, in upstream's words.
    pub fn unknown() -> Self {
        Self {
            runtime_ready: false,
            network_ready: false,
            message: "container runtime status check may not have completed yet".to_string(),
            shutting_down: false,
        }
    }

    /// Reports whether pods can run.
    pub fn is_ready(&self) -> bool {
        self.runtime_ready && self.network_ready && !self.shutting_down
    }

    /// Everything that keeps pods from running, as upstream joins it.
    fn complaint(&self) -> Cow<'_, str> {
        const SHUTTING_DOWN: &str = "node is shutting down";
        let others = self.message.trim_start_matches('[').trim_end_matches(']');
        match (self.shutting_down, others) {
            (false, _) => Cow::Borrowed(&self.message),
            (true, "") => Cow::Borrowed(SHUTTING_DOWN),
            (true, others) => Cow::Owned(format!("[{others}, {SHUTTING_DOWN}]")),
        }
    }
}

/// Labels every node carries.
pub fn labels(config: &KubeletConfig, facts: &NodeFacts) -> BTreeMap<String, String> {
    let arch = facts.machine.architecture.to_string();
    let own = [
        ("kubernetes.io/hostname", config.node_name.clone()),
        ("kubernetes.io/os", "linux".to_string()),
        ("kubernetes.io/arch", arch.clone()),
        ("beta.kubernetes.io/os", "linux".to_string()),
        ("beta.kubernetes.io/arch", arch),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_string(), value));
    own.chain(config.node_labels.clone()).collect()
}

/// The object as it is first created.
pub fn node(config: &KubeletConfig, facts: &NodeFacts, health: &Health, now: Timestamp) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels(config, facts)),
            annotations: Some(BTreeMap::from([(
                "volumes.kubernetes.io/controller-managed-attach-detach".to_string(),
                "true".to_string(),
            )])),
            ..ObjectMeta::default()
        },
        spec: spec(config),
        status: Some(status(
            config,
            facts,
            health,
            &NodeDevices::default(),
            Pressure::default(),
            now,
            &NodeStatus::default(),
        )),
    }
}

/// Taints of a node that is new; others are the administrator's.
fn spec(config: &KubeletConfig) -> Option<NodeSpec> {
    let taints: Vec<_> = config
        .register_with_taints
        .iter()
        .map(RegistrationTaint::to_taint)
        .collect();
    (!taints.is_empty()).then(|| NodeSpec {
        taints: Some(taints),
        ..NodeSpec::default()
    })
}

/// The status now; what has not changed keeps its times.
pub(crate) fn status(
    config: &KubeletConfig,
    facts: &NodeFacts,
    health: &Health,
    devices: &NodeDevices,
    pressure: Pressure,
    now: Timestamp,
    previous: &NodeStatus,
) -> NodeStatus {
    let resources = |of: &dyn Fn(&str, i64) -> i64, devices: &BTreeMap<String, usize>| {
        let named = facts.capacity().into_iter().map(|(name, whole)| {
            let text = amount_text(&name, of(&name, whole));
            (name, Quantity(text))
        });
        let counted = [("pods", config.max_pods.to_string())];
        let counted = counted.map(|(name, text)| (name.to_owned(), Quantity(text)));
        let devices = devices
            .iter()
            .map(|(name, count)| (name.clone(), Quantity(count.to_string())));
        named.chain(counted).chain(devices).collect()
    };
    let mut status = previous.clone();
    status.capacity = Some(resources(&|_, whole| whole, &devices.capacity));
    let allocatable = |name: &str, whole| {
        let left = config.reserve.allocatable(name, whole);
        match name {
            "memory" => left.saturating_sub(facts.huge_page_bytes()).max(0),
            _ => left,
        }
    };
    status.allocatable = Some(resources(&allocatable, &devices.allocatable));
    status.addresses = Some(addresses(config));
    status.daemon_endpoints = Some(NodeDaemonEndpoints {
        kubelet_endpoint: Some(DaemonEndpoint {
            port: i32::from(config.port),
        }),
    });
    status.node_info = Some(node_info(config, facts));
    status.runtime_handlers = Some(runtime_handlers());
    status.features = facts.supplemental_groups_policy.then_some(NodeFeatures {
        supplemental_groups_policy: Some(true),
    });
    status.declared_features = Some(DECLARED_FEATURES.map(str::to_owned).into());
    status.conditions = Some(conditions(health, pressure, now, previous));
    status
}

fn addresses(config: &KubeletConfig) -> Vec<NodeAddress> {
    let address = |kind: &str, address: String| NodeAddress {
        type_: kind.to_string(),
        address,
    };
    vec![
        address("InternalIP", config.node_ip.to_string()),
        address("Hostname", config.node_name.clone()),
    ]
}

fn node_info(config: &KubeletConfig, facts: &NodeFacts) -> NodeSystemInfo {
    let machine = &facts.machine;
    NodeSystemInfo {
        architecture: machine.architecture.to_string(),
        boot_id: machine.boot_id.clone(),
        container_runtime_version: facts.runtime_version.clone(),
        kernel_version: machine.kernel_version.clone(),
        kube_proxy_version: String::new(),
        kubelet_version: config.version.clone(),
        machine_id: machine.machine_id.clone(),
        operating_system: "linux".into(),
        os_image: machine.os_image.clone(),
        system_uuid: machine.system_uuid.clone(),
        swap: (machine.swap_bytes > 0).then(|| NodeSwapStatus {
            capacity: i64::try_from(machine.swap_bytes).ok(),
        }),
        ..NodeSystemInfo::default()
    }
}

fn runtime_handlers() -> Vec<NodeRuntimeHandler> {
    let features = NodeRuntimeHandlerFeatures {
        recursive_read_only_mounts: Some(false),
        user_namespaces: Some(false),
    };
    vec![NodeRuntimeHandler {
        name: Some(String::new()),
        features: Some(features),
    }]
}

/// Type, truth, reason and message of a condition.
type Verdict<'a> = (&'static str, bool, &'static str, Cow<'a, str>);

/// Verdicts on a resource, by whether the node runs short of it.
const PRESSURES: [(&str, [(&str, &str); 2]); 3] = [
    (
        "MemoryPressure",
        [
            (
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            ),
        ],
    ),
    (
        "DiskPressure",
        [
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ],
    ),
    (
        "PIDPressure",
        [
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            (
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
            ),
        ],
    ),
];

fn verdicts(health: &Health, pressure: Pressure) -> impl Iterator<Item = Verdict<'_>> {
    let short = [pressure.memory, pressure.disk, pressure.pid];
    let pressures = PRESSURES.iter().zip(short).map(|((kind, words), short)| {
        let (reason, message) = words[usize::from(short)];
        (*kind, short, reason, Cow::Borrowed(message))
    });
    let ready: Verdict<'_> = match health.is_ready() {
        true => (
            "Ready",
            true,
            "KubeletReady",
            "kubelet is posting ready status".into(),
        ),
        false => ("Ready", false, "KubeletNotReady", health.complaint()),
    };
    pressures.chain([ready])
}

fn conditions(
    health: &Health,
    pressure: Pressure,
    now: Timestamp,
    previous: &NodeStatus,
) -> Vec<NodeCondition> {
    let mut conditions = previous.conditions.clone().unwrap_or_default();
    for (kind, truth, reason, message) in verdicts(health, pressure) {
        let text = if truth { "True" } else { "False" };
        let found = conditions.iter_mut().find(|condition| condition.type_ == kind);
        let since = match &found {
            Some(condition) if condition.status == text => condition.last_transition_time.clone(),
            _ => Some(seconds(now)),
        };
        let condition = NodeCondition {
            type_: kind.to_string(),
            status: text.to_string(),
            reason: Some(reason.to_string()),
            message: Some(message.into_owned()),
            last_heartbeat_time: Some(seconds(now)),
            last_transition_time: since,
        };
        match found {
            Some(place) => *place = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}

fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Reports whether two statuses differ in anything but heartbeats.
pub fn differs(old: &NodeStatus, new: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status
    };
    still(old) != still(new)
}
