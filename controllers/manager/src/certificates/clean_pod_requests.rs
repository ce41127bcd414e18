//! Deletion of PodCertificateRequests that are old, each at its own time, whatever became of them (upstream's
//! `PCRCleanerController` looks every five minutes).

use super::clean::left;
use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::created;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use machinery_client::{ApiResource, Client, DeleteOptions, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "podcertificaterequest-cleaner-controller",
    queue: "pod_certificate_cleaner",
    service_account: "podcertificaterequestcleaner",
    default: true,
    start,
};

/// A kubelet has its certificate long before, or requests again.
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(15);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let requests: Informer<()> = context.informers.of::<PodCertificateRequest, _>();
    let controller = ROW.controller(&context.runtime).watches(&requests, |change| {
        let came = change.new.as_ref().filter(|_| change.old.is_none());
        came.map(|own| own.key().clone())
    });
    controller.run(Cleaner {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        requests,
    })
}

struct Cleaner {
    client: Client,
    runtime: Runtime,
    requests: Informer<()>,
}

impl Reconciler for Cleaner {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(request) = self.requests.get(key).filter(|own| !own.header.is_deleting()) else {
                return Ok(Outcome::Done);
            };
            let goes_after = created(&request.header).checked_add(KEPT_FOR);
            let goes_after = goes_after.unwrap_or(jiff::Timestamp::MAX);
            if let Some(left) = left(goes_after, self.runtime.now()) {
                return Ok(Outcome::RequeueAfter(left));
            }
            let resource = ApiResource::of::<PodCertificateRequest>();
            let options = DeleteOptions::uid(request.uid());
            match self.client.delete(&resource, key, &options).await {
                // Gone, or another of its name, which has an event of its own.
                Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Done),
                other => other.map(|_| Outcome::Done).map_err(ReconcileError::doing(
                    "deleting an old certificate request of a pod",
                )),
            }
        })
    }
}
