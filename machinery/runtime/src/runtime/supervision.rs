//! Components and work that begin again after a panic.

use super::Runtime;
use crate::scope::TaskHandle;
use std::future::Future;
use std::time::Duration;

/// The pause after a component's first panic, and the longest one; a component that ran longer than that starts over.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Runtime {
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
                // A long run is a new start: failures of last week must not delay the restart of today.
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
                    // First, as `biased`: a component that ended because its task panicked has failed, and must
                    // not count as done.
                    () = scope.panicked() => Err("a task of it panicked".to_owned()),
                    ended = running => ended,
                };
                scope.stopped().await;
                // All tasks have ended before the component begins again: two generations would write the same
                // state.
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
}
