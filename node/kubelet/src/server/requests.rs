//! Requests of one connection that were admitted and are not answered to the end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::response::Body;
use crate::metrics::requests::ServedRequest;

/// Their count, shared by the connection and what bounds connections.
#[derive(Debug, Default, Clone)]
pub(crate) struct OpenRequests(Arc<AtomicUsize>);

/// One of them, as long as it is kept.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    of: OpenRequests,
    /// The same request in the figures of the server.
    served: Option<ServedRequest>,
}

impl OpenRequests {
    /// Counts one more.
    pub(crate) fn begin(&self) -> OpenRequest {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenRequest {
            of: self.clone(),
            served: None,
        }
    }

    /// Reports whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl OpenRequest {
    /// Counts it in the figures, too, as long as it is kept.
    pub(crate) fn counted(self, served: ServedRequest) -> Self {
        let mut own = self;
        own.served = Some(served);
        own
    }

    /// Counts it until the answer is sent or abandoned.
    pub(crate) fn until_answered(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Answer { body, _request: self }.boxed_unsync())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.of.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body as it was, with its request.
struct Answer {
    body: Body,
    _request: OpenRequest,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
    use super::super::response::text;
    use super::*;
    use http::StatusCode;

    #[test]
    fn request_is_open_until_its_answer_is_dropped() {
        let requests = OpenRequests::default();
        let answer = requests.begin().until_answered(text(StatusCode::OK, "words"));
        assert!(requests.any());
        assert_eq!(answer.body().size_hint().exact(), Some(5), "the length is said");
        drop(answer);
        assert!(!requests.any());
    }
}
