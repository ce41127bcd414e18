//! Images: there when a container needs them, by its pull policy, with back-off after a failure; and for those pods
//! alone that could have pulled them ([`pull_records`]). Those that no container uses go when the disk fills up ([`collector`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use kube::Client;
use machinery_meta::go_text::go_quote;
use machinery_runtime::Runtime;
use node_cri::{CriClient, CriError, v1};
use node_volume::ObjectSource;
use parking_lot::Mutex;

use crate::api::events::{EventType, NodeEvents};
use crate::config::KubeletConfig;
use crate::containers::StartError;
use crate::containers::security::ImageUser;
use crate::metrics;
use crate::metrics::images::ensured;
use crate::pods::backoff::BackOff;
use crate::pods::{namespace, spec, uid};
use crate::runtime_errors::{pull_text, rpc_text};

pub mod base;
pub(crate) mod collection;
mod collector;
mod credentials;
mod digest;
pub(crate) mod providers;
mod pull_records;
mod pull_words;
mod reference;
pub(crate) mod turns;
mod upkeep;
mod volumes;

pub use collection::ImageCollectionConfig;
pub(crate) use collector::collect_images;
pub use providers::config::{CredentialProvidersConfig, CredentialProvidersSource};

use collector::Collection;
use credentials::Credential;
use providers::CredentialProviders;
use pull_records::{Access, CredentialSource, Found, PullRecords, Pulled, PulledWith};
use reference::{ReferenceError, with_tag};
use turns::Turns;
pub(crate) use volumes::VolumeCounts;

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresentImage {
    /// The runtime's name for it.
    pub(crate) id: String,
    /// User that its configuration names.
    pub(crate) user: ImageUser,
    /// Tags and digests of the image on this node.
    names: Vec<String>,
    /// Size of the image.
    bytes: u64,
}

impl PresentImage {
    fn found(&self) -> Found {
        Found::new(&self.id, &self.names)
    }
}

/// Brings images in.
#[derive(Debug)]
pub(crate) struct ImageManager {
    runtime: Runtime,
    cri: CriClient,
    events: NodeEvents,
    failures: Mutex<Failures>,
    records: Arc<PullRecords>,
    collection: Collection,
    volumes: VolumeCounts,
    /// Time spent in pulls, by the pod's uid.
    pull_times: Mutex<HashMap<String, Duration>>,
    /// Pulls that may begin, where there is a bound.
    pulls: Option<Turns>,
    /// Credentials of plugins.
    providers: CredentialProviders,
}

#[derive(Debug, Default)]
struct Failures {
    backoff: BackOff,
    /// Time, reason and message of the last failed pull, by key.
    last: HashMap<String, (Timestamp, String)>,
}

impl ImageManager {
    /// One for the node, which keeps below `data_dir` what was pulled with which credentials.
    pub(crate) fn new(
        runtime: Runtime,
        client: &Client,
        cri: CriClient,
        events: NodeEvents,
        config: &KubeletConfig,
    ) -> Self {
        let records = PullRecords::new(config.data_dir.join("image_manager"));
        let upkeep = (runtime.clone(), cri.clone(), records.clone());
        let begin = move || upkeep::run(upkeep.0.clone(), upkeep.1.clone(), upkeep.2.clone());
        runtime.keep("pull records", begin).detach();
        Self {
            providers: CredentialProviders::new(&runtime, client, config.credential_providers.as_ref()),
            runtime,
            cri,
            events,
            failures: Mutex::default(),
            records,
            collection: Collection::default(),
            volumes: VolumeCounts::default(),
            pull_times: Mutex::default(),
            pulls: config.image_pulls_max.map(|most| Turns::new(most as usize)),
        }
    }

    /// The pod is gone: what it could not pull is forgotten.
    pub(crate) fn forget_pod(&self, uid: &str) {
        self.failures.lock().forget_pod(uid);
        self.pull_times.lock().remove(uid);
    }

    /// Time spent in pulls for a pod.
    pub(crate) fn pull_time(&self, uid: &str) -> Duration {
        self.pull_times.lock().get(uid).copied().unwrap_or_default()
    }

