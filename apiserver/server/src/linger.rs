//! Bodies of requests that note whether they were read to their end, for [`machinery_runtime::Lingering`].

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use machinery_runtime::Unread;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A request's body that notes its end.
pub(crate) struct Noted {
    body: Incoming,
    unread: Unread,
}

impl Noted {
    pub(crate) fn new(body: Incoming, unread: &Unread) -> Self {
        Self {
            body,
            unread: unread.clone(),
        }
    }
}

impl Body for Noted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.unread.body_read();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
