//! Deletion of requests that are old, each at its own time (upstream's `csrcleaner` looks once an hour).

use super::view::RequestView;
use super::{SERVICE_ACCOUNT, requests};
use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use machinery_client::{ApiResource, Client, DeleteOptions, Informer, Precondition};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use std::time::Duration;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "certificatesigningrequest-cleaner-controller",
    queue: "certificate_cleaner",
    service_account: SERVICE_ACCOUNT,
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let requests = requests(context);
    let controller = ROW.controller(&context.runtime).watches(&requests, |change| {
        let due = change.new.as_ref().filter(|own| own.goes_after.is_some());
        due.map(|own| own.key().clone())
    });
    controller.run(Cleaner {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        requests,
    })
}

/// Time until a request is deleted; `None` where it is due, which it is only after the moment.
pub(super) fn left(goes_after: Timestamp, now: Timestamp) -> Option<Duration> {
    let left = goes_after.duration_since(now);
    let left = (left >= SignedDuration::ZERO).then_some(left)?;
    // Times of objects are whole seconds.
    Duration::try_from(left.saturating_add(SignedDuration::from_millis(1))).ok()
}

struct Cleaner {
    client: Client,
    runtime: Runtime,
    requests: Informer<RequestView>,
}

impl Reconciler for Cleaner {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(request) = self.requests.get(key).filter(|own| !own.header.is_deleting()) else {
                return Ok(Outcome::Done);
            };
            let Some(goes_after) = request.goes_after else {
                return Ok(Outcome::Done);
            };
            if let Some(left) = left(goes_after, self.runtime.now()) {
                return Ok(Outcome::RequeueAfter(left));
            }
            let options = DeleteOptions {
                precondition: Precondition {
                    uid: Some(request.uid().clone()),
                    revision: Some(request.revision),
                },
                ..DeleteOptions::default()
            };
            let resource = ApiResource::of::<CertificateSigningRequest>();
            match self.client.delete(&resource, key, &options).await {
                // Gone, or changed: then there is another event.
                Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Done),
                other => other
                    .map(|_| Outcome::Done)
                    .map_err(ReconcileError::doing("deleting an old signing request")),
            }
        })
    }
}