    /// Makes a container's image be there, or says why it is not.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        objects: &dyn ObjectSource,
    ) -> Result<PresentImage, StartError> {
        let wanted = container.image.as_deref().unwrap_or_default();
        let policy = container.image_pull_policy.as_deref().unwrap_or_default();
        let subject = Some(container.name.as_str());
        self.bring_and_note(pod, subject, (wanted, policy), objects).await
    }

    /// Makes the image of a volume be there, or says why it is not. Its events are the pod's.
    pub(crate) async fn ensure_volume(
        &self,
        pod: &Pod,
        volume: &Volume,
        objects: &dyn ObjectSource,
    ) -> Result<PresentImage, StartError> {
        let source = volume.image.as_ref();
        let wanted = source
            .and_then(|own| own.reference.as_deref())
            .unwrap_or_default();
        let policy = source
            .and_then(|own| own.pull_policy.as_deref())
            .unwrap_or_default();
        self.bring_and_note(pod, None, (wanted, policy), objects).await
    }

    /// Counts of volumes of images.
    pub(crate) fn volumes(&self) -> &VolumeCounts {
        &self.volumes
    }

    async fn bring_and_note(
        &self,
        pod: &Pod,
        container: Option<&str>,
        (wanted, policy): (&str, &str),
        objects: &dyn ObjectSource,
    ) -> Result<PresentImage, StartError> {
        let image = with_tag(wanted);
        let pulling = Wanted {
            pod,
            container,
            wanted,
            image: image.as_deref().unwrap_or_default(),
            objects,
        };
        if let Err(error) = &image {
            return Err(self.invalid_name(pulling, error));
        }
        let image = self.bring(pulling, policy).await?;
        self.note_request(&image.id);
        Ok(image)
    }

    async fn bring(&self, pulling: Wanted<'_>, policy: &str) -> Result<PresentImage, StartError> {
        let wanted = pulling.wanted;
        if policy == "Always" {
            ensured(&self.runtime, policy, None, true);
            return self.pull(pulling).await;
        }
        let found = self.present(pulling.image).await?;
        let is_present = Some(found.is_some());
        let present = match found {
            Some(found) if self.may_use(pulling, &found).await => Some(found),
            _ => None,
        };
        let is_pulled = present.is_none() && policy != "Never";
        ensured(&self.runtime, policy, is_present, is_pulled);
        match (present, policy) {
            (Some(present), _) => {
                let message = format!(
                    "Container image \"{wanted}\" already present on machine and can be accessed by the pod"
                );
                self.record_event(pulling, EventType::Normal, "Pulled", message);
                Ok(present)
            }
            // A pod that may not use it does not learn that it is there.
            (None, "Never") => Err(self.never_pulled(pulling)),
            _ => self.pull(pulling).await,
        }
    }

    /// Records an event of the container, or of the pod where a volume wants the image.
    fn record_event(&self, of: Wanted<'_>, kind: EventType, reason: &'static str, message: String) {
        match of.container {
            Some(container) => self.events.container(of.pod, container, kind, reason, message),
            None => self.events.pod(of.pod, kind, reason, message),
        }
    }

    fn never_pulled(&self, pulling: Wanted<'_>) -> StartError {
        let wanted = pulling.wanted;
        let message = format!("Container image \"{wanted}\" is not present with pull policy of Never");
        self.record_event(pulling, EventType::Warning, "ErrImageNeverPull", message.clone());
        StartError {
            reason: "ErrImageNeverPull",
            message,
        }
    }

    /// Reports whether a pod may use a present image: it was preloaded, or pulled with credentials that the pod has.
    async fn may_use(&self, pulling: Wanted<'_>, found: &PresentImage) -> bool {
        let (records, found) = (self.records.clone(), found.found());
        let image = credentials::full_name(pulling.image);
        let name = image.clone();
        let known = self
            .runtime
            .blocking(move || (records.history(&name, &found), found));
        let Ok((history, found)) = known.await else {
            return false;
        };
        if history.is_open(&image) {
            return true;
        }
        let credentials = self.credentials(pulling).await;
        match history.access(&image, credentials.iter().map(|one| &one.source)) {
            Access::Granted => true,
            Access::GrantedBy(secret) => {
                let pulled = Pulled {
                    found,
                    namespace: namespace(pulling.pod).to_owned(),
                    with: PulledWith::credential(Some(secret)),
                };
                let records = self.records.clone();
                self.record(move || records.add(&image, pulled)).await;
                true
            }
            Access::Verify => false,
        }
    }

    /// Writes a record. Where that fails, the pod's image is pulled again; an intent that stays keeps it from others.
    async fn record(&self, write: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
        if let Ok(Err(error)) = self.runtime.blocking(write).await {
            tracing::error!(%error, "recording the pull of an image failed; it will be pulled again");
        }
    }

    fn invalid_name(&self, pulling: Wanted<'_>, error: &ReferenceError) -> StartError {
        let wanted = go_quote(pulling.wanted);
        let message = format!(
            "Failed to apply default image tag {wanted}: couldn't parse image name {wanted}: {error}"
        );
        self.record_event(pulling, EventType::Warning, "InspectFailed", message.clone());
        StartError {
            reason: "InvalidImageName",
            message,
        }
    }

    async fn present(&self, image: &str) -> Result<Option<PresentImage>, StartError> {
        let found = status(&self.cri, image).await.map_err(|error| StartError {
            reason: "ImageInspectError",
            message: format!("Failed to inspect image \"{image}\": {}", rpc_text(&error)),
        })?;
        Ok(found.map(|found| PresentImage {
            user: ImageUser {
                uid: found.uid.map(|uid| uid.value),
                name: found.username.clone(),
            },
            names: names(&found),
            bytes: found.size,
            id: found.id,
        }))
    }

    async fn pull(&self, pulling: Wanted<'_>) -> Result<PresentImage, StartError> {
        let Wanted {
            pod, wanted, image, ..
        } = pulling;
        let key = format!("{}_{wanted}", uid(pod));
        self.check_backoff(pulling, &key)?;
        let message = format!("Pulling image \"{wanted}\"");
        self.record_event(pulling, EventType::Normal, "Pulling", message);
        let queued_at = self.runtime.monotonic();
        let _turn = match &self.pulls {
            Some(pulls) => Some(pulls.take(namespace(pod)).await),
            None => None,
        };
        let began = self.runtime.monotonic();
        let pulled = self.pull_and_record(pulling).await;
        let ended = self.runtime.monotonic();
        let (took, with_waiting) = (ended - began, ended - queued_at);
        *self.pull_times.lock().entry(uid(pod).to_owned()).or_default() += with_waiting;
        match pulled {
            Ok(present) => {
                self.failures.lock().succeeded(&key);
                let bytes = present.as_ref().map_or(0, |image| image.bytes);
                metrics::images::pulled(&self.runtime, bytes, took);
                let message = pull_words::success(wanted, took, with_waiting, bytes);
                self.record_event(pulling, EventType::Normal, "Pulled", message);
                present.ok_or_else(|| StartError {
                    reason: "ErrImagePull",
                    message: format!("image \"{image}\" is not there after pulling it"),
                })
            }
            Err(why) => {
                let message = format!("Failed to pull image \"{wanted}\": {why}");
                self.record_event(pulling, EventType::Warning, "Failed", message);
                let failure = pull_words::failure(wanted, &why);
                let last = format!("{}: {}", failure.reason, failure.message);
                self.failures.lock().failed(key, self.runtime.now(), &last);
                Err(failure)
            }
        }
    }

    /// Pulls, and records the credentials: an agent that dies in between leaves an image that no pod may use.
    async fn pull_and_record(&self, pulling: Wanted<'_>) -> Result<Option<PresentImage>, String> {
        let there = self.present(pulling.image).await.map_err(|error| error.message)?;
        let there = there.map(|image| image.found());
        let images = all(&self.cri).await.map_err(|error| {
            let why = rpc_text(&error);
            format!("failed to record image pull intent: listing the images: {why}")
        })?;
        let (records, image) = (self.records.clone(), credentials::full_name(pulling.image));
        let begun = self
            .runtime
            .blocking(move || records.begin(&image, there.as_ref(), &images))
            .await;
        let under_way = begun
            .map_err(|ended| ended.to_string())?
            .map_err(|error| format!("failed to record image pull intent: {error}"))?;
        let outcome = self.pull_with_credentials(pulling).await;
        let used = match outcome {
            Ok(used) => used,
            Err(failure) => {
                if failure.is_final {
                    under_way.failed();
                }
                return Err(failure.message);
            }
        };
        let present = self.present(pulling.image).await.map_err(|error| error.message)?;
        if let Some(image) = &present {
            let pulled = Pulled {
                found: image.found(),
                namespace: namespace(pulling.pod).to_owned(),
                with: PulledWith::source(used),
            };
            self.record(move || under_way.finished(pulled)).await;
        }
        Ok(present)
    }

    fn check_backoff(&self, pulling: Wanted<'_>, key: &str) -> Result<(), StartError> {
        let wanted = pulling.wanted;
        let waits = {
            let failures = self.failures.lock();
            let last = failures.last.get(key);
            let now = self.runtime.now();
            last.filter(|(since, _)| failures.backoff.waiting(key, *since, now).is_some())
                .map(|(_, reason)| reason.clone())
        };
        let Some(reason) = waits else { return Ok(()) };
        let message = format!("Back-off pulling image \"{wanted}\"");
        self.record_event(pulling, EventType::Normal, "BackOff", message.clone());
        Err(StartError {
            reason: "ImagePullBackOff",
            message: format!("{message}: {reason}"),
        })
    }

    /// The credentials of a pod's secrets for an image, and then those of the node's plugins.
    async fn credentials(&self, pulling: Wanted<'_>) -> Vec<Credential> {
        let mut secrets = Vec::new();
        let mut seen = HashSet::new();
        let references = spec(pulling.pod).image_pull_secrets.iter().flatten();
        // Each once, however often the pod names it.
        for reference in references.filter(|reference| seen.insert(reference.name.as_str())) {
            // One that is missing is as good as one that does not fit.
            let found = pulling
                .objects
                .secret(namespace(pulling.pod), &reference.name)
                .await;
            secrets.extend(found.ok().flatten());
        }
        let repository = credentials::repository_of(pulling.image);
        let mut all = credentials::for_repository(&secrets, &repository);
        let (pod, objects) = (pulling.pod, pulling.objects);
        all.extend(self.providers.credentials(pod, &repository, objects).await);
        all
    }

    /// Tries each credential that fits, or none where none does, and answers which one it was.
    async fn pull_with_credentials(
        &self,
        pulling: Wanted<'_>,
    ) -> Result<Option<CredentialSource>, PullFailure> {
        let found = self.credentials(pulling).await;
        let mut ways: Vec<Option<Credential>> = found.into_iter().map(Some).collect();
        if ways.is_empty() {
            ways.push(None);
        }
        let mut messages: Vec<String> = Vec::new();
        let mut is_final = true;
        for way in ways {
            let image = Some(v1::ImageSpec {
                image: pulling.image.to_string(),
                ..v1::ImageSpec::default()
            });
            let (auth, source) = way.map(|way| (way.auth, way.source)).unzip();
            let request = v1::PullImageRequest {
                image,
                auth,
                sandbox_config: None,
            };
            match self.cri.pull_image(request).await {
                Ok(_) => return Ok(source),
                Err(error) => {
                    is_final &= error.is_final();
                    let message = pull_text(&error);
                    if !messages.contains(&message) {
                        messages.push(message);
                    }
                }
            }
        }
        let message = match messages.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        Err(PullFailure { message, is_final })
    }
}

