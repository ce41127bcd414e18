//! Claims of devices: made from templates for the pods that name them, reserved for pods that already have a node, and freed
//! by those that are done (upstream's `pkg/controller/resourceclaim`).
//!
//! Owns: claims made for a pod, which is their controller, named `POD-CLAIM-xxxxx` and noted in the pod's status. Watches:
//! pods, claims, templates (the pods that name them).
//!
//! `plan` decides, on a pod's claim and on a claim's consumers; `new_claim` writes the claim. Never: takes away a
//! reservation for a pod of which it is not certain that it will not run; chooses devices, which is the scheduler's part.
//! PodGroups have no claims here: the feature is off upstream.

mod metrics;
mod new_claim;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::PodView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use machinery_client::{Change, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::Expectations;
use reconcile::{ClaimReconciler, Key};
use view::{DeviceClaimView, TemplateView};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "resourceclaim-controller",
    queue: "resource_claim",
    service_account: "resource-claim-controller",
    default: true,
    start,
};

/// Component of its events.
const COMPONENT: &str = "resource_claim";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let claims: Informer<DeviceClaimView> = context.informers.of::<ResourceClaim, _>();
    let templates: Informer<TemplateView> = context.informers.of::<ResourceClaimTemplate, _>();
    let (of_claim, of_template) = (pods.clone(), pods.clone());
    let controller = ROW
        .controller(&context.runtime)
        .watches(&pods, keys_of_pod)
        .watches(&claims, move |change| {
            let key = change.key();
            let near = of_claim.by_index(PodView::DEVICE_CLAIM, &key.to_string());
            let mut keys: Vec<Key> = near.iter().map(|pod| Key::Pod(pod.key().clone())).collect();
            // Its pod may not have noted it yet.
            let owners = change.sides().filter_map(|claim| claim.header.controller());
            let pods = owners.filter(|owner| &*owner.kind == "Pod");
            keys.extend(pods.map(|owner| Key::Pod(ObjectKey::new(&*key.namespace, &*owner.name))));
            if !change.is_removal() {
                keys.push(Key::Claim(key.clone()));
            }
            keys
        })
        .watches(&templates, move |change| {
            let near = of_template.by_index(PodView::DEVICE_TEMPLATE, &change.key().to_string());
            let near = near.iter().filter(|_| !change.is_removal());
            near.map(|pod| Key::Pod(pod.key().clone())).collect::<Vec<_>>()
        });
    let expectations = Expectations::default();
    let of = |pod: &ObjectKey| Key::Pod(pod.clone());
    let woken = expectations.requeue_after_lists(&claims, controller.queue(), of);
    controller.keeps(woken).run(ClaimReconciler {
        recorder: context.recorder(&client, COMPONENT),
        client,
        runtime: context.runtime.clone(),
        metrics: metrics::ClaimMetrics::new(context.runtime.metrics(), &claims),
        pods,
        claims,
        templates,
        expectations,
    })
}

/// The pod, and the claims that it does not need any more.
fn keys_of_pod(change: &Change<PodView>) -> Vec<Key> {
    let mut keys = Vec::new();
    for pod in change.sides() {
        let Some(own) = &pod.device_claims else { continue };
        let is_gone = change.new.as_ref().is_none_or(|new| new.uid() != pod.uid());
        if is_gone || is_done(pod) {
            let claims = own.names().map(|name| ObjectKey::new(pod.namespace(), name));
            keys.extend(claims.map(Key::Claim));
        }
        if !is_gone && !pod.header.is_deleting() {
            keys.push(Key::Pod(pod.key().clone()));
        }
    }
    keys
}

/// Reports whether it is certain that no container of the pod runs or ever will.
fn is_done(pod: &Object<PodView>) -> bool {
    pod.is_terminal() || (pod.header.is_deleting() && pod.node.is_empty())
}
