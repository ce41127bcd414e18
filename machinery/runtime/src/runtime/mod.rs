//! The handle itself: clock, sleep, randomness, cancellation and disk here; [`tasks`], those that are begun again
//! ([`supervision`]), and work that would block or is heavy ([`work`]) in a file each.

mod supervision;
mod tasks;
mod work;

pub use work::WorkerStep;

use crate::components::Components;
use crate::disk::Disk;
use crate::heavy_work::HeavyWork;
use crate::metrics::ComponentMetrics;
use crate::scope::{Scope, ScopeInner};
use crate::simulation::SimulationState;
use crate::{CancellationToken, RealDisk};
use futures::future::BoxFuture;
use rand::RngCore;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
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

    /// The same handle, whose tasks run on another executor of the process.
    pub(crate) fn with_handle(&self, handle: Handle) -> Self {
        Self {
            handle,
            ..self.clone()
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

    /// The components of this instance and what became of them; also those that never panicked.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Metrics of the components of this instance.
    pub fn metrics(&self) -> &ComponentMetrics {
        &self.metrics
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
