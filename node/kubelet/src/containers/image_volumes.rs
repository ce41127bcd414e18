//! Volumes of images: pulled by their own policy and mounted before the first container that has them starts.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use node_cri::image_view::{ViewRequest, view};

use super::StartError;
use super::control::{ContainerControl, PodFacilities};
use crate::pods::{spec, uid};

/// An image that is unpacked for a volume is held by then.
const UNPACKED_AFTER: Duration = Duration::from_secs(3600);

impl ContainerControl {
    /// Makes the images appear that a container mounts. One that is mounted stays as it is for as long as the pod.
    pub(super) async fn show_images(
        &self,
        pod: &Pod,
        container: &Container,
        with: PodFacilities<'_>,
    ) -> Result<(), StartError> {
        let mounts = container.volume_mounts.iter().flatten();
        let names: Vec<&str> = mounts.map(|mount| mount.name.as_str()).collect();
        let volumes = spec(pod).volumes.iter().flatten();
        let images = volumes.filter(|volume| volume.image.is_some() && names.contains(&volume.name.as_str()));
        for volume in images {
            let counts = self.images.volumes();
            counts.requested();
            let shown = self.show_image(pod, volume, with).await;
            match &shown {
                Ok(()) => counts.mounted(),
                Err(error) if error.reason == "CreateContainerError" => counts.failed(),
                Err(_) => {}
            }
            shown?;
        }
        Ok(())
    }

    async fn show_image(
        &self,
        pod: &Pod,
        volume: &Volume,
        with: PodFacilities<'_>,
    ) -> Result<(), StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError {
            reason: "CreateContainerError",
            message: format!("failed to mount image volume \"{}\": {error}", volume.name),
        };
        let (set, own) = (with.volumes.clone(), volume.clone());
        let look = move || set.shows_image(&own);
        let shown = with.lane.run("looking for a mount", look).await;
        let shown = shown.map_err(|error| failed(&error))?;
        if shown.map_err(|error| failed(&error))? {
            return Ok(());
        }
        let image = self.images.ensure_volume(pod, volume, with.objects).await?;
        let now = self.runtime.now();
        let request = ViewRequest {
            image: image.id,
            owner: uid(pod).to_owned(),
            name: volume.name.clone(),
            now: now.to_string(),
            expires_at: now.checked_add(UNPACKED_AFTER).unwrap_or(now).to_string(),
        };
        let folders: Vec<PathBuf> = view(&self.cri, request)
            .await
            .map_err(|error| failed(&error.message()))?;
        let (set, own) = (with.volumes.clone(), volume.clone());
        let show = move || set.show_image(&own, folders);
        let shown = with.lane.run("mounting an image", show).await;
        let shown = shown.map_err(|error| failed(&error))?;
        shown.map_err(|error| match std::error::Error::source(&error) {
            Some(cause) => failed(&format!("{error}: {cause}")),
            None => failed(&error),
        })
    }
}
