//! Bodies of requests that note whether they were read to their end, for [`machinery_runtime::LingeringClose`].
//!
//! A request is often answered without its body (401, 403, 429). The rest of the body is read then, as Go's server does
//! it, so that the connection serves the client's next request.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use machinery_runtime::{Runtime, UnreadFlag};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Bytes of a body that are read after the answer is known (`maxPostHandlerReadBytes` of Go's `net/http`).
const MAX_REST_BYTES: u64 = 256 << 10;
/// Longest wait of an answer for the rest of a body; the connection ends then.
const REST_WITHIN: Duration = Duration::from_secs(1);

/// A request's body that notes its end, and leaves what was not read of it.
pub(crate) struct TrackedBody {
    /// `None` once it is left.
    body: Option<Incoming>,
    unread: UnreadFlag,
    rest: Rest,
}

/// The unread part of a request's body.
#[derive(Clone, Default)]
pub(crate) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl TrackedBody {
    pub(crate) fn new(body: Incoming, unread: &UnreadFlag, rest: &Rest) -> Self {
        Self {
            body: Some(body),
            unread: unread.clone(),
            rest: rest.clone(),
        }
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        *self.rest.0.lock() = rest;
    }
}

impl Rest {
    /// Reads what is left, where that is little and comes soon.
    pub(crate) async fn read(&self, unread: &UnreadFlag, runtime: &Runtime) {
        let left = self.0.lock().take();
        let Some(mut body) = left.filter(|body| body.size_hint().lower() <= MAX_REST_BYTES) else {
            return;
        };
        let reading = async {
            let mut bytes = 0;
            while bytes <= MAX_REST_BYTES {
                match body.frame().await {
                    None => return unread.body_read(),
                    Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
                    Some(Err(_)) => return,
                }
            }
        };
        let _ = runtime.timeout(REST_WITHIN, reading).await;
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        if frame.is_none() || body.is_end_stream() {
            self.unread.body_read();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, Incoming::size_hint)
    }
}
