//! Gives scalable objects the size that metrics request, as upstream's horizontal controller does.
//!
//! Watches: HorizontalPodAutoscalers (the key; reconciled at once where the spec changed, otherwise every sync period), pods
//! (no keys: [`targets`] finds those of an autoscaler). A look reads `scale` of the target, whatever its kind, and the
//! metrics ([`sources`]); [`round`] decides with [`metrics`] and [`calculator`] what they request, with [`limits`] and
//! [`history`] how much of it now; then scale, status and events are written. Failures are conditions and events, and the
//! next look comes as if there were none. Never: reads or writes a pod's owner but by `scale`.

mod calculator;
mod history;
mod limits;
mod metrics;
mod monitor;
mod object;
mod reconcile;
mod round;
mod selectors;
mod sources;
mod targets;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::metrics::own_writes;
use crate::served_kinds::ServedKinds;
use crate::views::PodView;
use futures::future::BoxFuture;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use machinery_client::{Change, Informer};
use machinery_meta::ObjectKey;
use machinery_runtime::metrics::Family;
use monitor::{Histories, Monitor};
pub(crate) use object::AutoscalerView;
use reconcile::AutoscalerReconciler;
use round::Settings;
use sources::Sources;
use std::sync::Arc;
use targets::Targets;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "horizontal-pod-autoscaler-controller",
    queue: "horizontalpodautoscaler",
    service_account: "horizontal-pod-autoscaler",
    default: true,
    start,
};

/// Component of its events.
const COMPONENT: &str = "horizontal-pod-autoscaler";

/// Looks left out because the cache was behind.
const STALE_SKIPS: Family = Family::new(
    "horizontal_pod_autoscaler_controller_stale_sync_skips_total",
    "[ALPHA] Total number of HPA syncs skipped due to a stale watch cache.",
    &["group", "resource"],
);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let autoscalers: Informer<AutoscalerView> = context.informers.of::<HorizontalPodAutoscaler, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let targets = Arc::new(Targets::new(context.runtime.clone(), pods.clone()));
    let indexed = Arc::clone(&targets);
    let subscription = pods.on_change(move |change| indexed.pod_changed(change));
    let controller = ROW
        .controller(&context.runtime)
        .watches(&autoscalers, key_of)
        .needs(&pods)
        .keeps(subscription);
    let histories = Histories::default();
    let kinds = Arc::new(ServedKinds::new(client.clone()));
    controller.run(AutoscalerReconciler {
        recorder: context.recorder(&client, COMPONENT),
        runtime: context.runtime.clone(),
        settings: Settings::of(&context.config),
        period: context.config.horizontal_pod_autoscaler.sync_period,
        targets,
        sources: Sources::new(client.clone(), Arc::clone(&kinds)),
        kinds,
        monitor: Monitor::new(context.runtime.metrics(), &autoscalers, &histories),
        histories,
        autoscalers,
        own_writes: own_writes(context, &STALE_SKIPS, ["autoscaling", "horizontalpodautoscalers"]),
        client,
    })
}

/// A status, such as its own, calls for no look before its time.
fn key_of(change: &Change<AutoscalerView>) -> Option<ObjectKey> {
    let same = match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.header.generation == new.header.generation,
        _ => false,
    };
    (!same).then(|| change.key().clone())
}
