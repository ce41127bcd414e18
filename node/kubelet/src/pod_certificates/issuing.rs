//! Task of one projection: request, wait, refresh.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};
use machinery_runtime::{HeavyFlow, Runtime, Watched};
use node_volume::Credentials;

use super::Context;
use super::key::{self, KeyAndProof, KeyError};
use super::requests::{Answer, Chain};
use super::state::{Issued, State};
use crate::api::events::EventType;
use crate::pods::{full_name, name, namespace, spec, uid};

/// First and last pause after a request that could not be created.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(120));
/// Certificates of one moment are not refreshed in one moment: upstream's jitter.
const REFRESH_JITTER_MILLIS: u64 = 300_000;

/// One projection of one pod.
pub(super) struct Issuing {
    context: Arc<Context>,
    pod: Pod,
    source: PodCertificateProjection,
    state: Arc<Watched<State>>,
}

/// A request could not be created.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("while fetching service account: {0}")]
    ServiceAccount(#[source] kube::Error),
    #[error("while getting node object from local cache: node {0:?} not found")]
    Node(String),
    #[error("while creating on API: {0}")]
    Creation(#[source] kube::Error),
}

impl Issuing {
    pub(super) fn new(
        context: Arc<Context>,
        pod: &Pod,
        source: &PodCertificateProjection,
        state: Arc<Watched<State>>,
    ) -> Self {
        Self {
            context,
            pod: pod.clone(),
            source: source.clone(),
            state,
        }
    }

    /// Keeps the credentials fresh until the pod is forgotten, or the signer refuses them.
    pub(super) async fn run(self) {
        let mut issued: Option<Issued> = None;
        loop {
            if let Some(current) = &issued {
                self.sleep_until(current.refresh_at).await;
            }
            let (key, answer) = tokio::select! {
                biased;
                obtained = self.obtain(issued.is_some()) => obtained,
                never = self.warn_of_age(issued.as_ref()) => match never {},
            };
            let state = match answer {
                Answer::Issued(chain) => State::Issued(self.issued(&key, chain)),
                Answer::Denied(reason, message) => State::Denied(reason, message),
                Answer::Failed(reason, message) => State::Failed(reason, message),
                Answer::Deleted => continue,
            };
            self.state.replace(state.clone());
            if let Some(wake) = self.context.wake.get() {
                wake(uid(&self.pod));
            }
            match state {
                State::Issued(fresh) => issued = Some(fresh),
                _ => return,
            }
        }
    }

    fn issued(&self, key: &[u8], chain: Chain) -> Issued {
        let jitter = Duration::from_millis(self.context.runtime.random_u64() % REFRESH_JITTER_MILLIS);
        let begin = chain.begin_refresh_at;
        let credentials = Credentials {
            key: key.into(),
            chain: chain.text.into_bytes().into(),
        };
        Issued {
            credentials: Arc::new(credentials),
            refresh_at: begin.checked_add(jitter).unwrap_or(begin),
            not_after: chain.not_after,
        }
    }

    async fn sleep_until(&self, at: Timestamp) {
        let runtime = &self.context.runtime;
        let wait = Duration::try_from(at.duration_since(runtime.now())).unwrap_or_default();
        runtime.sleep(wait).await;
    }

    /// Records once that the certificate should have been refreshed, and once that it has expired.
    async fn warn_of_age(&self, issued: Option<&Issued>) -> Infallible {
        if let Some(issued) = issued {
            let overdue = (
                issued.overdue_at(),
                "CertificateOverdueForRefresh",
                "PodCertificate refresh overdue",
            );
            let expired = (issued.not_after, "CertificateExpired", "PodCertificate expired");
            let mut warnings = [overdue, expired];
            warnings.sort_by_key(|(at, ..)| *at);
            for (at, reason, message) in warnings {
                self.sleep_until(at).await;
                self.warn(reason, message.to_owned());
            }
        }
        std::future::pending().await
    }

    fn warn(&self, reason: &'static str, message: String) {
        let events = &self.context.events;
        events.pod(&self.pod, EventType::Warning, reason, message);
    }

    /// Requests until a request has an answer; returns the key, too. All attempts are for one key: making it costs seconds.
    async fn obtain(&self, is_refresh: bool) -> (Vec<u8>, Answer) {
        let (mut pause, mut made) = (BACKOFF.0, None);
        loop {
            match self.request(&mut made).await {
                Ok(Answer::Deleted) => {
                    tracing::debug!(pod = %full_name(&self.pod), "pod certificate request was deleted");
                }
                Ok(answer) => return (made.map(|own| own.key).unwrap_or_default(), answer),
                Err(RequestError::Key(error @ KeyError::Unsupported(_))) => {
                    let why = error.to_string();
                    self.warn("Failed", why.clone());
                    return (Vec::new(), Answer::Failed("UnsupportedKeyType".into(), why));
                }
                Err(error) => self.failed(&error, is_refresh),
            }
            self.context.runtime.sleep(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    fn failed(&self, error: &RequestError, is_refresh: bool) {
        let what = if is_refresh { "refresh" } else { "initial" };
        let why = match error {
            RequestError::ServiceAccount(_) | RequestError::Node(_) => error.to_string(),
            _ => format!("while creating {what} PodCertificateRequest: {error}"),
        };
        tracing::debug!(pod = %full_name(&self.pod), error = %why, "no pod certificate was requested");
        self.state.change(|state| {
            if state.is_waiting() {
                *state = State::Waiting(Some(why));
            }
            // No task waits for a reason.
            false
        });
    }

    /// Creates one request and waits for its answer. The key is made where there is none yet.
    async fn request(&self, made: &mut Option<KeyAndProof>) -> Result<Answer, RequestError> {
        let (context, pod) = (&self.context, &self.pod);
        let accounts: Api<ServiceAccount> = Api::namespaced(context.client.clone(), namespace(pod));
        let account = accounts.get(account_of(pod)).await;
        let account = account.map_err(RequestError::ServiceAccount)?;
        let node_uid = context.node.lock().metadata.uid.clone();
        let node_uid = node_uid.ok_or_else(|| RequestError::Node(context.node_name.clone()))?;
        let proof = match made {
            Some(made) => made.request.clone(),
            None => made.insert(self.make_key().await?).request.clone(),
        };
        let own = format!("req-{:016x}", context.runtime.random_u64());
        let account_uid = account.metadata.uid.unwrap_or_default();
        let body = self.body(&own, account_uid, node_uid, proof);
        let expected = context.requests.expect(namespace(pod), &own);
        let api: Api<PodCertificateRequest> = Api::namespaced(context.client.clone(), namespace(pod));
        let created = api.create(&PostParams::default(), &body).await;
        created.map_err(RequestError::Creation)?;
        tracing::debug!(pod = %full_name(pod), request = own, "pod certificate requested");
        let answer = context.requests.answer(&expected).await;
        self.report(&own, &answer);
        Ok(answer)
    }

    async fn make_key(&self) -> Result<KeyAndProof, KeyError> {
        let key_type = self.source.key_type.clone();
        let make = move || key::generate(&key_type);
        in_turn(&self.context.runtime, namespace(&self.pod), make).await
    }

    fn body(
        &self,
        own: &str,
        account_uid: String,
        node_uid: String,
        proof: Vec<u8>,
    ) -> PodCertificateRequest {
        let (pod, source) = (&self.pod, &self.source);
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: name(pod).to_owned(),
            uid: uid(pod).to_owned(),
            ..OwnerReference::default()
        };
        PodCertificateRequest {
            metadata: ObjectMeta {
                name: Some(own.to_owned()),
                namespace: Some(namespace(pod).to_owned()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: source.signer_name.clone(),
                pod_name: name(pod).to_owned(),
                pod_uid: uid(pod).to_owned(),
                service_account_name: account_of(pod).to_owned(),
                service_account_uid: account_uid,
                node_name: self.context.node_name.clone(),
                node_uid,
                max_expiration_seconds: source.max_expiration_seconds,
                stub_pkc_s10_request: k8s_openapi::ByteString(proof),
                unverified_user_annotations: source.user_annotations.clone(),
            },
            status: None,
        }
    }

    /// An event where the signer refuses. Upstream's has the condition's reason in the place of this text, by mistake.
    fn report(&self, own: &str, answer: &Answer) {
        let request = format!("PodCertificateRequest {}/{own}", namespace(&self.pod));
        match answer {
            Answer::Denied(reason, message) => {
                let text = format!("{request} was denied, reason={reason:?}, message={message:?}");
                self.warn("Denied", text);
            }
            Answer::Failed(reason, message) => {
                let text = format!("{request} failed, reason={reason:?}, message={message:?}");
                self.warn("Failed", text);
            }
            Answer::Issued(_) | Answer::Deleted => {}
        }
    }
}

/// Makes keys in the turn of the pod's namespace: one of RSA takes seconds of a processor, and a pod may have 64.
pub(super) async fn in_turn<T: Send + 'static>(
    runtime: &Runtime,
    namespace: &str,
    make: impl FnOnce() -> T + Send + 'static,
) -> T {
    let flow = HeavyFlow::of_component("pod certificates", namespace);
    runtime.heavy(flow, make).await
}

fn account_of(pod: &Pod) -> &str {
    let account = spec(pod).service_account_name.as_deref();
    account.filter(|name| !name.is_empty()).unwrap_or("default")
}
