//! Projections of volumes, claims and storage classes for the binder.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;
use machinery_client::{Index, IndexName, Projection};
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::{ObjectHeader, Quantity};
use machinery_semantics::selectors::from_api;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(crate) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub(crate) const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Node whose folder the bundled provisioner requested for a volume.
pub(crate) const MADE_ON: &str = "knarr/node";
/// Driver whose resizer expands the volume of a claim.
pub(crate) const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// Size of a volume before it was expanded, while its node has something left to do.
pub(crate) const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// Annotation that held the class before it was a field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// Annotations that plans read; others are not kept.
const READ: [&str; 11] = [
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    MIGRATED_TO,
    SELECTED_NODE,
    BETA_CLASS,
    PROVISIONER,
    BETA_PROVISIONER,
    MADE_ON,
    RESIZER,
    PRE_RESIZE_CAPACITY,
];

type Annotations = BTreeMap<Box<str>, Box<str>>;

fn read(mut metadata: Metadata) -> Annotations {
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    annotations.retain(|name, _| READ.contains(&&**name));
    annotations
}

/// The claim that a volume names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimRef {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

impl ClaimRef {
    /// Reports whether it means this claim: by name, and by uid where it has one.
    pub(crate) fn means(&self, claim: &ObjectHeader) -> bool {
        *self.name == *claim.key.name
            && *self.namespace == *claim.key.namespace
            && (self.uid.is_empty() || *self.uid == *claim.uid.0)
    }
}

/// A PersistentVolume.
#[derive(Debug)]
pub(crate) struct VolumeView {
    pub(crate) annotations: Annotations,
    pub(crate) capacity: Quantity,
    pub(crate) access_modes: Vec<Box<str>>,
    pub(crate) class: Box<str>,
    pub(crate) attributes_class: Box<str>,
    pub(crate) is_block: bool,
    pub(crate) claim: Option<ClaimRef>,
    pub(crate) reclaim_policy: Box<str>,
    pub(crate) csi: Option<Box<CsiSource>>,
    /// Upstream's name of the plugin, with the driver of CSI behind it.
    pub(crate) plugin: Box<str>,
    pub(crate) phase: Box<str>,
}

impl VolumeView {
    /// Volumes that a claim may have: by the claim that they name, or by class where they name none.
    pub(crate) const CANDIDATES: IndexName = IndexName("candidates");

    /// Volumes of a CSI driver, by driver and handle.
    pub(crate) const HANDLE: IndexName = IndexName("handle");

    /// The value of [`Self::HANDLE`].
    pub(crate) fn of_handle(csi: &CsiSource) -> String {
        format!("{}^{}", csi.driver, csi.volume_handle)
    }

    /// The value of [`Self::CANDIDATES`] for volumes that name a claim.
    pub(crate) fn of_claim(namespace: &str, name: &str) -> String {
        format!("claim {namespace}/{name}")
    }

    /// The value of [`Self::CANDIDATES`] for volumes that name no claim.
    pub(crate) fn of_class(class: &str) -> String {
        format!("class {class}")
    }
}

impl Projection for VolumeView {
    const INDEXES: &'static [Index<Self>] = &[
        Index {
            name: Self::CANDIDATES,
            values: |volume, each| match &volume.claim {
                Some(claim) => each(&Self::of_claim(&claim.namespace, &claim.name)),
                None => each(&Self::of_class(&volume.class)),
            },
        },
        Index {
            name: Self::HANDLE,
            values: |volume, each| {
                if let Some(csi) = &volume.csi {
                    each(&Self::of_handle(csi));
                }
            },
        },
    ];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let Volume {
            metadata,
            spec,
            status,
        } = machinery_client::json::from_slice(json)?;
        let annotations = read(metadata);
        let class = annotations.get(BETA_CLASS).cloned();
        let plugin = plugin(&spec);
        Ok(Self {
            capacity: storage(&spec.capacity),
            access_modes: spec.access_modes,
            class: class.or(spec.storage_class_name).unwrap_or_default(),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            claim: spec.claim_ref,
            reclaim_policy: spec.persistent_volume_reclaim_policy,
            csi: spec.csi,
            plugin,
            phase: status.phase,
            annotations,
        })
    }
}

/// A PersistentVolumeClaim.
#[derive(Debug)]
pub(crate) struct ClaimView {
    pub(crate) annotations: Annotations,
    pub(crate) request: Quantity,
    /// `status.capacity`.
    pub(crate) capacity: Quantity,
    pub(crate) access_modes: Vec<Box<str>>,
    /// `None` where the claim leaves the class to the cluster.
    pub(crate) class: Option<Box<str>>,
    pub(crate) attributes_class: Box<str>,
    pub(crate) is_block: bool,
    /// `Err` where it cannot be compiled.
    pub(crate) selector: Result<Option<LabelSelector>, String>,
    pub(crate) volume: Box<str>,
    pub(crate) phase: Box<str>,
}

