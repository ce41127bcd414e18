//! The handle itself.

use crate::disk::Disk;
use crate::scope::{Scope, ScopeInner, TaskEnded, TaskHandle, panic_message};
use crate::simulation::World;
use crate::{CancellationToken, RealDisk};
use futures::future::BoxFuture;
use rand::RngCore;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Clock, sleep, randomness, tasks, blocking work, cancellation and disk of one instance. Cloning is cheap.
///
/// Tasks spawned through a handle belong to its scope; see [`Runtime::child_scope`].
#[derive(Clone)]
pub struct Runtime {
    source: Source,
    handle: Handle,
    disk: Arc<dyn Disk>,
    pub(crate) scope: Arc<ScopeInner>,
}

/// Where answers come from.
#[derive(Clone)]
enum Source {
    Real { started: Instant },
    Simulated(Arc<World>),
}

/// What a [`Runtime::worker`] wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStep {
    /// Call again.
    More,
    /// The work is done.
    Done,
}

/// The time given to [`Runtime::timeout`] ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("deadline has elapsed")]
pub struct Elapsed;

impl Runtime {
    /// The machine's own clock, threads, randomness and disk, on the tokio runtime this is called in.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[expect(
        clippy::disallowed_methods,
        reason = "this crate is what stands in front of the clock"
    )]
    pub fn real() -> Self {
        Self {
            source: Source::Real {
                started: Instant::now(),
            },
            handle: Handle::current(),
            disk: Arc::new(RealDisk::new()),
            scope: ScopeInner::root(),
        }
    }

    pub(crate) fn simulated(world: Arc<World>, handle: Handle, disk: Arc<dyn Disk>) -> Self {
        Self {
            source: Source::Simulated(world),
            handle,
            disk,
            scope: ScopeInner::root(),
        }
    }

    /// The same handle over another disk.
    #[must_use]
    pub fn with_disk(&self, disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..self.clone() }
    }

    /// A scope of its own below this one: its tasks end when it is dropped, or when this one ends.
    pub fn child_scope(&self) -> Scope {
        Scope::new(Self {
            scope: self.scope.child(),
            ..self.clone()
        })
    }

    /// The wall clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "this crate is what stands in front of the clock"
    )]
    pub fn now(&self) -> jiff::Timestamp {
        match &self.source {
            Source::Real { .. } => jiff::Timestamp::now(),
            Source::Simulated(world) => world.now(),
        }
    }

    /// Time since this runtime began; never goes back.
    pub fn monotonic(&self) -> Duration {
        match &self.source {
            Source::Real { started } => started.elapsed(),
            Source::Simulated(world) => world.monotonic(),
        }
    }

    /// Waits.
    #[expect(
        clippy::disallowed_methods,
        reason = "this crate is what stands in front of the timer"
    )]
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // Inside the block, so that the timer is made where it is polled, in the tokio runtime.
        Box::pin(async move { tokio::time::sleep(duration).await })
    }

    /// Waits until [`Runtime::monotonic`] has reached `deadline`.
    pub fn sleep_until(&self, deadline: Duration) -> BoxFuture<'static, ()> {
        self.sleep(deadline.saturating_sub(self.monotonic()))
    }

    /// The future's result, unless `duration` passes first; then the future is dropped.
    #[expect(
        clippy::disallowed_methods,
        reason = "this crate is what stands in front of the timer"
    )]
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        tokio::time::timeout(duration, future).await.map_err(|_| Elapsed)
    }

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
            name,
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

    /// Runs what would block the caller's thread. In a simulation it runs at once, on the one thread.
    ///
    /// Blocking work, once begun, ends by itself; its scope waits for it.
    pub fn blocking<T, F>(&self, work: F) -> BoxFuture<'static, Result<T, TaskEnded>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        match &self.source {
            Source::Real { .. } => {
                let handle = TaskHandle::new(self.start_blocking(move || Ok(work())));
                Box::pin(handle)
            }
            Source::Simulated(world) => {
                let world = Arc::clone(world);
                Box::pin(async move {
                    world.yield_sometimes().await;
                    Ok(work())
                })
            }
        }
    }

    /// Runs `step` again and again, off the callers' threads, until it is [`WorkerStep::Done`].
    ///
    /// On the machine this is one piece of blocking work. In a simulation every step is followed by a seeded pause,
    /// so that other tasks see each state in between, and cancelling the scope ends it between two steps.
    pub fn worker<F>(&self, name: &'static str, mut step: F)
    where
        F: FnMut() -> WorkerStep + Send + 'static,
    {
        match &self.source {
            Source::Real { .. } => {
                drop(self.start_blocking(move || while step() == WorkerStep::More {}));
            }
            Source::Simulated(world) => {
                let (world, runtime) = (Arc::clone(world), self.clone());
                self.spawn(name, async move {
                    while step() == WorkerStep::More {
                        runtime.sleep(world.pause()).await;
                    }
                })
                .detach();
            }
        }
    }

    fn start_blocking<T, F>(&self, work: F) -> tokio::task::JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let membership = self.scope.membership();
        self.handle.spawn_blocking(move || {
            let result = work();
            drop(membership);
            result
        })
    }

    /// A random (version 4) uuid.
    pub fn uuid(&self) -> uuid::Uuid {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// A random number. On the machine it is fit for secrets.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Random bytes. On the machine they are fit for secrets.
    pub fn fill(&self, bytes: &mut [u8]) {
        match &self.source {
            Source::Real { .. } => rand::rng().fill_bytes(bytes),
            Source::Simulated(world) => world.fill(bytes),
        }
    }

    /// Resolves when this handle's scope is cancelled.
    pub fn cancelled(&self) -> WaitForCancellationFutureOwned {
        self.scope.token.clone().cancelled_owned()
    }

    /// Whether this handle's scope is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.scope.token.is_cancelled()
    }

    /// A token that is cancelled with this handle's scope, for code that wants a token. Cancelling it ends nothing else.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.scope.token.child_token()
    }

    /// The disk.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// Whether a seed decides what happens here.
    pub fn is_simulated(&self) -> bool {
        matches!(self.source, Source::Simulated(_))
    }

    /// Adds something that happened to the trace of a simulation; does nothing on the machine.
    pub fn trace(&self, what: &[u8]) {
        if let Source::Simulated(world) = &self.source {
            world.trace.bytes(what);
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = self.is_simulated();
        f.debug_struct("Runtime")
            .field("simulated", &simulated)
            .finish_non_exhaustive()
    }
}

/// A spawned future: ends when its scope does, keeps a panic to itself, and in a simulation is polled in seeded order.
struct Task<T> {
    name: &'static str,
    world: Option<(Arc<World>, u64)>,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T> Task<T> {
    fn panicked(&self, message: String) -> TaskEnded {
        tracing::error!(task = self.name, %message, "task panicked");
        if let Some((world, _)) = &self.world {
            world.trace.panicked(self.name, &message);
        }
        TaskEnded::Panicked(message)
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskEnded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.cancelled.as_mut().poll(cx).is_ready() {
            self.future = None;
            return Poll::Ready(Err(TaskEnded::Cancelled));
        }
        if let Some((world, id)) = &self.world
            && world.defer(*id)
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(future) = self.future.as_mut() else {
            return Poll::Ready(Err(TaskEnded::Cancelled));
        };
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => {
                self.future = None;
                Poll::Ready(Ok(value))
            }
            Err(payload) => {
                self.future = None;
                Poll::Ready(Err(self.panicked(panic_message(&*payload))))
            }
        }
    }
}
