//! Changes of watched objects, taken in one by one.

use crate::metrics::Metrics;
use crate::object::LabelSelector;
use crate::owner_selectors::OwnerKind;
use crate::projections::{FullSelector, MapSelector};
use crate::scheduler::Scheduler;
use crate::sources::{Changed, Source, Sources};
use machinery_client::Projection;
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Takes in what changed.
pub(crate) fn take_in(
    scheduler: &mut Scheduler,
    sources: &Sources,
    timed: Timed<'_>,
    changed: Changed,
    now: Duration,
) {
    match changed {
        Changed::Pods(keys) => timed.each(&sources.pods, &keys, |key, pod| {
            let pod = pod.map(|pod| &pod.0);
            let event = scheduler.pod_event(key, pod);
            scheduler.pod_changed(key, pod, now);
            event
        }),
        Changed::Nodes(keys) => timed.each(&sources.nodes, &keys, |key, node| {
            scheduler.node_changed(&key.name, node.map(|node| &node.0), now)
        }),
        Changed::Namespaces(keys) => timed.each(&sources.namespaces, &keys, |key, namespace| {
            scheduler.namespace_changed(&key.name, namespace.map(|namespace| namespace.0.clone()), now);
            either(namespace, "NamespaceUpdate", "NamespaceDelete")
        }),
        Changed::Budgets(keys) => timed.each(&sources.budgets, &keys, |key, budget| {
            scheduler.budget_changed(key, budget.map(|budget| budget.0.clone()));
            either(budget, "PodDisruptionBudgetUpdate", "PodDisruptionBudgetDelete")
        }),
        Changed::Services(_)
        | Changed::Controllers(_)
        | Changed::ReplicaSets(_)
        | Changed::StatefulSets(_) => take_in_owners(scheduler, sources, timed, changed),
        Changed::DeviceClaims(_)
        | Changed::DeviceClasses(_)
        | Changed::Slices(_)
        | Changed::TaintRules(_) => take_in_devices(scheduler, sources, timed, changed, now),
        storage => take_in_storage(scheduler, sources, timed, storage, now),
    }
}

fn take_in_owners(scheduler: &mut Scheduler, sources: &Sources, timed: Timed<'_>, changed: Changed) {
    match changed {
        Changed::Services(keys) => {
            each_owner(scheduler, timed, OwnerKind::Service, &sources.services, &keys);
        }
        Changed::Controllers(keys) => {
            let kind = OwnerKind::ReplicationController;
            each_owner(scheduler, timed, kind, &sources.controllers, &keys);
        }
        Changed::ReplicaSets(keys) => {
            let kind = OwnerKind::ReplicaSet;
            each_owner(scheduler, timed, kind, &sources.replica_sets, &keys);
        }
        Changed::StatefulSets(keys) => {
            let kind = OwnerKind::StatefulSet;
            each_owner(scheduler, timed, kind, &sources.stateful_sets, &keys);
        }
        _ => {}
    }
}

fn take_in_devices(
    scheduler: &mut Scheduler,
    sources: &Sources,
    timed: Timed<'_>,
    changed: Changed,
    now: Duration,
) {
    match changed {
        Changed::DeviceClaims(keys) => timed.each(&sources.device_claims, &keys, |key, claim| {
            scheduler.device_claim_changed(key, claim.map(|claim| Arc::clone(&claim.0)), now);
            either(claim, "ResourceClaimUpdate", "ResourceClaimDelete")
        }),
        Changed::DeviceClasses(keys) => timed.each(&sources.device_classes, &keys, |key, class| {
            scheduler.device_class_changed(&key.name, class.map(|class| Arc::clone(&class.0)), now);
            either(class, "DeviceClassUpdate", "DeviceClassDelete")
        }),
        Changed::Slices(keys) => timed.each(&sources.slices, &keys, |key, slice| {
            scheduler.device_slice_changed(&key.name, slice.map(|slice| Arc::clone(&slice.0)), now);
            either(slice, "ResourceSliceUpdate", "ResourceSliceDelete")
        }),
        Changed::TaintRules(keys) => timed.each(&sources.taint_rules, &keys, |key, rule| {
            scheduler.device_rule_changed(&key.name, rule.map(|rule| rule.0.clone()), now);
            either(rule, "DeviceTaintRuleUpdate", "DeviceTaintRuleDelete")
        }),
        _ => {}
    }
}

