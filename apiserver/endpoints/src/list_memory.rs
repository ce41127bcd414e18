//! How much memory answers in the making may take, over all requests.
//!
//! A list of stored slices is framed while it is sent and weighs its references only. Every other form (tables, YAML,
//! protobuf, indented JSON) is made as a whole: it weighs the bytes it is made from and those it becomes. The permit
//! travels with the answer's body, so that a client that reads slowly is counted until it has read.

use crate::body::Body;
use apiserver_registry::{ListPage, RegistryError};
use http::Response;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in pieces of this size.
const PIECE_BYTES: usize = 1_024;
/// A copied list is there twice at its worst: as it was joined, and as the form that is made from it.
const COPIES: usize = 2;
/// One entry of a page that is framed on demand.
const REFERENCE_BYTES: usize = 16;
/// Lists come back soon; waiting costs a client less than a failure.
const RETRY_SECONDS: u32 = 1;

/// See the module.
#[derive(Debug, Clone)]
pub struct ListMemory {
    free: Arc<Semaphore>,
    pieces: u32,
}

impl ListMemory {
    /// Room for so many bytes.
    pub fn of(bytes: usize) -> Self {
        let pieces = u32::try_from(bytes / PIECE_BYTES).unwrap_or(u32::MAX).max(1);
        let free = Arc::new(Semaphore::new(usize::try_from(pieces).unwrap_or(usize::MAX)));
        Self { free, pieces }
    }

    /// Room for one page, or an answer that says when to come again. What is larger than all there is gets all of it.
    pub(crate) fn admit(&self, page: &ListPage, copied: bool) -> Result<Admitted, RegistryError> {
        let pieces = self.pieces_of(page, copied);
        let permit = Arc::clone(&self.free).try_acquire_many_owned(pieces);
        permit.map(Admitted).map_err(|_| RegistryError::TooManyRequests {
            message: "Too many requests, please try again later.".to_owned(),
            seconds: RETRY_SECONDS,
            causes: Vec::new(),
        })
    }

    /// The same for an answer that cannot be refused any more, since what it tells of is done: waits for the room.
    pub(crate) async fn admit_in_turn(
        &self,
        page: &ListPage,
        copied: bool,
    ) -> Result<Admitted, RegistryError> {
        let pieces = self.pieces_of(page, copied);
        let permit = Arc::clone(&self.free).acquire_many_owned(pieces).await;
        permit
            .map(Admitted)
            .map_err(|_| RegistryError::Unavailable("the server is stopping".to_owned()))
    }

    fn pieces_of(&self, page: &ListPage, copied: bool) -> u32 {
        let bytes: usize = if copied {
            page.entries.iter().map(|entry| entry.record.len() * COPIES).sum()
        } else {
            page.entries.len() * REFERENCE_BYTES
        };
        let pieces = u32::try_from(bytes / PIECE_BYTES).unwrap_or(u32::MAX);
        pieces.min(self.pieces)
    }
}

/// Room that was given; it is free again when the answer has been sent or given up.
#[derive(Debug)]
pub(crate) struct Admitted(OwnedSemaphorePermit);

impl Admitted {
    pub(crate) fn with(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| body.holding(self.0))
    }
}
