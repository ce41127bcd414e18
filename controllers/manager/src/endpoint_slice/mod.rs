//! Keeps the EndpointSlices of every Service that has a selector.
//!
//! Owns: EndpointSlices labelled as managed by it. Watches: Services (the key), pods (every Service that selects the
//! pod, before or after), slices (their Service), nodes (the zone of endpoints; read when something else wakes us).
//! A slice has one address family, one set of ports, at most [`MAX_ENDPOINTS`]; a change rewrites as few as it can. The slices
//! of a namespace have a bounded number of ports and endpoints ([`crate::endpoint_shares`]).

mod metrics;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream_tests;
pub(crate) mod view;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::endpoint_shares::EndpointShares;
use crate::slice_writer::SliceWriter;
use crate::views::{NodeView, PodView, ServiceView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::{Change, IndexName, Informer, ListWatch};
use machinery_meta::ObjectKey;
use metrics::{CHANGES, SHORT, SliceMetrics};
pub(crate) use plan::own_labels;
use view::SliceView;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "endpointslice-controller",
    queue: "endpoint_slice",
    service_account: "endpointslice-controller",
    default: true,
    start,
};

/// `--max-endpoints-per-slice`.
pub(crate) const MAX_ENDPOINTS: usize = 100;
/// Label with the manager of a slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// The Service a slice belongs to.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Says that the Service has no address of its own.
const HEADLESS: &str = "service.kubernetes.io/headless";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let services: Informer<ServiceView> = context.informers.of::<Service, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let source = ListWatch::of::<EndpointSlice>().labels(format!("{MANAGED_BY}={CONTROLLER}"));
    let slices: Informer<SliceView> = context.informers.informer(source);
    let by_pod = services.clone();
    let controller = ROW
        .controller(&context.runtime)
        .needs(&nodes)
        .watches(&services, |change| [change.key().clone()])
        .watches(&pods, move |change| services_of_pod(&by_pod, change))
        .watches(&slices, |change| {
            let service = change.latest().header.label(SERVICE_NAME).map(str::to_owned);
            service.map(|service| ObjectKey::new(change.latest().namespace(), service))
        });
    let client = context.client(ROW.service_account);
    let metrics = context.runtime.metrics();
    let queue = controller.queue();
    let recorder = context.recorder(&client, ROW.name);
    let writer = SliceWriter::new(client, context.runtime.clone(), metrics.counters(&CHANGES));
    let woken = writer.requeue_after_lists(&slices, controller.queue());
    controller.keeps(woken).run(reconcile::SliceReconciler {
        queue,
        shares: EndpointShares::new(&context.runtime, &SHORT),
        recorder,
        writer,
        metrics: SliceMetrics::new(metrics, &slices),
        runtime: context.runtime.clone(),
        services,
        pods,
        nodes,
        slices,
    })
}

/// The services whose endpoints a change of a pod concerns: those that select it before or after. Changes that no endpoint
/// shows (a container's restart, say) wake no Service.
pub(crate) fn services_of_pod(services: &Informer<ServiceView>, change: &Change<PodView>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new) {
        let same = old.header.labels == new.header.labels
            && old.header.deletion_timestamp == new.header.deletion_timestamp
            && (old.phase, old.ready, &old.ips, &old.node) == (new.phase, new.ready, &new.ips, &new.node)
            && (&old.hostname, &old.subdomain) == (&new.hostname, &new.subdomain);
        if same {
            return Vec::new();
        }
    }
    let near = services.by_index(IndexName::NAMESPACE, &change.key().namespace);
    let concerned = near
        .iter()
        .filter(|service| change.sides().any(|pod| service.selects(&pod.header)));
    concerned.map(|service| service.key().clone()).collect()
}
