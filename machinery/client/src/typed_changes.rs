//! Changes of the objects of a source, decoded and handed on: for readers with a store of their own.
//!
//! The loop is the reflector's, as that of informers; nothing is kept here.

use crate::client::Client;
use crate::error::ClientError;
use crate::object::RawObject;
use crate::reflector::{self, Sink};
use crate::resource::ListWatch;
use machinery_meta::{ObjectHeader, Revision};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

/// Change that a reader receives.
#[derive(Debug)]
pub enum TypedChange<K> {
    /// Everything there is; what was known before and is in neither has gone.
    All {
        /// The objects.
        objects: Vec<K>,
        /// Headers of those that cannot be decoded; what was known of them stands.
        unread: Vec<ObjectHeader>,
    },
    /// An object appeared or changed.
    Set(K),
    /// An object appeared or changed, and cannot be decoded; what was known of it stands.
    Unread(ObjectHeader),
    /// An object has gone; its last state may be one that cannot be decoded.
    Gone(ObjectHeader),
    /// The objects could not be listed or watched; the last state stands and the next attempt comes later.
    Failed(String),
}

/// Follows a source until the future is dropped.
pub async fn follow<K, F>(client: &Client, source: ListWatch, apply: F)
where
    K: DeserializeOwned + Send + 'static,
    F: FnMut(TypedChange<K>) + Send,
{
    let reader: Arc<Reader<K, F>> = Arc::new(Reader {
        source: source.clone(),
        apply: Mutex::new(apply),
        kind: PhantomData,
    });
    let sink: Arc<dyn Sink + '_> = reader;
    let weak: Weak<dyn Sink + '_> = Arc::downgrade(&sink);
    reflector::run(client.clone(), client.runtime().clone(), source, weak).await;
    drop(sink);
}

struct Reader<K, F> {
    source: ListWatch,
    apply: Mutex<F>,
    kind: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned, F: FnMut(TypedChange<K>) + Send> Reader<K, F> {
    /// The object; the log names it and no more, since it may be a Secret.
    fn decode(&self, object: &RawObject) -> Option<K> {
        if object.is_partial {
            return None;
        }
        let decoded = crate::json::from_slice(&object.bytes.joined());
        if decoded.is_err() {
            let (resource, key) = (&self.source.resource, &object.header.key);
            tracing::warn!(%resource, %key, "an object that cannot be decoded was left out");
        }
        decoded.ok()
    }

    fn apply(&self, change: TypedChange<K>) {
        (self.apply.lock())(change);
    }
}

impl<K: DeserializeOwned, F: FnMut(TypedChange<K>) + Send> Sink for Reader<K, F> {
    fn upsert(&self, object: RawObject) {
        match self.decode(&object) {
            Some(object) => self.apply(TypedChange::Set(object)),
            None => self.apply(TypedChange::Unread(Arc::unwrap_or_clone(object.header))),
        }
    }

    fn delete(&self, object: RawObject) {
        self.apply(TypedChange::Gone(Arc::unwrap_or_clone(object.header)));
    }

    fn replace(&self, objects: Vec<RawObject>) {
        let (mut decoded, mut unread) = (Vec::new(), Vec::new());
        for object in objects {
            match self.decode(&object) {
                Some(own) => decoded.push(own),
                None => unread.push(Arc::unwrap_or_clone(object.header)),
            }
        }
        self.apply(TypedChange::All {
            objects: decoded,
            unread,
        });
    }

    fn reached(&self, _: Revision) {}

    fn reads_objects(&self) -> bool {
        true
    }

    fn answered(&self, _: bool) {}

    fn forget(&self) {
        self.replace(Vec::new());
    }

    fn failed(&self, error: &ClientError) {
        self.apply(TypedChange::Failed(error.chain()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::StreamExt;
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use machinery_runtime::Simulation;

    /// Answers to the requests of a reader, the last of which never ends: a code, and lines.
    const ANSWERS: [(u16, &str); 3] = [
        (
            403,
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not yours"}"#,
        ),
        (
            200,
            concat!(
                r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"},"data":{"k":"v"}}}"#,
                "\n",
                r#"{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"1"},"data":{"k":7}}}"#,
                "\n",
                r#"{"type":"ADDED","object":{"metadata":{"name":"c","labels":7,"resourceVersion":"1"}}}"#,
                "\n",
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
                "\n",
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"2","#,
                r#""deletionTimestamp":"2026-11-29T01:00:00Z"},"data":{"k":7}}}"#,
                "\n",
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"3"},"data":{"k":"w"}}}"#,
                "\n",
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"4","labels":7,"#,
                r#""deletionTimestamp":"2026-11-29T01:00:00Z"},"data":{"k":"w"}}}"#,
                "\n",
                r#"{"type":"DELETED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"5","labels":7},"data":{}}}"#,
                "\n",
            ),
        ),
        (200, ""),
    ];

    #[test]
    fn follow_delivers_failures_objects_and_their_ends() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let changes = simulation.run(async move {
            let mut answers = ANSWERS.into_iter();
            let (done, all_requested) = futures::channel::oneshot::channel::<()>();
            let mut done = Some(done);
            let server = tower::service_fn(move |_: http::Request<Body>| {
                let (code, text) = answers.next().unwrap_or((200, ""));
                let frame =
                    Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(text.as_bytes())));
                let frames = futures::stream::iter([frame]);
                let body = match text {
                    "" => {
                        drop(done.take());
                        frames.chain(futures::stream::pending()).boxed()
                    }
                    _ => frames.boxed(),
                };
                let answer = http::Response::builder().status(code);
                let answer = answer.body(StreamBody::new(body)).unwrap();
                async move { Ok::<_, std::convert::Infallible>(answer) }
            });
            let client = Client::in_process(server, runtime);
            let changes = Arc::new(Mutex::new(Vec::new()));
            let own = Arc::clone(&changes);
            let value = |map: ConfigMap| map.data.unwrap_or_default()["k"].clone();
            let apply = move |change: TypedChange<ConfigMap>| {
                own.lock().push(match change {
                    TypedChange::All { objects, unread } => {
                        let values: Vec<_> = objects.into_iter().map(value).collect();
                        let unread: Vec<_> = unread.iter().map(|own| &*own.key.name).collect();
                        format!("all {values:?}, and {unread:?}")
                    }
                    TypedChange::Set(map) => format!("set {}", value(map)),
                    TypedChange::Unread(header) => {
                        let ends = header.deletion_timestamp.is_some();
                        format!("unread {} {}, ends: {ends}", header.key, header.uid.0)
                    }
                    TypedChange::Gone(header) => format!("gone {} {}", header.key, header.uid.0),
                    TypedChange::Failed(why) => why,
                });
            };
            tokio::select! { biased;
                () = follow(&client, ListWatch::of::<ConfigMap>(), apply) => {}
                _ = all_requested => {}
            }
            std::mem::take(&mut *changes.lock())
        });
        // What an object that cannot be decoded says is not repeated; it is there all the same, and may go.
        let expected = [
            "not yours",
            "all [\"v\"], and [\"b\", \"c\"]",
            "unread a u, ends: true",
            "set w",
            "unread a u, ends: true",
            "gone a u",
        ];
        assert_eq!(changes, expected);
    }
}
