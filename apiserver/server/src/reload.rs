//! Configurations that are read again while the server runs, and put in use when their file has changed (upstream's
//! `authentication_config_controller` and `authorization_config_controller`). A content that cannot be used leaves what was in use.

use crate::file_reload;
use crate::metrics::ReloadMetrics;
use machinery_runtime::Runtime;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The reason why a changed content is not in use.
#[derive(Debug)]
pub(crate) enum ReloadError {
    /// It never will be.
    Unusable(String),
    /// It may be at the next attempt.
    NotYet(String),
}

/// See the module.
pub(crate) struct Reload {
    /// The flag that names the file.
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) interval: Duration,
    pub(crate) runtime: Runtime,
    pub(crate) metrics: ReloadMetrics,
}

/// The content that was looked at last.
struct Tracked {
    text: String,
    /// Reason why the file could not be read the last time.
    unreadable: Option<String>,
}

impl Reload {
    /// Looks at the file as long as the server runs; `text` is in use.
    pub(crate) fn start<F, Fut>(self, task: &'static str, text: String, apply: F)
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ReloadError>> + Send + 'static,
    {
        self.metrics.in_use(&text);
        let runtime = self.runtime.clone();
        let tracked = Tracked {
            text,
            unreadable: None,
        };
        // A loop that begins again after a panic goes on with what was tracked.
        let shared = Arc::new((self, Mutex::new(tracked), apply));
        let begin = move || {
            let shared = Arc::clone(&shared);
            async move {
                let (own, tracked, apply) = &*shared;
                loop {
                    own.runtime.sleep(own.interval).await;
                    let mut tracked = tracked.lock().await;
                    own.look(&mut tracked, apply).await;
                }
            }
        };
        runtime.keep(task, begin).detach();
    }

    async fn look<F, Fut>(&self, tracked: &mut Tracked, apply: &F)
    where
        F: Fn(String) -> Fut,
        Fut: Future<Output = Result<(), ReloadError>>,
    {
        let path = self.path.clone();
        let read = self.runtime.blocking(move || file_reload::read(&path)).await;
        let read = read.unwrap_or_else(|ended| Err(io::Error::other(ended.to_string())));
        let text = match read {
            Ok(text) => text,
            Err(error) => return self.cannot_read(tracked, &error),
        };
        tracked.unreadable = None;
        if text == tracked.text {
            return;
        }
        let what = self.what;
        match apply(text.clone()).await {
            Ok(()) => {
                tracing::info!(what, "a changed file is in use");
                self.metrics.succeeded();
                self.metrics.in_use(&text);
            }
            Err(ReloadError::Unusable(why)) => {
                tracing::error!(why, what, "a changed file cannot be used; the one before stays");
                self.metrics.failed();
            }
            Err(ReloadError::NotYet(why)) => {
                tracing::error!(
                    why,
                    what,
                    "a changed file cannot be used yet; the one before stays"
                );
                return self.metrics.failed();
            }
        }
        tracked.text = text;
    }

    /// Logs and counts a problem once.
    fn cannot_read(&self, tracked: &mut Tracked, error: &io::Error) {
        let why = error.to_string();
        if tracked.unreadable.as_ref() != Some(&why) {
            let what = self.what;
            tracing::error!(
                why,
                what,
                "a changed file cannot be read; the content before stays"
            );
            self.metrics.failed();
            tracked.unreadable = Some(why);
        }
    }
}
