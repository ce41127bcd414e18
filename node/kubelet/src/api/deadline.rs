//! Requests of the node to the API server: their name, by which its fields are owned as upstream's are, and their deadlines. One that has gone without a word, or does not answer, costs a request its
//! time and no worker its life.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::Client;
use kube::client::Body;
use machinery_runtime::Runtime;
use tower::{BoxError, Service};

use crate::metrics::requests::ClientMetrics;

/// The server bounds its own work at 34 seconds, lists at 60.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// A watch lives as long as its timeout, and so much longer.
const WATCH_MARGIN: Duration = Duration::from_secs(30);

/// Name of the node's requests; field managers take theirs from it.
const NAME: HeaderValue = HeaderValue::from_static("kubelet");

/// The same client, whose requests have a name and end.
pub(crate) fn bounded(client: Client, runtime: Runtime, metrics: ClientMetrics) -> Client {
    let namespace = client.default_namespace().to_owned();
    let bounded = Bounded {
        client,
        runtime,
        metrics,
    };
    Client::new(bounded, namespace)
}

#[derive(Clone)]
struct Bounded {
    client: Client,
    runtime: Runtime,
    metrics: ClientMetrics,
}

impl Service<Request<Body>> for Bounded {
    type Response = Response<BoundedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().entry(USER_AGENT).or_insert(NAME);
        let life = life_of(request.uri().query().unwrap_or_default());
        let Self {
            client,
            runtime,
            metrics,
        } = self.clone();
        let (method, began) = (request.method().clone(), runtime.monotonic());
        Box::pin(async move {
            let answer = runtime.timeout(ANSWER_TIMEOUT, client.send(request)).await;
            let code = answer.as_ref().ok().and_then(|answer| answer.as_ref().ok());
            let code = code.map(|answer| answer.status().as_u16());
            metrics.answered(method.as_str(), began, code);
            let answer = answer.map_err(|_| "the API server does not answer")??;
            let deadline = runtime.sleep(life);
            Ok(answer.map(|body| BoundedBody { body, deadline }))
        })
    }
}

/// Longest duration of an answer, from the query of its request.
fn life_of(query: &str) -> Duration {
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let is_watch = value("watch").is_some_and(|value| value != "false" && value != "0");
    let seconds = value("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
    match seconds.filter(|_| is_watch) {
        Some(seconds) => Duration::from_secs(seconds) + WATCH_MARGIN,
        None => ANSWER_TIMEOUT,
    }
}

/// A body that breaks where it has not ended in time.
struct BoundedBody {
    body: Body,
    deadline: BoxFuture<'static, ()>,
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match this.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err("the API server's answer does not end".into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_live_longer_than_other_answers() {
        for (query, seconds) in [
            ("", 65),
            ("limit=500", 65),
            ("timeoutSeconds=290", 65),
            ("&watch=true&timeoutSeconds=290&resourceVersion=1", 320),
            ("watch=false&timeoutSeconds=290", 65),
        ] {
            assert_eq!(life_of(query), Duration::from_secs(seconds), "{query}");
        }
    }

    #[tokio::test]
    async fn requests_are_the_kubelets() {
        let shown = |request: Request<Body>| async move {
            let name = request.headers()[USER_AGENT].to_str().unwrap();
            let text = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
            Ok::<_, BoxError>(Response::new(Body::from(text.into_bytes())))
        };
        let runtime = Runtime::real();
        let metrics = ClientMetrics::new(&runtime, "api:6443");
        let client = Client::new(tower::service_fn(shown), "default");
        let client = bounded(client, runtime.clone(), metrics);
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::all(client);
        assert_eq!(
            pods.get("p").await.unwrap().metadata.name.as_deref(),
            Some("kubelet")
        );
        let counted = r#"rest_client_requests_total{code="200",host="api:6443",method="GET"} 1"#;
        assert!(runtime.metrics().text().contains(counted));
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_gets_no_answer_ends() {
        let silent = |_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>();
        let client = Client::new(tower::service_fn(silent), "default");
        let runtime = Runtime::real();
        let metrics = ClientMetrics::new(&runtime, "api:6443");
        let client = bounded(client, runtime.clone(), metrics);
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::all(client);
        pods.get("p").await.unwrap_err();
        let counted = r#"rest_client_requests_total{code="<error>",host="api:6443",method="GET"} 1"#;
        assert!(runtime.metrics().text().contains(counted));
    }
}
