//! Volumes of drivers for pods: shown, and taken away.
//!
//! A pod waits for attachment and secrets in its own time, which may end. A driver's call goes on in a task of its own, as it does at
//! the driver: of two about one pod the later waits for the earlier.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, Secret, SecretReference};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::Api;
use machinery_meta::syntax;
use machinery_runtime::CancellationToken;
use node_plugin_api::csi::messages::NodeUnpublishVolumeRequest;
use node_sys::blocking::BlockingLane;
use node_volume::{CsiShown, CsiStep, CsiVolume, CsiVolumes, VolumeError};
use serde_json::{Map, Value, json};

use super::drivers::Driver;
use super::manager::{Csi, Shared, call_text, failed, is_final};
use super::records::{self, VolumeData};
use super::requests::{TOKENS, Texts, Wanted, check_lifecycle, lifecycle, pod_attributes};
use crate::pods::{name, namespace, spec, uid};

/// A driver that wants to be called again is, about as often as upstream looks at a pod.
const PUBLISH_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Lifetime of a token where the driver does not say one; the server's own.
const TOKEN_SECONDS: i64 = 3_600;
/// Upstream's sentence where another pod has a volume that is for one.
const IN_USE: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

/// Everything that is needed to show a volume to a pod.
pub(super) struct Showing {
    pub(super) wanted: Wanted,
    pub(super) driver: Driver,
    /// Name of the volume in events and paths.
    pub(super) name: String,
    pod_uid: String,
    pub(super) attached: Texts,
    pub(super) stage_secrets: Texts,
    publish_secrets: Texts,
    of_pod: Texts,
    group: Option<u32>,
    /// A folder with the right owner and mode is not gone through.
    only_on_mismatch: bool,
    pub(super) lane: BlockingLane,
    /// Cancelled when the pod does not wait for it any more.
    pub(super) dropped: CancellationToken,
}

