//! Images: there when a container needs them, by its pull policy, with back-off after a failure.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};
use node_volume::ObjectSource;
use parking_lot::Mutex;

use crate::api::events::{EventKind, EventRecorder};
use crate::containers::StartError;
use crate::containers::security::ImageUser;
use crate::pods::backoff::BackOff;
use crate::pods::{namespace, spec, uid};

pub mod base;
mod credentials;

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentImage {
    /// The runtime's name for it.
    pub id: String,
    /// Whom it says to run as.
    pub user: ImageUser,
}

/// Brings images in.
#[derive(Debug)]
pub struct ImageManager {
    runtime: Runtime,
    cri: CriClient,
    events: EventRecorder,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    backoff: BackOff,
    /// When and why the last pull of a key failed.
    last: HashMap<String, (Timestamp, String)>,
}

impl ImageManager {
    /// One for the node.
    pub fn new(runtime: Runtime, cri: CriClient, events: EventRecorder) -> Self {
        Self {
            runtime,
            cri,
            events,
            failures: Mutex::default(),
        }
    }

    /// Makes a container's image be there, or says why it is not.
    pub async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        objects: &dyn ObjectSource,
    ) -> Result<PresentImage, StartError> {
        let wanted = container.image.clone().unwrap_or_default();
        let Some(image) = with_tag(&wanted) else {
            return Err(self.invalid_name(pod, container, &wanted));
        };
        let policy = container.image_pull_policy.as_deref().unwrap_or_default();
        let present = self.present(&image).await?;
        match (present, policy) {
            (Some(present), "Never" | "IfNotPresent" | "") => {
                let message = format!(
                    "Container image \"{wanted}\" already present on machine and can be accessed by the pod"
                );
                self.events
                    .container(pod, &container.name, EventKind::Normal, "Pulled", message);
                Ok(present)
            }
            (None, "Never") => {
                let message =
                    format!("Container image \"{wanted}\" is not present with pull policy of Never");
                self.events.container(
                    pod,
                    &container.name,
                    EventKind::Warning,
                    "ErrImageNeverPull",
                    message.as_str(),
                );
                Err(StartError {
                    reason: "ErrImageNeverPull",
                    message,
                })
            }
            _ => self.pull(pod, container, &wanted, &image, objects).await,
        }
    }

    fn invalid_name(&self, pod: &Pod, container: &Container, wanted: &str) -> StartError {
        let message = format!(
            "Failed to apply default image tag \"{wanted}\": couldn't parse image name \"{wanted}\": \
             invalid reference format"
        );
        self.events.container(
            pod,
            &container.name,
            EventKind::Warning,
            "InspectFailed",
            message.as_str(),
        );
        StartError {
            reason: "InvalidImageName",
            message,
        }
    }

    async fn present(&self, image: &str) -> Result<Option<PresentImage>, StartError> {
        let spec = v1::ImageSpec {
            image: image.to_string(),
            ..v1::ImageSpec::default()
        };
        let request = v1::ImageStatusRequest {
            image: Some(spec),
            verbose: false,
        };
        let answer = self.cri.image_status(request).await.map_err(|error| StartError {
            reason: "ImageInspectError",
            message: format!("Failed to inspect image \"{image}\": {}", error.rpc_text()),
        })?;
        Ok(answer.image.map(|found| PresentImage {
            user: ImageUser {
                uid: found.uid.map(|uid| uid.value),
                name: found.username,
            },
            id: found.id,
        }))
    }

    async fn pull(
        &self,
        pod: &Pod,
        container: &Container,
        wanted: &str,
        image: &str,
        objects: &dyn ObjectSource,
    ) -> Result<PresentImage, StartError> {
        let key = format!("{}_{wanted}", uid(pod));
        self.check_backoff(pod, container, wanted, &key)?;
        let name = container.name.as_str();
        self.events.container(
            pod,
            name,
            EventKind::Normal,
            "Pulling",
            format!("Pulling image \"{wanted}\""),
        );
        let began = self.runtime.monotonic();
        match self.pull_with_credentials(pod, image, objects).await {
            Ok(()) => {
                self.failures.lock().backoff.forget(&key);
                let took = (self.runtime.monotonic() - began).as_millis();
                let message = format!(
                    "Successfully pulled image \"{wanted}\" in {took}ms ({took}ms including waiting)"
                );
                self.events
                    .container(pod, name, EventKind::Normal, "Pulled", message);
                let missing = || StartError {
                    reason: "ErrImagePull",
                    message: format!("image \"{wanted}\" is not there after pulling it"),
                };
                self.present(image).await?.ok_or_else(missing)
            }
            Err(reason) => {
                let now = self.runtime.now();
                {
                    let mut failures = self.failures.lock();
                    failures.backoff.tried(&key, now, now);
                    failures.last.insert(key, (now, reason.clone()));
                }
                let message = format!("Failed to pull image \"{wanted}\": {reason}");
                self.events
                    .container(pod, name, EventKind::Warning, "Failed", message);
                Err(StartError {
                    reason: "ErrImagePull",
                    message: reason,
                })
            }
        }
    }

    fn check_backoff(
        &self,
        pod: &Pod,
        container: &Container,
        wanted: &str,
        key: &str,
    ) -> Result<(), StartError> {
        let waits = {
            let failures = self.failures.lock();
            let last = failures.last.get(key);
            let now = self.runtime.now();
            last.filter(|(since, _)| failures.backoff.waiting(key, *since, now).is_some())
                .map(|(_, reason)| reason.clone())
        };
        let Some(reason) = waits else { return Ok(()) };
        let message = format!("Back-off pulling image \"{wanted}\"");
        self.events.container(
            pod,
            &container.name,
            EventKind::Normal,
            "BackOff",
            message.as_str(),
        );
        Err(StartError {
            reason: "ImagePullBackOff",
            message: format!("{message}: ErrImagePull: {reason}"),
        })
    }

    /// Tries each credential that fits, the pod's own secrets first, and without one last.
    async fn pull_with_credentials(
        &self,
        pod: &Pod,
        image: &str,
        objects: &dyn ObjectSource,
    ) -> Result<(), String> {
        let mut credentials = Vec::new();
        for secret in spec(pod).image_pull_secrets.iter().flatten() {
            if let Ok(Some(secret)) = objects.secret(namespace(pod), &secret.name).await {
                credentials.extend(credentials::for_image(&secret, image).into_iter().map(Some));
            }
        }
        if credentials.is_empty() {
            credentials.push(None);
        }
        let mut last = String::new();
        for auth in credentials {
            let image = Some(v1::ImageSpec {
                image: image.to_string(),
                ..v1::ImageSpec::default()
            });
            let request = v1::PullImageRequest {
                image,
                auth,
                sandbox_config: None,
            };
            match self.cri.pull_image(request).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error.message(),
            }
        }
        Err(last)
    }
}

