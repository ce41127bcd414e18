//! The verbs of the API, for any resource.

use super::exchange::Outgoing;
use super::paths::{path_of, with_query};
use super::{Client, DeleteOptions, Patch};
use crate::error::ClientError;
use crate::resource::ApiResource;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::Method;
use machinery_meta::ObjectKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Client {
    /// Reads an object, or a subresource of it.
    pub fn get(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        self.call_without_body(Method::GET, path_of(resource, key, ""))
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
        self.call_without_body(Method::GET, Ok(with_query(path, query)))
    }

    /// Reads any path in the form that `accept` names.
    pub fn get_path_as(
        &self,
        path: &str,
        accept: &'static str,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        self.answer(Outgoing {
            method: Method::GET,
            path: path.to_owned(),
            accept,
            body: None,
        })
    }

    /// Opens a stream, such as a watch or a log that is followed; dropping it ends the request.
    pub async fn stream(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<BoxStream<'static, Result<Bytes, ClientError>>, ClientError> {
        self.open(path, query, false).await.map(|opened| opened.pieces)
    }
}

/// Decodes an answer; `what` names it where it cannot be.
pub fn decode<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, ClientError> {
    crate::json::from_slice(body).map_err(|source| ClientError::Decode {
        what: what.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;

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
}
