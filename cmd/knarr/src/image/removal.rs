//! `knarr image rm` and `prune`: images that no container needs. Those in use, those that the runtime has pinned and Knarr's own stay.

use super::{ImageArguments, client, print_line};
use anyhow::{Context, bail};
use node_cri::image_view::viewed_images;
use node_cri::{CriClient, v1};
use node_kubelet::images::base::{HELLO_IMAGE, PAUSE_IMAGE};
use std::collections::BTreeMap;

/// Ids and names of images, with what uses them.
struct Usage(BTreeMap<String, String>);

impl Usage {
    async fn read(client: &CriClient) -> anyhow::Result<Self> {
        let containers = client
            .list_containers(v1::ListContainersRequest { filter: None })
            .await?
            .containers;
        let mut users = BTreeMap::new();
        for container in containers {
            let label = |name: &str| container.labels.get(name).map_or("?", String::as_str);
            let user = format!(
                "container {} of pod {}/{}",
                label("io.kubernetes.container.name"),
                label("io.kubernetes.pod.namespace"),
                label("io.kubernetes.pod.name")
            );
            let image = container.image.map(|image| image.image);
            for name in image.into_iter().chain([container.image_ref]) {
                users.insert(name, user.clone());
            }
        }
        for image in viewed_images(client).await? {
            users.insert(image, "the volume of a pod".to_owned());
        }
        Ok(Self(users))
    }

    /// The reason why an image stays.
    fn keeps(&self, image: &v1::Image) -> Option<String> {
        let names = || image.repo_tags.iter().chain(&image.repo_digests);
        if names().any(|name| [PAUSE_IMAGE, HELLO_IMAGE].contains(&name.as_str())) {
            return Some("it is Knarr's own".to_owned());
        }
        if image.pinned {
            return Some("the container runtime has pinned it".to_owned());
        }
        let user = names().chain([&image.id]).find_map(|name| self.0.get(name));
        user.map(|user| format!("{user} uses it"))
    }
}

/// Removes images by name or id.
pub(super) async fn remove(arguments: &ImageArguments, names: &[String]) -> anyhow::Result<()> {
    let client = client(arguments)?;
    for name in names {
        let spec = v1::ImageSpec {
            image: name.clone(),
            ..v1::ImageSpec::default()
        };
        let request = v1::ImageStatusRequest {
            image: Some(spec),
            verbose: false,
        };
        let found = client.image_status(request).await?.image;
        let image = found.with_context(|| format!("{name}: no such image"))?;
        if let Some(why) = Usage::read(&client).await?.keeps(&image) {
            bail!("{name} stays: {why}");
        }
        remove_one(&client, &image).await?;
    }
    Ok(())
}

/// Removes all that nothing uses.
pub(super) async fn prune(arguments: &ImageArguments) -> anyhow::Result<()> {
    let client = client(arguments)?;
    let images = client
        .list_images(v1::ListImagesRequest { filter: None })
        .await?
        .images;
    // Read after the images: one that a container was made of meanwhile is in use.
    let usage = Usage::read(&client).await?;
    let mut bytes = 0_u64;
    for image in images.iter().filter(|image| usage.keeps(image).is_none()) {
        remove_one(&client, image).await?;
        bytes = bytes.saturating_add(image.size);
    }
    print_line(&format!("{} MiB freed", bytes >> 20))
}

async fn remove_one(client: &CriClient, image: &v1::Image) -> anyhow::Result<()> {
    let request = v1::RemoveImageRequest {
        image: Some(v1::ImageSpec {
            image: image.id.clone(),
            ..v1::ImageSpec::default()
        }),
    };
    client.remove_image(request).await?;
    let name = image.repo_tags.iter().chain(&image.repo_digests).next();
    print_line(&format!("{} removed", name.unwrap_or(&image.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_in_use_and_images_of_the_node_itself_stay() {
        let usage = Usage([("sha256:used".to_owned(), "container a of pod b/c".to_owned())].into());
        let image = |id: &str, name: &str, pinned| v1::Image {
            id: id.to_owned(),
            repo_tags: vec![name.to_owned()],
            pinned,
            ..v1::Image::default()
        };
        let why = |id: &str, name: &str, pinned| usage.keeps(&image(id, name, pinned));
        assert_eq!(why("sha256:idle", "a:1", false), None);
        assert_eq!(
            why("sha256:used", "a:1", false).as_deref(),
            Some("container a of pod b/c uses it")
        );
        assert!(why("sha256:idle", "a:1", true).is_some());
        assert!(why("sha256:idle", PAUSE_IMAGE, false).is_some());
    }
}
