//! Webhooks that answer in one way, and an object of their rules.

use crate::webhooks::configuration::ConfiguredWebhooks;
use crate::{AdmissionError, Equivalent, Host, Operation, Request};
use apiserver_egress::CredentialsByHost;
use async_trait::async_trait;
use machinery_meta::reader::{ObjectReader, ReadFuture, ReadObject};
use machinery_meta::{
    GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, ObjectHeader, ObjectKey, Revision,
    UserInfo,
};
use machinery_schema::Tree;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// No webhook, and no way to one.
#[derive(Debug)]
pub(super) struct Nobody;

#[async_trait]
impl crate::webhooks::WebhookClient for Nobody {
    async fn post(
        &self,
        call: apiserver_egress::HookCall<'_>,
    ) -> Result<Vec<u8>, apiserver_egress::HookError> {
        Err(apiserver_egress::HookError::Failed {
            url: call.target.url(call.query),
            why: "no webhook is called here".to_owned(),
        })
    }
}

impl crate::webhooks::WebhookObserver for Nobody {
    fn called(&self, _: crate::webhooks::WebhookCall<'_>, _: Duration, _: bool, _: u16) {}

    fn rejected(&self, _: crate::webhooks::WebhookCall<'_>, _: &'static str, _: u16) {}

    fn failed_open(&self, _: crate::webhooks::WebhookCall<'_>) {}
}

/// A webhook that refuses everything at once.
pub(super) struct Refusing;

#[async_trait]
impl crate::webhooks::WebhookClient for Refusing {
    async fn post(
        &self,
        call: apiserver_egress::HookCall<'_>,
    ) -> Result<Vec<u8>, apiserver_egress::HookError> {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        let response = json!({"uid": review["request"]["uid"], "allowed": false});
        let answer =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        Ok(answer.to_string().into_bytes())
    }
}

/// A webhook that changes everything.
pub(super) struct Patching;

#[async_trait]
impl crate::webhooks::WebhookClient for Patching {
    async fn post(
        &self,
        call: apiserver_egress::HookCall<'_>,
    ) -> Result<Vec<u8>, apiserver_egress::HookError> {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        // [{"op": "add", "path": "/a", "value": 1}]
        let patch = "W3sib3AiOiAiYWRkIiwgInBhdGgiOiAiL2EiLCAidmFsdWUiOiAxfV0=";
        let response = json!({"uid": review["request"]["uid"], "allowed": true, "patch": patch, "patchType": "JSONPatch"});
        let answer =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        Ok(answer.to_string().into_bytes())
    }
}

/// Webhooks of a server without configurations.
pub(crate) fn none(reader: &Arc<dyn ObjectReader>) -> Arc<crate::webhooks::Webhooks> {
    let runtime = machinery_runtime::Simulation::new(1).runtime();
    crate::webhooks::Webhooks::new(Arc::new(Nobody), Arc::clone(reader), runtime, Arc::new(Nobody))
}

/// One webhook with these members beside those that it must have.
pub(super) fn webhook(members: Value) -> Arc<crate::webhooks::Webhook> {
    let mut own = json!({"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://a.example"}, "namespaceSelector": {}, "objectSelector": {}});
    let members = members.as_object().cloned().unwrap_or_default();
    own.as_object_mut().unwrap().extend(members);
    let text = json!({"webhooks": [own]}).to_string();
    let mut all = ConfiguredWebhooks::compile("own", text.as_bytes(), &CredentialsByHost::default())
        .unwrap()
        .0;
    all.remove(0)
}

pub(super) fn resource(group: &str, version: &str, plural: &str) -> GroupVersionResource {
    GroupVersion::new(group, version).resource(plural)
}

/// A request for a deployment, of which there are four resources.
#[derive(Debug)]
pub(crate) struct Deployments {
    kind: GroupVersionKind,
    resource: GroupVersionResource,
    subresource: String,
    /// The authorizer does not answer at once.
    pub(crate) answers_later: bool,
    /// The authorizer has not decided, and heavy work has no turn.
    pub(crate) is_busy: bool,
    /// There is no memory for reviews.
    pub(super) is_full: bool,
    /// Bytes of work that were announced.
    pub(crate) work: AtomicUsize,
    pub(crate) interrupt: Option<Arc<dyn machinery_cel::Interrupt>>,
}

#[async_trait]
impl Host for Deployments {
    fn kind(&self) -> &GroupVersionKind {
        &self.kind
    }

    fn is_custom(&self) -> bool {
        false
    }

    fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    fn options(&self) -> Option<String> {
        None
    }

    fn resources_of_kind(&self, group: &str, version: &str, kind: &str) -> Vec<(GroupVersionResource, bool)> {
        match kind {
            "Node" => vec![(resource(group, version, "nodes"), false)],
            "Pod" => vec![(resource(group, version, "pods"), true)],
            _ => Vec::new(),
        }
    }

    fn equivalents(&self) -> Vec<Equivalent> {
        let kind = if self.subresource.is_empty() {
            "Deployment"
        } else {
            "Scale"
        };
        [
            ("extensions", "v1beta1"),
            ("apps", "v1beta1"),
            ("apps", "v1alpha1"),
        ]
        .map(|(group, version)| Equivalent {
            resource: resource(group, version, "deployments"),
            kind: GroupVersionKind::new(group, version, kind),
        })
        .to_vec()
    }

    async fn convert(
        &self,
        _: &Tree,
        _: &GroupVersionResource,
        _: &Equivalent,
    ) -> Result<Tree, AdmissionError> {
        Err(AdmissionError::Internal("nothing is converted here".to_owned()))
    }

    async fn authorize(
        &self,
        _: Option<(&str, &str)>,
        check: &machinery_cel::Check,
        verb: &str,
    ) -> Result<machinery_cel::Decision, AdmissionError> {
        let mut waited = !self.answers_later;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            match std::mem::replace(&mut waited, true) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        if self.is_busy {
            return Err(AdmissionError::Busy);
        }
        Ok(machinery_cel::Decision {
            allowed: check.resource == "deployments" && verb == "breakglass",
            ..machinery_cel::Decision::default()
        })
    }

    fn set_defaults(&self, _: &mut Tree, _: &GroupVersionResource) {}

    fn field_owners_problem(&self, _: &Tree) -> Option<String> {
        None
    }

    fn warn(&self, _: String) {}

    fn annotate(&self, _: String, _: String) {}

    fn audits_bodies(&self) -> bool {
        false
    }

    fn waited(&self, _: bool, _: Duration) {}

    fn time_left(&self) -> Option<Duration> {
        None
    }

    fn interrupt(&self) -> Option<Arc<dyn machinery_cel::Interrupt>> {
        self.interrupt.clone()
    }

    fn hold(&self, _: usize) -> Result<crate::Held, AdmissionError> {
        match self.is_full {
            true => Err(AdmissionError::Busy),
            false => Ok(Box::new(())),
        }
    }

    async fn heavy_from(&self, bytes: usize) -> Result<(), AdmissionError> {
        self.work.fetch_add(bytes, Ordering::Relaxed);
        match self.is_busy {
            true => Err(AdmissionError::Busy),
            false => Ok(()),
        }
    }
}

/// The namespace `ns`, with a label.
pub(crate) struct OneNamespace;

impl ObjectReader for OneNamespace {
    fn get<'a>(&'a self, of: &'a GroupResource, key: &'a ObjectKey) -> ReadFuture<'a, Option<ReadObject>> {
        let found = (of.resource == "namespaces" && key.name == "ns").then(|| ReadObject {
            header: ObjectHeader {
                labels: vec![("team".into(), "red".into())],
                ..ObjectHeader::default()
            }
            .into(),
            revision: Revision::ZERO,
            json: b"{}".to_vec(),
        });
        Box::pin(async move { Ok(found) })
    }

    fn list<'a>(&'a self, _: &'a GroupResource, _: &'a str) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

pub(crate) fn deployments(subresource: &str) -> Deployments {
    let kind = match subresource {
        "" => GroupVersionKind::new("apps", "v1", "Deployment"),
        _ => GroupVersionKind::new("autoscaling", "v1", "Scale"),
    };
    Deployments {
        work: AtomicUsize::new(0),
        kind,
        resource: resource("apps", "v1", "deployments"),
        subresource: subresource.to_owned(),
        answers_later: false,
        is_busy: false,
        is_full: false,
        interrupt: None,
    }
}

pub(crate) fn request<'a>(user: &'a UserInfo, host: &'a Deployments, namespace: &'a str) -> Request<'a> {
    Request {
        user,
        operation: Operation::Create,
        group: "apps",
        kind: &host.kind.kind,
        resource: "deployments",
        subresource: &host.subresource,
        namespace,
        name: "name",
        dry_run: false,
        remarks: &crate::Unheard,
        host: Some(host),
        reinvocation: None,
    }
}
