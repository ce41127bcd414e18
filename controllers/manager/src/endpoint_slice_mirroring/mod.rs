//! Copies Endpoints that users write, for Services without a selector, to EndpointSlices, which is what proxies read.
//!
//! Owns: slices labelled as managed by it, owned by the Endpoints. Watches: Endpoints (the key), their Services, slices.
//! Endpoints that say so (`endpointslice.kubernetes.io/skip-mirror`) and records of elections are left out.
//!
//! `repack` brings subsets into the form in which each port stands once, `plan` compares with the slices there are. Work is
//! bounded: an object of a megabyte can pair ten thousand ports with ten thousand addresses.

mod metrics;
mod plan;
mod reconcile;
mod repack;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::endpoint_slice::{MANAGED_BY, SERVICE_NAME};
use crate::endpoints::EndpointsView;
use crate::slice_writer::SliceWriter;
use crate::views::ServiceView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::{Index, IndexName, Informer, ListWatch, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use metrics::{CHANGES, MirroringMetrics};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "endpointslice-mirroring-controller",
    queue: "endpoint_slice_mirroring",
    service_account: "endpointslicemirroring-controller",
    default: true,
    start,
};

/// `--mirroring-max-endpoints-per-subset`.
const MAX_ENDPOINTS: usize = 1_000;
/// The manager of a mirrored slice.
const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
/// The component of events.
const COMPONENT: &str = "endpoint-slice-mirroring-controller";

/// A mirrored slice, read from its bytes where it is compared.
#[derive(Debug)]
pub(crate) struct MirroredView;

impl MirroredView {
    /// Slices of Endpoints, by `namespace/name`.
    const SERVICE: IndexName = IndexName("mirrored service");
}

impl Projection for MirroredView {
    const INDEXES: &'static [Index<Self>] = &[Index {
        name: Self::SERVICE,
        values: |slice, each| {
            if let Some(service) = slice.header.label(SERVICE_NAME) {
                each(&format!("{}/{service}", slice.namespace()));
            }
        },
    }];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self)
    }
}

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let services: Informer<ServiceView> = context.informers.of::<Service, _>();
    let endpoints: Informer<EndpointsView> = context.informers.of::<Endpoints, _>();
    let source = ListWatch::of::<EndpointSlice>().labels(format!("{MANAGED_BY}={CONTROLLER}"));
    let slices: Informer<MirroredView> = context.informers.informer(source);
    let controller = ROW
        .controller(&context.runtime)
        .watches(&services, |change| [change.key().clone()])
        .watches(&endpoints, |change| [change.key().clone()])
        .watches(&slices, |change| {
            let services = change.sides().filter_map(|slice| {
                let service = slice.header.label(SERVICE_NAME)?;
                Some(ObjectKey::new(slice.namespace(), service))
            });
            services.collect::<Vec<_>>()
        });
    let client = context.client(ROW.service_account);
    let metrics = context.runtime.metrics();
    let recorder = context.recorder(&client, COMPONENT);
    let writer = SliceWriter::new(client, context.runtime.clone(), metrics.counters(&CHANGES));
    let woken = writer.requeue_after_lists(&slices, controller.queue());
    controller.keeps(woken).run(reconcile::MirroringReconciler {
        recorder,
        writer,
        metrics: MirroringMetrics::new(metrics, &slices),
        runtime: context.runtime.clone(),
        services,
        endpoints,
        slices,
    })
}
