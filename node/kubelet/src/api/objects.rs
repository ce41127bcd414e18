//! ConfigMaps, Secrets, tokens, trust anchors and certificates for the pods of this node.
//!
//! An object is followed by name from the first time a pod requests it, until no pod here refers to it
//! any more; a change wakes the pods that use it. [`object_shares`](super::object_shares) bounds how many.
//! Tokens are kept per pod and requested again when four fifths of their time have passed. Trust anchors come from
//! [`trust_bundles`](crate::trust_bundles), certificates from [`pod_certificates`](crate::pod_certificates).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::{NamespaceResourceScope, Resource};
use kube::Client;
use kube::api::Api;
use machinery_client::{ListWatch, TypedChange, follow};
use machinery_meta::ObjectHeader;
use machinery_runtime::{Runtime, TaskHandle, Watched};
use node_volume::{Credentials, ObjectSource, ProjectionPlace, TrustAnchors, VolumeError};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::object_shares::ObjectShares;
use crate::pod_certificates::PodCertificates;
use crate::trust_bundles::TrustBundles;

/// Longest wait of a pod for the first answer about an object.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// A token is renewed at the latest after a day, as upstream does.
const TOKEN_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A token that could not be renewed is requested again after this long.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Wakes the worker of the pod with this uid.
pub(crate) type WakePod = Arc<dyn Fn(&str) + Send + Sync>;

/// `None` until the first answer; then the object, its absence, or why it cannot be had. All readers share it: a pod may
/// name one object ten thousand times.
type Slot<K> = Option<Result<Option<Arc<K>>, String>>;

#[derive(Debug)]
struct Followed<K> {
    current: Arc<Watched<Slot<K>>>,
    task: TaskHandle<()>,
    pods: Arc<Mutex<BTreeSet<String>>>,
}

type Table<K> = Mutex<HashMap<(String, String), Followed<K>>>;

#[derive(Debug, Clone)]
struct Token {
    value: String,
    renew_at: Timestamp,
    expires_at: Timestamp,
}

/// Returns a token that could not be renewed, as long as it has not expired.
fn still_good(old: Option<Token>, now: Timestamp) -> Option<Token> {
    let old = old.filter(|old| old.expires_at > now)?;
    let renew_at = now.checked_add(RENEW_AGAIN_AFTER).unwrap_or(now);
    Some(Token { renew_at, ..old })
}

/// State of a followed object after a change; the reason where the change leaves it unknown.
fn state_after<K>(change: TypedChange<K>) -> Result<Option<Arc<K>>, String> {
    match change {
        TypedChange::All { mut objects, unread } => match (objects.pop(), unread.first()) {
            (None, Some(header)) => Err(undecodable(header)),
            (found, _) => Ok(found.map(Arc::new)),
        },
        TypedChange::Set(object) => Ok(Some(Arc::new(object))),
        TypedChange::Unread(header) => Err(undecodable(&header)),
        TypedChange::Gone(_) => Ok(None),
        TypedChange::Failed(reason) => Err(reason),
    }
}

fn undecodable(header: &ObjectHeader) -> String {
    format!("{} cannot be decoded", header.key)
}

/// Kind of an object in a pod's namespace to which the pod refers by name.
trait PodObject: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Send + Sync + 'static {}

impl PodObject for ConfigMap {}
impl PodObject for Secret {}

/// The node's view of objects that pods refer to.
pub(crate) struct Objects {
    runtime: Runtime,
    client: Client,
    config_maps: Table<ConfigMap>,
    secrets: Table<Secret>,
    shares: ObjectShares,
    tokens: Mutex<HashMap<node_volume::TokenRequest, Token>>,
    trust_bundles: TrustBundles,
    certificates: PodCertificates,
    wake: OnceLock<WakePod>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    /// Nothing is followed yet.
    pub(crate) fn new(runtime: Runtime, client: Client, certificates: PodCertificates) -> Self {
        Self {
            trust_bundles: TrustBundles::new(runtime.clone(), client.clone()),
            certificates,
            runtime,
            client,
            config_maps: Table::default(),
            secrets: Table::default(),
            shares: ObjectShares::default(),
            tokens: Mutex::default(),
            wake: OnceLock::new(),
        }
    }

    /// Says whom to wake on a change. Once, during assembly.
    pub(crate) fn on_change(&self, wake: WakePod) {
        self.trust_bundles.on_change(wake.clone());
        self.certificates.on_change(wake.clone());
        let _ = self.wake.set(wake);
    }

    /// Certificates of the node's pods.
    pub(crate) fn certificates(&self) -> &PodCertificates {
        &self.certificates
    }

    /// A view for one pod: what it requests is followed on its behalf.
    pub(crate) fn for_pod(self: &Arc<Self>, uid: &str) -> Arc<dyn ObjectSource> {
        Arc::new(PodObjects {
            objects: self.clone(),
            uid: uid.to_string(),
        })
    }