impl Showing {
    /// The volume is not shown, for the pod has gone.
    pub(super) fn check_wanted(&self) -> Result<(), VolumeError> {
        match self.dropped.is_cancelled() {
            true => Err(VolumeError::Invalid("the pod has ended".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl CsiVolumes for Csi {
    async fn publish(&self, volume: &CsiVolume, lane: &BlockingLane) -> Result<CsiShown, VolumeError> {
        let wanted = Wanted::of(volume).map_err(VolumeError::Invalid)?;
        let found = self.driver_object(&wanted.key.driver).await?;
        let found = found.as_ref();
        check_lifecycle(&wanted.key.driver, wanted.is_inline, found).map_err(VolumeError::Invalid)?;
        let dropped = CancellationToken::new();
        let _guard = dropped.clone().drop_guard();
        let showing = self.prepare(volume, wanted, found, lane, dropped).await?;
        let path = self.own_root().target(&showing.pod_uid, &showing.name);
        let (own, wanted) = (self.clone(), showing.wanted.clone());
        let shown = self
            .runtime
            .spawn("volume of a driver", async move { own.show(showing).await });
        shown
            .await
            .map_err(|error| VolumeError::Source(error.to_string()))??;
        self.usages.lock().add(volume, &wanted);
        self.changed();
        let republishes = found.and_then(|found| found.spec.requires_republish) == Some(true);
        let again_at = self.runtime.now().checked_add(PUBLISH_AGAIN_AFTER).ok();
        Ok(CsiShown {
            path,
            again_at: again_at.filter(|_| republishes),
        })
    }

    async fn unpublish(&self, pod_folder: &Path, lane: &BlockingLane) -> Result<(), VolumeError> {
        let pod_uid = pod_folder.file_name().unwrap_or_default().to_string_lossy();
        // What was begun for it ends first.
        let _turn = self.turns.of(&pod_uid).await;
        let (root, of_pod) = (self.own_root(), pod_uid.to_string());
        let look = move || records::of_pod(&root, &of_pod);
        let records = lane.run("looking for volumes of drivers", look).await?;
        let records = records.map_err(|source| VolumeError::Io {
            action: "reading",
            path: pod_folder.to_owned(),
            source,
        })?;
        let (mut left, mut outcome) = (BTreeSet::new(), Ok(()));
        for (name, data) in records {
            let hidden = match data {
                Ok(data) => self.hide(&pod_uid, &name, &data, lane).await,
                // The driver cannot be called, and what is mounted may be the volume: upstream keeps the pod, too.
                Err(source) => Err(VolumeError::Io {
                    action: "reading the record of",
                    path: self.own_root().target(&pod_uid, &name),
                    source,
                }),
            };
            if let Err(error) = hidden {
                left.insert(name);
                outcome = outcome.and(Err(error));
            }
        }
        self.state.lock().remove_users(&pod_uid, &left);
        self.usages.lock().remove(&pod_uid, &left);
        self.changed();
        outcome
    }
}

impl Csi {
    async fn show(&self, showing: Showing) -> Result<(), VolumeError> {
        let staged_at = self.stage(&showing).await?;
        let _turn = self.turns.of(&showing.pod_uid).await;
        showing.check_wanted()?;
        let target = self.own_root().target(&showing.pod_uid, &showing.name);
        let is_new = self.record(&showing, &target).await?;
        let (wanted, driver) = (&showing.wanted, &showing.driver);
        let seen = driver
            .root
            .target(&showing.pod_uid, &showing.name)
            .display()
            .to_string();
        let request = wanted.publish(
            driver.abilities,
            (&seen, &staged_at),
            &showing.attached,
            showing.publish_secrets.clone(),
            showing.of_pod.clone(),
        );
        if let Err(status) = self.called(driver.client.publish(request)).await {
            if is_new && is_final(&status) {
                let remove = move || records::remove(&target);
                let _ = showing.lane.run("removing the place of a volume", remove).await;
            }
            return Err(failed(CsiStep::SetUp, &showing.name, call_text(&status)));
        }
        check_there(&showing, &target).await?;
        give_to_group(&showing, target).await
    }

    /// Writes down that the pod is about to have the volume; false where that is written already.
    async fn record(&self, showing: &Showing, target: &Path) -> Result<bool, VolumeError> {
        let key = &showing.wanted.key;
        let data = VolumeData {
            name: showing.name.clone(),
            node_name: self.config.node_name.clone(),
            attachment: key.attachment(&self.config.node_name),
            volume_lifecycle_mode: lifecycle(showing.wanted.is_inline).to_owned(),
            ..VolumeData::of_staged(key)
        };
        let place = target.to_owned();
        let write = move || {
            let is_new = records::is_new(&place, &data)?;
            data.save(&place).map(|()| is_new)
        };
        let written = showing.lane.run("writing the record of a volume", write).await?;
        written.map_err(|source| VolumeError::Io {
            action: "writing the record of",
            path: target.to_owned(),
            source,
        })
    }

    async fn hide(
        &self,
        pod_uid: &str,
        name: &str,
        data: &VolumeData,
        lane: &BlockingLane,
    ) -> Result<(), VolumeError> {
        let unknown = |why: String| {
            VolumeError::Invalid(format!(
                "kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: {why}"
            ))
        };
        let driver = self.drivers.get(&data.driver_name).map_err(unknown)?;
        let request = NodeUnpublishVolumeRequest {
            volume_id: data.volume_handle.clone(),
            target_path: driver.root.target(pod_uid, name).display().to_string(),
        };
        let called = self.called(driver.client.unpublish(request)).await;
        called.map_err(|status| {
            let why = call_text(&status);
            VolumeError::Invalid(format!("kubernetes.io/csi: Unmounter.TearDownAt failed: {why}"))
        })?;
        let target = self.own_root().target(pod_uid, name);
        let place = target.clone();
        let removed = lane
            .run("removing the place of a volume", move || records::remove(&place))
            .await?;
        removed.map_err(|source| VolumeError::Io {
            action: "removing",
            path: target,
            source,
        })
    }
}

impl Shared {
    async fn driver_object(&self, name: &str) -> Result<Option<CSIDriver>, VolumeError> {
        // The name becomes a part of paths; the API server has checked it, too.
        if !syntax::dns1123_subdomain(&name.to_ascii_lowercase()).is_empty() {
            return Err(VolumeError::Invalid(format!("driver name {name:?} is invalid")));
        }
        self.objects.read(&Api::all(self.client.clone()), name).await
    }

    /// Waits for what a volume needs before its driver is called.
    async fn prepare(
        &self,
        volume: &CsiVolume,
        wanted: Wanted,
        found: Option<&CSIDriver>,
        lane: &BlockingLane,
        dropped: CancellationToken,
    ) -> Result<Showing, VolumeError> {
        let (pod, name) = (&volume.pod, volume.name());
        let mut attached = Texts::new();
        if !wanted.is_inline {
            let attaches = found.and_then(|found| found.spec.attach_required) != Some(false);
            let user = (uid(pod).to_owned(), name.to_owned());
            {
                let mut state = self.state.lock();
                if wanted.is_for_one_pod() && state.has_other_user(&wanted.key, uid(pod)) {
                    // A pod that names its node has passed the scheduler.
                    return Err(VolumeError::Invalid(IN_USE.to_owned()));
                }
                state.add_user(wanted.key.clone(), user, attaches);
            }
            self.changed();
            if attaches {
                attached = self.attached(&wanted.key, name).await?;
            }
        }
        let driver = self.driver(&wanted, pod, name)?;
        let mut of_pod = pod_attributes(pod, wanted.is_inline, found);
        let mut publish_secrets = self
            .secrets(wanted.publish_secret.as_ref(), "NodePublishSecretRef")
            .await?;
        let tokens = self.tokens(pod, found).await?;
        match found.and_then(|found| found.spec.service_account_token_in_secrets) {
            Some(true) => publish_secrets.extend(tokens),
            _ => of_pod.extend(tokens),
        }
        let stage_secret = wanted.stage_secret.as_ref().filter(|_| driver.abilities.stages);
        let security = spec(pod).security_context.as_ref();
        let policy = security.and_then(|security| security.fs_group_change_policy.as_deref());
        Ok(Showing {
            name: name.to_owned(),
            pod_uid: uid(pod).to_owned(),
            attached,
            stage_secrets: self.secrets(stage_secret, "NodeStageSecretRef").await?,
            publish_secrets,
            of_pod,
            group: wanted.group_to_give(driver.abilities, found),
            only_on_mismatch: policy == Some("OnRootMismatch"),
            lane: lane.clone(),
            dropped,
            wanted,
            driver,
        })
    }

    /// The driver of a volume. The pod is looked at again when it comes.
    fn driver(&self, wanted: &Wanted, pod: &Pod, volume: &str) -> Result<Driver, VolumeError> {
        let name = &wanted.key.driver;
        self.state.lock().awaits(name, uid(pod));
        let driver = self.drivers.get(name).map_err(|why| {
            let (step, what) = match wanted.is_inline {
                true => (CsiStep::SetUp, "mounter.SetUpAt failed to get CSI client"),
                false => (
                    CsiStep::MountDevice,
                    "attacher.MountDevice failed to create newCsiDriverClient",
                ),
            };
            failed(step, volume, format!("kubernetes.io/csi: {what}: {why}"))
        })?;
        self.state.lock().waits_no_more(name, uid(pod));
        Ok(driver)
    }

    /// The values of a Secret. Words are upstream's.
    pub(super) async fn secrets(
        &self,
        reference: Option<&SecretReference>,
        field: &str,
    ) -> Result<Texts, VolumeError> {
        let Some(reference) = reference else {
            return Ok(Texts::new());
        };
        let name = reference.name.as_deref().unwrap_or_default();
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let refused =
            |why: &str| VolumeError::Source(format!("fetching {field} {namespace}/{name} failed: {why}"));
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = self
            .objects
            .read(&api, name)
            .await
            .map_err(|error| refused(&error.to_string()))?;
        let found = found.ok_or_else(|| refused(&format!("secrets {name:?} not found")))?;
        let text = |(key, value): (String, k8s_openapi::ByteString)| {
            let value = String::from_utf8(value.0)
                .map_err(|_| refused(&format!("the value of {key:?} is not UTF-8")))?;
            Ok((key, value))
        };
        found.data.unwrap_or_default().into_iter().map(text).collect()
    }

    /// Tokens of the pod that a driver requests, as an attribute.
    async fn tokens(&self, pod: &Pod, found: Option<&CSIDriver>) -> Result<Texts, VolumeError> {
        let requests = found
            .and_then(|found| found.spec.token_requests.clone())
            .unwrap_or_default();
        if requests.is_empty() {
            return Ok(Texts::new());
        }
        let mut tokens = Map::new();
        for one in requests {
            let request = node_volume::TokenRequest {
                namespace: namespace(pod).to_owned(),
                service_account: spec(pod).service_account_name.clone().unwrap_or_default(),
                audience: one.audience.clone(),
                expiration_seconds: one.expiration_seconds.unwrap_or(TOKEN_SECONDS),
                pod: (name(pod).to_owned(), uid(pod).to_owned()),
            };
            let (token, expires_at) = self.objects.token_with_end(&request).await?;
            let expires_at = expires_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            tokens.insert(
                one.audience,
                json!({"token": token, "expirationTimestamp": expires_at}),
            );
        }
        Ok([(TOKENS.to_owned(), Value::Object(tokens).to_string())].into())
    }
}

/// Looks whether something is at the place where the driver has published the volume: the runtime would make a folder there.
async fn check_there(showing: &Showing, target: &Path) -> Result<(), VolumeError> {
    let place = target.to_owned();
    let look = move || std::fs::symlink_metadata(place).map(drop);
    let found = showing.lane.run("looking for a published volume", look).await?;
    found.map_err(|_| {
        let why = format!(
            "the driver has published the volume, and nothing is at {}: it does not see the agent's folder",
            target.display()
        );
        failed(CsiStep::SetUp, &showing.name, why)
    })
}

async fn give_to_group(showing: &Showing, target: PathBuf) -> Result<(), VolumeError> {
    let Some(group) = showing.group else {
        return Ok(());
    };
    let only_on_mismatch = showing.only_on_mismatch;
    let give = move || match only_on_mismatch && node_sys::fs::is_of_group(&target, group)? {
        true => Ok(()),
        false => node_sys::fs::give_to_group(&target, group, false),
    };
    let given = showing.lane.run("giving a volume to its group", give).await?;
    given.map_err(|error| {
        let why = format!(
            "applyFSGroup failed for vol {}: {error}",
            showing.wanted.key.handle
        );
        failed(CsiStep::SetUp, &showing.name, why)
    })
}
