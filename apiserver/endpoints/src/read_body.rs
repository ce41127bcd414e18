//! A body that can be ended while its handler waits for something else, and that notes whether its client reads on.

use crate::body::{Body, BodyError};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A client has read everything, and waits for what comes.
pub(crate) const READ: u64 = u64::MAX;
/// A large answer is read on when this part of it is.
const PARTS: usize = 64;
/// No client needs to read less at a time to count as one that reads on, and none needs to read more: what one of 100 KB/s reads
/// within the patience.
const LEAST_BYTES: usize = 16 << 10;
const MOST_BYTES: usize = 512 << 10;

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(READ - 1)
}

/// The unread rest of a body; it can be dropped at any moment.
#[derive(Default)]
pub(crate) struct ReadBody(Mutex<Rest>);

#[derive(Default)]
struct Rest {
    /// `None` once it was ended.
    body: Option<Body>,
    /// Wakes the connection that waits for a piece.
    waiting: Option<Waker>,
}

impl std::fmt::Debug for ReadBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadBody")
    }
}

impl ReadBody {
    /// The body to hand to the connection.
    pub(crate) fn begin(self: Arc<Self>, body: Body, pace: Option<AnswerPace>) -> Body {
        self.0.lock().body = Some(body);
        Body::read_on(ReadOn { rest: self, pace })
    }

    /// Drops what is left; `false` where it is requested just now, or waits for work of the server's own.
    pub(crate) fn end(&self) -> bool {
        let Some(mut rest) = self.0.try_lock() else {
            return false;
        };
        if rest.body.as_ref().is_none_or(Body::is_in_the_making) {
            return false;
        }
        let (body, waiting) = (rest.body.take(), rest.waiting.take());
        // What the body holds is given back without this lock.
        drop(rest);
        drop(body);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        true
    }
}

/// Notes that a client reads on, each time it has read a part of its answer.
#[derive(Debug)]
pub(crate) struct AnswerPace {
    read: usize,
    due: usize,
    part: usize,
    behind_since: Arc<AtomicU64>,
    runtime: Runtime,
}

impl AnswerPace {
    /// The pace of an answer of so many bytes.
    pub(crate) fn new(bytes: usize, behind_since: &Arc<AtomicU64>, runtime: &Runtime) -> Self {
        let part = (bytes / PARTS).clamp(LEAST_BYTES, MOST_BYTES);
        Self {
            read: 0,
            due: part,
            part,
            behind_since: Arc::clone(behind_since),
            runtime: runtime.clone(),
        }
    }

    fn read(&mut self, bytes: usize) {
        self.read += bytes;
        if self.read >= self.due {
            self.due = self.read + self.part;
            let now = nanos(self.runtime.monotonic());
            self.behind_since.store(now, Ordering::Relaxed);
        }
    }
}

/// See [`ReadBody::begin`].
pub(crate) struct ReadOn {
    rest: Arc<ReadBody>,
    pace: Option<AnswerPace>,
}

impl ReadOn {
    /// Replaces the body by another form of it.
    pub(crate) fn change(&self, change: impl FnOnce(Body) -> Body) {
        let mut rest = self.rest.0.lock();
        rest.body = rest.body.take().map(change);
    }

    pub(crate) fn is_at_hand(&self) -> bool {
        self.rest.0.lock().body.as_ref().is_none_or(Body::is_at_hand)
    }

    pub(crate) fn is_in_the_making(&self) -> bool {
        let rest = self.rest.0.lock();
        rest.body.as_ref().is_some_and(Body::is_in_the_making)
    }
}

impl http_body::Body for ReadOn {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { rest, pace } = self.get_mut();
        let mut rest = rest.0.lock();
        let Some(body) = &mut rest.body else {
            return Poll::Ready(Some(Err("the answer was not read".into())));
        };
        let frame = Pin::new(body).poll_frame(cx);
        let is_known = |waiting: &Waker| waiting.will_wake(cx.waker());
        if frame.is_pending() && !rest.waiting.as_ref().is_some_and(is_known) {
            rest.waiting = Some(cx.waker().clone());
        }
        if let (Some(pace), Poll::Ready(Some(Ok(frame)))) = (pace, &frame) {
            pace.read(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.rest.0.lock();
        rest.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.0.lock();
        rest.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