    /// The pod is gone: what only it used is no longer followed.
    pub(crate) fn forget_pod(&self, uid: &str) {
        release(&self.config_maps, uid, &self.shares);
        release(&self.secrets, uid, &self.shares);
        self.shares.forget_pod(uid);
        self.tokens.lock().retain(|request, _| request.pod.1 != uid);
        self.trust_bundles.forget_pod(uid);
        self.certificates.forget_pod(uid);
    }

    /// Time at which the first of a pod's tokens is to be renewed.
    pub(crate) fn next_renewal(&self, uid: &str) -> Option<Timestamp> {
        let tokens = self.tokens.lock();
        tokens
            .iter()
            .filter(|(request, _)| request.pod.1 == uid)
            .map(|(_, token)| token.renew_at)
            .min()
    }

    async fn get<K>(
        self: &Arc<Self>,
        table: impl Fn(&Self) -> &Table<K>,
        uid: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<K>>, VolumeError>
    where
        K: PodObject,
    {
        let current = {
            let mut table = table(self).lock();
            let key = (namespace.to_string(), name.to_string());
            let known = table.get(&key);
            if !known.is_some_and(|followed| followed.pods.lock().contains(uid)) {
                self.shares.take(uid, namespace, known.is_none())?;
            }
            let followed = table.entry(key).or_insert_with(|| self.start(namespace, name));
            followed.pods.lock().insert(uid.to_string());
            followed.current.clone()
        };
        let answer = self
            .runtime
            .timeout(FIRST_ANSWER_TIMEOUT, current.wait_for(Option::is_some))
            .await;
        match answer {
            Ok(slot) => slot.unwrap_or(Ok(None)).map_err(VolumeError::Source),
            Err(_) => Err(VolumeError::Source("timed out waiting for the API server".into())),
        }
    }

    /// Reads an object once, as it is now.
    pub(crate) async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, VolumeError>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let answer = self
            .runtime
            .timeout(FIRST_ANSWER_TIMEOUT, api.get_opt(name))
            .await;
        match answer {
            Ok(found) => found.map_err(|error| VolumeError::Source(error.to_string())),
            Err(_) => Err(VolumeError::Source("timed out waiting for the API server".into())),
        }
    }

    fn start<K>(self: &Arc<Self>, namespace: &str, name: &str) -> Followed<K>
    where
        K: PodObject,
    {
        let current = Arc::new(Watched::new(None));
        let published = current.clone();
        let pods: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let users = pods.clone();
        let objects = Arc::downgrade(self);
        let runtime = self.runtime.clone();
        let client = super::client(&self.client, &runtime);
        let source = ListWatch::of::<K>()
            .in_namespace(namespace)
            .fields(format!("metadata.name={name}"));
        let task = self.runtime.spawn("object watch", async move {
            let apply = |change: TypedChange<K>| {
                let next = state_after(change);
                if next.is_err() {
                    // What was known stays known; only a first answer may be a failure.
                    published.change(|slot| {
                        let waiting = slot.as_ref().is_none_or(Result::is_err);
                        if waiting {
                            *slot = Some(next);
                        }
                        waiting
                    });
                    return;
                }
                let first = published.replace(Some(next)).is_none();
                if let (false, Some(objects)) = (first, objects.upgrade())
                    && let Some(wake) = objects.wake.get()
                {
                    users.lock().iter().for_each(|uid| wake(uid));
                }
            };
            let watch = || follow(&client, source.clone(), &apply);
            runtime.again_after_panics("object watch", watch).await;
        });
        Followed { current, task, pods }
    }

    async fn token_for(&self, request: &node_volume::TokenRequest) -> Result<String, VolumeError> {
        let (token, _) = self.token_with_end(request).await?;
        Ok(token)
    }

