//! A fence in time: nothing is changed in the name of a leader whose time is over.

use bytes::Bytes;
use controllers_manager::leader_election::Leadership;
use futures::future::BoxFuture;
use http::Method;
use http_body::Body as HttpBody;
use std::task::{Context, Poll};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Lets changes through while the leadership holds. A leader that was paused, or whose loops take their time to end, is
/// stopped here before it is stopped there.
#[derive(Debug, Clone)]
pub(crate) struct Fenced<S> {
    inner: S,
    leadership: Leadership,
}

#[derive(Debug, thiserror::Error)]
#[error("this server is no longer the leader")]
struct NotTheLeader;

impl<S> Fenced<S> {
    pub(crate) fn new(inner: S, leadership: Leadership) -> Self {
        Self { inner, leadership }
    }
}

impl<S, B, R> tower::Service<http::Request<B>> for Fenced<S>
where
    S: tower::Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if request.method() != Method::GET && !self.leadership.holds() {
            return Box::pin(async { Err(NotTheLeader.into()) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}
