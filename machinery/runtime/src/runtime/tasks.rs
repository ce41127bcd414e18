//! Tasks of a scope, and what becomes of their panics.

use super::{Runtime, Source};
use crate::components::Components;
use crate::scope::{ScopeInner, TaskEnded, TaskHandle, panic_message};
use crate::simulation::SimulationState;
use futures::FutureExt;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::sync::WaitForCancellationFutureOwned;

impl Runtime {
    /// Starts a task in this handle's scope. The name goes to the log when the task panics.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> TaskHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let world = match &self.source {
            Source::Real { .. } => None,
            Source::Simulated(world) => Some((Arc::clone(world), world.next_task(name))),
        };
        let task = Task {
            panics: Panics::of(self, name),
            world,
            cancelled: Box::pin(self.scope.token.clone().cancelled_owned()),
            future: Some(Box::pin(future)),
        };
        let membership = self.scope.membership();
        TaskHandle::new(self.handle.spawn(async move {
            let result = task.await;
            drop(membership);
            result
        }))
    }

    /// Starts a task of one request, whose panic is nothing to its scope: it is logged and counted, and ends the task alone.
    pub fn spawn_request<F>(&self, name: &'static str, future: F) -> TaskHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let own = self.clone();
        self.spawn(name, async move {
            // It was logged and counted.
            let _ = own.catch(name, future).await;
        })
    }

    /// A future's output, or its panic, which is logged and counted under this name and goes no further.
    pub async fn catch<F: Future>(&self, name: &'static str, future: F) -> Result<F::Output, TaskEnded> {
        let caught = AssertUnwindSafe(future).catch_unwind().await;
        caught.map_err(|payload| TaskEnded::Panicked(Panics::of(self, name).record_panic(&*payload)))
    }
}

/// Receivers of a panic of a task or piece of work: the log, the counters, every scope above, the simulation.
pub(super) struct Panics {
    name: &'static str,
    components: Arc<Components>,
    scope: Arc<ScopeInner>,
    world: Option<Arc<SimulationState>>,
}

impl Panics {
    pub(super) fn of(runtime: &Runtime, name: &'static str) -> Self {
        let world = match &runtime.source {
            Source::Real { .. } => None,
            Source::Simulated(world) => Some(Arc::clone(world)),
        };
        Self {
            name,
            components: Arc::clone(&runtime.components),
            scope: Arc::clone(&runtime.scope),
            world,
        }
    }

    pub(super) fn catch<T>(&self, work: impl FnOnce() -> T) -> Result<T, TaskEnded> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
            let message = self.record_panic(&*payload);
            self.scope.panicked();
            TaskEnded::Panicked(message)
        })
    }

    /// Logs and counts a panic; its message.
    fn record_panic(&self, payload: &(dyn Any + Send)) -> String {
        let message = panic_message(payload);
        tracing::error!(task = self.name, %message, "task panicked");
        if let Some(world) = &self.world {
            world.trace.panicked(self.name, &message);
        }
        self.components.panicked(self.name);
        message
    }
}

/// A spawned future: ends when its scope does, keeps a panic to itself, and in a simulation is polled in seeded order.
struct Task<T> {
    panics: Panics,
    world: Option<(Arc<SimulationState>, u64)>,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskEnded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = &mut *self;
        if task.cancelled.as_mut().poll(cx).is_ready() {
            task.future = None;
            return Poll::Ready(Err(TaskEnded::Cancelled));
        }
        if let Some((world, id)) = &task.world
            && world.defer(*id)
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(future) = task.future.as_mut() else {
            return Poll::Ready(Err(TaskEnded::Cancelled));
        };
        let polled = match task.panics.catch(|| future.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(ended) => Err(ended),
        };
        task.future = None;
        Poll::Ready(polled)
    }
}
