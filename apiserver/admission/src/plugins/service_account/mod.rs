//! ServiceAccount: every pod runs as an account that exists, and gets a volume with the account's token, the cluster's
//! certificate authority and its namespace. Which secrets the pod may name is in [`secrets`].

mod secrets;

use super::Random;
use super::objects::{MIRROR_POD, annotation, find, pod_of};
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use machinery_schema::{Mut, Ref, Tree};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

const DEFAULT_ACCOUNT: &str = "default";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Upstream's alphabet of generated names: no vowels, nothing that looks alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

pub(super) struct ServiceAccount {
    reader: Arc<dyn ObjectReader>,
    random: Random,
    /// A pod that has the volume, and the mount in its container; their names are still to be given.
    pieces: Tree,
}

impl ServiceAccount {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>, random: Random) -> Self {
        Self {
            reader: Arc::clone(reader),
            random,
            pieces: pod_of(&pieces()),
        }
    }

    async fn account(&self, request: &Request<'_>, name: &str) -> Result<Account, AdmissionError> {
        let namespace = request.namespace;
        let refused = |why: &dyn std::fmt::Display| {
            AdmissionError::forbidden(format!(
                "error looking up service account {namespace}/{name}: {why}"
            ))
        };
        let found = find(&*self.reader, "", "serviceaccounts", namespace, name).await?;
        let found = found.ok_or_else(|| refused(&format_args!("serviceaccount {name:?} not found")))?;
        // An account may be large, however small the pod is.
        request.remarks.heavy_from(found.json.len()).await?;
        serde_json::from_slice(&found.json).map_err(|error| refused(&error))
    }

    /// Refuses a complete pod that refers to secrets which its service account does not list, if the account limits
    /// them.
    async fn check(&self, request: &Request<'_>, pod: &Tree) -> Result<(), AdmissionError> {
        let is_new = request.operation == Operation::Create;
        if is_new && annotation(pod, MIRROR_POD).is_some() {
            return secrets::check_mirror(pod);
        }
        let (namespace, name) = (request.namespace, pod.str_at(&["spec", "serviceAccountName"]));
        if name.is_empty() {
            let pod = pod.str_at(&["metadata", "name"]);
            return Err(AdmissionError::forbidden(format!(
                "no service account specified for pod {namespace}/{pod}"
            )));
        }
        let account = self.account(request, name).await?;
        match secrets::Limit::of(&account, name) {
            Some(limit) if is_new => limit.check_pod(pod),
            Some(limit) => limit.check_ephemeral(pod),
            None => Ok(()),
        }
    }

    fn volume_name(&self) -> String {
        let mut random = (self.random)();
        let mut name = VOLUME_PREFIX.to_owned();
        for _ in 0..SUFFIX_LENGTH {
            let at = usize::try_from(random % ALPHABET.len() as u64).unwrap_or_default();
            name.push(char::from(ALPHABET[at]));
            random /= ALPHABET.len() as u64;
        }
        name
    }
}

/// The parts of an account that decide.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Account {
    metadata: Metadata,
    secrets: Vec<Named>,
    automount_service_account_token: Option<bool>,
    image_pull_secrets: Vec<Named>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
}

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let is_pod = request.group.is_empty() && request.resource == "pods";
        match (request.operation, request.subresource) {
            (Operation::Create, "") => is_pod,
            (Operation::Update, "ephemeralcontainers") => is_pod,
            _ => false,
        }
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        pod: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        if request.operation != Operation::Create {
            return Ok(());
        }
        if annotation(pod, MIRROR_POD).is_some() {
            return secrets::check_mirror(pod);
        }
        if pod.str_at(&["spec", "serviceAccountName"]).is_empty() {
            pod.set_str(&["spec", "serviceAccountName"], DEFAULT_ACCOUNT);
        }
        let name = pod.str_at(&["spec", "serviceAccountName"]).to_owned();
        // The deprecated twin follows.
        pod.set_str(&["spec", "serviceAccount"], &name);
        let account = self.account(request, &name).await?;
        let own = pod
            .at(&["spec", "automountServiceAccountToken"])
            .and_then(Ref::as_bool);
        if own.or(account.automount_service_account_token).unwrap_or(true) {
            mount(pod, &self.volume_name(), self.pieces.root());
        }
        if pod.at(&["spec", "imagePullSecrets"]).is_none_or(Ref::is_empty) {
            for secret in &account.image_pull_secrets {
                pod.push(&["spec", "imagePullSecrets"], machinery_schema::Value::EmptyMap);
                let last = pod
                    .at(&["spec", "imagePullSecrets"])
                    .map_or(0, Ref::len)
                    .saturating_sub(1);
                pod.set(
                    &[
                        "spec".into(),
                        "imagePullSecrets".into(),
                        last.into(),
                        "name".into(),
                    ],
                    &secret.name,
                );
            }
        }
        self.check(request, pod).await
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        pod: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        match pod {
            Some(pod) => self.check(request, pod).await,
            None => Ok(()),
        }
    }
}

/// Mounts the token volume wherever nothing is mounted at its place, and adds it when a container needs it.
fn mount(pod: &mut Tree, fresh_name: &str, pieces: Ref<'_>) {
    let existing = pod
        .at(&["spec", "volumes"])
        .into_iter()
        .flat_map(Ref::items)
        .map(|volume| volume.str("name"))
        .find(|name| name.starts_with(VOLUME_PREFIX))
        .map(str::to_owned);
    let name = existing.as_deref().unwrap_or(fresh_name);
    let spec = pieces.get("spec");
    let piece = first(first(spec, "containers"), "volumeMounts");
    let mut needed = false;
    for kind in ["initContainers", "containers"] {
        pod.with(&["spec"], |mut spec| {
            spec.each(kind, |container| needed |= mount_in(container, piece, name))
        });
    }
    if existing.is_none() && needed {
        pod.with(&["spec"], |mut own| {
            push_named(&mut own, "volumes", first(spec, "volumes"), name)
        });
    }
}

fn mount_in(mut container: Mut<'_>, mount: Option<Ref<'_>>, name: &str) -> bool {
    let taken = container
        .as_ref()
        .list("volumeMounts")
        .any(|own| own.str("mountPath") == MOUNT_PATH);
    if !taken {
        push_named(&mut container, "volumeMounts", mount, name);
    }
    !taken
}

fn first<'a>(of: Option<Ref<'a>>, list: &str) -> Option<Ref<'a>> {
    of?.get(list)?.item(0)
}

fn push_named(to: &mut Mut<'_>, list: &str, piece: Option<Ref<'_>>, name: &str) {
    if let Some(piece) = piece {
        to.entry(list).push(piece).set("name", name);
    }
}

fn pieces() -> String {
    let mount = format!(r#"{{"name":"","readOnly":true,"mountPath":"{MOUNT_PATH}"}}"#);
    let sources = r#"{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}"#;
    let volume = format!(r#"{{"name":"","projected":{{"sources":[{sources}],"defaultMode":420}}}}"#);
    format!(r#"{{"spec":{{"containers":[{{"volumeMounts":[{mount}]}}],"volumes":[{volume}]}}}}"#)
}

#[cfg(test)]
mod tests;
