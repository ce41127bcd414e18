//! Fields of pods and nodes that the scheduler reads, and no others.
//!
//! Decoding skips every other field, so a pod costs what its scheduling fields cost. The types compare and
//! hash, which is how pods of one shape are recognised.

use machinery_client::{Folded, LongList};
use machinery_meta::TextMap;
use machinery_semantics::pod_status::is_terminal_phase;
use machinery_semantics::taints::{NO_EXECUTE, NO_SCHEDULE, TaintTerms, TolerationTerms};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names to values.
pub type Labels = TextMap;
/// Resource names to quantities as written.
pub type ResourceList = TextMap;

macro_rules! fields {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fm:meta])* $field:ident : $ty:ty),* $(,)? })*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name { $($(#[$fm])* pub $field: $ty),* }
    )* }
}

fields! {
    pub struct Metadata {
        name: Box<str>,
        namespace: Box<str>,
        uid: Box<str>,
        labels: Labels,
        generation: i64,
        creation_timestamp: Option<Box<str>>,
        deletion_timestamp: Option<Box<str>>,
        resource_version: Box<str>,
        owner_references: Vec<OwnerReference>,
    }
    pub struct OwnerReference {
        kind: Box<str>,
        name: Box<str>,
        uid: Box<str>,
        controller: bool,
    }
    pub struct Pod {
        metadata: Metadata,
        spec: PodSpec,
        status: PodStatus,
    }
    pub struct PodSpec {
        node_name: Box<str>,
        scheduler_name: Box<str>,
        priority: i32,
        preemption_policy: Box<str>,
        host_network: bool,
        host_users: Option<bool>,
        containers: Vec<Container>,
        init_containers: Vec<Container>,
        ephemeral_containers: Vec<EphemeralContainer>,
        overhead: ResourceList,
        /// Pod-level resources.
        resources: ResourceRequirements,
        node_selector: Labels,
        affinity: Affinity,
        tolerations: LongList<Toleration>,
        topology_spread_constraints: Folded<Vec<TopologySpreadConstraint>>,
        scheduling_gates: LongList<SchedulingGate>,
        volumes: Vec<Volume>,
        resource_claims: Folded<Vec<PodResourceClaim>>,
    }
    /// A claim of devices: by its name, or one that is made for the pod.
    pub struct PodResourceClaim {
        name: Box<str>,
        resource_claim_name: Option<Box<str>>,
        resource_claim_template_name: Option<Box<str>>,
    }
    /// The claim that was made for the pod; without a name none is needed.
    pub struct PodResourceClaimStatus { name: Box<str>, resource_claim_name: Option<Box<str>> }
    pub struct Volume {
        name: Box<str>,
        persistent_volume_claim: Option<ClaimSource>,
        ephemeral: Option<EphemeralSource>,
        gce_persistent_disk: Option<GceDisk>,
        aws_elastic_block_store: Option<AwsDisk>,
        iscsi: Option<IscsiDisk>,
        rbd: Option<RbdDisk>,
        image: Option<ImageSource>,
    }
    pub struct ImageSource { reference: Box<str> }
    pub struct GceDisk { pd_name: Box<str>, read_only: bool }
    pub struct AwsDisk {
        #[serde(rename = "volumeID")]
        volume_id: Box<str>,
    }
    pub struct IscsiDisk { iqn: Box<str>, read_only: bool }
    pub struct RbdDisk {
        monitors: Vec<Box<str>>,
        pool: Box<str>,
        image: Box<str>,
        read_only: bool,
    }
    pub struct ClaimSource { claim_name: Box<str> }
    /// Its claim has the names of pod and volume.
    pub struct EphemeralSource {}
    pub struct PodStatus {
        phase: Box<str>,
        nominated_node_name: Box<str>,
        conditions: Vec<PodCondition>,
        start_time: Option<Box<str>>,
        container_statuses: Vec<ContainerStatus>,
        init_container_statuses: Vec<ContainerStatus>,
        resource_claim_statuses: Folded<Vec<PodResourceClaimStatus>>,
    }
    /// Amounts that the node holds for a container.
    pub struct ContainerStatus {
        name: Box<str>,
        allocated_resources: ResourceList,
        resources: ResourceRequirements,
    }
    pub struct PodCondition {
        #[serde(rename = "type")]
        type_: Box<str>,
        status: Box<str>,
        reason: Box<str>,
        message: Box<str>,
    }
    pub struct Container {
        name: Box<str>,
        image: Box<str>,
        restart_policy: Box<str>,
        resources: ResourceRequirements,
        ports: Vec<ContainerPort>,
        /// A rule of its restarts restarts all containers of the pod.
        #[serde(rename = "restartPolicyRules", deserialize_with = "any_restarts_all")]
        restarts_all: bool,
        /// A mount of it has options.
        #[serde(rename = "volumeMounts", deserialize_with = "any_has_options")]
        binds_with_options: bool,
    }
    pub struct EphemeralContainer {
        #[serde(rename = "volumeMounts", deserialize_with = "any_has_options")]
        binds_with_options: bool,
    }
    pub struct ResourceRequirements { requests: ResourceList }
    pub struct ContainerPort {
        host_port: u16,
        #[serde(rename = "hostIP")]
        host_ip: Box<str>,
        protocol: Box<str>,
    }
    pub struct Affinity {
        node_affinity: Folded<NodeAffinity>,
        pod_affinity: Folded<PodAffinity>,
        pod_anti_affinity: Folded<PodAffinity>,
    }
    pub struct NodeAffinity {
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        required: Option<NodeSelector>,
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        preferred: Vec<PreferredSchedulingTerm>,
    }
    pub struct NodeSelector { node_selector_terms: Vec<NodeSelectorTerm> }
    pub struct PreferredSchedulingTerm { weight: i32, preference: NodeSelectorTerm }
    pub struct NodeSelectorTerm {
        match_expressions: Vec<Requirement>,
        match_fields: Vec<Requirement>,
    }
    /// One requirement of a node selector or a label selector.
    pub struct Requirement {
        key: Box<str>,
        operator: Box<str>,
        /// Sorted: lists are as long as their authors like, and looked through for each pod and node.
        #[serde(deserialize_with = "sorted")]
        values: Vec<Box<str>>,
    }
    /// Pod affinity or anti-affinity; both have the same form.
    pub struct PodAffinity {
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        required: Vec<PodAffinityTerm>,
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        preferred: Vec<WeightedPodAffinityTerm>,
    }
    pub struct WeightedPodAffinityTerm { weight: i32, pod_affinity_term: PodAffinityTerm }
    pub struct PodAffinityTerm {
        label_selector: Option<LabelSelector>,
        namespaces: Vec<Box<str>>,
        namespace_selector: Option<LabelSelector>,
        topology_key: Box<str>,
        match_label_keys: Vec<Box<str>>,
        mismatch_label_keys: Vec<Box<str>>,
    }
    pub struct LabelSelector {
        match_labels: Labels,
        match_expressions: Vec<Requirement>,
    }
    pub struct TopologySpreadConstraint {
        max_skew: i32,
        topology_key: Box<str>,
        when_unsatisfiable: Box<str>,
        label_selector: Option<LabelSelector>,
        min_domains: Option<i32>,
        node_affinity_policy: Option<Box<str>>,
        node_taints_policy: Option<Box<str>>,
        match_label_keys: Vec<Box<str>>,
    }
    pub struct Taint {
        key: Box<str>,
        value: Box<str>,
        effect: Box<str>,
    }
    pub struct Node {
        metadata: NodeMetadata,
        spec: NodeSpec,
        status: NodeStatus,
    }
    pub struct NodeMetadata {
        name: Box<str>,
        labels: Labels,
        /// A hash of them.
        #[serde(deserialize_with = "hash_of_annotations")]
        annotations: u64,
    }
    pub struct NodeSpec {
        unschedulable: bool,
        taints: Vec<Taint>,
    }
    pub struct NodeStatus {
        allocatable: ResourceList,
        images: Vec<NodeImage>,
        /// A hash of their types and states.
        #[serde(deserialize_with = "hash_of_conditions")]
        conditions: u64,
        declared_features: Vec<Box<str>>,
    }
    pub struct NodeImage {
        names: Vec<Box<str>>,
        size_bytes: i64,
    }
}

