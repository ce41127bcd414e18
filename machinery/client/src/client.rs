//! Requests to the API with one identity, as bytes and headers; typed values are only what callers decode themselves.
//!
//! The transport is a `kube::Client`: TLS from a kubeconfig, or a tower service in this process. Every request has a
//! time limit of the runtime's clock, every answer a size limit.

use crate::error::ClientError;
use crate::resource::ApiResource;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use machinery_meta::{ObjectKey, Revision, Uid, syntax};
use machinery_runtime::Runtime;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest duration of an answer; the server bounds its own work at 34 s, and lists at 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);
/// The largest answer that is collected.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// A client with one identity. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    runtime: Runtime,
    user_agent: Arc<str>,
    shares_memory: bool,
    /// The largest answer that is collected.
    max_answer_bytes: usize,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("user_agent", &self.user_agent)
            .finish_non_exhaustive()
    }
}

/// Type of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// By the merge keys of the schema.
    Strategic,
    /// Server-side apply for this field manager.
    Apply {
        /// Field manager.
        manager: String,
        /// Take them from others.
        force: bool,
    },
}

/// Condition on the current object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precondition {
    /// It is this object, not one made anew under the name.
    pub uid: Option<Uid>,
    /// Nothing changed it since.
    pub revision: Option<Revision>,
}

impl Precondition {
    /// It is still this object.
    pub fn uid(uid: &Uid) -> Self {
        Self {
            uid: Some(uid.clone()),
            revision: None,
        }
    }
}

/// Deletion of dependents: upstream's propagation policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay and forget their owner.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// Options of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Condition on the current object.
    pub precondition: Precondition,
    /// Seconds the object may take; the kind's own default where absent.
    pub grace_period_seconds: Option<i64>,
    /// The kind's own default where absent.
    pub propagation: Option<Propagation>,
}

impl DeleteOptions {
    /// Delete exactly this object.
    pub fn uid(uid: &Uid) -> Self {
        Self {
            precondition: Precondition::uid(uid),
            ..Self::default()
        }
    }

    fn body(&self) -> serde_json::Value {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(propagation) = self.propagation {
            body["propagationPolicy"] = json!(format!("{propagation:?}"));
        }
        if let Some(uid) = &self.precondition.uid {
            body["preconditions"]["uid"] = json!(uid.0);
        }
        if let Some(revision) = self.precondition.revision {
            body["preconditions"]["resourceVersion"] = json!(revision.to_string());
        }
        body
    }
}

impl Client {
    /// A client over an existing `kube::Client`.
    pub fn new(kube: kube::Client, runtime: Runtime) -> Self {
        Self {
            kube,
            runtime,
            user_agent: Arc::from("knarr"),
            shares_memory: false,
            max_answer_bytes: MAX_ANSWER_BYTES,
        }
    }

