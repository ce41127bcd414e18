//! Heavy work: tasks that would keep a thread of the requests busy for long are polled on threads of their own.
//!
//! There are as many of these threads as the machine has processors, two at least, and they give way to the threads that
//! serve requests. Tasks belong to flows (a user's, a namespace's): among the flows that wait, the one that has used least
//! time goes first, and no flow has more than half of the threads. A flow that comes anew has used no less than those that
//! are served, so that nobody saves up turns.

use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Threads without work end after this long.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Niceness by which the threads give way to others of the process (`nice`): about a third of what these get.
const NICENESS: i32 = 5;
/// Tasks of one flow that may wait, and tasks of all from which on a flow has one at a time.
const MAX_WAITING_OF_FLOW: usize = 128;
const MAX_WAITING: usize = 1_024;
/// Flows that have nothing to do are forgotten from here on.
const MAX_IDLE_FLOWS: usize = 64;

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

/// The threads and those who wait for them. Cloning is cheap.
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

    fn with_threads(handle: Handle, threads: usize) -> Self {
        Self(Arc::new(Shared {
            turns: Mutex::new(Turns::new(threads.div_ceil(2))),
            woken: Condvar::new(),
            threads,
            handle,
        }))
    }

    /// Begins a task, which must not panic.
    pub(crate) fn spawn(&self, flow: Arc<str>, future: BoxFuture<'static, ()>) -> HeavyTask {
        let task = Arc::new(Task {
            flow,
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

    /// Reports whether a flow has so many tasks waiting that it is to come again later.
    pub(crate) fn is_full(&self, flow: &str) -> bool {
        self.0.turns.lock().is_full(flow)
    }

    fn enqueue(&self, task: Arc<Task>) {
        let mut turns = self.0.turns.lock();
        turns.push(task);
        let is_missing = turns.ready() > turns.idle && turns.threads < self.0.threads;
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
        // Where that is not allowed, the threads are equals.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
        let _within = self.0.handle.enter();
        while let Some(task) = self.next() {
            let begun = now();
            task.poll_once();
            self.0.turns.lock().end(&task.flow, now() - begun);
        }
    }

    /// The next task; `None` where the thread is to end.
    fn next(&self) -> Option<Arc<Task>> {
        let mut turns = self.0.turns.lock();
        loop {
            if let Some(task) = turns.begin() {
                return Some(task);
            }
            turns.idle += 1;
            let waited = self.0.woken.wait_for(&mut turns, KEEP_ALIVE);
            turns.idle -= 1;
            if waited.timed_out() && turns.ready() == 0 {
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

/// Whose turn it is.
struct Turns {
    flows: HashMap<Arc<str>, Flow>,
    /// A flow has so many threads at most.
    of_flow: usize,
    /// Time that the flow that was served last had used before.
    used: Duration,
    /// Counts tasks, in the order in which they came.
    last: u64,
    threads: usize,
    idle: usize,
    begun: u64,
    busy: Duration,
}

#[derive(Default)]
struct Flow {
    waiting: VecDeque<(u64, Arc<Task>)>,
    running: usize,
    used: Duration,
}

impl Flow {
    /// Tasks that could run now.
    fn ready(&self, of_flow: usize) -> usize {
        of_flow.saturating_sub(self.running).min(self.waiting.len())
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }
}

impl Turns {
    fn new(of_flow: usize) -> Self {
        Self {
            flows: HashMap::new(),
            of_flow,
            used: Duration::ZERO,
            last: 0,
            threads: 0,
            idle: 0,
            begun: 0,
            busy: Duration::ZERO,
        }
    }

    fn is_full(&self, flow: &str) -> bool {
        let own = self.flows.get(flow).map_or(0, |flow| flow.waiting.len());
        own >= MAX_WAITING_OF_FLOW || (own > 0 && self.waiting() >= MAX_WAITING)
    }

    fn waiting(&self) -> usize {
        self.flows.values().map(|flow| flow.waiting.len()).sum()
    }

    fn push(&mut self, task: Arc<Task>) {
        if self.flows.len() >= MAX_IDLE_FLOWS && !self.flows.contains_key(&task.flow) {
            // Those that used more than others keep their debt.
            let used = self.used;
            self.flows.retain(|_, flow| !flow.is_idle() || flow.used > used);
        }
        self.last += 1;
        let flow = self.flows.entry(Arc::clone(&task.flow)).or_default();
        if flow.is_idle() {
            flow.used = flow.used.max(self.used);
        }
        flow.waiting.push_back((self.last, task));
    }

    /// The task whose turn it is; it counts as running until [`Turns::end`].
    fn begin(&mut self) -> Option<Arc<Task>> {
        let of_flow = self.of_flow;
        let ready = self.flows.values_mut().filter(|flow| flow.ready(of_flow) > 0);
        let first = |flow: &&mut Flow| {
            let number = flow.waiting.front().map(|(number, _)| *number);
            (flow.used, flow.running, number)
        };
        let flow = ready.min_by_key(first)?;
        let (_, task) = flow.waiting.pop_front()?;
        flow.running += 1;
        self.begun += 1;
        self.used = self.used.max(flow.used);
        Some(task)
    }

    fn ready(&self) -> usize {
        self.flows.values().map(|flow| flow.ready(self.of_flow)).sum()
    }

    fn end(&mut self, flow: &str, took: Duration) {
        self.busy += took;
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.running -= 1;
            flow.used += took;
        }
    }

    fn figures(&self) -> HeavyFigures {
        HeavyFigures {
            waiting: self.waiting(),
            running: self.flows.values().map(|flow| flow.running).sum(),
            turns: self.begun,
            busy: self.busy,
        }
    }
}

/// A task that was begun; dropped, it ends at its next wait.
pub(crate) struct HeavyTask(Arc<Task>);

impl Drop for HeavyTask {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.stage = Stage::Over;
        let future = state.future.take();
        // What it holds may wake it.
        drop(state);
        drop(future);
    }
}

struct Task {
    flow: Arc<str>,
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
