//! PodCertificateRequests of this node, as far as a projection waits for them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use kube::Client;
use kube::api::Api;
use machinery_client::{ListWatch, TypedChange, follow};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, Watched};
use machinery_x509::{pem_blocks, pem_text};
use parking_lot::Mutex;

use crate::api;

/// A request without an answer is looked for after this long: its deletion may have been missed. Upstream takes it for deleted then.
const LOOK_AFTER: Duration = Duration::from_secs(600);
const LOOK_JITTER_MILLIS: u64 = 300_000;

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Issued(Chain),
    /// Reason and message.
    Denied(String, String),
    /// Reason and message.
    Failed(String, String),
    /// The request is not there any more, and has no answer.
    Deleted,
}

/// An issued chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) text: String,
    pub(super) begin_refresh_at: Timestamp,
    pub(super) not_after: Timestamp,
}

type Slot = Arc<Watched<Option<Answer>>>;
type Waiting = Mutex<HashMap<(String, String), Slot>>;

/// Requests that are waited for, by namespace and name.
pub(super) struct Requests {
    runtime: Runtime,
    client: Client,
    selector: String,
    waiting: Arc<Waiting>,
    begun: OnceLock<()>,
}

/// A request that is waited for, until this is dropped.
pub(super) struct Expected {
    waiting: Arc<Waiting>,
    key: (String, String),
    slot: Slot,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.key);
    }
}

impl Requests {
    pub(super) fn new(runtime: Runtime, client: Client, node_name: &str) -> Self {
        Self {
            runtime,
            client,
            selector: format!("spec.nodeName={node_name}"),
            waiting: Arc::default(),
            begun: OnceLock::new(),
        }
    }

    /// Begins to wait for a request, which is created after: its answer may be there before the response to its creation.
    pub(super) fn expect(&self, namespace: &str, name: &str) -> Expected {
        self.begun.get_or_init(|| self.begin());
        let key = (namespace.to_owned(), name.to_owned());
        let slot = Slot::new(Watched::new(None));
        self.waiting.lock().insert(key.clone(), Arc::clone(&slot));
        Expected {
            waiting: Arc::clone(&self.waiting),
            key,
            slot,
        }
    }

    /// The answer to a request.
    pub(super) async fn answer(&self, expected: &Expected) -> Answer {
        let api: Api<PodCertificateRequest> = Api::namespaced(self.client.clone(), &expected.key.0);
        loop {
            let jitter = Duration::from_millis(self.runtime.random_u64() % LOOK_JITTER_MILLIS);
            let answer = expected.slot.wait_for(Option::is_some);
            if let Ok(Some(answer)) = self.runtime.timeout(LOOK_AFTER + jitter, answer).await {
                return answer;
            }
            match api.get_opt(&expected.key.1).await {
                Ok(None) => return Answer::Deleted,
                Ok(Some(found)) => {
                    if let Some(answer) = answer_of(&found) {
                        return answer;
                    }
                }
                Err(error) => tracing::debug!(%error, "reading a pod certificate request failed"),
            }
        }
    }

    fn begin(&self) {
        let runtime = self.runtime.clone();
        let waiting = Arc::clone(&self.waiting);
        let client = api::client(&self.client, &runtime);
        let source = ListWatch::of::<PodCertificateRequest>().fields(&*self.selector);
        let run = async move {
            let apply = |change| take_in(&waiting, change);
            let watch = || follow(&client, source.clone(), &apply);
            let name = "pod certificate request watch";
            runtime.again_after_panics(name, watch).await;
        };
        let task = self.runtime.spawn("pod certificate request watch", run);
        task.detach();
    }
}

fn take_in(waiting: &Waiting, change: TypedChange<PodCertificateRequest>) {
    match change {
        // A list that lacks a request may be older than it.
        TypedChange::All { objects, .. } => objects.iter().for_each(|own| settle_by_state(waiting, own)),
        TypedChange::Set(own) => settle_by_state(waiting, &own),
        TypedChange::Gone(header) => settle(waiting, &header.key, Answer::Deleted),
        TypedChange::Unread(_) | TypedChange::Failed(_) => {}
    }
}

fn settle_by_state(waiting: &Waiting, request: &PodCertificateRequest) {
    let name = |own: &Option<String>| own.clone().unwrap_or_default();
    let key = ObjectKey::new(name(&request.metadata.namespace), name(&request.metadata.name));
    if let Some(answer) = answer_of(request) {
        settle(waiting, &key, answer);
    }
}

fn settle(waiting: &Waiting, key: &ObjectKey, answer: Answer) {
    let key = (key.namespace.to_string(), key.name.to_string());
    let slot = waiting.lock().get(&key).cloned();
    if let Some(slot) = slot {
        // The first answer stays: a request is deleted once it has one.
        slot.change(|own| {
            let first = own.is_none();
            if first {
                *own = Some(answer);
            }
            first
        });
    }
}

/// The answer that a request has, by the first of its conditions that is one.
pub(super) fn answer_of(request: &PodCertificateRequest) -> Option<Answer> {
    let status = request.status.as_ref()?;
    status.conditions.iter().flatten().find_map(|condition| {
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        match condition.type_.as_str() {
            "Denied" => Some(Answer::Denied(reason, message)),
            "Failed" => Some(Answer::Failed(reason, message)),
            "Issued" => Some(Answer::Issued(Chain {
                text: clean(status.certificate_chain.as_deref().unwrap_or_default()),
                begin_refresh_at: status.begin_refresh_at.as_ref()?.0,
                not_after: status.not_after.as_ref()?.0,
            })),
            _ => None,
        }
    })
}

/// The blocks of a chain without headers and without text between them.
fn clean(chain: &str) -> String {
    let blocks = pem_blocks(chain.as_bytes()).into_iter();
    blocks
        .map(|block| pem_text("CERTIFICATE", &block.content))
        .collect()
}
