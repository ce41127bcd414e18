//! Approval of kubelets' requests whose requestor may have the certificate (upstream's `csrapproving`).
//!
//! The identity of a node that is there goes to that node alone without an administrator's decision: the bearer of a bootstrap token
//! may become a new node, none that has pods, their Secrets and their accounts (k3s keeps a password of each node for this).
//!
//! Serving certificates are ours: upstream leaves them to the administrator. They are approved for a node that requests its own
//! name and the address from which its request came to the API server, which noted it (decision on joining nodes).

use super::live::{LiveRequest, NewCondition, usages_of};
use super::recognize::{self, NODE_PREFIX};
use super::view::RequestView;
use super::{KUBELET_CLIENT, KUBELET_SERVING, SERVICE_ACCOUNT, requests};
use crate::config::Config;
use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::NodeView;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Node;
use machinery_client::client::decode;
use machinery_client::{ApiResource, Client, ClientError, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_x509::CertificateRequest;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "certificatesigningrequest-approving-controller",
    queue: "certificate",
    service_account: SERVICE_ACCOUNT,
    default: true,
    start,
};

/// Address from which the request came, as the API server notes it; written by no client.
const REQUESTED_FROM: &str = "knarr.dev/requested-from";

/// Pauses between reviews of a requestor that has not the right (yet).
const REVIEW_AGAIN: (SignedDuration, SignedDuration) =
    (SignedDuration::from_millis(200), SignedDuration::from_secs(1_000));
/// Until a request for the identity of a node that is there is reconciled again, and ever more seldom: the node may be deleted.
const NODE_AGAIN: Duration = Duration::from_secs(10);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let requests = requests(context);
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let controller = ROW
        .controller(&context.runtime)
        .needs(&nodes)
        .watches(&requests, |change| {
            let pending = change.new.as_ref().filter(|own| is_ours(own));
            pending.map(|own| own.key().clone())
        });
    controller.run(Approver {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        config: Arc::clone(&context.config),
        requests,
        nodes,
    })
}

fn is_ours(request: &RequestView) -> bool {
    request.is_pending() && [KUBELET_CLIENT, KUBELET_SERVING].contains(&&*request.signer)
}

/// A right that stands for an approval, and the message of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recognized {
    pub(super) subresource: &'static str,
    message: &'static str,
}

