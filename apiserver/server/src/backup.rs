//! `GET /knarr/storage/backup`: the state of storage as of now, in one stream.
//!
//! It holds every object, Secrets included, so it needs a right to this path that of the bootstrap roles only
//! `cluster-admin` has. One is made at a time, and its reader must keep a pace: what it pins is released within minutes.

use crate::exchange::{RequestExchange, Response};
use crate::filters::refuse_request;
use crate::state::ServerState;
use apiserver_endpoints::{ApiError, Body, FrameSource, ReadingPace, paced};
use apiserver_registry::RegistryError;
use apiserver_storage::{Backup, StorageError};
use bytes::Bytes;
use http::{HeaderValue, Method};

pub(crate) const PATH: &str = "/knarr/storage/backup";
/// `Retry-After` of a request for a backup while another one is being made.
const RETRY_SECONDS: u32 = 5;

struct Pieces(Backup);

impl FrameSource for Pieces {
    fn next_frame(&mut self) -> Option<Bytes> {
        self.0.next_piece()
    }

    fn remaining_bytes(&self) -> Option<u64> {
        None
    }
}

pub(crate) fn answer(core: &ServerState, exchange: &RequestExchange) -> Response {
    let refused = |error: ApiError| refuse_request(exchange, &error);
    if *exchange.request.method() != Method::GET {
        return refused(ApiError::MethodNotAllowed);
    }
    let backup = match core.registry.stored().backup() {
        Ok(Some(backup)) => backup,
        Ok(None) => {
            let why = "objects are stored in etcd: make a snapshot of it with etcdctl";
            return refused(RegistryError::BadRequest(why.to_owned()).into());
        }
        Err(error @ StorageError::Busy) => {
            let busy = RegistryError::TooManyRequests {
                message: error.to_string(),
                seconds: RETRY_SECONDS,
                causes: Vec::new(),
            };
            return refused(busy.into());
        }
        Err(error) => return refused(RegistryError::Internal(error.to_string()).into()),
    };
    tracing::info!(revision = %backup.revision(), objects = backup.objects(), "a backup is being read");
    let revision = HeaderValue::from(backup.revision().0);
    let bytes = usize::try_from(backup.estimated_bytes()).unwrap_or(usize::MAX);
    let pace = ReadingPace::of(bytes, core.config.answer_pace_interval);
    let mut response = Response::new(paced(Body::frames(Pieces(backup)), pace, &core.runtime));
    let headers = response.headers_mut();
    let form = HeaderValue::from_static("application/octet-stream");
    headers.insert(http::header::CONTENT_TYPE, form);
    headers.insert("x-knarr-revision", revision);
    response
}