    /// A token, fresh enough to be used, and the time at which it expires.
    pub(crate) async fn token_with_end(
        &self,
        request: &node_volume::TokenRequest,
    ) -> Result<(String, Timestamp), VolumeError> {
        let now = self.runtime.now();
        let known = self.tokens.lock().get(request).cloned();
        if let Some(token) = known.as_ref().filter(|token| token.renew_at > now) {
            return Ok((token.value.clone(), token.expires_at));
        }
        let requested = self.request_token(request, now);
        let answer = match self.runtime.timeout(FIRST_ANSWER_TIMEOUT, requested).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("timed out waiting for the API server".to_owned()),
        };
        let token = match answer {
            Ok(token) => token,
            Err(error) => {
                let failed = || VolumeError::Source(format!("failed to fetch token: {error}"));
                let old = still_good(known, self.runtime.now()).ok_or_else(failed)?;
                tracing::warn!(%error, pod = request.pod.0, "token not renewed, the old one is still good");
                old
            }
        };
        self.tokens.lock().insert(request.clone(), token.clone());
        Ok((token.value, token.expires_at))
    }

    async fn request_token(
        &self,
        request: &node_volume::TokenRequest,
        now: Timestamp,
    ) -> Result<Token, kube::Error> {
        let audiences = (!request.audience.is_empty()).then(|| vec![request.audience.clone()]);
        let body = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences,
                expiration_seconds: Some(request.expiration_seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(request.pod.0.clone()),
                    uid: Some(request.pod.1.clone()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            request.namespace, request.service_account
        );
        let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
        let http = http::Request::post(path)
            .header("content-type", "application/json")
            .body(body)
            .map_err(|error| kube::Error::Service(error.into()))?;
        let answer: TokenRequest = self.client.request(http).await?;
        let status = answer.status.unwrap_or_default();
        let ends = status.expiration_timestamp.map_or(now, |time| time.0);
        let lifetime = Duration::try_from(ends.duration_since(now)).unwrap_or_default();
        let renew_at = now
            .checked_add((lifetime * 4 / 5).min(TOKEN_AGE_MAX))
            .unwrap_or(now);
        Ok(Token {
            value: status.token.unwrap_or_default(),
            renew_at,
            expires_at: ends,
        })
    }
}

fn release<K>(table: &Table<K>, uid: &str, shares: &ObjectShares) {
    table.lock().retain(|(namespace, _), followed| {
        let mut pods = followed.pods.lock();
        pods.remove(uid);
        if pods.is_empty() {
            followed.task.abort();
            shares.ended(namespace);
        }
        !pods.is_empty()
    });
}

struct PodObjects {
    objects: Arc<Objects>,
    uid: String,
}

#[async_trait]
impl ObjectSource for PodObjects {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError> {
        self.objects
            .get(|objects| &objects.config_maps, &self.uid, namespace, name)
            .await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>, VolumeError> {
        self.objects
            .get(|objects| &objects.secrets, &self.uid, namespace, name)
            .await
    }

    async fn token(&self, request: &node_volume::TokenRequest) -> Result<String, VolumeError> {
        self.objects.token_for(request).await
    }

    async fn trust_anchors(&self, wanted: &TrustAnchors) -> Result<Arc<[u8]>, VolumeError> {
        self.objects.trust_bundles.anchors(&self.uid, wanted).await
    }

    async fn pod_certificate(
        &self,
        pod: &Pod,
        place: &ProjectionPlace,
    ) -> Result<Arc<Credentials>, VolumeError> {
        self.objects.certificates.credentials(pod, place).await
    }

    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<PersistentVolumeClaim>, VolumeError> {
        let api = Api::namespaced(self.objects.client.clone(), namespace);
        self.objects.read(&api, name).await
    }

    async fn persistent_volume(&self, name: &str) -> Result<Option<PersistentVolume>, VolumeError> {
        let api = Api::all(self.objects.client.clone());
        self.objects.read(&api, name).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use std::sync::atomic::{AtomicBool, Ordering};

    const LIFETIME: Duration = Duration::from_secs(3600);

    /// An API server that gives a token once, and is away from then on.
    fn client(now: Timestamp) -> Client {
        let away = AtomicBool::new(false);
        let expires = now.checked_add(LIFETIME).unwrap();
        let answer = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": {"audiences": []}, "status": {"token": "the token", "expirationTimestamp": expires}
        });
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let first = !away.swap(true, Ordering::Relaxed);
            let body = Full::new(bytes::Bytes::from(answer.to_string()));
            async move {
                match first {
                    true => Ok(http::Response::new(body)),
                    false => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
                }
            }
        });
        Client::new(service, "default")
    }

    #[test]
    fn token_that_cannot_be_renewed_is_handed_out_until_it_expires() {
        let simulation = machinery_runtime::Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let client = client(runtime.now());
            let events = crate::api::events::NodeEvents::new(
                machinery_client::Client::new(client.clone(), runtime.clone()),
                "n",
            );
            let node = Arc::default();
            let certificates = PodCertificates::new(runtime.clone(), client.clone(), events, "n", node);
            let objects = Objects::new(runtime.clone(), client, certificates);
            let request = node_volume::TokenRequest {
                namespace: "n".into(),
                service_account: "default".into(),
                audience: String::new(),
                expiration_seconds: 3600,
                pod: ("p".into(), "u".into()),
            };
            let token = objects.token_for(&request).await.unwrap();
            runtime.sleep(LIFETIME * 9 / 10).await;
            assert_eq!(objects.token_for(&request).await.unwrap(), token);
            let again = objects.next_renewal("u").unwrap();
            assert!(again > runtime.now(), "not at once");
            assert!(again < objects.tokens.lock()[&request].expires_at);
            runtime.sleep(LIFETIME / 10).await;
            objects.token_for(&request).await.unwrap_err();
        });
    }
}