impl ClaimView {
    /// Claims by the volume that they name, or by class where they name none.
    pub(crate) const WANTED: IndexName = IndexName("wanted");
    /// The value of [`Self::WANTED`] of claims that leave the class to the cluster.
    pub(crate) const ANY_CLASS: &'static str = "any class";

    /// The value of [`Self::WANTED`] for claims that name a volume.
    pub(crate) fn of_volume(name: &str) -> String {
        format!("volume {name}")
    }

    /// The value of [`Self::WANTED`] for claims that name a class and no volume.
    pub(crate) fn of_class(name: &str) -> String {
        format!("class {name}")
    }

    pub(crate) fn class(&self) -> &str {
        self.class.as_deref().unwrap_or_default()
    }
}

impl Projection for ClaimView {
    const INDEXES: &'static [Index<Self>] = &[Index {
        name: Self::WANTED,
        values: |claim, each| match &claim.class {
            _ if !claim.volume.is_empty() => each(&Self::of_volume(&claim.volume)),
            Some(class) => each(&Self::of_class(class)),
            None => each(Self::ANY_CLASS),
        },
    }];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let Claim {
            metadata,
            spec,
            status,
        } = machinery_client::json::from_slice(json)?;
        let annotations = read(metadata);
        let class = annotations.get(BETA_CLASS).cloned();
        Ok(Self {
            request: storage(&spec.resources.requests),
            capacity: storage(&status.capacity),
            access_modes: spec.access_modes,
            class: class.or(spec.storage_class_name),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            selector: from_api(spec.selector.as_ref()).map_err(|error| error.to_string()),
            volume: spec.volume_name,
            phase: status.phase,
            annotations,
        })
    }
}

/// A StorageClass.
#[derive(Debug)]
pub(crate) struct ClassView {
    pub(crate) provisioner: Box<str>,
    pub(crate) waits_for_pod: bool,
    pub(crate) is_default: bool,
}

impl Projection for ClassView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let class: Class = machinery_client::json::from_slice(json)?;
        let annotations = class.metadata.annotations.unwrap_or_default();
        let says = |name: &str| annotations.get(name).is_some_and(|value| &**value == "true");
        Ok(Self {
            provisioner: class.provisioner,
            waits_for_pod: class.volume_binding_mode == "WaitForFirstConsumer",
            is_default: says(DEFAULT_CLASS) || says(BETA_DEFAULT_CLASS),
        })
    }
}

/// The name of a volume's plugin, as metrics have it.
fn plugin(spec: &VolumeSpec) -> Box<str> {
    let known = [
        (&spec.host_path, "kubernetes.io/host-path"),
        (&spec.local, "kubernetes.io/local-volume"),
        (&spec.nfs, "kubernetes.io/nfs"),
        (&spec.iscsi, "kubernetes.io/iscsi"),
        (&spec.fc, "kubernetes.io/fc"),
    ];
    if let Some(csi) = &spec.csi {
        return format!("kubernetes.io/csi:{}", csi.driver).into();
    }
    let own = known.iter().find(|(source, _)| source.is_some());
    own.map_or("N/A", |(_, name)| *name).into()
}

fn storage(resources: &BTreeMap<Box<str>, Box<str>>) -> Quantity {
    let amount = resources.get("storage").and_then(|text| text.parse().ok());
    amount.unwrap_or_default()
}

#[derive(Deserialize)]
struct Volume {
    metadata: Metadata,
    #[serde(default)]
    spec: VolumeSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    phase: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    capacity: BTreeMap<Box<str>, Box<str>>,
    access_modes: Vec<Box<str>>,
    storage_class_name: Option<Box<str>>,
    volume_attributes_class_name: Option<Box<str>>,
    volume_mode: Option<Box<str>>,
    claim_ref: Option<ClaimRef>,
    persistent_volume_reclaim_policy: Box<str>,
    csi: Option<Box<CsiSource>>,
    host_path: Option<IgnoredAny>,
    local: Option<IgnoredAny>,
    nfs: Option<IgnoredAny>,
    iscsi: Option<IgnoredAny>,
    fc: Option<IgnoredAny>,
}

/// A volume of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CsiSource {
    pub(crate) driver: Box<str>,
    pub(crate) volume_handle: Box<str>,
}

#[derive(Deserialize)]
struct Claim {
    metadata: Metadata,
    #[serde(default)]
    spec: ClaimSpec,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClaimStatus {
    phase: Box<str>,
    capacity: BTreeMap<Box<str>, Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpec {
    access_modes: Vec<Box<str>>,
    resources: Resources,
    storage_class_name: Option<Box<str>>,
    volume_attributes_class_name: Option<Box<str>>,
    volume_mode: Option<Box<str>>,
    selector: Option<ApiSelector>,
    volume_name: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<Box<str>, Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Class {
    metadata: Metadata,
    #[serde(default)]
    provisioner: Box<str>,
    #[serde(default)]
    volume_binding_mode: String,
}
