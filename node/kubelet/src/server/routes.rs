//! From a request to its answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use machinery_meta::UserInfo;
use machinery_runtime::Watched;
use machinery_x509::{PeerCertificate, bearer_tokens};

use super::attributes::{subresources_of, verb_of};
use super::auth::{Delegated, Refusal};
use super::clients::Clients;
use super::requests::{OpenRequest, OpenRequests};
use super::streaming::{self, StreamSlots};
use super::{cadvisor, components, local_volumes, logs, metrics, stats};
use crate::local_volumes::LocalVolumes;
use crate::managers::ManagerContext;

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The authenticated server.
#[derive(Debug)]
pub struct Server {
    pub(super) context: ManagerContext,
    delegated: Delegated,
    clients: Option<Arc<Clients>>,
    stream_slots: Arc<StreamSlots>,
    local_volumes: Arc<LocalVolumes>,
}

/// The other side of a connection.
#[derive(Debug)]
pub struct Caller {
    /// The certificate of its handshake.
    pub peer: Option<PeerCertificate>,
    /// Address of the client.
    pub address: IpAddr,
    /// Its requests that were admitted.
    pub requests: OpenRequests,
    /// The user of the first of them.
    pub admitted: Arc<Watched<Option<String>>>,
}

impl Caller {
    /// Counts a request of this user, which is admitted.
    fn begin(&self, user: UserInfo) -> OpenRequest {
        if self.admitted.get().is_none() {
            self.admitted.replace(Some(user.name));
        }
        self.requests.begin()
    }
}

/// A short answer of text.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", text.into())
}

