//! Documents of extensions: requests for them, bounded in time and size, and the last ones that came.

use super::table::Extension;
use super::{Aggregation, identity};
use crate::proxy_headers::insert;
use apiserver_egress::OutgoingBody;
use apiserver_endpoints::{ExtensionResource, OpenApiV2};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use machinery_meta::UserInfo;
use std::sync::Arc;
use std::time::Duration;

const MAX_TAG_BYTES: usize = 256;

/// The users as whom this server asks extensions, as upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// May read whatever is there.
    Aggregator,
    /// Reads what every user may.
    Documents,
}

impl Caller {
    fn user(self) -> UserInfo {
        match self {
            Self::Aggregator => UserInfo::named("system:kube-aggregator", [UserInfo::MASTERS]),
            Self::Documents => UserInfo::named::<&str>("system:aggregator", []),
        }
    }
}

/// A request for a document; `accept` may be empty.
pub(super) fn request(path: &str, accept: &str, caller: Caller) -> Result<Request<OutgoingBody>, String> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::get(path);
    if !accept.is_empty() {
        request = request.header(ACCEPT, accept);
    }
    let mut request = request.body(body).map_err(|error| error.to_string())?;
    identity::set_user(request.headers_mut(), &caller.user()).map_err(|error| error.to_string())?;
    Ok(request)
}

/// A document that is requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) path: &'a str,
    pub(super) accept: &'a str,
    pub(super) caller: Caller,
    /// The tag of the copy that is there; empty without one.
    pub(super) etag: &'a str,
    pub(super) limit: usize,
    /// Time for all of it.
    pub(super) within: Duration,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    fn header(&self, name: http::HeaderName) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    pub(super) fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE)
    }

    /// The tag of the document; empty without one, and where it is longer than any needs to be.
    pub(super) fn etag(&self) -> &str {
        Some(self.header(ETAG))
            .filter(|tag| tag.len() <= MAX_TAG_BYTES)
            .unwrap_or_default()
    }
}

impl Aggregation {
    /// Asks an extension for a document.
    pub(super) async fn fetch(&self, extension: &Extension, wanted: Wanted<'_>) -> Result<Answer, String> {
        let target = extension.target.as_ref().map_err(ToString::to_string)?;
        let mut request = request(wanted.path, wanted.accept, wanted.caller)?;
        insert(request.headers_mut(), IF_NONE_MATCH, wanted.etag);
        let fetching = async {
            let answer = self.client.send(target, request).await;
            let (parts, body) = answer.map_err(|error| error.to_string())?.into_parts();
            let body = Limited::new(body, wanted.limit).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        let fetched = self.runtime.timeout(wanted.within, fetching).await;
        fetched.unwrap_or_else(|_| Err("request timed out".to_owned()))
    }
}

/// The last documents of an extension.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    discovery: ArcSwap<Discovered>,
    openapi_v3: ArcSwap<Option<Arc<str>>>,
    openapi_v2: ArcSwap<Option<TaggedV2>>,
}

/// A document with the tag that its server gave it.
#[derive(Debug, Clone)]
pub(super) struct TaggedV2 {
    pub(super) part: OpenApiV2,
    pub(super) etag: String,
}

/// Resources of the group version, from the extension's last answer.
#[derive(Debug, Default)]
struct Discovered {
    resources: Arc<[ExtensionResource]>,
    is_current: bool,
}

impl Documents {
    /// Resources, and whether the last request for them was answered.
    pub(super) fn resources(&self) -> (Arc<[ExtensionResource]>, bool) {
        let own = self.discovery.load();
        (Arc::clone(&own.resources), own.is_current)
    }

    /// Replaces the resources; reports whether anything changed.
    pub(super) fn set_resources(&self, resources: Arc<[ExtensionResource]>) -> bool {
        let before = self.resources();
        let changed = !before.1 || before.0 != resources;
        self.discovery.store(Arc::new(Discovered {
            resources,
            is_current: true,
        }));
        changed
    }

    /// Notes that a request was not answered; what is known is stale. Reports whether that is new.
    pub(super) fn set_stale(&self) -> bool {
        let (resources, was_current) = self.resources();
        self.discovery.store(Arc::new(Discovered {
            resources,
            is_current: false,
        }));
        was_current
    }

    /// The address of the OpenAPI v3 document, where the extension has one.
    pub(super) fn openapi_v3(&self) -> Option<Arc<str>> {
        (**self.openapi_v3.load()).clone()
    }

    /// Reports whether that is another than before.
    pub(super) fn set_openapi_v3(&self, address: Option<Arc<str>>) -> bool {
        let changed = self.openapi_v3() != address;
        self.openapi_v3.store(Arc::new(address));
        changed
    }

    /// The part of the OpenAPI v2 document, where the extension has one.
    pub(super) fn openapi_v2(&self) -> Arc<Option<TaggedV2>> {
        self.openapi_v2.load_full()
    }

    /// Reports whether that is another than before.
    pub(super) fn set_openapi_v2(&self, document: Option<TaggedV2>) -> bool {
        let before = self.openapi_v2();
        let digest = |own: &Option<TaggedV2>| own.as_ref().map(|own| Arc::clone(&own.part.digest));
        let changed = digest(&before) != digest(&document);
        self.openapi_v2.store(Arc::new(document));
        changed
    }
}
