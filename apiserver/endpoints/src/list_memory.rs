//! Memory of lists, and of large objects in other forms than the stored one, in the making and on their way, over all requests.
//!
//! A list of stored slices is framed while it is sent and weighs its references only; its objects are counted by
//! [`crate::unread_memory`]. Every other form (tables, YAML,
//! protobuf, indented JSON) is made as a whole: it weighs the bytes it is made from and those it becomes. The memory goes
//! with the answer's body until the client has read it. One user has a part of all, and a client that does not keep the
//! pace of reading loses its answer, so that unread lists keep no other client from its own for long.

use crate::body::Body;
use crate::error::ApiError;
use crate::memory_shares::{HeldMemory, MemoryShares};
use crate::paced_body::{self, ReadingPace};
use crate::waiting_answers::WaitingAnswers;
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::{ListPage, RegistryError, RequestContext, UserClass};
use http::Response;
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// A copied list is there twice at its worst: as it was joined, and as the form that is made from it.
const COPIES: usize = 2;
/// One entry of a page that is framed on demand.
const REFERENCE_BYTES: usize = 16;
/// Part of all memory that one user may hold.
const PART_OF_USER: usize = 4;
/// Part of a user's part that is left for lists that are framed while they are sent.
const PART_OF_FRAMED: usize = 8;

/// See the module.
#[derive(Debug, Clone)]
pub struct ListMemory {
    shares: Arc<MemoryShares>,
    waiting: Arc<WaitingAnswers>,
    pace_interval: Duration,
}

impl ListMemory {
    /// Room for so many bytes; in each interval a client must read on.
    pub fn new(bytes: usize, pace_interval: Duration) -> Self {
        Self {
            shares: MemoryShares::new(bytes, bytes / PART_OF_USER),
            waiting: Arc::default(),
            pace_interval,
        }
    }

    /// Answers that wait for room.
    pub(crate) fn waiting(&self) -> &Arc<WaitingAnswers> {
        &self.waiting
    }

    /// Room for one page, or an answer that says when to come again. A page larger than all a user may have gets all of
    /// that.
    pub(crate) fn admit(
        &self,
        ctx: &RequestContext,
        page: &ListPage,
        copied: bool,
    ) -> Result<Admitted, RegistryError> {
        let (held, bytes) = self.hold(ctx, page, copied);
        self.grown(ctx, held, bytes, copied)
    }

    /// The same for one object of so many bytes, which is copied into another form.
    pub(crate) fn admit_object(&self, ctx: &RequestContext, bytes: usize) -> Result<Admitted, RegistryError> {
        let class = UserClass::of(&ctx.user);
        let held = self.shares.hold(class, &ctx.memory_owner());
        self.grown(ctx, held, (bytes * COPIES).min(self.shares.most(class)), true)
    }

    fn grown(
        &self,
        ctx: &RequestContext,
        mut held: HeldMemory,
        bytes: usize,
        copied: bool,
    ) -> Result<Admitted, RegistryError> {
        if held.grow_to(bytes) {
            return Ok(self.admitted(ctx, held, copied));
        }
        Err(RegistryError::busy())
    }

    /// The same for an answer that cannot be refused any more, since it reports what is done: waits for the room.
    ///
    /// # Errors
    /// Those of [`WaitingAnswers::wait`].
    pub(crate) async fn admit_in_turn(
        &self,
        ctx: &RequestContext,
        page: &ListPage,
        copied: bool,
    ) -> Result<Admitted, RegistryError> {
        let (mut held, bytes) = self.hold(ctx, page, copied);
        if !held.grow_to(bytes) {
            let room = held.grow_in_turn(bytes);
            self.waiting.wait(ctx, page.record_bytes(), room).await?;
        }
        Ok(self.admitted(ctx, held, copied))
    }

    /// The answer to a write, of an object of so many bytes that are copied into it. Where something was done it is not
    /// refused: a large one waits for the room.
    ///
    /// # Errors
    /// [`RegistryError::TooManyRequests`] where nothing was done, and those of [`WaitingAnswers::wait`].
    pub(crate) async fn answer_in_turn(
        &self,
        ctx: &RequestContext,
        (bytes, is_done): (usize, bool),
        answer: impl FnOnce() -> Result<Response<Body>, ApiError>,
    ) -> Result<Response<Body>, ApiError> {
        if bytes < LARGE_BODY_BYTES {
            return answer();
        }
        let class = UserClass::of(&ctx.user);
        let mut held = self.shares.hold(class, &ctx.memory_owner());
        let room = (bytes * COPIES).min(self.shares.most(class));
        if !held.grow_to(room) {
            if !is_done {
                return Err(RegistryError::busy().into());
            }
            self.waiting.wait(ctx, bytes, held.grow_in_turn(room)).await?;
        }
        // Where too many wait for turns it is made here.
        let _ = ctx.heavy().await;
        Ok(self.admitted(ctx, held, true).with(answer()?))
    }

    fn hold(&self, ctx: &RequestContext, page: &ListPage, copied: bool) -> (HeldMemory, usize) {
        let class = UserClass::of(&ctx.user);
        let most = self.shares.most(class);
        let bytes = if copied {
            let copies = page.entries.iter().map(|entry| entry.record.len() * COPIES);
            copies.sum::<usize>().min(most - most / PART_OF_FRAMED)
        } else {
            (page.entries.len() * REFERENCE_BYTES).min(most)
        };
        (self.shares.hold(class, &ctx.memory_owner()), bytes)
    }

    fn admitted(&self, ctx: &RequestContext, held: HeldMemory, copied: bool) -> Admitted {
        Admitted {
            held,
            pace: copied.then_some(self.pace_interval),
            runtime: ctx.runtime.clone(),
        }
    }
}

/// Room that was given; it is free again when the answer has been sent or given up.
#[derive(Debug)]
pub(crate) struct Admitted {
    held: HeldMemory,
    pace: Option<Duration>,
    runtime: Runtime,
}

impl Admitted {
    pub(crate) fn with(self, answer: Response<Body>) -> Response<Body> {
        let Some(interval) = self.pace else {
            return answer.map(|body| body.holding(self.held));
        };
        let pace = ReadingPace::of(self.held.bytes(), interval);
        answer.map(|body| paced_body::paced(body.holding(self.held), pace, &self.runtime))
    }
}