    /// A client over a service in this process; its answers are taken to share the server's memory.
    pub fn in_process<S, B>(service: S, runtime: Runtime) -> Self
    where
        S: tower::Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<tower::BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        Self {
            shares_memory: true,
            ..Self::new(kube::Client::new(service, "default"), runtime)
        }
    }

    /// A client of a kubeconfig file's current context.
    pub async fn from_kubeconfig(path: &Path, runtime: Runtime) -> Result<Self, ClientError> {
        let file = kube::config::Kubeconfig::read_from(path)
            .map_err(|error| ClientError::Config(format!("{}: {error}", path.display())))?;
        let made = Self::of_kubeconfig(file, runtime).await;
        made.map_err(|error| match error {
            ClientError::Config(why) => ClientError::Config(format!("{}: {why}", path.display())),
            other => other,
        })
    }

    /// A client of the current context of a kubeconfig's text.
    pub async fn from_kubeconfig_text(text: &str, runtime: Runtime) -> Result<Self, ClientError> {
        let file = kube::config::Kubeconfig::from_yaml(text);
        let file = file.map_err(|error| ClientError::Config(error.to_string()))?;
        Self::of_kubeconfig(file, runtime).await
    }

    async fn of_kubeconfig(file: kube::config::Kubeconfig, runtime: Runtime) -> Result<Self, ClientError> {
        let config = |error: &dyn std::fmt::Display| ClientError::Config(error.to_string());
        let options = kube::config::KubeConfigOptions::default();
        let mut loaded = kube::Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| config(&error))?;
        // Watches are silent for minutes; the limits are ours, per request.
        loaded.read_timeout = None;
        loaded.write_timeout = None;
        let kube = kube::Client::try_from(loaded).map_err(|error| config(&error))?;
        Ok(Self::new(kube, runtime))
    }

    /// The same client under another `User-Agent`; field managers take their name from it.
    #[must_use]
    pub fn with_user_agent(mut self, user_agent: &str) -> Self {
        self.user_agent = Arc::from(user_agent);
        self
    }

    /// The client under this one, for `kube::Api` and WebSockets.
    pub fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// The runtime whose clock bounds the requests.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// Reads an object, or a subresource of it.
    pub fn get(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        self.call(Method::GET, path_of(resource, key, ""), None)
    }

    /// Reads and decodes an object.
    pub async fn get_as<K: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
    ) -> Result<K, ClientError> {
        decode(&resource.kind, &self.get(resource, key).await?)
    }

    /// Lists a collection and decodes it as `L`, such as `k8s_openapi::List<Pod>`.
    pub async fn list_as<L: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: &str,
        query: &[(&str, String)],
    ) -> Result<L, ClientError> {
        decode(
            "a list",
            &self.get_path(&resource.collection_path(namespace), query).await?,
        )
    }

    /// Creates an object in a namespace (empty for cluster-scoped kinds).
    pub fn create(
        &self,
        resource: &ApiResource,
        namespace: &str,
        object: &impl Serialize,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let path = Ok(resource.collection_path(namespace));
        self.send_body(Method::POST, path, "application/json", object)
    }

    /// Posts to a subresource: `binding`, `eviction`, `token`.
    pub fn create_subresource(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        object: &impl Serialize,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let path = path_of(resource, key, subresource);
        self.send_body(Method::POST, path, "application/json", object)
    }

    /// Posts to a subresource that another than the API server answers; a longer answer is refused.
    pub fn create_subresource_within(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        object: &impl Serialize,
        limit_bytes: usize,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let client = Self {
            max_answer_bytes: limit_bytes,
            ..self.clone()
        };
        client.create_subresource(resource, key, subresource, object)
    }

    /// Replaces an object or (where `subresource` is not empty) a part of it. Only for values that lose nothing.
    pub fn update(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        object: &impl Serialize,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let path = path_of(resource, key, subresource);
        self.send_body(Method::PUT, path, "application/json", object)
    }

    /// Patches an object or (where `subresource` is not empty) a part of it.
    pub fn patch(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        patch: &Patch,
        body: &impl Serialize,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let mut path = path_of(resource, key, subresource);
        let content_type = match patch {
            Patch::Json => "application/json-patch+json",
            Patch::Merge => "application/merge-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
            Patch::Apply { manager, force } => {
                let query = [("fieldManager", manager.clone()), ("force", force.to_string())];
                path = path.map(|path| with_query(&path, &query));
                "application/apply-patch+yaml"
            }
        };
        self.send_body(Method::PATCH, path, content_type, body)
    }

    /// Deletes an object.
    pub fn delete(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let path = path_of(resource, key, "");
        self.send_body(Method::DELETE, path, "application/json", &options.body())
    }

    /// Deletes every object of a collection that the query selects.
    pub fn delete_collection(
        &self,
        resource: &ApiResource,
        namespace: &str,
        query: &[(&str, String)],
        options: &DeleteOptions,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let path = Ok(with_query(&resource.collection_path(namespace), query));
        self.send_body(Method::DELETE, path, "application/json", &options.body())
    }

    /// Reads any path.
    pub fn get_path(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        self.call(Method::GET, Ok(with_query(path, query)), None)
    }

    /// Reads any path in the form that `accept` names.
    pub fn get_path_as(
        &self,
        path: &str,
        accept: &'static str,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let request = self
            .request(Method::GET, path)
            .header(header::ACCEPT, accept)
            .body(Body::empty());
        self.answer(request.map_err(ClientError::from))
    }

    /// Opens a stream, such as a watch or a log that is followed; dropping it ends the request.
    pub async fn stream(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<BoxStream<'static, Result<Bytes, ClientError>>, ClientError> {
        let request = self
            .request(Method::GET, &with_query(path, query))
            // Watch frames are shared slices; a compressed stream could not be.
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())?;
        let response = self.limited(self.kube.send(request)).await?.map_err(transport)?;
        if !response.status().is_success() {
            return Err(self.limited(refusal(response, self.max_answer_bytes)).await?);
        }
        Ok(response
            .into_body()
            .into_data_stream()
            .map(|piece| piece.map_err(transport))
            .boxed())
    }

    fn send_body(
        &self,
        method: Method,
        path: Result<String, ClientError>,
        content_type: &'static str,
        body: &impl Serialize,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        match serde_json::to_vec(body) {
            Ok(body) => self.call(method, path, Some((content_type, body))),
            Err(source) => Box::pin(async {
                Err(ClientError::Decode {
                    what: "the request's body".to_owned(),
                    source,
                })
            }),
        }
    }

    fn call(
        &self,
        method: Method,
        path: Result<String, ClientError>,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let path = match path {
            Ok(path) => path,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let request = self
            .request(method, &path)
            .header(header::ACCEPT, "application/json");
        let request = match body {
            Some((content_type, body)) => request
                .header(header::CONTENT_TYPE, content_type)
                .body(Body::from(body)),
            None => request.body(Body::empty()),
        };
        self.answer(request.map_err(ClientError::from))
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::USER_AGENT, &*self.user_agent)
    }

    fn answer(
        &self,
        request: Result<Request<Body>, ClientError>,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let client = self.clone();
        Box::pin(async move {
            let exchange = async {
                let response = client.kube.send(request?).await.map_err(transport)?;
                if !response.status().is_success() {
                    return Err(refusal(response, client.max_answer_bytes).await);
                }
                collect(response.into_body(), client.max_answer_bytes).await
            };
            client.limited(exchange).await?
        })
    }

    async fn limited<T>(&self, future: impl Future<Output = T>) -> Result<T, ClientError> {
        let limit = self.runtime.timeout(REQUEST_TIMEOUT, future).await;
        limit.map_err(|_| ClientError::TimedOut {
            seconds: REQUEST_TIMEOUT.as_secs(),
        })
    }
}

