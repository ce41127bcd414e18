//! A logind in memory, which says what a test has it say.

use async_trait::async_trait;
use machinery_runtime::Watched;
use node_sys::logind::{InhibitorLock, Logind, LogindError, LogindSession};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// State of the machine, and of the locks.
#[derive(Debug, Clone)]
pub(crate) struct LogindState {
    /// The machine goes down.
    pub(crate) is_preparing: bool,
    /// Time for which a lock may delay that.
    pub(crate) delay_max: Duration,
    /// The same, in force once the configuration is read again.
    pub(crate) configured: Option<Duration>,
    /// Locks that are held.
    pub(crate) locks: usize,
    /// Locks that were taken so far.
    pub(crate) taken: usize,
    /// Number of times that it was started again: sessions end at the next.
    pub(crate) starts: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct ModelLogind(Arc<Watched<LogindState>>);

impl Default for ModelLogind {
    fn default() -> Self {
        Self(Arc::new(Watched::new(LogindState {
            is_preparing: false,
            delay_max: Duration::from_secs(5),
            configured: None,
            locks: 0,
            taken: 0,
            starts: 0,
        })))
    }
}

impl ModelLogind {
    pub(crate) fn state(&self) -> LogindState {
        self.0.get()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut LogindState)) {
        self.0.change(|state| {
            change(state);
            true
        });
    }

    pub(crate) async fn until(&self, is_so: impl FnMut(&LogindState) -> bool) -> LogindState {
        self.0.wait_for(is_so).await
    }
}

#[async_trait]
impl Logind for ModelLogind {
    async fn connect(&self) -> Result<Box<dyn LogindSession>, LogindError> {
        let state = self.state();
        Ok(Box::new(Session {
            logind: self.clone(),
            starts: state.starts,
            is_preparing: state.is_preparing,
        }))
    }

    fn override_inhibit_delay(&self, delay: Duration) -> io::Result<()> {
        self.change(|state| state.configured = Some(delay));
        Ok(())
    }
}

#[derive(Debug)]
struct Session {
    logind: ModelLogind,
    starts: usize,
    is_preparing: bool,
}

#[derive(Debug)]
struct Lock(ModelLogind);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.change(|state| state.locks -= 1);
    }
}

#[async_trait]
impl LogindSession for Session {
    async fn inhibit_delay_max(&mut self) -> Result<Duration, LogindError> {
        Ok(self.logind.state().delay_max)
    }

    async fn reload_configuration(&mut self) -> Result<(), LogindError> {
        self.logind.change(|state| {
            state.delay_max = state.configured.unwrap_or(state.delay_max);
        });
        Ok(())
    }

    async fn is_preparing(&mut self) -> Result<bool, LogindError> {
        Ok(self.logind.state().is_preparing)
    }

    async fn inhibit(&mut self) -> Result<InhibitorLock, LogindError> {
        self.logind.change(|state| {
            state.locks += 1;
            state.taken += 1;
        });
        Ok(InhibitorLock::new(Lock(self.logind.clone())))
    }

    async fn next_event(&mut self) -> Result<bool, LogindError> {
        let (starts, before) = (self.starts, self.is_preparing);
        let differs = |state: &LogindState| state.starts != starts || state.is_preparing != before;
        let state = self.logind.until(differs).await;
        if state.starts != starts {
            return Err(LogindError::Restarted);
        }
        self.is_preparing = state.is_preparing;
        Ok(state.is_preparing)
    }
}
