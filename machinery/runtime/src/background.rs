//! An executor of the process whose threads give way to those that serve requests.

use crate::Runtime;
use std::io;
use tokio::runtime::{Builder, Handle};

/// Niceness of the threads (`nice`): while both have work they get about a third of what a thread that serves requests gets.
pub(crate) const NICENESS: i32 = 5;

/// Threads for what may wait: controllers and scheduler, and the requests that they make in process. Dropping it ends what
/// runs there.
#[derive(Debug)]
pub struct Background(Option<tokio::runtime::Runtime>);

impl Background {
    /// Starts so many threads of this name.
    ///
    /// # Errors
    /// The machine gives no threads.
    pub fn start(name: &'static str, threads: usize) -> io::Result<Self> {
        let executor = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .on_thread_start(give_way)
            .enable_all()
            .build()?;
        Ok(Self(Some(executor)))
    }

    fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(tokio::runtime::Runtime::handle)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(executor) = self.0.take() {
            // Its owner may be a task, which cannot wait for threads.
            executor.shutdown_background();
        }
    }
}

impl Runtime {
    /// The same handle, whose tasks run on these threads.
    #[must_use]
    pub fn on(&self, background: &Background) -> Self {
        background
            .handle()
            .map_or_else(|| self.clone(), |handle| self.with_handle(handle.clone()))
    }

    /// The same handle, whose tasks run on the executor of the task that calls this.
    #[must_use]
    pub fn here(&self) -> Self {
        Handle::try_current().map_or_else(|_| self.clone(), |handle| self.with_handle(handle))
    }
}

/// Makes this thread give way to those that started it; where that is not allowed, it is an equal.
pub(crate) fn give_way() {
    use rustix::process::{getpriority_process, setpriority_process};
    let thread = Some(rustix::thread::gettid());
    let _ = getpriority_process(thread).and_then(|nice| setpriority_process(thread, nice + NICENESS));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn niceness() -> i32 {
        rustix::process::getpriority_process(Some(rustix::thread::gettid())).expect("a thread has one")
    }

    fn thread() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn background_tasks_give_way_and_stay_where_they_are() {
        let runtime = Runtime::real();
        let (own, scope) = (niceness(), runtime.child_scope());
        let background = Background::start("waits", 1).expect("threads");
        let behind = scope.runtime().on(&background);
        let inner = runtime.clone();
        let task = behind.spawn("task", async move {
            let below = inner.here().spawn("below", async { (thread(), niceness()) });
            let apart = inner.spawn("apart", async { (thread(), niceness()) });
            (
                thread(),
                niceness(),
                below.await.expect("ends"),
                apart.await.expect("ends"),
            )
        });
        let (name, nice, below, apart) = task.await.expect("ends");
        assert_eq!((name.as_str(), nice), ("waits", own + NICENESS));
        assert_eq!(below, ("waits".to_owned(), own + NICENESS));
        assert_ne!(apart.0, "waits");
        assert_eq!(apart.1, own);
        // Tasks belong to the scope of the handle, wherever they run.
        let waiting = behind.spawn("waiting", std::future::pending::<()>());
        scope.stopped().await;
        assert!(waiting.await.is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn background_that_is_dropped_ends_its_tasks() {
        let runtime = Runtime::real();
        let background = Background::start("waits", 1).expect("threads");
        let task = runtime
            .on(&background)
            .spawn("waiting", std::future::pending::<()>());
        drop(background);
        assert!(task.await.is_err());
    }
}
