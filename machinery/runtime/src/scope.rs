//! Tasks, and the scopes that end them.

use crate::runtime::Runtime;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Owns tasks. Dropping it cancels them all, and those of the scopes below it.
///
/// Hand [`Scope::runtime`] to what should live and die together. A task is ended at its next wait, by dropping its
/// future; blocking work cannot be ended and is waited for by [`Scope::stopped`].
pub struct Scope {
    runtime: Runtime,
}

/// The shared part: what a [`Runtime`] handle spawns into.
#[derive(Debug)]
pub(crate) struct ScopeInner {
    pub(crate) token: CancellationToken,
    /// Cancelled by the first panic here or below.
    panicked: CancellationToken,
    tracker: TaskTracker,
    parent: Option<Arc<ScopeInner>>,
}

/// Reason why a task has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskEnded {
    /// Its scope was cancelled, or the task was aborted.
    #[error("the task was cancelled")]
    Cancelled,
    /// It panicked, with this message.
    #[error("the task panicked: {0}")]
    Panicked(String),
}

/// A running task; awaiting it gives its result. Dropping the handle leaves the task to its scope.
pub struct TaskHandle<T> {
    join: JoinHandle<Result<T, TaskEnded>>,
}

impl Scope {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self { runtime }
    }

    /// The handle that spawns into this scope.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Ends every task of this scope and below at its next wait; does not wait for it.
    pub fn cancel(&self) {
        self.runtime.scope.token.cancel();
    }

    /// Cancels, then waits until no task and no blocking work of this scope is left.
    pub async fn stopped(&self) {
        self.cancel();
        self.runtime.scope.finished().await;
    }

    /// Waits until every task has finished by itself. Tasks spawned meanwhile are waited for as well.
    pub async fn drained(&self) {
        self.runtime.scope.finished().await;
    }

    /// Resolves with the first panic of a task or of blocking work, here or below.
    pub async fn panicked(&self) {
        self.runtime.scope.panicked.cancelled().await;
    }

    /// Number of tasks and pieces of blocking work that are alive, here and below.
    pub fn task_count(&self) -> usize {
        self.runtime.scope.tracker.len()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("tasks", &self.task_count())
            .finish_non_exhaustive()
    }
}

impl ScopeInner {
    pub(crate) fn root() -> Arc<Self> {
        Arc::new(Self {
            token: CancellationToken::new(),
            panicked: CancellationToken::new(),
            tracker: TaskTracker::new(),
            parent: None,
        })
    }

    pub(crate) fn child(self: &Arc<Self>) -> Arc<Self> {
        let parent = Some(Arc::clone(self));
        Arc::new(Self {
            token: self.token.child_token(),
            panicked: CancellationToken::new(),
            tracker: TaskTracker::new(),
            parent,
        })
    }

    /// A task holds these while it lives, so that every scope above can wait for it.
    pub(crate) fn membership(&self) -> Vec<TaskTrackerToken> {
        // One token per scope above: a parent's `stopped` waits for tasks of children whose handles are gone.
        let mut tokens = vec![self.tracker.token()];
        let mut above = self.parent.as_ref();
        while let Some(scope) = above {
            tokens.push(scope.tracker.token());
            above = scope.parent.as_ref();
        }
        tokens
    }

    /// Reports a panic to this scope and those above.
    pub(crate) fn panicked(&self) {
        self.panicked.cancel();
        if let Some(above) = &self.parent {
            above.panicked();
        }
    }

    async fn finished(&self) {
        // `wait` answers for a closed tracker only; reopening lets the scope be used again after draining.
        self.tracker.close();
        self.tracker.wait().await;
        self.tracker.reopen();
    }
}

impl<T> TaskHandle<T> {
    pub(crate) fn new(join: JoinHandle<Result<T, TaskEnded>>) -> Self {
        Self { join }
    }

    /// Leaves the task to its scope; says so where a bare drop would look like a mistake.
    pub fn detach(self) {}

    /// Ends the task at its next wait.
    pub fn abort(&self) {
        self.join.abort();
    }

    /// Reports whether the task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.join.is_finished()
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = Result<T, TaskEnded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.join).poll(cx).map(|joined| match joined {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(TaskEnded::Panicked(panic_message(&*error.into_panic()))),
            Err(_) => Err(TaskEnded::Cancelled),
        })
    }
}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("finished", &self.is_finished())
            .finish()
    }
}

/// The text of a panic, where it has one.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
