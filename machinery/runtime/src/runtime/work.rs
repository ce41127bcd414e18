//! Work that would block a thread of the executor, or keep it for long.

use super::tasks::Panics;
use super::{Runtime, Source};
use crate::heavy_work::{HeavyFigures, HeavyFlow, Kind};
use crate::scope::{TaskEnded, TaskHandle};
use crate::weight::{ByWeight, Weight};
use futures::future::BoxFuture;
use std::sync::Arc;

/// Next step of a [`Runtime::worker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStep {
    /// Call again.
    More,
    /// The work is done.
    Done,
}

impl Runtime {
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
            // Dropped by the work itself: a scope is not stopped while a thread still works for it.
            result
        })
    }
}