pub(super) const SELF_NODE_CLIENT: Recognized = Recognized {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
pub(super) const NODE_CLIENT: Recognized = Recognized {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};
pub(super) const SELF_NODE_SERVER: Recognized = Recognized {
    subresource: "selfnodeserver",
    message: "Auto approving self kubelet serving certificate for the address of the request after SubjectAccessReview.",
};

/// Rights of which one suffices, in the order in which they are reviewed.
pub(super) fn recognized(
    spec: &CertificateSigningRequestSpec,
    request: &CertificateRequest,
    seen: Option<IpAddr>,
    api_server_names: &BTreeSet<String>,
) -> Vec<Recognized> {
    let requestor = spec.username.as_deref().unwrap_or_default();
    let is_own = requestor == request.common_name;
    match spec.signer_name.as_str() {
        KUBELET_CLIENT if recognize::kubelet_client_problem(request, usages_of(spec)).is_none() => {
            let own = is_own.then_some(SELF_NODE_CLIENT);
            own.into_iter().chain([NODE_CLIENT]).collect()
        }
        KUBELET_SERVING if recognize::kubelet_serving_problem(request, usages_of(spec)).is_none() => {
            let node = request.common_name.strip_prefix(NODE_PREFIX).unwrap_or_default();
            let is_seen = recognize::names_only(request, node, seen)
                && !recognize::is_of_api_server(request, api_server_names);
            (is_own && is_seen)
                .then_some(SELF_NODE_SERVER)
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

struct Approver {
    client: Client,
    runtime: Runtime,
    config: Arc<Config>,
    requests: Informer<RequestView>,
    nodes: Informer<NodeView>,
}

impl Reconciler for Approver {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            if !self.requests.get(key).is_some_and(|own| is_ours(&own)) {
                return Ok(Outcome::Done);
            }
            let live = LiveRequest::read(&self.client, key).await;
            let live = live.map_err(ReconcileError::doing("reading a signing request"))?;
            let Some(live) = live.filter(is_undecided) else {
                return Ok(Outcome::Done);
            };
            self.decide(key, &live).await
        })
    }
}

fn is_undecided(live: &LiveRequest) -> bool {
    !live.has_certificate() && !live.has("Approved") && !live.has("Denied")
}

impl Approver {
    async fn decide(&self, key: &ObjectKey, live: &LiveRequest) -> Result<Outcome, ReconcileError> {
        let spec = &live.request.spec;
        // Its signer says what is wrong with it, once it is approved.
        let Ok(request) = CertificateRequest::from_pem(&spec.request.0) else {
            return Ok(Outcome::Done);
        };
        let seen = requested_from(&live.request);
        let mut recognized = recognized(spec, &request, seen, &self.config.api_server_names);
        let is_taken = recognized.contains(&NODE_CLIENT) && self.is_there(&request);
        if is_taken {
            recognized.retain(|own| *own != NODE_CLIENT);
        }
        for right in &recognized {
            let allowed = self.may(spec, right.subresource).await;
            if !allowed.map_err(ReconcileError::doing("reviewing the access of a requestor"))? {
                continue;
            }
            let condition = NewCondition {
                kind: "Approved",
                reason: "AutoApproved",
                message: right.message,
            };
            let written = live
                .add(&self.client, key, "approval", condition, self.runtime.now())
                .await;
            return match written {
                // Then there is another event.
                Err(error) if error.is_conflict() || error.is_not_found() => Ok(Outcome::Done),
                other => other
                    .map(|()| Outcome::Done)
                    .map_err(ReconcileError::doing("approving a signing request")),
            };
        }
        if is_taken {
            tracing::debug!(request = %key, node = %request.common_name,
                "waits for an administrator: the node is there, and another client requests its identity");
            let created = live.request.metadata.creation_timestamp.as_ref();
            let created = created.map_or(self.runtime.now(), |at| at.0);
            return Ok(Outcome::RequeueAfter(node_again(created, self.runtime.now())));
        }
        if recognized.is_empty() {
            return Ok(Outcome::Done);
        }
        tracing::debug!(request = %key, "recognized, but the subject access review was not approved");
        let created = live.request.metadata.creation_timestamp.as_ref();
        let created = created.map_or(self.runtime.now(), |at| at.0);
        Ok(Outcome::RequeueAfter(pause(created, self.runtime.now())))
    }

    /// Reports whether the node is there that a request names.
    fn is_there(&self, request: &CertificateRequest) -> bool {
        let node = request.common_name.strip_prefix(NODE_PREFIX);
        node.is_some_and(|node| self.nodes.get(&ObjectKey::cluster(node)).is_some())
    }

    async fn may(
        &self,
        spec: &CertificateSigningRequestSpec,
        subresource: &str,
    ) -> Result<bool, ClientError> {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
            "resourceAttributes": {"group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
                "verb": "create", "subresource": subresource}}});
        let resource = ApiResource::of::<SubjectAccessReview>();
        let answer = self.client.create(&resource, "", &review).await?;
        let answer: Value = decode("a review", &answer)?;
        Ok(answer["status"]["allowed"] == true)
    }
}

/// Pause before the next reconcile of a request for the identity of a node that is there.
pub(super) fn node_again(created: Timestamp, now: Timestamp) -> Duration {
    pause(created, now).max(NODE_AGAIN)
}

/// Doubles what has passed, as a backoff does.
pub(super) fn pause(created: Timestamp, now: Timestamp) -> Duration {
    let (shortest, longest) = REVIEW_AGAIN;
    let passed = now.duration_since(created).clamp(shortest, longest);
    Duration::try_from(passed).unwrap_or_default()
}

fn requested_from(request: &CertificateSigningRequest) -> Option<IpAddr> {
    let annotations = request.metadata.annotations.as_ref()?;
    annotations.get(REQUESTED_FROM)?.parse().ok()
}
