//! Removal of images: now and then when the disk fills up ([`collect_images`]), and all that are not used when a pod would
//! have to end otherwise ([`ImageManager::remove_unused`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use node_cri::image_view::viewed_images;
use node_cri::v1;
use node_sys::fs::FsUsage;
use parking_lot::Mutex;

use super::base::{HELLO_IMAGE, PAUSE_IMAGE};
use super::collection::{Candidate, FoundImage, ImageCollectionConfig, ImageRecords, size_text, split_old};
use super::{ImageManager, names};
use crate::api::events::EventType;
use crate::managers::ManagerContext;

/// Upstream's `ImageGCPeriod`.
const COLLECT_AFTER: Duration = Duration::from_secs(300);
/// An image is about to be used for so long after a container has requested it.
const ABOUT_TO_BE_USED: Duration = Duration::from_secs(120);

/// State of the collection of images.
#[derive(Debug, Default)]
pub(super) struct Collection {
    /// Held while images are removed.
    records: tokio::sync::Mutex<ImageRecords>,
    /// Time of the last request of a container for an image, by the image's id.
    requested: Mutex<HashMap<String, Duration>>,
    /// Images removed so far, by reason.
    removed: Mutex<BTreeMap<&'static str, u64>>,
}

/// Outcome of the removal of images: bytes that were freed, and what went wrong.
#[derive(Debug, Default)]
struct Freed {
    bytes: u64,
    errors: Vec<String>,
}

/// Collects images for ever, where that is not turned off.
pub(crate) async fn collect_images(context: ManagerContext) {
    let config = context.config.image_collection;
    if config.is_off() {
        return std::future::pending().await;
    }
    let (images, began) = (&context.workers.control.images, context.runtime.monotonic());
    let mut failed_before = false;
    loop {
        let outcome = images.collect(&context, &config, began).await;
        if let Err(error) = &outcome {
            tracing::warn!(error, "collecting images failed");
            // As upstream's, once it fails again.
            if failed_before {
                images.warn(&context, "ImageGCFailed", error.clone());
            }
        }
        failed_before = outcome.is_err();
        context.runtime.sleep(COLLECT_AFTER).await;
    }
}

impl ImageManager {
    /// A container is about to be made of an image.
    pub(super) fn note_request(&self, id: &str) {
        let now = self.runtime.monotonic();
        self.collection.requested.lock().insert(id.to_owned(), now);
    }