fn take_in_storage(
    scheduler: &mut Scheduler,
    sources: &Sources,
    timed: Timed<'_>,
    changed: Changed,
    now: Duration,
) {
    match changed {
        Changed::Claims(keys) => timed.each(&sources.claims, &keys, |key, claim| {
            scheduler.claim_changed(key, claim.map(|claim| claim.0.clone()), now);
            either(
                claim,
                "PersistentVolumeClaimUpdate",
                "PersistentVolumeClaimDelete",
            )
        }),
        Changed::Volumes(keys) => timed.each(&sources.volumes, &keys, |key, volume| {
            scheduler.volume_changed(&key.name, volume.map(|volume| volume.0.clone()), now);
            either(volume, "PersistentVolumeUpdate", "PersistentVolumeDelete")
        }),
        Changed::Classes(keys) => timed.each(&sources.classes, &keys, |key, class| {
            scheduler.class_changed(&key.name, class.map(|class| class.0.clone()), now);
            either(class, "StorageClassUpdate", "StorageClassDelete")
        }),
        Changed::CsiNodes(keys) => timed.each(&sources.csi_nodes, &keys, |key, node| {
            scheduler.csi_node_changed(&key.name, node.map(|node| node.0.clone()), now);
            either(node, "CSINodeUpdate", "CSINodeDelete")
        }),
        Changed::Drivers(keys) => timed.each(&sources.drivers, &keys, |key, driver| {
            scheduler.driver_changed(&key.name, driver.map(|driver| driver.0), now);
            either(driver, "CSIDriverUpdate", "CSIDriverDelete")
        }),
        Changed::Capacities(keys) => timed.each(&sources.capacities, &keys, |key, capacity| {
            scheduler.capacity_changed(key, capacity.map(|capacity| capacity.0.clone()), now);
            either(capacity, "CSIStorageCapacityUpdate", "CSIStorageCapacityDelete")
        }),
        Changed::Attachments(keys) => timed.each(&sources.attachments, &keys, |key, attachment| {
            scheduler.attachment_changed(&key.name, attachment.map(|own| own.0.clone()), now);
            either(attachment, "VolumeAttachmentUpdate", "VolumeAttachmentDelete")
        }),
        _ => {}
    }
}

/// Selectors of the kinds that own pods are of two forms.
trait OwnSelector: Projection {
    fn selector(&self) -> &LabelSelector;
}

impl OwnSelector for MapSelector {
    fn selector(&self) -> &LabelSelector {
        &self.0
    }
}

impl OwnSelector for FullSelector {
    fn selector(&self) -> &LabelSelector {
        &self.0
    }
}

fn each_owner<P: OwnSelector>(
    scheduler: &mut Scheduler,
    timed: Timed<'_>,
    kind: OwnerKind,
    source: &Source<P>,
    keys: &BTreeSet<ObjectKey>,
) {
    timed.each(source, keys, |key, own| {
        scheduler.owner_changed(kind, key, own.map(|own| own.selector().clone()));
        either(own, "ServiceUpdate", "ServiceDelete")
    });
}

fn either<T>(object: Option<T>, changed: &'static str, gone: &'static str) -> &'static str {
    match object {
        Some(_) => changed,
        None => gone,
    }
}

/// Objects are taken in one by one, and the time of each counted by what it was.
#[derive(Clone, Copy)]
pub(crate) struct Timed<'a> {
    runtime: &'a Runtime,
    metrics: &'a Metrics,
}

impl<'a> Timed<'a> {
    pub(crate) fn new(runtime: &'a Runtime, metrics: &'a Metrics) -> Self {
        Self { runtime, metrics }
    }

    fn each<P: Projection>(
        self,
        source: &Source<P>,
        keys: &BTreeSet<ObjectKey>,
        mut apply: impl FnMut(&ObjectKey, Option<&P>) -> &'static str,
    ) {
        for key in keys {
            let object = source.informer.get(key);
            let begun = self.runtime.monotonic();
            let event = apply(key, object.as_ref().map(|object| &object.projection));
            let took = self.runtime.monotonic().saturating_sub(begun);
            self.metrics.event_handled(event, took);
        }
    }
}
