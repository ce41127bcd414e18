//! Attachment of a volume to this node, which controllers and the driver see to elsewhere: what is waited for before it is
//! mounted.
//!
//! The Node object says that the volume is in use, which keeps a controller from detaching it, and then that it is attached; the
//! VolumeAttachment object says what the driver made of it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::Api;
use node_volume::{CsiStep, VolumeError};

use super::manager::{Shared, failed};
use super::places::VolumeKey;
use super::requests::Texts;

/// Longest wait of a pod for its volumes, as upstream's `podAttachAndMountTimeout`.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(123);
/// First and longest interval of reads of the attachment, as upstream's.
const LOOK_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(7));

/// State of an attachment.
#[derive(Debug, PartialEq, Eq)]
enum Attachment {
    /// With the driver's publish context.
    Attached(Texts),
    Waits,
    Failed(String),
}

impl Shared {
    /// Waits until a volume is attached to this node, and returns its driver's publish context.
    ///
    /// # Errors
    /// It is not attached in time, or cannot be.
    pub(super) async fn attached(&self, key: &VolumeKey, volume: &str) -> Result<Texts, VolumeError> {
        let waiting = self.node.wait_for(|node| is_listed(node, &key.unique_name()));
        let waited = self.runtime.timeout(ATTACH_TIMEOUT, waiting).await;
        let out_of_time = || "context deadline exceeded".to_owned();
        waited.map_err(|_| failed(CsiStep::ControllerAttach, volume, out_of_time()))?;
        let waited = self
            .runtime
            .timeout(ATTACH_TIMEOUT, self.driver_attaches(key, volume))
            .await;
        waited.unwrap_or_else(|_| {
            let why = format!(
                "timed out waiting for external-attacher of {} CSI driver to attach volume {}",
                key.driver, key.handle
            );
            Err(failed(CsiStep::WaitForAttach, volume, why))
        })
    }

    async fn driver_attaches(&self, key: &VolumeKey, volume: &str) -> Result<Texts, VolumeError> {
        let name = key.attachment(&self.config.node_name);
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let mut pause = LOOK_AFTER.0;
        loop {
            match state(&name, self.objects.read(&api, &name).await?) {
                Attachment::Attached(said) => return Ok(said),
                Attachment::Failed(why) => return Err(failed(CsiStep::WaitForAttach, volume, why)),
                Attachment::Waits => {}
            }
            self.runtime.sleep(pause).await;
            pause = (pause * 3 / 2).min(LOOK_AFTER.1);
        }
    }
}

/// Reports whether the Node object says that a volume is in use and attached.
fn is_listed(node: &Arc<Node>, name: &str) -> bool {
    let Some(status) = &node.status else { return false };
    let mut in_use = status.volumes_in_use.iter().flatten();
    let mut attached = status.volumes_attached.iter().flatten();
    in_use.any(|own| own == name) && attached.any(|own| own.name == name)
}

/// Words are upstream's.
fn state(name: &str, found: Option<VolumeAttachment>) -> Attachment {
    let Some(found) = found else {
        return Attachment::Failed(format!("volumeattachments.storage.k8s.io {name:?} not found"));
    };
    if found.metadata.deletion_timestamp.is_some() {
        return Attachment::Failed("volume attachment is being deleted".to_owned());
    }
    let status = found.status.unwrap_or_default();
    match status.attach_error.and_then(|error| error.message) {
        _ if status.attached => Attachment::Attached(status.attachment_metadata.unwrap_or_default()),
        Some(why) => Attachment::Failed(why),
        None => Attachment::Waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volume_is_attached_once_the_node_says_so_and_that_it_uses_it() {
        let node = |in_use: &[&str], attached: &[&str]| {
            let attached: Vec<_> = attached
                .iter()
                .map(|name| json!({"name": name, "devicePath": ""}))
                .collect();
            let status = json!({"volumesInUse": in_use, "volumesAttached": attached});
            Arc::new(serde_json::from_value::<Node>(json!({"metadata": {}, "status": status})).unwrap())
        };
        assert!(is_listed(&node(&["a", "v"], &["v"]), "v"));
        assert!(!is_listed(&node(&[], &["v"]), "v"));
        assert!(!is_listed(&node(&["v"], &["a"]), "v"));
        assert!(!is_listed(&Arc::default(), "v"));
    }

    #[track_caller]
    fn check(status: &serde_json::Value, expected: Attachment) {
        let found = json!({"metadata": {"name": "a"}, "spec": {"attacher": "d", "nodeName": "n", "source": {}}, "status": status});
        assert_eq!(state("a", serde_json::from_value(found).unwrap()), expected);
    }

    #[test]
    fn attachment_is_waited_for_unless_it_fails() {
        let said = json!({"attached": true, "attachmentMetadata": {"device": "/dev/x"}});
        check(
            &said,
            Attachment::Attached([("device".to_owned(), "/dev/x".to_owned())].into()),
        );
        check(&json!({"attached": false}), Attachment::Waits);
        let error = json!({"attached": false, "attachError": {"message": "no room"}});
        check(&error, Attachment::Failed("no room".to_owned()));
        let missing = Attachment::Failed("volumeattachments.storage.k8s.io \"a\" not found".to_owned());
        assert_eq!(state("a", None), missing);
    }
}
