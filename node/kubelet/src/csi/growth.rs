//! Growth of volumes whose claim was made larger: the driver makes the file system as large, once a controller has done its part.
//! Upstream's `NodeExpandVolume`, when a pod has the volume already.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, Patch, PatchParams};
use machinery_meta::Quantity;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::manager::{Csi, call_text};
use super::usage::ClaimedVolume;
use crate::api::events::{EventType, NodeEvents};
use crate::managers::ManagerContext;

/// Interval of reads of the claims, about upstream's between two at a pod.
const LOOK_AFTER: Duration = Duration::from_secs(60);
const INFEASIBLE: &str = "NodeResizeInfeasible";
/// Conditions of a claim that is being made larger.
const CONDITIONS: [&str; 4] = [
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    "NodeResizeError",
];

/// Makes volumes larger, for ever; while pods have none, nothing is requested.
pub(crate) async fn follow_claims(context: ManagerContext) {
    let csi = context.workers.csi.clone();
    loop {
        csi.changes.wait_for(|_| !csi.usages.lock().is_empty()).await;
        let expands = |driver: &str| csi.drivers.get(driver).is_ok_and(|own| own.abilities.expands);
        let volumes = csi.usages.lock().take_claimed(expands);
        for volume in volumes {
            let (own, events) = (csi.clone(), context.workers.events.clone());
            let growing = async move {
                own.grow(&volume, &events).await;
                own.usages.lock().has_grown(&volume);
            };
            csi.runtime.spawn("growing volume", growing).detach();
        }
        csi.runtime.sleep(LOOK_AFTER).await;
    }
}

impl Csi {
    /// Looks whether a volume is to be larger, and makes it so.
    async fn grow(&self, volume: &ClaimedVolume, events: &NodeEvents) {
        let (namespace, claim) = &volume.claim;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let Ok(Some(found)) = self.objects.read(&claims, claim).await else {
            return;
        };
        let Ok(Some(behind)) = self.objects.read(&volumes, &volume.name).await else {
            return;
        };
        let Some((size, bytes)) = wanted_size(&found, &behind) else {
            return;
        };
        let grown = self.expand(volume, &behind, bytes).await;
        let patch = match &grown {
            Ok(()) => grown_status(&size),
            Err((true, _)) => json!({"status": {"allocatedResourceStatuses": {"storage": INFEASIBLE}}}),
            Err((false, _)) => Value::Null,
        };
        if !patch.is_null() {
            let patched = claims
                .patch_status(claim, &PatchParams::default(), &Patch::Strategic(&patch))
                .await;
            if let Err(error) = patched {
                tracing::warn!(%error, namespace, claim, "status of a grown claim not written");
                return;
            }
        }
        let name = &volume.name;
        let (kind, reason, text) = match grown {
            Ok(()) => (
                EventType::Normal,
                "FileSystemResizeSuccessful",
                format!(
                    "MountVolume.NodeExpandVolume succeeded for volume \"{name}\" {}",
                    self.config.node_name
                ),
            ),
            Err((_, why)) => (
                EventType::Warning,
                "VolumeResizeFailed",
                format!("NodeExpandVolume.NodeExpandVolume failed for volume \"{name}\" : {why}"),
            ),
        };
        events.pod(&volume.pod, kind, reason, text);
    }

    /// Makes the driver enlarge the file system. An error says whether it can ever be so large, and why not.
    async fn expand(
        &self,
        volume: &ClaimedVolume,
        behind: &PersistentVolume,
        bytes: i64,
    ) -> Result<(), (bool, String)> {
        let key = &volume.wanted.key;
        let _turn = self.turns.of(&key.unique_name()).await;
        let driver = self.drivers.get(&key.driver).map_err(|why| (false, why))?;
        let source = behind.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        let reference = source.and_then(|source| source.node_expand_secret_ref.as_ref());
        let secrets = self.secrets(reference, "NodeExpandSecretRef").await;
        let secrets = secrets.map_err(|error| (false, error.to_string()))?;
        let place = driver
            .root
            .target(&volume.pod_uid, &volume.name)
            .display()
            .to_string();
        let staged_at = match driver.abilities.stages {
            true => driver.root.staging(key).display().to_string(),
            false => String::new(),
        };
        let request = volume
            .wanted
            .expand(driver.abilities, (&place, &staged_at), bytes, secrets);
        let answer = self.called(driver.client.expand(request)).await;
        answer
            .map(drop)
            .map_err(|status| (is_infeasible(&status), call_text(&status)))
    }
}

/// Reports whether a volume can never be so large: upstream's `IsInfeasibleError`.
fn is_infeasible(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::OutOfRange | Code::NotFound
    )
}

/// The size that a claim's file system is to have, in words and in bytes; `None` where it has it, or can never have it.
fn wanted_size(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<(String, i64)> {
    let status = claim.status.as_ref()?;
    let states = status.allocated_resource_statuses.as_ref();
    if states
        .and_then(|states| states.get("storage"))
        .is_some_and(|state| state == INFEASIBLE)
    {
        return None;
    }
    let has = status
        .capacity
        .as_ref()?
        .get("storage")?
        .0
        .parse::<Quantity>()
        .ok()?;
    let text = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?.0.clone();
    let wanted = text.parse::<Quantity>().ok()?;
    (wanted > has).then_some((text, wanted.units()))
}

/// The status of a claim whose file system has grown.
fn grown_status(size: &str) -> Value {
    let gone = CONDITIONS.map(|kind| json!({"$patch": "delete", "type": kind}));
    json!({"status": {
        "capacity": {"storage": size}, "allocatedResourceStatuses": {"storage": null}, "conditions": gone,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(capacity: &str, state: Option<&str>, volume: &str, expected: Option<i64>) {
        let claim = json!({"metadata": {}, "status": {
            "capacity": {"storage": capacity}, "allocatedResourceStatuses": state.map(|state| json!({"storage": state})),
        }});
        let volume = json!({"metadata": {}, "spec": {"capacity": {"storage": volume}}});
        let found = wanted_size(
            &serde_json::from_value(claim).unwrap(),
            &serde_json::from_value(volume).unwrap(),
        );
        assert_eq!(found.map(|(_, bytes)| bytes), expected);
    }

    #[test]
    fn volume_grows_when_it_is_larger_than_its_claim() {
        check("1Gi", None, "2Gi", Some(2 << 30));
        check("1Gi", Some("NodeResizePending"), "2Gi", Some(2 << 30));
        check("1Gi", Some(INFEASIBLE), "2Gi", None);
        check("2Gi", None, "2Gi", None);
        check("2Gi", None, "1Gi", None);
    }
}
