//! Ends pods whose devices have a `NoExecute` taint that their claims do not tolerate, or no longer (upstream's
//! `pkg/controller/devicetainteviction`).
//!
//! Owns: the condition `EvictionInProgress` of DeviceTaintRules. Watches: pods with claims of devices, claims, slices and rules.
//!
//! A taint comes from the driver, in a ResourceSlice, or from an administrator, in a DeviceTaintRule. `plan` computes the time at
//! which a pod goes, `status` the words of a rule's condition. Never: ends a pod that its claim is not reserved for.

mod plan;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::PodView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use machinery_client::{Change, Informer};
use machinery_meta::ObjectKey;
use machinery_runtime::metrics::Family;
use reconcile::{Evictor, Key};
use view::{AllocationView, DevicesView, RuleView};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "device-taint-eviction-controller",
    queue: "device_taint_eviction",
    service_account: "device-taint-eviction-controller",
    default: true,
    start,
};

const DELETIONS: Family = Family::new(
    "device_taint_eviction_controller_pod_deletions_total",
    "[ALPHA] Total number of Pods deleted by DeviceTaintEvictionController since its start.",
    &[],
);
const DURATIONS: Family = Family::new(
    "device_taint_eviction_controller_pod_deletion_duration_seconds",
    "[ALPHA] Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via \
     DeviceTaintEvictionController.",
    &[],
)
.listed(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0]);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let claims: Informer<AllocationView> = context.informers.of::<ResourceClaim, _>();
    let slices: Informer<DevicesView> = context.informers.of::<ResourceSlice, _>();
    let rules: Informer<RuleView> = context.informers.of::<DeviceTaintRule, _>();
    let of_claim = (pods.clone(), rules.clone());
    let of_slice = (pods.clone(), claims.clone());
    let of_rule = of_slice.clone();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&pods, |change| {
            let concerned = change.sides().any(|pod| pod.device_claims.is_some());
            concerned.then(|| Key::Pod(change.key().clone()))
        })
        .watches(&claims, move |change| {
            let (pods, rules) = &of_claim;
            if change.sides().all(|claim| claim.devices.is_empty()) {
                return Vec::new();
            }
            let mut keys = Vec::new();
            pods_of(pods, change.key(), &mut keys);
            rules.for_each(|rule| {
                let meets = |claim: &AllocationView| claim.devices.iter().any(|own| rule.selects(own.id()));
                if change.sides().any(|claim| meets(claim)) {
                    keys.push(Key::Rule(rule.key().clone()));
                }
            });
            keys
        })
        .watches(&slices, move |change| {
            let (pods, claims) = &of_slice;
            let mut keys = Vec::new();
            // One without taints may make one with taints outdated.
            let in_pool = |claim: &AllocationView| {
                let pool =
                    |own: &view::AllocatedDevice| change.sides().any(|slice| slice.has_pool_of(own.id()));
                claim.devices.iter().any(pool)
            };
            claims.for_each(|claim| {
                if in_pool(claim) {
                    pods_of(pods, claim.key(), &mut keys);
                }
            });
            keys
        })
        .watches(&rules, move |change| {
            if is_own_writing(change) {
                return Vec::new();
            }
            let (pods, claims) = &of_rule;
            let mut keys = vec![Key::Rule(change.key().clone())];
            claims.for_each(|claim| {
                let selected = |rule: &RuleView| claim.devices.iter().any(|own| rule.selects(own.id()));
                if change.sides().any(|rule| selected(rule)) {
                    pods_of(pods, claim.key(), &mut keys);
                }
            });
            keys
        });
    controller.run(Evictor {
        recorder: context.recorder(&client, ROW.name),
        client,
        runtime: context.runtime.clone(),
        pods,
        claims,
        slices,
        rules,
        deletions: context.runtime.metrics().counters(&DELETIONS).of(&[]),
        durations: context.runtime.metrics().histograms(&DURATIONS).of(&[]),
        noted: Default::default(),
    })
}

/// Pods that name a claim.
fn pods_of(pods: &Informer<PodView>, claim: &ObjectKey, keys: &mut Vec<Key>) {
    let near = pods.by_index(PodView::DEVICE_CLAIM, &claim.to_string());
    keys.extend(near.iter().map(|pod| Key::Pod(pod.key().clone())));
}

/// Reports whether a rule changed in nothing but its condition.
fn is_own_writing(change: &Change<RuleView>) -> bool {
    let both = change.old.as_ref().zip(change.new.as_ref());
    both.is_some_and(|(old, new)| old.uid() == new.uid() && old.rule == new.rule)
}
