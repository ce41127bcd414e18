//! Audit events of a request, one at each of its stages.

use super::auditor::{Auditor, LastLine};
use super::backend::Written;
use super::client::{source_addresses, user_agent};
use super::form::{AuthenticationMetadata, Event, Identity, ObjectRef, ResponseStatus, User};
use super::latency::Latency;
use super::objects;
use super::policy::{Decision, Level, Stage};
use super::truncate::TRUNCATED;
use crate::exchange::{RequestExchange, Response as Answer};
use crate::filters::completion::Outcome;
use apiserver_endpoints::RequestInfo;
use apiserver_endpoints::status::Status;
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::{RequestContext, RequestRecorder};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use machinery_meta::UserInfo;
use machinery_schema::{Tree, encode_json, yaml};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// `metav1.MicroTime`.
const MICRO_TIME: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";
/// An event with larger objects goes without them, as upstream's truncating backend writes it.
const MAX_OBJECT_BYTES: usize = 10 << 20;

/// One request's event, as its filters fill it. It travels in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct AuditEvent(Arc<State>);

#[derive(Debug)]
struct State {
    auditor: Arc<Auditor>,
    decision: Decision,
    /// The last event, which the answer waits for.
    last: Option<LastLine>,
    context: RequestContext,
    info: Arc<RequestInfo>,
    uri: String,
    sources: Vec<IpAddr>,
    user_agent: String,
    received: Timestamp,
    impersonated: OnceLock<(Arc<UserInfo>, Option<&'static str>)>,
    identity: OnceLock<Identity>,
    request_object: OnceLock<Box<RawValue>>,
    response: Mutex<Response>,
    annotations: Mutex<BTreeMap<String, String>>,
}

/// The known parts of the answer.
#[derive(Debug, Default)]
struct Response {
    status: Option<ResponseStatus>,
    object: Option<Box<RawValue>>,
}

impl AuditEvent {
    pub(super) fn new(auditor: &Arc<Auditor>, decision: Decision, exchange: &RequestExchange) -> Self {
        let (uri, headers) = (exchange.request.uri(), exchange.request.headers());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Self(Arc::new(State {
            auditor: Arc::clone(auditor),
            decision,
            last: exchange.request.extensions().get().cloned(),
            context: exchange.context.clone(),
            info: Arc::clone(&exchange.info),
            uri: path.to_owned(),
            sources: source_addresses(headers, exchange.peer.address),
            user_agent: user_agent(headers),
            received: exchange.context.runtime.now(),
            impersonated: OnceLock::new(),
            identity: OnceLock::new(),
            request_object: OnceLock::new(),
            response: Mutex::default(),
            annotations: Mutex::default(),
        }))
    }

    /// The event of a request on its way, where it is audited.
    pub(crate) fn of(exchange: &RequestExchange) -> Option<Self> {
        exchange.request.extensions().get::<Self>().cloned()
    }

    /// The part of it that handlers fill.
    pub(super) fn recorder(&self) -> Arc<dyn RequestRecorder> {
        Arc::clone(&self.0) as Arc<dyn RequestRecorder>
    }

    /// Records the user that the request goes on as, and the constrained verb that allowed it.
    pub(crate) fn impersonated(&self, user: &Arc<UserInfo>, constraint: Option<&'static str>) {
        let _ = self.0.impersonated.set((Arc::clone(user), constraint));
    }

    pub(crate) fn annotate(&self, key: &str, value: impl Into<String>) {
        self.0.annotate(key, value);
    }

    pub(super) fn truncated(&self) {
        self.0.annotate(TRUNCATED, "true");
    }

    pub(super) fn wants_response(&self) -> bool {
        self.0.decision.level >= Level::RequestResponse
    }

    /// Records the answer's code, and its `Status` where it is one; true where nothing is left to record.
    pub(super) fn answered(&self, answer: &Answer) -> bool {
        let status = answer.extensions().get::<Status>();
        // Upstream writes an answer of whose form nothing is acceptable past its audit log.
        let is_past = answer.status() == StatusCode::NOT_ACCEPTABLE;
        let recorded = status.filter(|_| !is_past);
        let object = recorded
            .filter(|_| self.wants_response())
            .and_then(|status| self.0.json(status.to_json()));
        let code = answer.status().as_u16();
        let mut response = self.0.response.lock();
        let recorded_status = recorded.map_or_else(ResponseStatus::default, ResponseStatus::of);
        response.status = Some(recorded_status.with_code(code));
        response.object = object;
        status.is_some()
    }

