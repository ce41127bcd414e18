//! A body whose client must read on.
//!
//! hyper polls no body whose client does not read: the connection waits for room to send. So a task looks after each of
//! these bodies and drops what is left of one that does not keep the pace; its client sees a broken stream. The time in
//! which a piece waits for its turn among the heavy work is not its client's, but neither is the memory held for ever:
//! after [`LONGEST_MAKING`] intervals without a byte the answer is given up as well.

use crate::body::{Body, BodyError};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use machinery_runtime::{Runtime, TaskHandle};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// No client needs to be faster than this in an interval.
const LEAST_BYTES: usize = 16 << 10;
/// A large body has this many intervals at most.
const INTERVALS: usize = 64;
/// Intervals that a piece may be in the making: a minute of usual ones, as long as a request may take.
const LONGEST_MAKING: u32 = 12;

/// The number of bytes of a body that its client must read in each interval.
#[derive(Debug, Clone, Copy)]
pub struct ReadingPace {
    bytes: usize,
    interval: Duration,
}

impl ReadingPace {
    /// The pace of a body of about this size.
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
    let rest = Arc::new(Mutex::new(PacedState {
        body: Some(body),
        read: 0,
        waiting: None,
    }));
    let watching = runtime.spawn("paced-body", watch(Arc::downgrade(&rest), pace, runtime.clone()));
    Body::paced(PacedBody { rest, watching })
}

struct PacedState {
    /// `None` once it was given up.
    body: Option<Body>,
    read: usize,
    /// Wakes the connection that waits for a piece.
    waiting: Option<Waker>,
}

async fn watch(rest: Weak<Mutex<PacedState>>, pace: ReadingPace, runtime: Runtime) {
    let mut due = pace.bytes;
    let (mut making, mut before) = (0, 0);
    loop {
        runtime.sleep(pace.interval).await;
        let Some(rest) = rest.upgrade() else { return };
        let mut rest = rest.lock();
        making = match std::mem::replace(&mut before, rest.read) == rest.read {
            true => making + 1,
            false => 0,
        };
        // For what is not made yet no client waits of its own accord.
        if making < LONGEST_MAKING && rest.body.as_ref().is_some_and(Body::is_in_the_making) {
            continue;
        }
        if rest.read < due {
            tracing::debug!(
                read = rest.read,
                "response abandoned: the client reads too slowly, or no piece was made in time"
            );
            rest.body = None;
            if let Some(waiting) = rest.waiting.take() {
                waiting.wake();
            }
            return;
        }
        due = rest.read + pace.bytes;
    }
}

pub(crate) struct PacedBody {
    rest: Arc<Mutex<PacedState>>,
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
        rest.waiting = frame.is_pending().then(|| cx.waker().clone());
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
    use crate::framing::SliceFrames;
    use http_body_util::BodyExt;
    use machinery_runtime::HeavyFlow;

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

    /// A runtime whose threads for heavy work are all held until the senders are dropped.
    fn busy() -> (Runtime, Vec<std::sync::mpsc::Sender<()>>) {
        let runtime = Runtime::real();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2) + 1;
        let hold = |number| {
            let (hold, held) = std::sync::mpsc::channel::<()>();
            let flow = HeavyFlow::of_account(format!("busy-{number}"));
            let piece = runtime.heavy(flow, move || {
                let _ = held.recv();
            });
            runtime.spawn("test-heavy", piece).detach();
            hold
        };
        let holds = (0..threads).map(hold).collect();
        (runtime, holds)
    }

    #[tokio::test]
    async fn paced_body_whose_piece_gets_no_turn_is_given_up_at_last() {
        let (runtime, _holds) = busy();
        while runtime.heavy_figures().waiting > 0 || runtime.heavy_figures().running == 0 {
            tokio::task::yield_now().await;
        }
        let held = Arc::new(());
        let pieces = std::iter::repeat_n(Bytes::from(vec![b'x'; LEAST_BYTES]), 9);
        let body = Body::frames(SliceFrames(pieces.collect())).holding(Arc::clone(&held));
        let pace = ReadingPace::of(0, Duration::from_millis(1));
        let body = paced(body, pace, &runtime).in_turn(&runtime, &"of-the-list".into());
        let given_up = body.read(usize::MAX).await;
        assert!(given_up.is_err());
        assert_eq!(Arc::strong_count(&held), 1, "its memory is free");
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
