//! A body whose client must read on.
//!
//! Nobody polls a body whose client does not read: the connection waits for room to send. So a task looks after each of
//! these bodies and drops what is left of one that does not keep the pace; its client is told by a broken stream.

use crate::body::{Body, BodyError};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use machinery_runtime::{Runtime, TaskHandle};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// No client needs to be faster than this in an interval.
const LEAST_BYTES: usize = 16 << 10;
/// A large body has this many intervals at most.
const INTERVALS: usize = 64;

/// How much of a body is to be read in each interval.
#[derive(Debug, Clone, Copy)]
pub struct ReadingPace {
    bytes: usize,
    interval: Duration,
}

impl ReadingPace {
    /// That of a body of about this size.
    pub fn of(bytes: usize, interval: Duration) -> Self {
        Self {
            bytes: (bytes / INTERVALS).max(LEAST_BYTES),
            interval,
        }
    }
}

/// The same body, dropped once its client falls behind.
pub fn paced(body: Body, pace: ReadingPace, runtime: &Runtime) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let rest = Arc::new(Mutex::new(Rest {
        body: Some(body),
        read: 0,
    }));
    let watching = runtime.spawn("paced-body", watch(Arc::downgrade(&rest), pace, runtime.clone()));
    Body::paced(PacedBody { rest, watching })
}

struct Rest {
    /// `None` once it was given up.
    body: Option<Body>,
    read: usize,
}

async fn watch(rest: Weak<Mutex<Rest>>, pace: ReadingPace, runtime: Runtime) {
    let mut due = pace.bytes;
    loop {
        runtime.sleep(pace.interval).await;
        let Some(rest) = rest.upgrade() else { return };
        let mut rest = rest.lock();
        // For what is not made yet no client waits of its own accord.
        if rest.body.as_ref().is_some_and(Body::is_in_the_making) {
            continue;
        }
        if rest.read < due {
            tracing::debug!(
                read = rest.read,
                "response abandoned: the client reads too slowly"
            );
            rest.body = None;
            return;
        }
        due = rest.read + pace.bytes;
    }
}

pub(crate) struct PacedBody {
    rest: Arc<Mutex<Rest>>,
    watching: TaskHandle<()>,
}

impl PacedBody {
    /// Replaces the body by another form of it.
    pub(crate) fn change(&self, change: impl FnOnce(Body) -> Body) {
        let mut rest = self.rest.lock();
        rest.body = rest.body.take().map(change);
    }
}

impl http_body::Body for PacedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut rest = self.rest.lock();
        let Some(body) = &mut rest.body else {
            return Poll::Ready(Some(Err("the answer was read too slowly".into())));
        };
        let frame = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            rest.read += frame.data_ref().map_or(0, Bytes::len);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.rest.lock().body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.rest
            .lock()
            .body
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for PacedBody {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    const INTERVAL: Duration = Duration::from_secs(5);

    fn large_body(pieces: usize, runtime: &Runtime) -> (Body, Arc<()>) {
        let held = Arc::new(());
        let chunks = (0..pieces).map(|_| Bytes::from(vec![b'x'; LEAST_BYTES]));
        let body = Body::chunks(chunks).holding(Arc::clone(&held));
        (paced(body, ReadingPace::of(0, INTERVAL), runtime), held)
    }

    #[test]
    fn paced_body_is_read_whole_by_a_client_that_keeps_the_pace() {
        let simulation = machinery_runtime::Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let (mut body, held) = large_body(9, &runtime);
            let mut read = 0;
            while let Some(frame) = body.frame().await {
                read += frame.unwrap().data_ref().unwrap().len();
                runtime.sleep(INTERVAL * 9 / 10).await;
            }
            assert_eq!(read, 9 * LEAST_BYTES);
            drop(body);
            assert_eq!(Arc::strong_count(&held), 1);
        });
    }

    #[test]
    fn paced_body_not_read_is_abandoned() {
        let simulation = machinery_runtime::Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let (mut body, held) = large_body(9, &runtime);
            assert!(body.frame().await.unwrap().is_ok());
            runtime.sleep(INTERVAL * 3).await;
            assert_eq!(
                Arc::strong_count(&held),
                1,
                "the memory is free while the client still has the stream"
            );
            assert!(body.frame().await.unwrap().is_err());
        });
    }
}
