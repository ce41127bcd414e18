//! Answers of a container runtime, for tests.

use http_body_util::{BodyExt as _, Full};
use tonic::body::Body;

/// An answer that says nothing but that all went well.
pub(crate) fn empty_message() -> http::Response<Body> {
    let mut status = http::HeaderMap::new();
    status.insert("grpc-status", http::HeaderValue::from_static("0"));
    // No compression, and no bytes.
    let body = Full::new(bytes::Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(status)) });
    let mut answer = http::Response::new(Body::new(body));
    let grpc = http::HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert("content-type", grpc);
    answer
}
