//! Images: those that are there, and a registry they come from.

use crate::serve::Context;
use crate::{Machine, refusals};
use node_cri::v1;
use std::sync::Arc;
use tonic::Status;

fn image(names: Vec<String>, id: &str) -> v1::Image {
    v1::Image {
        id: id.to_owned(),
        repo_tags: names,
        size: 1,
        ..v1::Image::default()
    }
}

fn name_of(spec: Option<v1::ImageSpec>) -> String {
    spec.unwrap_or_default().image
}

pub(crate) async fn list(
    machine: Arc<Machine>,
    context: Context,
    _: v1::ListImagesRequest,
) -> Result<v1::ListImagesResponse, Status> {
    machine.step(&context).await?;
    let store = machine.store.lock();
    let images = store.images.iter();
    let images = images.map(|(name, id)| image(vec![name.clone()], &format!("sha256:{id}")));
    Ok(v1::ListImagesResponse {
        images: images.collect(),
    })
}

pub(crate) async fn status(
    machine: Arc<Machine>,
    _: Context,
    asked: v1::ImageStatusRequest,
) -> Result<v1::ImageStatusResponse, Status> {
    let store = machine.store.lock();
    let found = store.image(&name_of(asked.image)).map(|id| {
        let named = store
            .images
            .iter()
            .filter(|(_, own)| format!("sha256:{own}") == id);
        image(named.map(|(name, _)| name.clone()).collect(), &id)
    });
    Ok(v1::ImageStatusResponse {
        image: found,
        ..v1::ImageStatusResponse::default()
    })
}

pub(crate) async fn pull(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::PullImageRequest,
) -> Result<v1::PullImageResponse, Status> {
    let name = name_of(asked.image);
    machine.step(&context).await?;
    let Some(id) = machine.store.lock().registry.get(&name).cloned() else {
        return Err(Status::not_found(format!(
            "failed to pull and unpack image {name:?}: failed to resolve reference {name:?}: {name}: not found"
        )));
    };
    machine.step(&context).await?;
    machine.store.lock().add_image(&name, &id);
    Ok(v1::PullImageResponse {
        image_ref: format!("sha256:{id}"),
    })
}

pub(crate) async fn remove(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::RemoveImageRequest,
) -> Result<v1::RemoveImageResponse, Status> {
    machine.step(&context).await?;
    let name = name_of(asked.image);
    if name.is_empty() {
        return Err(refusals::unknown_here("an image without a name"));
    }
    let mut store = machine.store.lock();
    if let Some(id) = store.image(&name) {
        store.images.retain(|_, own| format!("sha256:{own}") != id);
    }
    Ok(v1::RemoveImageResponse {})
}

/// Usage of the machine's only file system.
pub(crate) async fn fs_info(
    machine: Arc<Machine>,
    context: Context,
    _: v1::ImageFsInfoRequest,
) -> Result<v1::ImageFsInfoResponse, Status> {
    machine.step(&context).await?;
    let id = v1::FilesystemIdentifier {
        mountpoint: "/model/images".to_owned(),
    };
    let usage = v1::FilesystemUsage {
        fs_id: Some(id),
        ..v1::FilesystemUsage::default()
    };
    Ok(v1::ImageFsInfoResponse {
        image_filesystems: vec![usage],
        ..v1::ImageFsInfoResponse::default()
    })
}
