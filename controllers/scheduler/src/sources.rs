//! The kinds that the scheduler watches.

use crate::devices::views::{DeviceClaimView, DeviceClassView, SliceView, TaintRuleView};
use crate::object::Labels;
use crate::policy::object::{NAME as POLICY, WantedPolicy, resource as policy_resource};
use crate::projections::{BudgetView, FullSelector, MapSelector, NodeView, PodView};
use crate::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use machinery_client::{DirtyKeys, Informer, Informers, ListWatch, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::Runtime;
use std::collections::BTreeSet;
use std::time::Duration;

/// Pods that ended hold nothing; upstream does not watch them either.
const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Time that the first pod waits for the policy: a server may not have the kind.
const POLICY_WITHIN: Duration = Duration::from_secs(5);

/// One watched kind.
pub(crate) struct Source<P: Projection> {
    pub(crate) informer: Informer<P>,
    dirty: DirtyKeys,
}

impl<P: Projection> Source<P> {
    fn new(informer: Informer<P>) -> Self {
        Self {
            dirty: informer.dirty_keys(),
            informer,
        }
    }
}

pub(crate) struct Sources {
    pub(crate) pods: Source<PodView>,
    pub(crate) nodes: Source<NodeView>,
    pub(crate) namespaces: Source<LabelsView>,
    pub(crate) services: Source<MapSelector>,
    pub(crate) controllers: Source<MapSelector>,
    pub(crate) replica_sets: Source<FullSelector>,
    pub(crate) stateful_sets: Source<FullSelector>,
    pub(crate) budgets: Source<BudgetView>,
    pub(crate) claims: Source<ClaimView>,
    pub(crate) volumes: Source<VolumeView>,
    pub(crate) classes: Source<ClassView>,
    pub(crate) csi_nodes: Source<CsiNodeView>,
    pub(crate) drivers: Source<DriverView>,
    pub(crate) capacities: Source<CapacityView>,
    pub(crate) attachments: Source<AttachmentView>,
    pub(crate) device_claims: Source<DeviceClaimView>,
    pub(crate) device_classes: Source<DeviceClassView>,
    pub(crate) slices: Source<SliceView>,
    pub(crate) taint_rules: Source<TaintRuleView>,
    pub(crate) policies: Source<WantedPolicy>,
}

/// A namespace's labels.
pub(crate) struct LabelsView(pub(crate) Labels);

impl Projection for LabelsView {
    fn project(header: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self(header.labels.iter().cloned().collect()))
    }
}

/// Keys of one kind that changed.
pub(crate) enum Changed {
    Pods(BTreeSet<ObjectKey>),
    Nodes(BTreeSet<ObjectKey>),
    Namespaces(BTreeSet<ObjectKey>),
    Services(BTreeSet<ObjectKey>),
    Controllers(BTreeSet<ObjectKey>),
    ReplicaSets(BTreeSet<ObjectKey>),
    StatefulSets(BTreeSet<ObjectKey>),
    Budgets(BTreeSet<ObjectKey>),
    Claims(BTreeSet<ObjectKey>),
    Volumes(BTreeSet<ObjectKey>),
    Classes(BTreeSet<ObjectKey>),
    CsiNodes(BTreeSet<ObjectKey>),
    Drivers(BTreeSet<ObjectKey>),
    Capacities(BTreeSet<ObjectKey>),
    Attachments(BTreeSet<ObjectKey>),
    DeviceClaims(BTreeSet<ObjectKey>),
    DeviceClasses(BTreeSet<ObjectKey>),
    Slices(BTreeSet<ObjectKey>),
    TaintRules(BTreeSet<ObjectKey>),
    Policy,
}