/// The reference with `latest` where it names neither tag nor digest; `None` if it is not a reference.
fn with_tag(image: &str) -> Option<String> {
    let (path, digest) = image
        .split_once('@')
        .map_or((image, None), |(path, digest)| (path, Some(digest)));
    let (host, last) = path
        .rsplit_once('/')
        .map_or(("", path), |(host, last)| (host, last));
    let (name, tag) = last
        .split_once(':')
        .map_or((last, None), |(name, tag)| (name, Some(tag)));
    let word = |text: &str, extra: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || extra.contains(letter))
    };
    let parts_fit = host
        .split('/')
        .skip(usize::from(host.is_empty() || host.contains(['.', ':'])))
        .all(|part| word(part, "._-") && part == part.to_lowercase());
    let fits = word(name, "._-")
        && name == name.to_lowercase()
        && tag.is_none_or(|tag| word(tag, "._-") && tag.len() <= 128)
        && (host.is_empty() || parts_fit);
    match (fits, tag, digest) {
        (false, _, _) => None,
        (true, None, None) => Some(format!("{image}:latest")),
        (true, _, _) => Some(image.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_get_a_tag_or_are_refused() {
        for (image, expected) in [
            ("busybox", Some("busybox:latest")),
            ("a.b/c/d:1", Some("a.b/c/d:1")),
            ("host:5000/x", Some("host:5000/x:latest")),
            ("x@sha256:ab", Some("x@sha256:ab")),
            ("Upper", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(with_tag(image).as_deref(), expected, "{image}");
        }
    }
}
