//! The files of configMap, secret, downwardAPI and projected volumes.
//!
//! [`keys`] has the files of ConfigMaps and Secrets, [`token`] those of tokens, [`trust_anchors`] those of ClusterTrustBundles and
//! [`certificate`] those of pods' own certificates; all are gathered within the room of their volume and of their pod.

mod certificate;
mod keys;
mod private;
#[cfg(test)]
mod tests;
mod token;
mod trust_anchors;

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, PersistentVolume, PersistentVolumeClaim, Pod, ProjectedVolumeSource,
    Secret, Volume, VolumeProjection,
};

use crate::atomic_writer::{FileContent, Payload};
use crate::room::Room;
use crate::{NodeResources, VolumeError, downward};
pub use certificate::{Credentials, ProjectionPlace};
use keys::{Data, Wanted, project};
pub use token::TokenRequest;
pub use trust_anchors::TrustAnchors;

/// Upstream's mode where neither the item nor the volume says one.
const DEFAULT_MODE: i32 = 0o644;

/// Source of objects. `Ok(None)` means not found.
#[async_trait]
pub trait ObjectSource: Send + Sync {
    /// A ConfigMap.
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError>;
    /// A Secret.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>, VolumeError>;
    /// A token, fresh enough to be used.
    async fn token(&self, request: &TokenRequest) -> Result<String, VolumeError>;
    /// Trust anchors as PEM, each once.
    async fn trust_anchors(&self, wanted: &TrustAnchors) -> Result<Arc<[u8]>, VolumeError>;
    /// The key of a projection of a pod, and the certificates issued for it.
    async fn pod_certificate(
        &self,
        pod: &Pod,
        place: &ProjectionPlace,
    ) -> Result<Arc<Credentials>, VolumeError>;
    /// A claim as it is now.
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<PersistentVolumeClaim>, VolumeError>;
    /// A PersistentVolume as it is now.
    async fn persistent_volume(&self, name: &str) -> Result<Option<PersistentVolume>, VolumeError>;
}

/// The pod that a payload is for, and what it is made from.
pub(crate) struct PayloadContext<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) objects: &'a dyn ObjectSource,
    pub(crate) node: &'a NodeResources,
}

/// A volume's files while they are gathered, within its own room and that of all of the pod's volumes.
struct Files<'a> {
    payload: Payload,
    volume: Room,
    pod: &'a mut Room,
}

impl Files<'_> {
    /// Takes room before the bytes are copied.
    fn take(&mut self, bytes: usize) -> Result<(), VolumeError> {
        self.volume.take(bytes)?;
        self.pod.take(bytes)
    }
}

/// The payload of an API volume; `None` if the volume is of another type.
pub(crate) async fn of_volume(
    context: &PayloadContext<'_>,
    volume: &Volume,
    room: &mut Room,
) -> Result<Option<Payload>, VolumeError> {
    let mut files = Files {
        payload: Payload::new(),
        volume: Room::of_volume(),
        pod: room,
    };
    let namespace = context.pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &volume.config_map {
        let optional = source.optional == Some(true);
        let object = context.objects.config_map(namespace, &source.name).await?;
        let data = Data::of_config_map(object.as_deref(), &source.name, optional)?;
        project(
            &mut files,
            &data,
            &Wanted::new("config", &source.items, source.default_mode, optional),
        )?;
    } else if let Some(source) = &volume.secret {
        let optional = source.optional == Some(true);
        let name = source.secret_name.as_deref().unwrap_or_default();
        let object = context.objects.secret(namespace, name).await?;
        let data = Data::of_secret(object.as_deref(), name, optional)?;
        project(
            &mut files,
            &data,
            &Wanted::new("secret", &source.items, source.default_mode, optional),
        )?;
    } else if let Some(source) = &volume.downward_api {
        downward_files(&mut files, context, source.items.as_deref(), source.default_mode)?;
    } else if let Some(source) = &volume.projected {
        projected(&mut files, context, &volume.name, source).await?;
    } else {
        return Ok(None);
    }
    Ok(Some(files.payload))
}

async fn projected(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    volume: &str,
    source: &ProjectedVolumeSource,
) -> Result<(), VolumeError> {
    let mode = source.default_mode;
    for (index, part) in source.sources.iter().flatten().enumerate() {
        projection(files, context, part, mode).await?;
        if let Some(source) = &part.pod_certificate {
            let place = ProjectionPlace {
                volume: volume.to_owned(),
                source: index,
            };
            certificate::add(files, context, &place, source, mode).await?;
        }
    }
    Ok(())
}

async fn projection(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    part: &VolumeProjection,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    let namespace = context.pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &part.config_map {
        let optional = source.optional == Some(true);
        let object = context.objects.config_map(namespace, &source.name).await?;
        let data = Data::of_config_map(object.as_deref(), &source.name, optional)?;
        project(
            files,
            &data,
            &Wanted::new("config", &source.items, mode, optional),
        )?;
    }
    if let Some(source) = &part.secret {
        let optional = source.optional == Some(true);
        let object = context.objects.secret(namespace, &source.name).await?;
        let data = Data::of_secret(object.as_deref(), &source.name, optional)?;
        project(
            files,
            &data,
            &Wanted::new("secret", &source.items, mode, optional),
        )?;
    }
    if let Some(source) = &part.downward_api {
        downward_files(files, context, source.items.as_deref(), mode)?;
    }
    if let Some(source) = &part.service_account_token {
        token::add(files, context, source, mode).await?;
    }
    if let Some(source) = &part.cluster_trust_bundle {
        trust_anchors::add(files, context, source, mode).await?;
    }
    Ok(())
}

fn bits(mode: Option<i32>) -> u32 {
    u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or(0o644) & 0o777
}

fn downward_files(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    for item in items.unwrap_or_default() {
        let text = if let Some(field) = &item.field_ref {
            downward::metadata_field(context.pod, &field.field_path)
                .ok_or_else(|| VolumeError::Invalid(format!("unsupported fieldPath: {}", field.field_path)))?
        } else if let Some(selector) = &item.resource_field_ref {
            downward::resource_field(context.pod, selector, None, context.node)?
        } else {
            continue;
        };
        files.take(text.len())?;
        let file = FileContent {
            data: text.into_bytes().into(),
            mode: bits(item.mode.or(mode)),
            owner: None,
        };
        files.payload.insert(item.path.clone(), file);
    }
    Ok(())
}