/// A pull that failed.
struct PullFailure {
    message: String,
    /// The runtime does nothing more for it.
    is_final: bool,
}

/// The image of a container or volume of a pod.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    pod: &'a Pod,
    /// The container; `None` where a volume wants it.
    container: Option<&'a str>,
    /// As the pod writes it.
    wanted: &'a str,
    /// With a tag.
    image: &'a str,
    objects: &'a dyn ObjectSource,
}

impl Failures {
    fn succeeded(&mut self, key: &str) {
        self.backoff.forget(key);
        self.last.remove(key);
    }

    fn forget_pod(&mut self, uid: &str) {
        let prefix = format!("{uid}_");
        let (backoff, last) = (&mut self.backoff, &mut self.last);
        last.retain(|key, _| {
            let keep = !key.starts_with(&prefix);
            if !keep {
                backoff.forget(key);
            }
            keep
        });
    }

    fn failed(&mut self, key: String, now: Timestamp, reason: &str) {
        self.backoff.tried(&key, now, now);
        self.last.insert(key, (now, reason.to_owned()));
    }
}

/// Returns the image that the runtime has under a name.
async fn status(cri: &CriClient, image: &str) -> Result<Option<v1::Image>, CriError> {
    let spec = v1::ImageSpec {
        image: image.to_string(),
        ..v1::ImageSpec::default()
    };
    let request = v1::ImageStatusRequest {
        image: Some(spec),
        verbose: false,
    };
    Ok(cri.image_status(request).await?.image)
}

/// Returns all images that the runtime has.
async fn all(cri: &CriClient) -> Result<Vec<Found>, CriError> {
    let answer = cri.list_images(v1::ListImagesRequest { filter: None }).await?;
    let images = answer.images.iter();
    Ok(images.map(|image| Found::new(&image.id, &names(image))).collect())
}

/// All that an image is called here: tags and digests.
fn names(image: &v1::Image) -> Vec<String> {
    [image.repo_tags.as_slice(), image.repo_digests.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_a_pod_are_forgotten_with_it_and_no_others() {
        let now = Timestamp::UNIX_EPOCH;
        let mut failures = Failures::default();
        for key in ["u1_a_image", "u1_b_image", "u12_a_image"] {
            failures.failed(key.to_owned(), now, "no such host");
        }
        failures.forget_pod("u1");
        let left: Vec<&String> = failures.last.keys().collect();
        assert_eq!(left, ["u12_a_image"]);
        let waits = |key: &str| failures.backoff.waiting(key, now, now).is_some();
        assert_eq!([waits("u1_a_image"), waits("u12_a_image")], [false, true]);
    }
}