    /// Records the answer; a large one, and YAML that is long, is read among the user's heavy work.
    pub(super) async fn response_body(&self, headers: &HeaderMap, body: &Bytes) {
        if body.len() > MAX_OBJECT_BYTES {
            return self.truncated();
        }
        let (own, of_answer, text) = (&self.0, headers.clone(), body.clone());
        let omit = own.decision.omit_managed_fields;
        let is_yaml = objects::is_yaml(headers) && !yaml::is_short(body);
        let is_heavy = body.len() >= LARGE_BODY_BYTES || is_yaml;
        let work = move || objects::as_json(&of_answer, &text, omit);
        let object = match is_heavy {
            true => own.context.runtime.heavy(own.context.heavy_flow(), work).await,
            false => work(),
        };
        own.response.lock().object = object;
    }

    /// Writes the last event, by how the request ended.
    pub(super) fn ended(&self, outcome: Outcome, latency: &Latency) {
        // A watch is as long as its client wants it to be.
        if self.0.info.verb != "watch" {
            let mut annotations = self.0.annotations.lock();
            annotations
                .extend((latency.annotations().into_iter()).map(|(key, value)| (key.to_owned(), value)));
        }
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
        if let (Some(written), Some(last)) = (self.line(stage), &self.0.last) {
            last.set(written);
        }
    }

    /// Writes the event of a stage, unless the policy leaves it out; `false` where the request is to be refused, since it could not
    /// be written.
    pub(super) async fn write(&self, stage: Stage) -> bool {
        match self.line(stage) {
            Some(written) => written.lets_request_go_on().await,
            None => true,
        }
    }

    fn line(&self, stage: Stage) -> Option<Written> {
        let state = &*self.0;
        if state.decision.omit_stages.contains(&stage) {
            return None;
        }
        let mut annotations = state.annotations.lock();
        annotations.extend(state.context.audit.take());
        let response = state.response.lock();
        let is_behind = state.auditor.is_behind();
        if is_behind && (response.object.is_some() || state.request_object.get().is_some()) {
            annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        }
        let mut event = state.event(stage, &response, &annotations);
        if is_behind {
            (event.request_object, event.response_object) = (None, None);
        }
        state.auditor.write(&event)
    }
}

impl State {
    fn event<'a>(
        &'a self,
        stage: Stage,
        response: &'a Response,
        annotations: &'a BTreeMap<String, String>,
    ) -> Event<'a> {
        let (context, info) = (&self.context, &*self.info);
        let (impersonated, constraint) = match self.impersonated.get() {
            Some((user, constraint)) => (Some(User::of(user)), *constraint),
            None => (None, None),
        };
        let now = match stage {
            Stage::RequestReceived => self.received,
            _ => context.runtime.now(),
        };
        Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.decision.level,
            audit_id: &context.audit_id,
            stage,
            request_uri: &self.uri,
            verb: &info.verb,
            user: User::of(&context.user),
            impersonated_user: impersonated,
            authentication_metadata: constraint.map(|impersonation_constraint| AuthenticationMetadata {
                impersonation_constraint,
            }),
            source_ips: &self.sources,
            user_agent: &self.user_agent,
            object_ref: info
                .is_resource_request
                .then(|| ObjectRef::of(info, self.identity.get())),
            response_status: response.status.as_ref(),
            request_object: self.request_object.get().map(|object| &**object),
            response_object: response.object.as_deref(),
            request_received_timestamp: self.received.strftime(MICRO_TIME).to_string(),
            stage_timestamp: now.strftime(MICRO_TIME).to_string(),
            annotations,
        }
    }

    fn annotate(&self, key: &str, value: impl Into<String>) {
        self.annotations.lock().insert(key.to_owned(), value.into());
    }

    /// An object as the event carries it; `None` where it is too large.
    fn json(&self, json: String) -> Option<Box<RawValue>> {
        if json.len() > MAX_OBJECT_BYTES {
            self.annotate(TRUNCATED, "true");
            return None;
        }
        objects::in_one_line(json)
    }

    fn request_json(&self, json: String) {
        if let Some(json) = self.json(json) {
            let _ = self.request_object.set(json);
        }
    }
}

impl RequestRecorder for State {
    fn object(&self, object: &Tree) {
        let _ = self.identity.set(Identity::of(object));
        if self.decision.level < Level::Request {
            return;
        }
        let mut json = Vec::new();
        if self.decision.omit_managed_fields {
            let mut own = object.clone();
            own.remove(&["metadata", "managedFields"]);
            encode_json(&own, &mut json);
        } else {
            encode_json(object, &mut json);
        }
        self.request_json(String::from_utf8_lossy(&json).into_owned());
    }

    fn wants_patches(&self) -> bool {
        self.decision.level >= Level::Request
    }

    fn patch(&self, json: &str) {
        self.request_json(json.to_owned());
    }
}
