//! Heavy work: tasks that would keep a thread of the requests busy for long are polled on threads of their own.
//!
//! There are as many of these threads as the machine has processors, two at least, and they give way to the threads that
//! serve requests, and one more. Tasks belong to flows ([`HeavyFlow`]); a flow's time is charged to its account and to its
//! namespace. Among the flows that wait, the one whose account and namespace have used least time goes first, and no account
//! and no namespace has more than half of the threads. One that comes anew has used no less than those that are served, so
//! that no account saves up turns. Requests that wait, for a thread or for something else, are bounded by account and namespace. While all threads but the one more are busy, that one takes tasks of flows with little debt,
//! in itself or beside what those on the threads owe, and of administrators alone.

mod flow;
mod turns;

pub use flow::HeavyFlow;

use crate::background::give_way;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use turns::Turns;

/// Threads end after this long without work; while tasks wait that may not begin, one looks again as often.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Threads beside those for all, for flows with little debt and for administrators.
const RESERVED_THREADS: usize = 1;

/// Figures of the heavy work of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeavyFigures {
    /// Tasks that wait for a thread.
    pub waiting: usize,
    /// Tasks on a thread.
    pub running: usize,
    /// Turns that tasks have had so far.
    pub turns: u64,
    /// The time that all tasks so far were on a thread.
    pub busy: Duration,
}

/// The threads and the tasks that wait for them. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct HeavyWork(Arc<Shared>);

struct Shared {
    turns: Mutex<Turns>,
    woken: Condvar,
    threads: usize,
    /// Runtime that the tasks' timers and sockets belong to.
    handle: Handle,
}

impl HeavyWork {
    pub(crate) fn new(handle: Handle) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_threads(handle, processors.max(2))
    }

    /// Heavy work with so many threads for all, and the reserved one.
    fn with_threads(handle: Handle, threads: usize) -> Self {
        Self(Arc::new(Shared {
            turns: Mutex::new(Turns::new(threads)),
            woken: Condvar::new(),
            threads: threads + RESERVED_THREADS,
            handle,
        }))
    }

    /// Begins a task, which must not panic.
    pub(crate) fn spawn(&self, flow: HeavyFlow, kind: Kind, future: BoxFuture<'static, ()>) -> HeavyTask {
        let task = Arc::new(Task {
            flow,
            kind,
            of: self.clone(),
            state: Mutex::new(State {
                future: Some(future),
                stage: Stage::Waiting,
            }),
        });
        self.enqueue(Arc::clone(&task));
        HeavyTask(task)
    }

    pub(crate) fn figures(&self) -> HeavyFigures {
        self.0.turns.lock().figures()
    }

    /// Reports whether so many requests of a flow's account or namespace wait, for a thread or for something else, that the
    /// next is to come again later.
    pub(crate) fn is_full(&self, flow: &HeavyFlow) -> bool {
        self.0.turns.lock().is_full(flow)
    }

    fn enqueue(&self, task: Arc<Task>) {
        let mut turns = self.0.turns.lock();
        turns.push(task, now());
        // A task that waits for its debt to become little needs a thread that checks again.
        let is_missing = turns.idle == 0 || turns.ready(now()) > turns.idle;
        let is_missing = is_missing && turns.threads < self.0.threads;
        self.0.woken.notify_one();
        if is_missing {
            turns.threads += 1;
            drop(turns);
            self.begin_thread();
        }
    }

    fn begin_thread(&self) {
        let own = self.clone();
        let begun = std::thread::Builder::new()
            .name("heavy-work".to_owned())
            .spawn(move || own.serve());
        if let Err(error) = begun {
            tracing::error!(%error, "starting a thread for heavy work");
            self.0.turns.lock().threads -= 1;
        }
    }

    /// A thread's life.
    fn serve(&self) {
        give_way();
        let _within = self.0.handle.enter();
        while let Some(task) = self.next() {
            let begun = now();
            task.poll_once();
            let ended = now();
            self.0.turns.lock().end(&task.flow, ended - begun, ended);
        }
    }

    /// The next task; `None` where the thread is to end.
    fn next(&self) -> Option<Arc<Task>> {
        let mut turns = self.0.turns.lock();
        loop {
            if let Some(task) = turns.begin(now()) {
                return Some(task);
            }
            turns.idle += 1;
            let waited = self.0.woken.wait_for(&mut turns, KEEP_ALIVE);
            turns.idle -= 1;
            if waited.timed_out() && turns.is_empty() {
                turns.threads -= 1;
                return None;
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this crate is what stands in front of the clock"
)]
fn now() -> Instant {
    Instant::now()
}

/// A task that was begun; dropped, it ends at its next wait.
pub(crate) struct HeavyTask(Arc<Task>);

impl Drop for HeavyTask {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        let before = std::mem::replace(&mut state.stage, Stage::Over);
        let future = state.future.take();
        if before == Stage::Resting {
            self.0.of.0.turns.lock().rests_no_longer(&self.0);
        }
        // What it holds may wake it.
        drop(state);
        if before == Stage::Waiting {
            self.0.of.0.turns.lock().remove(&self.0);
        }
        drop(future);
    }
}

/// Kinds of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counted: an account or a namespace has so many that wait, and no more.
    Request,
    /// A piece of an answer or of a record, which its request, its stream or its memory bounds.
    Piece,
}

struct Task {
    flow: HeavyFlow,
    kind: Kind,
    of: HeavyWork,
    state: Mutex<State>,
}

struct State {
    /// Not there while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// For its turn.
    Waiting,
    Running,
    /// And is to run again.
    RunningAndWoken,
    /// Until it is woken.
    Resting,
    Over,
}

impl Task {
    fn poll_once(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.stage == Stage::Over {
            return;
        }
        state.stage = Stage::Running;
        let Some(mut future) = state.future.take() else {
            return;
        };
        drop(state);
        let waker = Waker::from(Arc::clone(self));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.state.lock();
        if polled == Poll::Ready(()) {
            state.stage = Stage::Over;
        }
        match state.stage {
            Stage::Over => {
                drop(state);
                drop(future);
            }
            Stage::RunningAndWoken => {
                state.future = Some(future);
                state.stage = Stage::Waiting;
                drop(state);
                self.of.enqueue(Arc::clone(self));
            }
            _ => {
                state.future = Some(future);
                state.stage = Stage::Resting;
                // Within the lock of its state, so that it is not woken before it counts.
                self.of.0.turns.lock().rest(self);
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        match state.stage {
            Stage::Resting => {
                state.stage = Stage::Waiting;
                self.of.0.turns.lock().rests_no_longer(&self);
                drop(state);
                let of = self.of.clone();
                of.enqueue(self);
            }
            Stage::Running => state.stage = Stage::RunningAndWoken,
            Stage::Waiting | Stage::RunningAndWoken | Stage::Over => {}
        }
    }
}

#[cfg(test)]
mod tests;
