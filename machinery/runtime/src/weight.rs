//! A request's weight: a future that finds its work heavy goes on among the heavy work.

use crate::heavy_work::{HeavyFlow, HeavyTask, HeavyWork, Kind};
use crate::scope::ScopeInner;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// Weight of a future: heavy or not, and of which flow. All clones are of the same future.
#[derive(Clone, Default)]
pub struct Weight(Arc<Inner>);

#[derive(Default)]
struct Inner {
    flow: OnceLock<HeavyFlow>,
    when_heavy: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Weight {
    /// Says that what follows is heavy. Within [`Runtime::by_weight`](crate::Runtime::by_weight) it follows as a part of
    /// the heavy work of this flow, in turn; otherwise where it is.
    pub async fn become_heavy(&self, flow: impl FnOnce() -> HeavyFlow) {
        if self.is_heavy() {
            return;
        }
        self.0.flow.get_or_init(flow);
        let when_heavy = self.0.when_heavy.lock().take();
        if let Some(when_heavy) = when_heavy {
            when_heavy();
        }
        let mut is_moved = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut is_moved, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Calls this once, as the future becomes heavy.
    pub fn when_heavy(&self, call: impl FnOnce() + Send + 'static) {
        *self.0.when_heavy.lock() = Some(Box::new(call));
    }

    pub fn is_heavy(&self) -> bool {
        self.0.flow.get().is_some()
    }

    /// The flow of a heavy future.
    pub fn flow(&self) -> Option<&HeavyFlow> {
        self.0.flow.get()
    }
}

impl std::fmt::Debug for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Weight").field(&self.0.flow.get()).finish()
    }
}

/// A future where its weight says; dropped, it ends.
pub struct ByWeight<T> {
    weight: Weight,
    place: FutureState<T>,
}

enum FutureState<T> {
    /// On the thread that polls.
    Here {
        future: BoxFuture<'static, T>,
        /// Place where it may go, and the scope that waits for it there; `None` where nothing is moved.
        work: Option<(HeavyWork, Arc<ScopeInner>)>,
        kind: Kind,
    },
    There {
        result: oneshot::Receiver<std::thread::Result<T>>,
        _task: HeavyTask,
    },
    Moving,
}

impl<T> ByWeight<T> {
    pub(crate) fn new(
        weight: Weight,
        future: BoxFuture<'static, T>,
        work: Option<(HeavyWork, Arc<ScopeInner>)>,
        kind: Kind,
    ) -> Self {
        Self {
            weight,
            place: FutureState::Here { future, work, kind },
        }
    }
}

impl<T: Send + 'static> FutureState<T> {
    fn moved(self, flow: HeavyFlow) -> Self {
        let Self::Here {
            future,
            work: Some((work, scope)),
            kind,
        } = self
        else {
            return self;
        };
        let membership = scope.membership();
        let (report, result) = oneshot::channel();
        let task = async move {
            // Its panic is rethrown in the task that waits.
            let ended = AssertUnwindSafe(future).catch_unwind().await;
            let _ = report.send(ended);
            drop(membership);
        };
        Self::There {
            result,
            _task: work.spawn(flow, kind, task.boxed()),
        }
    }
}

impl<T: Send + 'static> Future for ByWeight<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let own = &mut *self;
        if let FutureState::Here { future, .. } = &mut own.place {
            let polled = future.as_mut().poll(cx);
            let Some(flow) = own.weight.flow().filter(|_| polled.is_pending()) else {
                return polled;
            };
            let flow = flow.clone();
            own.place = std::mem::replace(&mut own.place, FutureState::Moving).moved(flow);
        }
        let FutureState::There { result, .. } = &mut own.place else {
            return Poll::Pending;
        };
        match ready!(Pin::new(result).poll(cx)) {
            Ok(Ok(output)) => Poll::Ready(output),
            Ok(Err(panicked)) => resume_unwind(panicked),
            // The task notifies before it ends.
            Err(_) => Poll::Pending,
        }
    }
}

impl<T> std::fmt::Debug for ByWeight<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByWeight")
            .field("weight", &self.weight)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Runtime, Simulation};

    fn is_heavy_thread() -> bool {
        std::thread::current().name() == Some("heavy-work")
    }

    async fn heavy_in_the_middle(weight: Weight) -> [bool; 3] {
        let before = is_heavy_thread();
        weight.become_heavy(|| "a".into()).await;
        let after = is_heavy_thread();
        // No second turn, and it stays there.
        weight.become_heavy(|| "b".into()).await;
        tokio::task::yield_now().await;
        [before, after, is_heavy_thread()]
    }

    #[tokio::test]
    async fn weight_moves_a_future_to_the_heavy_work() {
        let (runtime, weight) = (Runtime::real(), Weight::default());
        let (report, mut heard) = tokio::sync::mpsc::unbounded_channel();
        weight.when_heavy(move || report.send(is_heavy_thread()).unwrap());
        let future = heavy_in_the_middle(weight.clone());
        let moved = runtime.by_weight(&weight, future.boxed()).await;
        assert_eq!(moved, [false, true, true]);
        // Once, before it waits for its turn.
        assert_eq!((heard.recv().await, heard.recv().await), (Some(false), None));
        assert_eq!(weight.flow().map(HeavyFlow::account), Some("a"));
    }

    #[tokio::test]
    async fn weight_leaves_a_future_that_is_not_watched_where_it_is() {
        assert_eq!(heavy_in_the_middle(Weight::default()).await, [false; 3]);
    }

    #[test]
    fn weight_moves_nothing_in_a_simulation() {
        let simulation = Simulation::new(1);
        let (runtime, weight) = (simulation.runtime(), Weight::default());
        let future = heavy_in_the_middle(weight.clone());
        let moved = simulation.run(async move { runtime.by_weight(&weight, future.boxed()).await });
        assert_eq!(moved, [false; 3]);
    }

    #[tokio::test]
    async fn weight_propagates_panics_to_the_waiter() {
        let (runtime, weight) = (Runtime::real(), Weight::default());
        let own = weight.clone();
        let future = async move {
            own.become_heavy(|| "a".into()).await;
            panic!("of heavy work");
        };
        let waiting = AssertUnwindSafe(runtime.by_weight::<()>(&weight, future.boxed()));
        let panicked = waiting.catch_unwind().await.unwrap_err();
        assert_eq!(panicked.downcast_ref::<&str>(), Some(&"of heavy work"));
    }

    #[tokio::test]
    async fn weight_of_a_future_that_is_dropped_ends_it() {
        let (runtime, weight) = (Runtime::real(), Weight::default());
        let (held, let_go) = oneshot::channel::<()>();
        let own = weight.clone();
        let future = async move {
            let _held = held;
            own.become_heavy(|| "a".into()).await;
            std::future::pending::<()>().await;
        };
        let mut waiting = runtime.by_weight(&weight, future.boxed());
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(waiting);
        assert!(let_go.await.is_err());
    }
}
