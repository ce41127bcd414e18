//! The same server without a socket: a tower service that acts as one user.

use crate::entry::RequestEntry;
use crate::exchange::Peer;
use apiserver_endpoints::{Body, BodyError};
use bytes::Bytes;
use futures::future::BoxFuture;
use machinery_meta::UserInfo;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The transport of a `kube::Client` in this process. Requests pass every filter; only the identity is given instead
/// of proven.
#[derive(Clone)]
pub struct LocalService {
    front: RequestEntry,
    user: Arc<UserInfo>,
}

impl fmt::Debug for LocalService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalService")
            .field("user", &self.user.name)
            .finish_non_exhaustive()
    }
}

impl LocalService {
    pub(crate) fn new(front: RequestEntry, user: UserInfo) -> Self {
        Self {
            front,
            user: Arc::new(user),
        }
    }
}

impl<B> tower::Service<http::Request<B>> for LocalService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let peer = Peer {
            identity: Some(Arc::clone(&self.user)),
            ..Peer::default()
        };
        let answer = self.front.handle(request.map(Body::wrap), peer);
        Box::pin(async move { Ok(answer.await) })
    }
}
