//! The receiver of audit events.

use apiserver_auth::{KubeconfigError, REVIEW_CALL_TIMEOUT, webhook_remote};
use apiserver_egress::{Dialer, Remote, answer_message};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::fmt;
use std::path::Path;

/// Bytes that are read of an answer.
const MAX_ANSWER: usize = 64 << 10;

/// Takes lists of events.
pub(crate) trait Receiver: fmt::Debug + Send + Sync {
    /// One call; the error says why it failed.
    fn post(&self, events: Bytes) -> BoxFuture<'_, Result<(), String>>;
}

/// The server of a kubeconfig's current context.
#[derive(Debug)]
pub(crate) struct WebhookReceiver {
    remote: Remote,
    dialer: Dialer,
}

impl WebhookReceiver {
    /// # Errors
    /// See [`KubeconfigError`].
    pub(crate) fn open(kubeconfig: &Path, dialer: Dialer) -> Result<Self, KubeconfigError> {
        let remote = webhook_remote(kubeconfig, REVIEW_CALL_TIMEOUT)?;
        Ok(Self { remote, dialer })
    }
}

impl Receiver for WebhookReceiver {
    fn post(&self, events: Bytes) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let posting = self.remote.deliver(&self.dialer, events, MAX_ANSWER);
            let answer = self.dialer.runtime().timeout(REVIEW_CALL_TIMEOUT, posting).await;
            let late = |_| format!("Post {:?}: context deadline exceeded", self.remote.url());
            let answer = answer.map_err(late)?.map_err(|error| error.to_string())?;
            match answer.code {
                200..=206 => Ok(()),
                code => Err(answer_message(code, &answer.body)),
            }
        }
        .boxed()
    }
}