    /// Images removed so far, by reason.
    pub(crate) fn removed(&self) -> BTreeMap<&'static str, u64> {
        self.collection.removed.lock().clone()
    }

    /// Removes every unused image that is not new.
    pub(crate) async fn remove_unused(&self, config: &ImageCollectionConfig) -> Result<(), String> {
        let mut records = self.collection.records.lock().await;
        let now = self.runtime.monotonic();
        let candidates = self.candidates(&mut records, now).await?;
        let freed = self.free(&candidates, config, u64::MAX, now).await;
        freed.outcome(u64::MAX)
    }

    fn warn(&self, context: &ManagerContext, reason: &'static str, message: String) {
        let node = context.workers.node.lock().clone();
        self.events.node(&node, EventType::Warning, reason, message);
    }

    /// Upstream's `GarbageCollect`.
    async fn collect(
        &self,
        context: &ManagerContext,
        config: &ImageCollectionConfig,
        began: Duration,
    ) -> Result<(), String> {
        let mut records = self.collection.records.lock().await;
        let now = self.runtime.monotonic();
        let candidates = self.candidates(&mut records, now).await?;
        let (old, candidates) = split_old(candidates, config, began, now);
        let mut errors = Vec::new();
        for image in &old {
            errors.extend(self.remove(image, "age").await.err());
        }
        if !errors.is_empty() {
            return Err(format!(
                "wanted to free images older than {:?}, encountered errors in image deletion: {}",
                config.maximum_age,
                aggregate(&errors)
            ));
        }
        let room = self.room(context).await?;
        if room.usable_bytes == 0 {
            let error = "invalid capacity 0 on image filesystem".to_owned();
            self.warn(context, "InvalidDiskCapacity", error.clone());
            return Err(error);
        }
        let (used_percent, to_free) = config.to_free(room.usable_bytes, room.available_bytes);
        let Some(to_free) = to_free else { return Ok(()) };
        let freed = self.free(&candidates, config, to_free, now).await;
        if freed.errors.is_empty() && freed.bytes < to_free {
            let error = format!(
                "Insufficient free disk space on the node's image filesystem ({used_percent}% of {} used). Failed to free \
                 sufficient space by deleting unused images (freed {} bytes). Investigate disk usage, as it could be used \
                 by active images, logs, volumes, or other data.",
                size_text(room.usable_bytes),
                freed.bytes
            );
            self.warn(context, "FreeDiskSpaceFailed", error.clone());
            return Err(error);
        }
        freed.outcome(to_free)
    }

    /// Room on the file system of images: that of the agent where the runtime does not say.
    async fn room(&self, context: &ManagerContext) -> Result<FsUsage, String> {
        let answer = self.cri.image_fs_info(v1::ImageFsInfoRequest {}).await;
        let reported = answer.ok().and_then(|answer| {
            let mut all = answer.image_filesystems.into_iter();
            Some(PathBuf::from(all.next()?.fs_id?.mountpoint))
        });
        let path = reported.unwrap_or_else(|| context.config.data_dir.clone());
        let vitals = context.vitals.clone();
        let room = self.runtime.blocking(move || vitals.room(&path)).await;
        room.map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    }

    /// Unused images, in the order in which they go.
    async fn candidates(&self, records: &mut ImageRecords, now: Duration) -> Result<Vec<Candidate>, String> {
        let failed = |error: node_cri::CriError| error.message();
        let images = self.cri.list_images(v1::ListImagesRequest { filter: None });
        let containers = self
            .cri
            .list_containers(v1::ListContainersRequest { filter: None });
        let viewed = viewed_images(&self.cri);
        let (images, containers, viewed) = futures::try_join!(images, containers, viewed).map_err(failed)?;
        let of_containers = containers.containers.into_iter().flat_map(images_of);
        let used: HashSet<String> = of_containers.chain(viewed).collect();
        let mut requested = self.collection.requested.lock();
        requested.retain(|_, at| now.saturating_sub(*at) < ABOUT_TO_BE_USED);
        let found = images.images.into_iter().map(|image| {
            let names = names(&image);
            let is_ours = [PAUSE_IMAGE, HELLO_IMAGE]
                .iter()
                .any(|own| names.iter().any(|name| name == own));
            FoundImage {
                used: used.contains(&image.id)
                    || names.iter().any(|name| used.contains(name))
                    || requested.contains_key(&image.id),
                pinned: image.pinned || is_ours,
                size: image.size,
                id: image.id,
            }
        });
        let found: Vec<FoundImage> = found.collect();
        drop(requested);
        Ok(records.detect(&found, now))
    }

    /// Removes images until so many bytes are free.
    async fn free(
        &self,
        candidates: &[Candidate],
        config: &ImageCollectionConfig,
        bytes: u64,
        now: Duration,
    ) -> Freed {
        let mut freed = Freed::default();
        for image in candidates.iter().filter(|image| image.may_go(config, now)) {
            match self.remove(image, "space").await {
                Ok(()) => freed.bytes = freed.bytes.saturating_add(image.size),
                Err(error) => freed.errors.push(error),
            }
            if freed.bytes >= bytes {
                break;
            }
        }
        freed
    }

    async fn remove(&self, image: &Candidate, reason: &'static str) -> Result<(), String> {
        tracing::info!(
            image = image.id,
            bytes = image.size,
            reason,
            "removing an unused image"
        );
        let spec = v1::ImageSpec {
            image: image.id.clone(),
            ..v1::ImageSpec::default()
        };
        let request = v1::RemoveImageRequest { image: Some(spec) };
        let removed = self.cri.remove_image(request).await;
        removed.map_err(|error| error.message())?;
        *self.collection.removed.lock().entry(reason).or_default() += 1;
        Ok(())
    }
}

/// All that a container calls its image.
fn images_of(container: v1::Container) -> Vec<String> {
    let named = container.image.unwrap_or_default().image;
    let all = [named, container.image_ref, container.image_id];
    all.into_iter().filter(|name| !name.is_empty()).collect()
}

impl Freed {
    fn outcome(self, wanted: u64) -> Result<(), String> {
        if self.errors.is_empty() {
            return Ok(());
        }
        let freed = self.bytes;
        Err(format!(
            "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {}",
            aggregate(&self.errors)
        ))
    }
}

/// Upstream's form of several errors.
fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}
