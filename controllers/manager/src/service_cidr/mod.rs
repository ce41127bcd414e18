//! Keeps the ranges of service addresses: marks them ready, and holds those that go while addresses need them.
//!
//! Every ServiceCIDR gets a finalizer. One that is deleted goes once each of its addresses lies in another one that
//! stays, and not before [`DELETION_GRACE`] has passed: a server that had not seen the deletion may just have taken
//! an address. Watches ServiceCIDRs (any change may free another one) and the addresses of services. A missing field is
//! written once; a range that is as it should be is not written again.

mod plan;
pub(crate) mod view;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::pod_control::reference;
use crate::views::seconds;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use machinery_client::{ApiResource, Change, Client, ClientError, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use plan::{Step, step};
use serde_json::{Value, json};
use std::time::Duration;
use view::{AddressView, CidrView};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "service-cidr-controller",
    queue: "ipaddresses",
    service_account: "service-cidrs-controller",
    default: true,
    start,
};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Least time that a deleted range stays.
const DELETION_GRACE: SignedDuration = SignedDuration::from_secs(10);
/// Upstream's sentences.
const READY: &str = "Kubernetes Service CIDR is ready";
const STILL_USED: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
const TERMINATING: &str = "Terminating";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let cidrs: Informer<CidrView> = context.informers.of::<ServiceCIDR, _>();
    let addresses: Informer<AddressView> = context.informers.of::<IPAddress, _>();
    let (all, going) = (cidrs.clone(), cidrs.clone());
    let controller = ROW
        .controller(&context.runtime)
        .watches(&cidrs, move |_| keys_of(&all, |_| true))
        .watches(&addresses, move |change| freed_by(&going, change));
    let client = context.client(ROW.service_account);
    controller.run(Cidrs {
        recorder: context.recorder(&client, ROW.name),
        client,
        runtime: context.runtime.clone(),
        cidrs,
        addresses,
    })
}

fn keys_of(cidrs: &Informer<CidrView>, wanted: impl Fn(&Object<CidrView>) -> bool) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    cidrs.for_each(|cidr| {
        if wanted(cidr) {
            keys.push(cidr.key().clone());
        }
    });
    keys
}

/// The ranges on their way out that an address was in.
fn freed_by(cidrs: &Informer<CidrView>, change: &Change<AddressView>) -> Vec<ObjectKey> {
    let Some(gone) = change.old.as_ref().filter(|_| change.new.is_none()) else {
        return Vec::new();
    };
    keys_of(cidrs, |cidr| {
        cidr.header.is_deleting() && gone.service_address.is_some_and(|address| cidr.contains(address))
    })
}

struct Cidrs {
    client: Client,
    recorder: EventRecorder,
    runtime: Runtime,
    cidrs: Informer<CidrView>,
    addresses: Informer<AddressView>,
}

impl Reconciler for Cidrs {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(cidr) = self.cidrs.get(key) else {
                return Ok(Outcome::Done);
            };
            let others: Vec<_> = self
                .cidrs
                .list()
                .into_iter()
                .filter(|own| own.key() != key)
                .collect();
            let addresses = self.addresses.list().into_iter();
            let used = addresses.filter_map(|own| own.service_address);
            match step(&cidr, &others, used, self.runtime.now()) {
                Step::Nothing => Ok(Outcome::Done),
                Step::Wait(rest) => Ok(Outcome::RequeueAfter(rest)),
                Step::Hold => self.hold(&cidr).await,
                Step::SayReady => self.set_ready(&cidr).await,
                Step::SayUsed => self.set_condition(&cidr, "False", TERMINATING, STILL_USED).await,
                Step::Release => self.release(&cidr).await,
            }
        })
    }
}

impl Cidrs {
    /// The finalizer first; its own event brings the rest.
    async fn hold(&self, cidr: &Object<CidrView>) -> Result<Outcome, ReconcileError> {
        let body = json!({"metadata": {"uid": cidr.uid().0, "finalizers": [FINALIZER]}});
        done(
            self.patch(cidr, "", &Patch::Strategic, &body).await,
            "holding a range of service addresses",
        )
    }

    async fn release(&self, cidr: &Object<CidrView>) -> Result<Outcome, ReconcileError> {
        let body =
            json!({"metadata": {"uid": cidr.uid().0, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
        done(
            self.patch(cidr, "", &Patch::Strategic, &body).await,
            "releasing a range of service addresses",
        )
    }

    async fn set_ready(&self, cidr: &Object<CidrView>) -> Result<Outcome, ReconcileError> {
        let said = self.set_condition(cidr, "True", "", READY).await;
        if said.is_err() {
            let about = reference(&ApiResource::of::<ServiceCIDR>(), &cidr.header);
            let message = "The ServiceCIDR Status can not be set to Ready=True";
            self.recorder
                .warning(&about, "KubernetesServiceCIDRError", message);
        }
        said
    }

    async fn set_condition(
        &self,
        cidr: &Object<CidrView>,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<Outcome, ReconcileError> {
        let resource = ApiResource::of::<ServiceCIDR>();
        let condition = json!({"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": seconds(self.runtime.now())});
        let body = json!({"apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": {"name": cidr.name(), "uid": cidr.uid().0}, "status": {"conditions": [condition]}});
        let apply = Patch::Apply {
            manager: ROW.name.to_owned(),
            force: true,
        };
        let said = self.patch(cidr, "status", &apply, &body).await;
        done(said, "writing the status of a range of service addresses")
    }

    async fn patch(
        &self,
        cidr: &Object<CidrView>,
        subresource: &str,
        how: &Patch,
        body: &Value,
    ) -> Result<(), ClientError> {
        let resource = ApiResource::of::<ServiceCIDR>();
        self.client
            .patch(&resource, cidr.key(), subresource, how, body)
            .await
            .map(drop)
    }
}

fn done(written: Result<(), ClientError>, doing: &str) -> Result<Outcome, ReconcileError> {
    match written {
        Err(error) if !error.is_not_found() => Err(ReconcileError::doing(doing)(error)),
        _ => Ok(Outcome::Done),
    }
}

/// Remaining time of a wait that began with a deletion.
fn rest_of_grace(deleted: Timestamp, now: Timestamp) -> Option<Duration> {
    let rest = DELETION_GRACE - now.duration_since(deleted);
    Duration::try_from(rest).ok().filter(|rest| !rest.is_zero())
}
