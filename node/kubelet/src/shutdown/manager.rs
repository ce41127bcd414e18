//! The loop that holds the lock and follows logind. One session after the other: where the bus or logind goes away, the next
//! begins a second later, and the state of the shutdown is read again.

use std::convert::Infallible;
use std::io::Error;
use std::sync::Arc;
use std::time::Duration;

use node_sys::logind::{InhibitorLock, Logind, LogindError, LogindSession};

use super::config::ShutdownPeriod;
use super::ending::end_pods;
use super::metrics;
use super::record::ShutdownRecord;
use crate::api::events::EventType;
use crate::managers::ManagerContext;

/// Pause between two sessions, upstream's `dbusReconnectPeriod`.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);
/// Pauses after sessions that do not begin double up to this: a machine may have no logind.
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(30);
const EVENT: &str = "NodeShutdown";

/// Cause of a missing lock.
#[derive(Debug, thiserror::Error)]
enum ShutdownError {
    #[error(transparent)]
    Logind(#[from] LogindError),
    #[error("unable to override inhibit delay by shutdown manager")]
    Override(#[source] Error),
    #[error(
        "node shutdown manager was unable to update logind InhibitDelayMaxSec to {wanted:?} (ShutdownGracePeriod), current value \
         of InhibitDelayMaxSec ({found:?}) is less than requested ShutdownGracePeriod"
    )]
    TooShort { wanted: Duration, found: Duration },
}

/// Serves for ever; at once done where no period is configured.
pub(crate) async fn run(context: ManagerContext) {
    let periods = context.config.shutdown.periods();
    if periods.is_empty() {
        tracing::debug!("no graceful shutdown configured, a shutdown of the node is immediate");
        return;
    }
    let mut manager = ShutdownManager {
        logind: context.logind.clone(),
        context,
        periods,
        lock: None,
        has_begun: false,
    };
    manager.load_record().await;
    let mut pause = RECONNECT_AFTER;
    loop {
        let Err(error) = manager.session().await;
        pause = match std::mem::take(&mut manager.has_begun) {
            true => RECONNECT_AFTER,
            false => pause,
        };
        tracing::warn!(error = causes(&error), again_in = ?pause, "unable to watch the node for shutdown events");
        manager.context.runtime.sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_AFTER_MAX);
    }
}

struct ShutdownManager {
    context: ManagerContext,
    logind: Arc<dyn Logind>,
    periods: Vec<ShutdownPeriod>,
    /// The lock of the last session is kept until the next has one.
    lock: Option<InhibitorLock>,
    /// The session followed logind.
    has_begun: bool,
}

impl ShutdownManager {
    async fn session(&mut self) -> Result<Infallible, ShutdownError> {
        let mut session = self.logind.connect().await?;
        let session = session.as_mut();
        self.allow_delay(session).await?;
        let is_preparing = session.is_preparing().await?;
        if !is_preparing {
            self.lock = Some(session.inhibit().await?);
        }
        self.has_begun = true;
        tracing::info!("following shutdowns of the node");
        let mut news = Some(is_preparing);
        loop {
            let is_preparing = match news.take() {
                Some(known) => known,
                None => session.next_event().await?,
            };
            if is_preparing == self.is_shutting_down() {
                continue;
            }
            news = match is_preparing {
                true => self.shut_down(session).await?,
                false => self.recover(session).await?,
            };
        }
    }

    /// Sees to it that a lock may delay a shutdown for as long as all periods together.
    async fn allow_delay(&self, session: &mut dyn LogindSession) -> Result<(), ShutdownError> {
        let seconds = self.periods.iter().map(|period| period.seconds);
        let wanted = Duration::from_secs(seconds.fold(0, u64::saturating_add));
        if session.inhibit_delay_max().await? >= wanted {
            return Ok(());
        }
        let logind = self.logind.clone();
        let written = self
            .context
            .runtime
            .blocking(move || logind.override_inhibit_delay(wanted));
        let written = written
            .await
            .unwrap_or_else(|ended| Err(Error::other(ended.to_string())));
        written.map_err(ShutdownError::Override)?;
        session.reload_configuration().await?;
        let found = session.inhibit_delay_max().await?;
        match found >= wanted {
            true => Ok(()),
            false => Err(ShutdownError::TooShort { wanted, found }),
        }
    }

    fn is_shutting_down(&self) -> bool {
        self.context.workers.shutting_down.get()
    }

    /// Ends all pods and gives the lock back. A shutdown that is cancelled meanwhile ends no further group; that is the news that
    /// is returned.
    async fn shut_down(&mut self, session: &mut dyn LogindSession) -> Result<Option<bool>, ShutdownError> {
        self.record_event("Shutdown manager detected shutdown event");
        self.context.workers.shutting_down.replace(true);
        let started = Some(self.context.runtime.now());
        self.store_record(ShutdownRecord { started, ended: None }).await;
        let (mut failure, mut is_cancelled) = (None, false);
        {
            let ending = end_pods(&self.context, &self.periods);
            tokio::pin!(ending);
            while !is_cancelled {
                tokio::select! {
                    biased;
                    news = session.next_event(), if failure.is_none() => match news {
                        Ok(is_preparing) => is_cancelled = !is_preparing,
                        // What has begun does not need the bus.
                        Err(error) => failure = Some(error),
                    },
                    () = &mut ending => break,
                }
            }
        }
        let ended = Some(self.context.runtime.now());
        self.store_record(ShutdownRecord { started, ended }).await;
        self.lock = None;
        tracing::info!(is_cancelled, "done with a shutdown event, the node may go down");
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(is_cancelled.then_some(false)),
        }
    }

    /// The machine does not go down after all.
    async fn recover(&mut self, session: &mut dyn LogindSession) -> Result<Option<bool>, ShutdownError> {
        self.record_event("Shutdown manager detected shutdown cancellation");
        self.context.workers.shutting_down.replace(false);
        self.lock = Some(session.inhibit().await?);
        Ok(None)
    }

    fn record_event(&self, text: &'static str) {
        tracing::info!("{text}");
        let node = self.context.workers.node.lock().clone();
        let events = &self.context.workers.events;
        events.node(&node, EventType::Normal, EVENT, text.to_owned());
    }

    async fn load_record(&self) {
        let folder = self.context.config.data_dir.clone();
        let loaded = self
            .context
            .runtime
            .blocking(move || ShutdownRecord::load(&folder));
        match loaded
            .await
            .unwrap_or_else(|ended| Err(Error::other(ended.to_string())))
        {
            Ok(record) => self.show(record),
            Err(error) => tracing::warn!(%error, "failed to load graceful shutdown state"),
        }
    }

    async fn store_record(&self, record: ShutdownRecord) {
        self.show(record);
        let folder = self.context.config.data_dir.clone();
        let stored = self.context.runtime.blocking(move || record.store(&folder));
        let stored = stored
            .await
            .unwrap_or_else(|ended| Err(Error::other(ended.to_string())));
        if let Err(error) = stored {
            tracing::warn!(%error, "failed to store graceful shutdown state");
        }
    }

    fn show(&self, record: ShutdownRecord) {
        metrics::set(self.context.runtime.metrics(), record.started, record.ended);
    }
}

/// The error and what it came from.
fn causes(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    let all: Vec<String> = all.map(ToString::to_string).collect();
    all.join(": ")
}
