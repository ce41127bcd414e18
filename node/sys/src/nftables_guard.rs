//! Tables that are written again when another took something of them away.

use crate::nftables::Table;
use crate::nftables_watch::TableWatch;
use futures::future::BoxFuture;
use machinery_runtime::Runtime;
use std::fmt;
use std::io;
use std::time::Duration;

/// Pause after an error of the socket, before another is opened.
const REOPEN: Duration = Duration::from_secs(5);

/// Guards tables of one writer. Where they cannot be watched, or no longer, the log says so once and watching is tried
/// again; those waiting are notified when it begins again, since what happened in between is not known.
pub struct TableGuard {
    state: State,
    open: Box<dyn Fn() -> io::Result<Box<dyn TableNews>> + Send + Sync>,
    tables: &'static [Table],
    runtime: Option<Runtime>,
}

/// Source of notifications of changed tables.
pub(crate) trait TableNews: Send + Sync {
    /// The same as [`TableWatch::disturbed`].
    fn disturbed(&mut self) -> BoxFuture<'_, io::Result<()>>;

    /// The same as [`TableWatch::settle`].
    fn settle(&mut self) -> io::Result<bool>;
}

enum State {
    /// Nothing is guarded.
    Off,
    Watching(Box<dyn TableNews>),
    /// The wait before the next attempt, which lasts over calls.
    Failed(BoxFuture<'static, ()>),
}

impl TableNews for TableWatch {
    fn disturbed(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.disturbed())
    }

    fn settle(&mut self) -> io::Result<bool> {
        self.settle()
    }
}

impl fmt::Debug for TableGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableGuard")
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}

impl TableGuard {
    /// Guards tables of this thread's network namespace.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(tables: &'static [Table], runtime: Runtime) -> Self {
        let open = move || TableWatch::open(tables).map(|watch| Box::new(watch) as Box<dyn TableNews>);
        Self::with(Box::new(open), tables, runtime)
    }

    /// Guards nothing.
    pub fn unwatched() -> Self {
        Self {
            state: State::Off,
            open: Box::new(|| Err(io::ErrorKind::Unsupported.into())),
            tables: &[],
            runtime: None,
        }
    }

    fn with(
        open: Box<dyn Fn() -> io::Result<Box<dyn TableNews>> + Send + Sync>,
        tables: &'static [Table],
        runtime: Runtime,
    ) -> Self {
        let mut guard = Self {
            state: State::Off,
            open,
            tables,
            runtime: Some(runtime),
        };
        match (guard.open)() {
            Ok(watch) => guard.state = State::Watching(watch),
            Err(error) => guard.fail(&error),
        }
        guard
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::warn!(tables = %self.names(), %error, "watching nftables failed, retrying: external changes are not repaired");
        self.pause();
    }

    fn pause(&mut self) {
        if let Some(runtime) = &self.runtime {
            self.state = State::Failed(runtime.sleep(REOPEN));
        }
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.tables.iter().map(|table| table.name).collect();
        names.join(", ")
    }

    /// Returns when the tables have to be written again. A call that is dropped loses nothing.
    pub async fn disturbed(&mut self) {
        loop {
            match &mut self.state {
                State::Off => std::future::pending::<()>().await,
                State::Watching(watch) => match watch.disturbed().await {
                    Ok(()) => {
                        tracing::warn!(tables = %self.names(), "nftables rules changed externally, rewriting");
                        return;
                    }
                    Err(error) => self.fail(&error),
                },
                State::Failed(wait) => {
                    wait.await;
                    if let Ok(watch) = (self.open)() {
                        tracing::info!(tables = %self.names(), "nftables are watched again, rewriting");
                        self.state = State::Watching(watch);
                        return;
                    }
                    self.pause();
                }
            }
        }
    }

    /// Reports, after a change of our own, whether the tables are there.
    ///
    /// # Errors
    /// Those of the socket; it is replaced in [`TableGuard::disturbed`].
    pub fn settle(&mut self) -> io::Result<bool> {
        let State::Watching(watch) = &mut self.state else {
            return Ok(true);
        };
        let settled = watch.settle();
        if let Err(error) = &settled {
            self.fail(error);
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use machinery_runtime::Simulation;
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    /// Behaviour of successive sockets: `None` is one that cannot be opened.
    type Script = Arc<Mutex<VecDeque<Option<Vec<io::Result<()>>>>>>;

    struct Scripted(Vec<io::Result<()>>);

    impl TableNews for Scripted {
        fn disturbed(&mut self) -> BoxFuture<'_, io::Result<()>> {
            match self.0.pop() {
                Some(news) => Box::pin(async { news }),
                None => Box::pin(std::future::pending()),
            }
        }

        fn settle(&mut self) -> io::Result<bool> {
            Ok(true)
        }
    }

    fn guard(runtime: Runtime, sockets: Vec<Option<Vec<io::Result<()>>>>) -> (TableGuard, Script) {
        let script: Script = Arc::new(Mutex::new(sockets.into()));
        let left = Arc::clone(&script);
        let open = move || match left.lock().unwrap().pop_front().flatten() {
            Some(news) => Ok(Box::new(Scripted(news)) as Box<dyn TableNews>),
            None => Err(io::ErrorKind::PermissionDenied.into()),
        };
        (TableGuard::with(Box::new(open), &[], runtime), script)
    }

    fn failure() -> io::Result<()> {
        Err(io::ErrorKind::ConnectionReset.into())
    }

    #[test]
    fn table_guard_watches_again_after_errors_of_its_socket() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let sockets = vec![Some(vec![failure()]), None, Some(vec![Ok(())])];
            let (mut guard, left) = guard(runtime, sockets);
            // Written again once the third socket watches, and then for its news.
            guard.disturbed().await;
            assert!(left.lock().unwrap().is_empty());
            guard.disturbed().await;
            assert!(guard.disturbed().now_or_never().is_none());
        });
    }

    #[test]
    fn table_guard_opens_its_socket_where_a_caller_waits_for_other_things_too() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let (mut guard, _) = guard(runtime.clone(), vec![None, Some(vec![])]);
            let mut calls = 0;
            while runtime.timeout(REOPEN / 3, guard.disturbed()).await.is_err() {
                calls += 1;
                assert!(calls < 10, "the wait began anew with each call");
            }
        });
    }
}
