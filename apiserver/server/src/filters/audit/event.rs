//! `audit.k8s.io/v1` `Event`: what is recorded of a request at each of its stages.

use super::Auditor;
use super::objects;
use super::policy::{Decision, Level, Stage};
use crate::exchange::Exchange;
use crate::filters::completion::Outcome;
use apiserver_endpoints::RequestInfo;
use apiserver_registry::RequestContext;
use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use machinery_meta::UserInfo;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// `metav1.MicroTime`.
const MICRO_TIME: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";
/// An event with larger objects goes without them, as upstream's truncating backend writes it.
const MAX_OBJECT_BYTES: usize = 10 << 20;
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// One request's event, as its filters fill it. It travels in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct AuditEvent(Arc<State>);

#[derive(Debug)]
struct State {
    auditor: Arc<Auditor>,
    decision: Decision,
    context: RequestContext,
    info: Arc<RequestInfo>,
    uri: String,
    address: Option<SocketAddr>,
    received: Timestamp,
    impersonated: OnceLock<(Arc<UserInfo>, Option<&'static str>)>,
    request_object: OnceLock<Box<RawValue>>,
    response: Mutex<Response>,
    annotations: Mutex<BTreeMap<String, String>>,
}

/// What is known of the answer.
#[derive(Debug, Default)]
struct Response {
    status: Option<ResponseStatus>,
    object: Option<Box<RawValue>>,
}

/// The part of `metav1.Status` that is recorded.
#[derive(Debug, Clone, Default, Serialize, serde::Deserialize)]
pub(crate) struct ResponseStatus {
    #[serde(default)]
    metadata: Empty,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    code: u16,
}

#[derive(Debug, Clone, Default, Serialize, serde::Deserialize)]
struct Empty {}

impl ResponseStatus {
    pub(crate) fn of_code(code: u16) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Self {
        Self {
            metadata: Empty {},
            status: "Failure".to_owned(),
            message: message.to_owned(),
            reason: reason.to_owned(),
            code,
        }
    }
}

impl AuditEvent {
    pub(super) fn new(auditor: &Arc<Auditor>, decision: Decision, exchange: &Exchange) -> Self {
        Self(Arc::new(State {
            auditor: Arc::clone(auditor),
            decision,
            context: exchange.context.clone(),
            info: Arc::clone(&exchange.info),
            uri: exchange.request.uri().to_string(),
            address: exchange.peer.address,
            received: exchange.context.runtime.now(),
            impersonated: OnceLock::new(),
            request_object: OnceLock::new(),
            response: Mutex::default(),
            annotations: Mutex::default(),
        }))
    }

    /// That of a request on its way, where it is audited.
    pub(crate) fn of(exchange: &Exchange) -> Option<Self> {
        exchange.request.extensions().get::<Self>().cloned()
    }

    /// Records the user that the request goes on as, and the constrained verb that allowed it.
    pub(crate) fn impersonated(&self, user: &Arc<UserInfo>, constraint: Option<&'static str>) {
        let _ = self.0.impersonated.set((Arc::clone(user), constraint));
    }

    pub(crate) fn annotate(&self, key: &str, value: impl Into<String>) {
        self.0.annotations.lock().insert(key.to_owned(), value.into());
    }

    /// Records the body of a change, where the policy says so.
    pub(crate) fn request_body(&self, headers: &HeaderMap, body: &Bytes) {
        if self.0.decision.level >= Level::Request
            && let Some(object) = self.object(headers, body)
        {
            let _ = self.0.request_object.set(object);
        }
    }

    pub(super) fn wants_response(&self) -> bool {
        self.0.decision.level >= Level::RequestResponse
    }

    pub(super) fn response_body(&self, headers: &HeaderMap, body: &Bytes) {
        let object = self.object(headers, body);
        self.0.response.lock().object = object;
    }

    pub(super) fn response_status(&self, status: ResponseStatus) {
        self.0.response.lock().status = Some(status);
    }

    fn object(&self, headers: &HeaderMap, body: &Bytes) -> Option<Box<RawValue>> {
        if body.len() > MAX_OBJECT_BYTES {
            self.annotate(TRUNCATED, "true");
            return None;
        }
        objects::as_json(headers, body, self.0.decision.omit_managed_fields)
    }

    /// Writes the last event, by how the request ended.
    pub(super) fn ended(&self, outcome: Outcome) {
        let (stage, status) = match outcome {
            Outcome::Answered(code) => (Stage::ResponseComplete, ResponseStatus::of_code(code)),
            Outcome::Panicked => {
                let status = ResponseStatus::failure(500, "InternalError", "APIServer panic'd");
                (Stage::Panic, status)
            }
            Outcome::Abandoned => {
                let status = ResponseStatus::failure(outcome.code(), "", "Connection closed early");
                (Stage::ResponseComplete, status)
            }
        };
        let is_known = matches!(outcome, Outcome::Answered(_));
        {
            let mut response = self.0.response.lock();
            response.status = response.status.take().filter(|_| is_known).or(Some(status));
        }
        self.write(stage);
    }

    /// Writes the event of a stage, unless the policy leaves it out.
    pub(super) fn write(&self, stage: Stage) {
        let state = &*self.0;
        if state.decision.omit_stages.contains(&stage) {
            return;
        }
        let mut annotations = state.annotations.lock();
        annotations.extend(state.context.audit.take());
        let response = state.response.lock();
        let (context, info) = (&state.context, &*state.info);
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: state.decision.level,
            audit_id: &context.audit_id,
            stage,
            request_uri: &state.uri,
            verb: &info.verb,
            user: User::of(&context.user),
            impersonated_user: state.impersonated.get().map(|(user, _)| User::of(user)),
            authentication_metadata: state
                .impersonated
                .get()
                .and_then(|(_, constraint)| *constraint)
                .map(|impersonation_constraint| AuthenticationMetadata {
                    impersonation_constraint,
                }),
            source_ips: state
                .address
                .iter()
                .map(|address| address.ip().to_string())
                .collect(),
            user_agent: &context.user_agent,
            object_ref: info.is_resource_request.then(|| ObjectRef::of(info)),
            response_status: response.status.as_ref(),
            request_object: state.request_object.get().map(|object| &**object),
            response_object: response.object.as_deref(),
            request_received_timestamp: state.received.strftime(MICRO_TIME).to_string(),
            stage_timestamp: context.runtime.now().strftime(MICRO_TIME).to_string(),
            annotations: &annotations,
        };
        match serde_json::to_string(&event) {
            Ok(line) => state.auditor.log.write(line + "\n"),
            Err(error) => tracing::error!(%error, "an audit event cannot be written"),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: User<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<User<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<&'a ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<&'a RawValue>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuthenticationMetadata {
    impersonation_constraint: &'static str,
}

#[derive(Serialize)]
struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> User<'a> {
    fn of(user: &'a UserInfo) -> Self {
        Self {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: &user.extra,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

impl<'a> ObjectRef<'a> {
    fn of(info: &'a RequestInfo) -> Self {
        Self {
            resource: &info.resource,
            namespace: &info.namespace,
            name: &info.name,
            api_group: &info.api_group,
            api_version: &info.api_version,
            subresource: &info.subresource,
        }
    }
}
