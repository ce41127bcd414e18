//! A batch on its way to the receiver: the calls, with pauses between those that fail, and the count of what is lost.

use super::{PLUGIN, Receiver};
use bytes::Bytes;
use machinery_runtime::{CancellationToken, LogThrottle, Runtime};
use prometheus::IntCounterVec;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's: calls in all for one batch, and the growth of the pauses between them.
const STEPS: u32 = 5;
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;

/// See the module.
pub(super) struct Delivery {
    pub(super) receiver: Arc<dyn Receiver>,
    pub(super) initial_backoff: Duration,
    pub(super) errors: IntCounterVec,
    pub(super) runtime: Runtime,
    /// The server ends: no pause is waited for, and no call made again.
    pub(super) stopping: CancellationToken,
    pub(super) said: LogThrottle,
}

impl Delivery {
    /// Sends a list of so many events; where that fails they are lost, and counted.
    pub(super) async fn deliver(&self, body: Bytes, events: usize) -> bool {
        let sent = self.sent(body).await;
        if let Err(error) = &sent {
            self.errors.with_label_values(&[PLUGIN]).inc_by(events as u64);
            if let Some(left_out) = self.said.should_log(self.runtime.monotonic()) {
                tracing::error!(%error, events, left_out, "sending audit events to the webhook failed: they are lost");
            }
        }
        sent.is_ok()
    }

    /// Any failure is a reason for another call, as upstream's `retryOnError` has it.
    async fn sent(&self, body: Bytes) -> Result<(), String> {
        let mut pause = self.initial_backoff;
        let mut left = STEPS;
        loop {
            let failed = match self.receiver.post(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            left -= 1;
            if left == 0 || self.stopping.is_cancelled() {
                return Err(failed);
            }
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let share = self.runtime.random_u64() as f64 / u64::MAX as f64;
            let pausing = self.runtime.sleep(pause.mul_f64(1.0 + JITTER * share));
            tokio::select! { biased;
                () = self.stopping.cancelled() => {}
                () = pausing => {}
            }
            pause = pause.mul_f64(FACTOR);
        }
    }
}