fn sorted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<str>>, D::Error> {
    let mut values = Vec::<Box<str>>::deserialize(deserializer)?;
    values.sort_unstable();
    Ok(values)
}

/// A hash in which the order of items does not matter.
fn hash_of(items: impl Iterator<Item = impl Hash>) -> u64 {
    let hash = |item| {
        let mut hasher = DefaultHasher::new();
        Hash::hash(&item, &mut hasher);
        hasher.finish()
    };
    items.map(hash).fold(0, u64::wrapping_add)
}

fn hash_of_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let annotations = Labels::deserialize(deserializer)?;
    Ok(hash_of(annotations.iter()))
}

fn hash_of_conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize, Hash)]
    struct Condition {
        #[serde(default, rename = "type")]
        type_: Box<str>,
        #[serde(default)]
        status: Box<str>,
    }
    let conditions = Vec::<Condition>::deserialize(deserializer)?;
    Ok(hash_of(conditions.iter()))
}

fn any_restarts_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    struct Rule {
        #[serde(default)]
        action: Box<str>,
    }
    let rules = Vec::<Rule>::deserialize(deserializer)?;
    Ok(rules.iter().any(|rule| &*rule.action == "RestartAllContainers"))
}

fn any_has_options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    struct Mount {
        #[serde(default, rename = "bindMountOptions")]
        options: Vec<IgnoredAny>,
    }
    let mounts = Vec::<Mount>::deserialize(deserializer)?;
    Ok(mounts.iter().any(|mount| !mount.options.is_empty()))
}

/// A toleration of a pod. Empty fields are not written: a [`LongList`] keeps its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct Toleration {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub key: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub operator: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub effect: Box<str>,
}

/// A gate, which holds a pod back until it is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct SchedulingGate {
    pub name: Box<str>,
}

impl Pod {
    /// Failed or succeeded: it holds nothing on its node any more.
    pub fn is_terminal(&self) -> bool {
        is_terminal_phase(Some(&self.status.phase))
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Taint {
    /// Reports whether this taint keeps intolerant pods away, rather than only making the node less welcome.
    pub fn forbids_scheduling(&self) -> bool {
        [NO_SCHEDULE, NO_EXECUTE].contains(&&*self.effect)
    }
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let terms = TolerationTerms {
            key: &self.key,
            operator: &self.operator,
            value: &self.value,
            effect: &self.effect,
        };
        terms.accept(TaintTerms {
            key: &taint.key,
            value: &taint.value,
            effect: &taint.effect,
        })
    }
}
