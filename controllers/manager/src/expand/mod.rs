//! Records for claims that request more which component they wait for: volumes are expanded by the resizer of their driver.
//!
//! Watches claims as they are bound, request more or have more. A volume of a plugin that has become a driver of CSI gets the
//! driver's name as the claim's annotation `volume.kubernetes.io/storage-resizer`, which its resizer waits for. A server of
//! upstream 1.37 expands nothing itself either, but for FlexVolumes, whose nodes do all of it.

mod plan;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::volume_binder::views::{ClaimView, VolumeView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use machinery_client::{ApiResource, Change, Client, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler};
use plan::{RESIZER, Step};
use serde_json::json;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "persistentvolume-expander-controller",
    queue: "volume_expand",
    service_account: "expand-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, "volume_expand");
    let claims: Informer<ClaimView> = context.informers.of::<PersistentVolumeClaim, _>();
    let volumes: Informer<VolumeView> = context.informers.of::<PersistentVolume, _>();
    let controller = ROW
        .controller(&context.runtime)
        .needs(&volumes)
        .watches(&claims, |change| {
            is_of_interest(change).then(|| change.key().clone())
        });
    controller.run(Expander {
        client,
        recorder,
        claims,
        volumes,
    })
}

/// A bound claim that is new here, requests more, or has more.
fn is_of_interest(change: &Change<ClaimView>) -> bool {
    let Some(new) = change.new.as_ref().filter(|new| &*new.phase == "Bound") else {
        return false;
    };
    let old = change.old.as_ref();
    old.is_none_or(|old| new.request > old.request || new.capacity > old.capacity)
}

struct Expander {
    client: Client,
    recorder: EventRecorder,
    claims: Informer<ClaimView>,
    volumes: Informer<VolumeView>,
}

impl Reconciler for Expander {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(claim) = self.claims.get(key) else {
                return Ok(Outcome::Done);
            };
            let volume = self.volumes.get(&ObjectKey::cluster(&*claim.volume));
            let step = plan::of_claim(&claim, volume.as_deref()).map_err(ReconcileError::Unusable)?;
            match step {
                Step::Nothing => Ok(Outcome::Done),
                Step::Wait => {
                    self.record(&claim, "waiting for an external controller to expand this PVC");
                    Ok(Outcome::Done)
                }
                Step::Migrate { plugin, driver } => self.migrate(&claim, plugin, driver).await,
            }
        })
    }
}

impl Expander {
    fn record(&self, claim: &Object<ClaimView>, message: &str) {
        self.recorder.normal(&about(claim), "ExternalExpanding", message);
    }

    /// Names the driver that has taken the plugin's place.
    async fn migrate(
        &self,
        claim: &Object<ClaimView>,
        plugin: &str,
        driver: &str,
    ) -> Result<Outcome, ReconcileError> {
        let message =
            format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc");
        self.record(claim, &message);
        if claim.annotations.get(RESIZER).is_some_and(|own| **own == *driver) {
            return Ok(Outcome::Done);
        }
        let resource = ApiResource::of::<PersistentVolumeClaim>();
        let body = json!({"metadata": {"uid": claim.uid().0, "annotations": {RESIZER: driver}}});
        // Upstream's role lets the account write the status alone, with which annotations can be written.
        let written = self
            .client
            .patch(&resource, claim.key(), "status", &Patch::Merge, &body);
        if let Err(error) = written.await {
            let why = format!(
                "error setting resizer annotation to pvc {}, with error {error}",
                claim.key()
            );
            self.recorder.warning(&about(claim), "ExternalExpanding", why);
            return Err(ReconcileError::doing("naming a claim's resizer")(error));
        }
        Ok(Outcome::Done)
    }
}

fn about(claim: &Object<ClaimView>) -> ObjectReference {
    let resource = ApiResource::of::<PersistentVolumeClaim>();
    ObjectReference::new(&resource, claim.key(), &claim.uid().0)
}
