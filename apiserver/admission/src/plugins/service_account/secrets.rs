//! Secrets that a pod may name: none in a mirror pod, and those that the account lists where the account insists.

use super::{Account, Named};
use crate::AdmissionError;
use crate::plugins::objects::parse_bool;
use machinery_api::pod::PodView;
use machinery_schema::{Ref, Tree};
use std::collections::HashSet;

/// Annotation of an account whose pods may name no secrets but the account's own.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
/// Containers by the words of refusals.
const CONTAINERS: [(&str, &str); 2] = [("initContainers", "init container"), ("containers", "container")];
const EPHEMERAL: (&str, &str) = ("ephemeralContainers", "ephemeral container");

/// Mirror pods are the node's business: they may not name what only the API can give.
pub(super) fn check_mirror(pod: &Tree) -> Result<(), AdmissionError> {
    let view = PodView::new(pod.root());
    if !view.service_account().is_empty() {
        return Err(AdmissionError::forbidden(
            "a mirror pod may not reference service accounts",
        ));
    }
    if view.secrets().next().is_some() {
        return Err(AdmissionError::forbidden(
            "a mirror pod may not reference secrets",
        ));
    }
    let is_token = |source: Ref<'_>| source.get("serviceAccountToken").is_some();
    if view.projections().any(is_token) {
        return Err(AdmissionError::forbidden(
            "a mirror pod may not use ServiceAccountToken volume projections",
        ));
    }
    Ok(())
}

fn names(listed: &[Named]) -> HashSet<&str> {
    listed.iter().map(|own| own.name.as_str()).collect()
}

/// The secrets of an account as the limit on its pods.
pub(super) struct Limit<'a> {
    mountable: HashSet<&'a str>,
    pulled_with: HashSet<&'a str>,
    name: &'a str,
}

impl<'a> Limit<'a> {
    /// The limit of an account; most have none.
    pub(super) fn of(account: &'a Account, name: &'a str) -> Option<Self> {
        let annotation = account.metadata.annotations.get(ENFORCE)?;
        let is_enforced = parse_bool(annotation).unwrap_or(false);
        is_enforced.then(|| Self {
            mountable: names(&account.secrets),
            pulled_with: names(&account.image_pull_secrets),
            name,
        })
    }

    /// Refuses a new pod that names others.
    pub(super) fn check_pod(&self, pod: &Tree) -> Result<(), AdmissionError> {
        for volume in PodView::new(pod.root()).volumes() {
            if let Some(secret) = volume.get("secret") {
                self.check(secret.str("secretName"), "volume with secret.secretName=")?;
            }
        }
        for kind in CONTAINERS {
            self.check_containers(pod, kind)?;
        }
        let pulled = pod.at(&["spec", "imagePullSecrets"]);
        for (index, secret) in pulled.into_iter().flat_map(Ref::items).enumerate() {
            let name = secret.str("name");
            if !self.pulled_with.contains(name) {
                return Err(AdmissionError::forbidden(format!(
                    "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {} does not reference that imagePullSecret",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// Refuses ephemeral containers that name others.
    pub(super) fn check_ephemeral(&self, pod: &Tree) -> Result<(), AdmissionError> {
        self.check_containers(pod, EPHEMERAL)
    }

    fn check_containers(&self, pod: &Tree, (list, words): (&str, &str)) -> Result<(), AdmissionError> {
        for container in pod.at(&["spec", list]).into_iter().flat_map(Ref::items) {
            let subject = format!("{words} {}", container.str("name"));
            for variable in container.list("env") {
                if let Some(key) = variable.at(&["valueFrom", "secretKeyRef"]) {
                    let name = variable.str("name");
                    let what = format!("{subject} with envVar {name} referencing secret.secretName=");
                    self.check(key.str("name"), &what)?;
                }
            }
            for source in container.list("envFrom") {
                if let Some(secret) = source.get("secretRef") {
                    let what = format!("{subject} with envFrom referencing secret.secretName=");
                    self.check(secret.str("name"), &what)?;
                }
            }
        }
        Ok(())
    }

    fn check(&self, secret: &str, what: &str) -> Result<(), AdmissionError> {
        if self.mountable.contains(secret) {
            return Ok(());
        }
        Err(AdmissionError::forbidden(format!(
            "{what}\"{secret}\" is not allowed because service account {} does not reference that secret",
            self.name
        )))
    }
}
