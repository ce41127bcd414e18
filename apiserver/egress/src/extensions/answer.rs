//! The body of an answer, with the connection that it comes over.

use super::{Connection, ExtensionTarget};
use http::Response;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::upgrade::{self, OnUpgrade};
use machinery_runtime::Runtime;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A connection that may wait for the next request.
pub(super) struct GiveBack {
    pub(super) connection: Connection,
    pub(super) target: Arc<ExtensionTarget>,
    pub(super) runtime: Runtime,
}

/// See the module.
pub struct ExtensionAnswer {
    body: Incoming,
    has_ended: bool,
    give_back: Option<GiveBack>,
}

impl fmt::Debug for ExtensionAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtensionAnswer")
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl ExtensionAnswer {
    pub(super) fn new(body: Incoming, give_back: GiveBack) -> Self {
        Self {
            body,
            has_ended: false,
            give_back: Some(give_back),
        }
    }

    /// The connection of an answer that switches protocols.
    pub fn upgrade(response: Response<Self>) -> (Response<()>, OnUpgrade) {
        let (parts, mut answer) = response.into_parts();
        // It serves no further request.
        answer.give_back = None;
        let mut response = Response::from_parts(parts, ());
        let switched = upgrade::on(&mut response);
        (response, switched)
    }
}

impl Body for ExtensionAnswer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.has_ended = true;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ExtensionAnswer {
    fn drop(&mut self) {
        let is_over = self.has_ended || self.body.is_end_stream();
        let Some(own) = self.give_back.take().filter(|_| is_over) else {
            return;
        };
        let now = own.runtime.monotonic();
        own.target.pool().keep(own.connection, now);
    }
}