impl Sources {
    pub(crate) fn new(informers: &Informers) -> Self {
        Self {
            pods: Source::new(informers.informer(ListWatch::of::<Pod>().fields(LIVE_PODS))),
            nodes: Source::new(informers.of::<Node, _>()),
            namespaces: Source::new(informers.of::<Namespace, _>()),
            services: Source::new(informers.of::<Service, _>()),
            controllers: Source::new(informers.of::<ReplicationController, _>()),
            replica_sets: Source::new(informers.of::<ReplicaSet, _>()),
            stateful_sets: Source::new(informers.of::<StatefulSet, _>()),
            budgets: Source::new(informers.of::<PodDisruptionBudget, _>()),
            claims: Source::new(informers.of::<PersistentVolumeClaim, _>()),
            volumes: Source::new(informers.of::<PersistentVolume, _>()),
            classes: Source::new(informers.of::<StorageClass, _>()),
            csi_nodes: Source::new(informers.of::<CSINode, _>()),
            drivers: Source::new(informers.of::<CSIDriver, _>()),
            capacities: Source::new(informers.of::<CSIStorageCapacity, _>()),
            attachments: Source::new(informers.of::<VolumeAttachment, _>()),
            device_claims: Source::new(informers.of::<ResourceClaim, _>()),
            device_classes: Source::new(informers.of::<DeviceClass, _>()),
            slices: Source::new(informers.of::<ResourceSlice, _>()),
            taint_rules: Source::new(informers.of::<DeviceTaintRule, _>()),
            policies: Source::new(informers.informer(ListWatch::all(policy_resource()))),
        }
    }

    /// Waits for the stores that decide where a pod may go. They must be filled before the first decision; a missing
    /// selector only makes one less even.
    pub(crate) async fn synced(&self, runtime: &Runtime) {
        self.nodes.informer.synced().await;
        self.pods.informer.synced().await;
        self.namespaces.informer.synced().await;
        self.claims.informer.synced().await;
        self.volumes.informer.synced().await;
        self.classes.informer.synced().await;
        self.csi_nodes.informer.synced().await;
        self.drivers.informer.synced().await;
        self.capacities.informer.synced().await;
        self.attachments.informer.synced().await;
        self.device_claims.informer.synced().await;
        self.device_classes.informer.synced().await;
        self.slices.informer.synced().await;
        self.taint_rules.informer.synced().await;
        let policy = self.policies.informer.synced();
        if runtime.timeout(POLICY_WITHIN, policy).await.is_err() {
            tracing::warn!("scheduling begins by the scores of the profile: no policy can be read");
        }
    }

    /// The policy that the cluster wants.
    pub(crate) fn policy(&self) -> Option<WantedPolicy> {
        let object = self.policies.informer.get(&ObjectKey::cluster(POLICY));
        object.map(|own| own.projection.clone())
    }

    /// Nodes and claims before pods, so that a pod is not tried before what came with it.
    pub(crate) async fn changed(&mut self) -> Changed {
        tokio::select! { biased;
            _ = self.policies.dirty.next_batch() => Changed::Policy,
            keys = self.namespaces.dirty.next_batch() => Changed::Namespaces(keys),
            keys = self.nodes.dirty.next_batch() => Changed::Nodes(keys),
            keys = self.services.dirty.next_batch() => Changed::Services(keys),
            keys = self.controllers.dirty.next_batch() => Changed::Controllers(keys),
            keys = self.replica_sets.dirty.next_batch() => Changed::ReplicaSets(keys),
            keys = self.stateful_sets.dirty.next_batch() => Changed::StatefulSets(keys),
            keys = self.budgets.dirty.next_batch() => Changed::Budgets(keys),
            keys = self.classes.dirty.next_batch() => Changed::Classes(keys),
            keys = self.csi_nodes.dirty.next_batch() => Changed::CsiNodes(keys),
            keys = self.drivers.dirty.next_batch() => Changed::Drivers(keys),
            keys = self.capacities.dirty.next_batch() => Changed::Capacities(keys),
            keys = self.attachments.dirty.next_batch() => Changed::Attachments(keys),
            keys = self.volumes.dirty.next_batch() => Changed::Volumes(keys),
            keys = self.claims.dirty.next_batch() => Changed::Claims(keys),
            keys = self.device_classes.dirty.next_batch() => Changed::DeviceClasses(keys),
            keys = self.taint_rules.dirty.next_batch() => Changed::TaintRules(keys),
            keys = self.slices.dirty.next_batch() => Changed::Slices(keys),
            keys = self.device_claims.dirty.next_batch() => Changed::DeviceClaims(keys),
            keys = self.pods.dirty.next_batch() => Changed::Pods(keys),
        }
    }
}