pub(super) fn json(value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => with_type(StatusCode::OK, "application/json", bytes.into()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(super) fn with_type(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static(content_type));
    response
}

impl Server {
    /// Answers with what these managers know.
    pub fn new(context: ManagerContext, clients: Option<Arc<Clients>>) -> Self {
        let node = context.config.node_name.clone();
        let local_volumes = LocalVolumes::new(context.config.local_volumes_folder());
        let delegated = Delegated::new(context.runtime.clone(), context.client.clone(), node);
        Self {
            context,
            delegated,
            clients,
            stream_slots: Arc::default(),
            local_volumes: Arc::new(local_volumes),
        }
    }

    /// The user whom a certificate names at this moment.
    pub fn known(&self, peer: Option<&PeerCertificate>) -> Option<UserInfo> {
        let clients = self.clients.as_ref()?;
        clients.user(peer, self.context.runtime.now())
    }

    /// Answers one request of this caller's connection.
    pub async fn handle(&self, caller: &Caller, request: Request<Incoming>) -> Response<Body> {
        match self.admit(caller, &request).await {
            Ok(user) => {
                let open = caller.begin(user);
                let answer = self.route(request).await;
                open.until_answered(answer.unwrap_or_else(|refusal| *refusal))
            }
            Err(refusal) => refused(refusal),
        }
    }

    async fn admit(&self, caller: &Caller, request: &Request<Incoming>) -> Result<UserInfo, Refusal> {
        let user = self.authenticate(caller, request.headers()).await?;
        let path = request.uri().path();
        let verb = verb_of(request.method(), path);
        self.delegated
            .authorize(&user, verb, subresources_of(path))
            .await?;
        Ok(user)
    }

    /// The user of a certificate, or of the first token that is good.
    async fn authenticate(&self, caller: &Caller, headers: &HeaderMap) -> Result<UserInfo, Refusal> {
        if let Some(known) = self.known(caller.peer.as_ref()) {
            return Ok(known);
        }
        let mut refusal = Refusal::Unauthorized;
        for token in bearer_tokens(headers).filter_map(Result::ok) {
            match self.delegated.authenticate(&token, caller.address).await {
                Ok(user) => return Ok(user),
                Err(Refusal::Unauthorized) => {}
                Err(other) => refusal = other,
            }
        }
        Err(refusal)
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response<Body>, Box<Response<Body>>> {
        let path = request.uri().path().to_string();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let context = &self.context;
        Ok(match parts.as_slice() {
            ["healthz" | "livez" | "readyz"] => {
                let (code, words) = components::health(&context.runtime);
                text(StatusCode::from_u16(code).unwrap_or_default(), words)
            }
            ["pods"] => self.pods(),
            ["stats", "summary"] => stats::summary(context).await,
            ["metrics"] => metrics::metrics(context).await,
            ["metrics", "resource"] => metrics::resource(context).await,
            ["metrics", "cadvisor"] => cadvisor::answer(context).await,
            ["metrics", "probes"] => text(StatusCode::OK, ""),
            ["containerLogs", namespace, pod, container] => {
                let slot = self.stream_slots.enter(namespace, pod)?;
                logs::answer(context, slot, namespace, pod, container, &query).await
            }
            [verb @ ("exec" | "attach"), namespace, pod, container]
            | [verb @ ("exec" | "attach"), namespace, pod, _, container] => {
                let target = streaming::Target {
                    namespace,
                    pod,
                    container,
                };
                let slot = self.stream_slots.enter(namespace, pod)?;
                match *verb {
                    "exec" => streaming::exec(context, slot, request, target, &query).await,
                    _ => streaming::attach(context, slot, request, target, &query).await,
                }
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                let slot = self.stream_slots.enter(namespace, pod)?;
                streaming::port_forward(context, slot, request, namespace, pod).await
            }
            ["localVolumes", name] if request.method() == Method::POST => {
                local_volumes::make(&context.runtime, &self.local_volumes, name).await
            }
            ["localVolumes", name, "removal"] if request.method() == Method::POST => {
                local_volumes::remove(&context.runtime, &self.local_volumes, name)
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        })
    }

    fn pods(&self) -> Response<Body> {
        let items: Vec<_> = self
            .context
            .pods
            .list()
            .iter()
            .map(|pod| (**pod).clone())
            .collect();
        json(&serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    }
}

fn refused(refusal: Refusal) -> Response<Body> {
    match refusal {
        Refusal::Unauthorized => text(StatusCode::UNAUTHORIZED, "Unauthorized"),
        Refusal::Forbidden(why) => text(StatusCode::FORBIDDEN, why),
        Refusal::TooMany => {
            let words = "Too many requests, please try again later.\n";
            let mut answer = text(StatusCode::TOO_MANY_REQUESTS, words);
            let headers = answer.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            answer
        }
        Refusal::Unavailable(why) => text(StatusCode::INTERNAL_SERVER_ERROR, why),
    }
}

/// Parsed parameters of a request; a name may come several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    values: HashMap<String, Vec<String>>,
}

impl Query {
    /// Parses what follows the question mark.
    pub fn parse(text: &str) -> Self {
        let mut values: HashMap<String, Vec<String>> = HashMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decoded(name)).or_default().push(decoded(value));
        }
        Self { values }
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .and_then(|list| list.first())
            .map(String::as_str)
    }

    /// All values of a name.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.values.get(name).cloned().unwrap_or_default()
    }

    /// Reports whether a flag is set, in any of the forms that clients use.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1" | "t" | "T" | "TRUE" | "True"))
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let raw = text.as_bytes();
    let mut at = 0;
    while at < raw.len() {
        let hex = (raw[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match (raw[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (_, Some(byte)) => {
                bytes.push(byte);
                at += 3;
            }
            (b'+', None) => {
                bytes.push(b' ');
                at += 1;
            }
            (byte, None) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_may_repeat() {
        let query = Query::parse("command=sh&command=-c&command=echo+%22a%26b%22&stdin=1");
        assert_eq!(query.all("command"), ["sh", "-c", "echo \"a&b\""]);
        assert!(query.flag("stdin") && !query.flag("tty"));
    }
}
