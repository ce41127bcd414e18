//! Writes whose answers are read for the revision alone.
//!
//! A server of this process shares the record that it has stored (decision 0119), and its answer is not read. Any other answers with
//! the object, whose header is read where the revision is wanted.

use super::Client;
use super::exchange::Outgoing;
use super::paths::path_of;
use super::written::Written;
use crate::error::ClientError;
use crate::resource::ApiResource;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use machinery_meta::ObjectKey;
use serde::Serialize;

/// The verbs of a client that write.
#[derive(Debug, Clone, Copy)]
pub struct Writes<'a>(&'a Client);

impl Client {
    /// Writes whose answers are read for the revision alone.
    pub fn writes(&self) -> Writes<'_> {
        Writes(self)
    }
}

type Answering = BoxFuture<'static, Result<Written, ClientError>>;

impl Writes<'_> {
    /// Creates an object in a namespace (empty for cluster-scoped kinds).
    pub fn create(&self, resource: &ApiResource, namespace: &str, object: &impl Serialize) -> Answering {
        let path = Ok(resource.collection_path(namespace));
        self.send(Outgoing::of_body(Method::POST, path, JSON, object))
    }

    /// Posts to a subresource, such as `binding`.
    pub fn create_subresource(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        object: &impl Serialize,
    ) -> Answering {
        let path = path_of(resource, key, subresource);
        self.send(Outgoing::of_body(Method::POST, path, JSON, object))
    }

    /// Replaces an object or (where `subresource` is not empty) a part of it. Only for values that lose nothing.
    pub fn update(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        object: &impl Serialize,
    ) -> Answering {
        let path = path_of(resource, key, subresource);
        self.send(Outgoing::of_body(Method::PUT, path, JSON, object))
    }

    fn send(&self, request: Result<Outgoing, ClientError>) -> Answering {
        let client = self.0.clone();
        match request {
            Ok(request) => async move { client.again_in_time(|| client.write(&request)).await }.boxed(),
            Err(error) => async move { Err(error) }.boxed(),
        }
    }
}

const JSON: &str = "application/json";

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use machinery_meta::{Revision, SharedEvent, SharedEvents, SharedObject};
    use machinery_runtime::Simulation;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;

    /// The outcome of a create that is answered with this code and body, where the server shares an object at revision 7 or does not.
    /// `None` stands for a body that cannot be read.
    fn written(code: u16, body: Option<&'static str>, shares: bool) -> Result<Option<Revision>, ClientError> {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let server = tower::service_fn(move |request: Request<Body>| async move {
                let client = request.extensions().get::<SharedEvents>();
                if shares {
                    client.unwrap().push(SharedEvent::Set(SharedObject {
                        header: Arc::default(),
                        revision: Revision(7),
                        json: Default::default(),
                    }));
                }
                let piece = body.map(|text| http_body::Frame::data(Bytes::from_static(text.as_bytes())));
                let piece = piece.ok_or_else(|| std::io::Error::other("the body is read"));
                let body = StreamBody::new(futures::stream::iter([piece]));
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            });
            let client = Client::in_process(server, runtime);
            let pods = ApiResource::of::<Pod>();
            let made = client.writes().create(&pods, "n", &json!({})).await;
            made.map(|written| written.revision())
        })
    }

    #[test]
    fn write_has_the_revision_that_is_shared_or_sent() {
        assert_eq!(written(201, None, true).unwrap(), Some(Revision(7)));
        let sent = r#"{"metadata":{"name":"a","resourceVersion":"9"}}"#;
        assert_eq!(written(201, Some(sent), false).unwrap(), Some(Revision(9)));
        assert_eq!(written(201, Some(r#"{"kind":"Status"}"#), false).unwrap(), None);
        written(201, None, false).unwrap_err();
    }

    #[test]
    fn write_that_is_refused_fails_whatever_is_shared() {
        let refused = written(409, Some(r#"{"kind":"Status","code":409}"#), true);
        assert_eq!(refused.unwrap_err().code(), 409);
    }
}
