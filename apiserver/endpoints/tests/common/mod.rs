//! The handlers over storage in memory: requests go in as bytes, sent by users whose rights RBAC knows ([`access`]).

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod access;

use access::Access;
use apiserver_endpoints::{Body, Endpoints, ListMemory, RequestInfo, VersionInfo, status};
use apiserver_registry::{
    Admission, Attributes, Registry, RegistryError, RequestContext, ResourceRow, kinds,
};
use apiserver_storage::{LogOptions, LogStorage};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response};
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use parking_lot::Mutex;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Refuses nothing and remembers what it was asked: phase, attributes, the kinds of object and old object.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<RecordedRequest>>, Mutex<Option<fn(&mut Tree)>>);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedRequest {
    pub(crate) phase: &'static str,
    pub(crate) attributes: Attributes,
    pub(crate) object: Option<String>,
    pub(crate) old: Option<String>,
}

impl Recorder {
    /// Changes every candidate from here on.
    pub(crate) fn change_with(&self, change: fn(&mut Tree)) {
        *self.1.lock() = Some(change);
    }

    pub(crate) fn take(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *self.0.lock())
    }

    fn note(&self, phase: &'static str, attributes: &Attributes, object: Option<&Tree>, old: Option<&Tree>) {
        let kind = |tree: &Tree| tree.str_at(&["kind"]).to_owned();
        self.0.lock().push(RecordedRequest {
            phase,
            attributes: attributes.clone(),
            object: object.map(kind),
            old: old.map(kind),
        });
    }
}

#[async_trait]
impl Admission for Recorder {
    async fn mutate(
        &self,
        _: &RequestContext,
        attributes: &Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        self.note("mutate", attributes, Some(object), old);
        if let Some(change) = *self.1.lock() {
            change(object);
        }
        Ok(())
    }

    async fn validate(
        &self,
        _: &RequestContext,
        attributes: &Attributes,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        self.note("validate", attributes, object, old);
        Ok(())
    }
}

pub(crate) struct Api {
    pub(crate) admission: Arc<Recorder>,
    pub(crate) endpoints: Endpoints,
    pub(crate) registry: Registry,
    pub(crate) runtime: Runtime,
    access: Access,
    /// Sends everything; `None`: a user with the rights for the request.
    pub(crate) user: Option<UserInfo>,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self, code: u16) -> Result<Value, String> {
        let text = String::from_utf8_lossy(&self.body);
        if self.code != code {
            return Err(format!("{} instead of {code}: {text}", self.code));
        }
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }
}

impl Api {
    pub(crate) async fn new(runtime: Runtime) -> Self {
        let storage = LogStorage::memory(&runtime).await.unwrap();
        Self::over(runtime, storage)
    }

    /// Over storage whose writes take time.
    pub(crate) async fn on_disk(runtime: Runtime) -> Self {
        let opened = LogStorage::open(&runtime, LogOptions::new("/data")).await;
        Self::over(runtime, opened.unwrap().0)
    }

    fn over(runtime: Runtime, storage: LogStorage) -> Self {
        let storage = Arc::new(storage);
        let registry = Registry::new(storage, runtime.clone(), kinds::built_in());
        let admission = Arc::new(Recorder::default());
        let access = Access::new();
        let endpoints = Endpoints::new(
            registry.clone(),
            Arc::clone(&admission) as Arc<dyn Admission>,
            Arc::new(access.clone()),
            VersionInfo::default(),
            ListMemory::new(64 << 20, std::time::Duration::from_secs(5)),
            std::time::Duration::from_secs(1_800),
        );
        Self {
            admission,
            endpoints,
            registry,
            runtime,
            access,
            user: None,
        }
    }

    /// The same server, asked by this user.
    pub(crate) fn sent_by(&self, user: UserInfo) -> Self {
        Self {
            admission: Arc::clone(&self.admission),
            endpoints: self.endpoints.clone(),
            registry: self.registry.clone(),
            runtime: self.runtime.clone(),
            access: self.access.clone(),
            user: Some(user),
        }
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        forms: (&str, &str),
        body: impl Into<Bytes>,
    ) -> Answer {
        let headers = [("content-type", forms.0), ("accept", forms.1)];
        self.request(method, path, &headers, body).await
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let answer = self.begin(method, path, headers, body).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().read(64 << 20).await.unwrap();
        Answer { code, body }
    }

    /// The body of an answer, of which nothing has been read.
    pub(crate) async fn stream(&self, path: &str, accept: &str) -> Body {
        let answer = self.answer(path, accept).await;
        assert_eq!(answer.status(), 200);
        answer.into_body()
    }

    /// An answer of which nothing has been read.
    pub(crate) async fn answer(&self, path: &str, accept: &str) -> Response<Body> {
        self.begin(Method::GET, path, &[("accept", accept)], "").await
    }

    pub(crate) async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Body> {
        self.begin_within(method, path, headers, body, |_| ()).await
    }

    /// The same, of a request whose context is changed.
    pub(crate) async fn begin_within(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
        change: impl FnOnce(&mut RequestContext),
    ) -> Response<Body> {
        let request = Request::builder().method(method).uri(path);
        let request = headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Body::from(body.into())).unwrap();
        let info = RequestInfo::parse(request.method(), request.uri()).unwrap();
        let user = self.user.clone().unwrap_or_else(|| access::usual_user(&info));
        if let Err(error) = self.access.check(&user, &info.verb, &info).await {
            let refused = status::of(&error);
            let answer = Response::builder().status(refused.code);
            return answer.body(Body::from(refused.message)).unwrap();
        }
        let mut ctx = RequestContext::internal(user, self.runtime.clone());
        change(&mut ctx);
        self.endpoints.handle(ctx, info, request).await
    }
}

/// The address of a row's objects, in a namespace of the tests where it has one.
pub(crate) fn collection(row: &ResourceRow) -> String {
    let root = match row.gvk.group.as_str() {
        "" => format!("/api/{}", row.gvk.version),
        group => format!("/apis/{group}/{}", row.gvk.version),
    };
    let place = if row.namespaced { "/namespaces/sample" } else { "" };
    format!("{root}{place}/{}", row.plural)
}

/// A file of `registry/testdata`.
pub(crate) fn testdata(file: &str) -> Result<String, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../registry/testdata");
    std::fs::read_to_string(folder.join(file)).map_err(|error| format!("registry/testdata/{file}: {error}"))
}

/// The smallest object of a row, as YAML of the row's version.
pub(crate) fn sample(row: &ResourceRow) -> Result<String, String> {
    let group = if row.gvk.group.is_empty() {
        "core"
    } else {
        &row.gvk.group
    };
    let text = testdata(&format!("{group}/{}.yaml", row.gvk.kind.to_lowercase()))?;
    let at = text.find("apiVersion: ").ok_or("the object has no apiVersion")? + "apiVersion: ".len();
    let end = at
        + text[at..]
            .find([',', '\n'])
            .ok_or("the object ends at its apiVersion")?;
    Ok(format!(
        "{}{}{}",
        &text[..at],
        row.gvk.api_version(),
        &text[end..]
    ))
}
