//! The handle itself.

use crate::components::Components;
use crate::disk::Disk;
use crate::heavy_work::{HeavyFigures, HeavyFlow, HeavyWork, Kind};
use crate::metrics::ComponentMetrics;
use crate::scope::{Scope, ScopeInner, TaskEnded, TaskHandle, panic_message};
use crate::simulation::SimulationState;
use crate::weight::{ByWeight, Weight};
use crate::{CancellationToken, RealDisk};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::RngCore;
use std::any::Any;
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
    components: Arc<Components>,
    metrics: Arc<ComponentMetrics>,
    heavy: HeavyWork,
}

/// Source of time, randomness and threads: the machine or a simulation.
#[derive(Clone)]
enum Source {
    Real { started: Instant },
    Simulated(Arc<SimulationState>),
}

/// Next step of a [`Runtime::worker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStep {
    /// Call again.
    More,
    /// The work is done.
    Done,
}

/// The pause after a component's first panic, and the longest one; a component that ran longer than that begins anew.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

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
            components: Arc::default(),
            metrics: Arc::default(),
            heavy: HeavyWork::new(Handle::current()),
        }
    }

    pub(crate) fn simulated(world: Arc<SimulationState>, handle: Handle, disk: Arc<dyn Disk>) -> Self {
        Self {
            source: Source::Simulated(world),
            heavy: HeavyWork::new(handle.clone()),
            handle,
            disk,
            scope: ScopeInner::root(),
            components: Arc::default(),
            metrics: Arc::default(),
        }
    }

    /// The same handle over another disk.
    #[must_use]
    pub fn with_disk(&self, disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..self.clone() }
    }

    /// The same handle for another executor of the process: what fails there is known here, and the other way
    /// round, and so are metrics.
    #[must_use]
    pub fn with_components_of(self, other: &Self) -> Self {
        Self {
            components: Arc::clone(&other.components),
            metrics: Arc::clone(&other.metrics),
            ..self
        }
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

    /// Sets the wall clock of a simulation forward, or back; does nothing on the machine.
    pub fn jump_clock(&self, seconds: i64) {
        if let Source::Simulated(world) = &self.source {
            world.jump(seconds);
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

    /// Keeps a component running: after a panic or an error it begins again, once a pause is over that doubles each time.
    /// Until then [`Runtime::components`] says that it is down.
    pub fn supervise<F, Fut>(&self, name: &'static str, mut begin: F) -> TaskHandle<()>
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let own = self.clone();
        self.components.began(name);
        self.spawn(name, async move {
            let mut pause = FIRST_PAUSE;
            let broken = own.components.broken(name);
            loop {
                let begun = own.monotonic();
                let running = async {
                    tokio::select! { biased;
                        () = broken.notified() => panic!("{name} was broken down by a test"),
                        ended = async { begin().await } => ended,
                    }
                };
                let message = match own.catch(name, running).await {
                    Ok(Ok(())) => return own.components.ended(name),
                    Ok(Err(message)) => message,
                    Err(panicked) => panicked.to_string(),
                };
                if own.monotonic().saturating_sub(begun) > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                tracing::error!(component = name, %message, ?pause, "component is down and begins again");
                own.components.failed(name, &message);
                own.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                own.components.began(name);
            }
        })
    }

    /// [`Runtime::supervise`] for a loop that knows no errors; one that ends has nothing left to do.
    pub fn keep<F, Fut>(&self, name: &'static str, mut begin: F) -> TaskHandle<()>
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.supervise(name, move || {
            let running = begin();
            async move {
                running.await;
                Ok(())
            }
        })
    }

    /// The same for a component of several tasks, in a scope of its own: a panic in any of them ends all, and the component
    /// begins again.
    pub fn supervise_scope<F, Fut>(&self, name: &'static str, mut begin: F) -> TaskHandle<()>
    where
        F: FnMut(Runtime) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let own = self.clone();
        self.supervise(name, move || {
            let scope = own.child_scope();
            let running = begin(scope.runtime().clone());
            async move {
                let ended = tokio::select! { biased;
                    () = scope.panicked() => Err("a task of it panicked".to_owned()),
                    ended = running => ended,
                };
                scope.stopped().await;
                ended
            }
        })
    }

    /// Work that belongs to one object and must not end early: after a panic, which is logged and counted under this name,
    /// it begins again, with the same pauses.
    pub async fn again_after_panics<F, Fut>(&self, name: &'static str, mut begin: F) -> Fut::Output
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Ok(output) = self.catch(name, async { begin().await }).await {
                return output;
            }
            self.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A future's output, or its panic, which is logged and counted under this name and goes no further.
    pub async fn catch<F: Future>(&self, name: &'static str, future: F) -> Result<F::Output, TaskEnded> {
        let caught = AssertUnwindSafe(future).catch_unwind().await;
        caught.map_err(|payload| TaskEnded::Panicked(Panics::of(self, name).record_panic(&*payload)))
    }

    /// The components of this instance and what became of them; also those that never panicked.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Metrics of the components of this instance.
    pub fn metrics(&self) -> &ComponentMetrics {
        &self.metrics
    }

    /// Runs what would block the caller's thread. In a simulation it runs at once, on the one thread.
    ///
    /// Blocking work, once begun, ends by itself; its scope waits for it. A panic of it is logged and counted.
    pub fn blocking<T, F>(&self, work: F) -> BoxFuture<'static, Result<T, TaskEnded>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let panics = Panics::of(self, "blocking work");
        match &self.source {
            Source::Real { .. } => {
                let handle = TaskHandle::new(self.start_blocking(move || panics.catch(work)));
                Box::pin(handle)
            }
            Source::Simulated(world) => {
                let world = Arc::clone(world);
                Box::pin(async move {
                    world.yield_sometimes().await;
                    panics.catch(work)
                })
            }
        }
    }

    /// A future that goes on among the heavy work of its flow once it becomes heavy ([`Weight::become_heavy`]), on threads
    /// that give way to others, and bounded in how many there are at once. A simulation has one thread for all.
    pub fn by_weight<T: Send + 'static>(
        &self,
        weight: &Weight,
        future: BoxFuture<'static, T>,
    ) -> ByWeight<T> {
        self.by_weight_as(Kind::Request, weight, future)
    }

    fn by_weight_as<T: Send + 'static>(
        &self,
        kind: Kind,
        weight: &Weight,
        future: BoxFuture<'static, T>,
    ) -> ByWeight<T> {
        let work = (!self.is_simulated()).then(|| (self.heavy.clone(), Arc::clone(&self.scope)));
        ByWeight::new(weight.clone(), future, work, kind)
    }

    /// One piece of heavy work of this flow, in turn. It does not count among the requests that may wait.
    pub fn heavy<T: Send + 'static>(
        &self,
        flow: HeavyFlow,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> ByWeight<T> {
        let weight = Weight::default();
        let own = weight.clone();
        let piece = async move {
            own.become_heavy(|| flow).await;
            work()
        };
        self.by_weight_as(Kind::Piece, &weight, Box::pin(piece))
    }

    /// Reports whether so many heavy requests of a flow's account or namespace wait that it takes no more now.
    pub fn is_full_of_heavy(&self, flow: &HeavyFlow) -> bool {
        self.heavy.is_full(flow)
    }

    /// Heavy work on the machine.
    pub fn heavy_figures(&self) -> HeavyFigures {
        self.heavy.figures()
    }

    /// Runs `step` again and again, off the callers' threads, until it is [`WorkerStep::Done`]. After a panic, which is
    /// logged and counted, no step follows, and `panicked` is called with its message.
    ///
    /// On the machine this is one piece of blocking work. In a simulation every step is followed by a seeded pause,
    /// so that other tasks see each state in between, and cancelling the scope ends it between two steps.
    pub fn worker<F, P>(&self, name: &'static str, mut step: F, panicked: P)
    where
        F: FnMut() -> WorkerStep + Send + 'static,
        P: FnOnce(&str) + Send + 'static,
    {
        match &self.source {
            Source::Real { .. } => {
                let own = self.clone();
                drop(self.start_blocking(move || own.worker_here(name, step, panicked)));
            }
            Source::Simulated(world) => {
                let (world, runtime) = (Arc::clone(world), self.clone());
                let panics = Panics::of(self, name);
                self.spawn(name, async move {
                    loop {
                        match panics.catch(&mut step) {
                            Ok(WorkerStep::More) => runtime.sleep(world.pause()).await,
                            Ok(WorkerStep::Done) => return,
                            Err(ended) => return panicked(&ended.to_string()),
                        }
                    }
                })
                .detach();
            }
        }
    }

    /// The same on the caller's thread, without a pause.
    pub fn worker_here<F, P>(&self, name: &'static str, mut step: F, panicked: P)
    where
        F: FnMut() -> WorkerStep,
        P: FnOnce(&str),
    {
        let steps = || while step() == WorkerStep::More {};
        if let Err(ended) = Panics::of(self, name).catch(steps) {
            panicked(&ended.to_string());
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

    /// Reports whether this handle's scope is cancelled.
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

    /// Reports whether this runtime is simulated.
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

/// Receivers of a panic of a task or piece of work: the log, the counters, every scope above, the simulation.
struct Panics {
    name: &'static str,
    components: Arc<Components>,
    scope: Arc<ScopeInner>,
    world: Option<Arc<SimulationState>>,
}

impl Panics {
    fn of(runtime: &Runtime, name: &'static str) -> Self {
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

    fn catch<T>(&self, work: impl FnOnce() -> T) -> Result<T, TaskEnded> {
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