/// The path of an object. References that tenants write hold any text as a name: one with a slash would be the path of
/// a subresource or of another namespace's object.
fn path_of(resource: &ApiResource, key: &ObjectKey, subresource: &str) -> Result<String, ClientError> {
    let names = [&key.namespace, &key.name];
    let rules = names.map(|name| (name, syntax::path_segment_name(name)));
    let empty = key.name.is_empty().then(|| vec!["may not be empty".to_owned()]);
    let mut all = rules
        .into_iter()
        .chain(empty.map(|problems| (&key.name, problems)));
    if let Some((name, problems)) = all.find(|(_, problems)| !problems.is_empty()) {
        return Err(ClientError::Name {
            name: name.clone(),
            problems: problems.join(", "),
        });
    }
    Ok(resource.object_path(&key.namespace, &key.name, subresource))
}

/// Decodes an answer; `what` names it where it cannot be.
pub fn decode<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|source| ClientError::Decode {
        what: what.to_owned(),
        source,
    })
}

fn transport(error: kube::Error) -> ClientError {
    ClientError::Transport(Box::new(error))
}

/// The `Status` of an answer that is not a success; one is made up from the code where the body holds none.
async fn refusal(response: Response<Body>, limit_bytes: usize) -> ClientError {
    let code = response.status();
    let body = match collect(response.into_body(), limit_bytes).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    let status = serde_json::from_slice::<Status>(&body)
        .ok()
        .filter(|status| status.code.is_some());
    let status = status.unwrap_or_else(|| Status {
        code: Some(i32::from(code.as_u16())),
        message: Some(format!(
            "{code}: {}",
            String::from_utf8_lossy(&body[..body.len().min(512)])
        )),
        status: Some("Failure".to_owned()),
        ..Status::default()
    });
    ClientError::Status(Box::new(status))
}

async fn collect(body: Body, limit_bytes: usize) -> Result<Bytes, ClientError> {
    let within = |bytes: usize| match bytes > limit_bytes {
        true => Err(ClientError::TooLarge { limit_bytes }),
        false => Ok(()),
    };
    let mut pieces = body.into_data_stream();
    let Some(first) = pieces.next().await else {
        return Ok(Bytes::new());
    };
    let first = first.map_err(transport)?;
    within(first.len())?;
    let Some(second) = pieces.next().await else {
        return Ok(first);
    };
    let mut all = BytesMut::from(first);
    let mut next = Some(second);
    while let Some(piece) = next {
        let piece = piece.map_err(transport)?;
        within(all.len() + piece.len())?;
        all.extend_from_slice(&piece);
        next = pieces.next().await;
    }
    Ok(all.freeze())
}

/// Appends query pairs, percent-encoded.
pub fn with_query(path: &str, query: &[(&str, String)]) -> String {
    let mut out = path.to_owned();
    for (at, (name, value)) in query.iter().enumerate() {
        out.push(if at == 0 && !path.contains('?') { '?' } else { '&' });
        out.push_str(name);
        out.push('=');
        push_encoded(&mut out, value, b"-_.~");
    }
    out
}

/// Appends text, percent-encoded but for letters, digits and these.
pub(crate) fn push_encoded(out: &mut String, text: &str, plain: &[u8]) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        let query = [
            ("labelSelector", "a in (b,c)".to_owned()),
            ("limit", "5".to_owned()),
        ];
        assert_eq!(
            with_query("/x", &query),
            "/x?labelSelector=a%20in%20%28b%2Cc%29&limit=5"
        );
    }

    #[test]
    fn requests_are_for_no_other_path_than_the_objects() {
        let simulation = machinery_runtime::Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let service = tower::service_fn(|request: Request<Body>| async move {
                let path = request.uri().to_string();
                Ok::<_, std::convert::Infallible>(Response::new(http_body_util::Full::new(Bytes::from(path))))
            });
            let client = Client::in_process(service, runtime);
            let pods = ApiResource::of::<k8s_openapi::api::core::v1::Pod>();
            let get = |name: &str| client.get(&pods, &ObjectKey::new("n", name));
            for name in ["", ".", "..", "p/proxy/admin", "../../m/pods/p", "p%2Fexec"] {
                let refused = get(name).await.unwrap_err();
                assert!(matches!(&refused, ClientError::Name { .. }), "{name}: {refused}");
            }
            let path = get("p?watch=1#x y").await.unwrap();
            assert_eq!(path, "/api/v1/namespaces/n/pods/p%3Fwatch=1%23x%20y");
        });
    }

    #[test]
    fn delete_options_say_only_what_was_asked() {
        let plain = DeleteOptions::default().body();
        assert_eq!(plain, json!({"kind": "DeleteOptions", "apiVersion": "v1"}));
        let exact = DeleteOptions {
            propagation: Some(Propagation::Background),
            ..DeleteOptions::uid(&Uid("u".to_owned()))
        };
        assert_eq!(exact.body()["propagationPolicy"], "Background");
        assert_eq!(exact.body()["preconditions"]["uid"], "u");
    }
}
