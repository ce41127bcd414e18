//! The audit webhook: lists of events, posted to the server of a kubeconfig, as upstream's
//! (k8s.io/apiserver/plugin/pkg/audit/webhook and buffered).
//!
//! In the mode `batch`, the default, no request waits: events are put together to batches ([`batches`]), and those that come while as
//! many wait as the buffer holds, or [`MAX_BUFFERED_BYTES`] are waiting or under way, or beyond their user's share of both ([`shares`]), are
//! dropped and counted. In the modes `blocking`
//! and `blocking-strict` a request waits until its event is sent or has failed; the bounds are those of the log.
//!
//! A call that fails is made again ([`delivery`]), and an answer counts by its code alone. Bounded: events and bytes that wait, batches
//! under way, the time of a call, the bytes of an answer. Nothing of an event is in a line of the log.

mod batches;
mod config;
mod delivery;
mod receiver;
mod shares;
mod throttle;

#[cfg(test)]
mod tests;

pub use config::{AuditBatchConfig, AuditThrottle, AuditWebhookConfig};
pub(crate) use receiver::{Receiver, WebhookReceiver};

use super::backend::{AuditMode, Backlog, Written};
use super::log::{BUFFER, OBJECTS_BYTES, QUEUE, QUEUE_BYTES};
use super::truncate::AuditTruncateConfig;
use batches::{BatchLimits, Batches, Item, in_a_list};
use delivery::Delivery;
use machinery_runtime::{CancellationToken, LogThrottle, Runtime};
use prometheus::IntCounterVec;
use shares::{Amount, Share, Shares};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use throttle::Throttle;
use tokio::sync::{mpsc, oneshot};

/// Upstream's name of what failed.
pub(super) const PLUGIN: &str = "webhook";
/// The beginning of every line, which the items of a list are without.
const PREFIX: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#;
/// Bytes of events that wait or are under way in the mode `batch`.
const MAX_BUFFERED_BYTES: usize = 32 << 20;
/// Batches under way. Upstream has no bound.
const MAX_UNDER_WAY: usize = 64;
/// Events of a batch in the modes that block, where upstream sends each by itself.
const MAX_BLOCKING_BATCH: usize = 400;

/// Takes events for a webhook.
#[derive(Debug)]
pub(crate) struct AuditWebhook {
    mode: AuditMode,
    truncate: Option<AuditTruncateConfig>,
    /// Events that may be queued in the mode `batch`.
    buffer_size: usize,
    items: mpsc::UnboundedSender<Item>,
    /// Events that no batch has yet.
    queued: Arc<AtomicUsize>,
    /// All that are waiting or under way.
    backlog: Arc<Backlog>,
    /// Parts of them by user, in the mode `batch`.
    shares: Arc<Shares>,
    errors: IntCounterVec,
    stopping: CancellationToken,
}

impl AuditWebhook {
    /// Sends to a receiver, in a task of the server.
    pub(crate) fn open(
        config: &AuditWebhookConfig,
        receiver: Arc<dyn Receiver>,
        runtime: &Runtime,
        errors: IntCounterVec,
    ) -> Self {
        let (items, received) = mpsc::unbounded_channel();
        let (queued, backlog) = (Arc::<AtomicUsize>::default(), Arc::<Backlog>::default());
        let stopping = CancellationToken::new();
        let delivery = Delivery {
            receiver,
            initial_backoff: config.initial_backoff,
            errors: errors.clone(),
            runtime: runtime.clone(),
            stopping: stopping.clone(),
            said: LogThrottle::default(),
        };
        let is_batch = config.mode == AuditMode::Batch;
        let limits = BatchLimits {
            events: if is_batch {
                config.batch.max_size
            } else {
                MAX_BLOCKING_BATCH
            },
            bytes: config.truncate.unwrap_or_default().max_batch_size,
            wait: is_batch.then_some(config.batch.max_wait),
        };
        let buffer_size = config.batch.buffer_size;
        let shares = Shares::new(Amount {
            // One more batch waits for a place among those under way.
            events: buffer_size.saturating_add(limits.events.saturating_mul(MAX_UNDER_WAY + 1)),
            bytes: MAX_BUFFERED_BYTES,
        });
        let throttle = config.batch.throttle.filter(|_| is_batch);
        let throttle = throttle.map(|limit| Throttle::new(limit, runtime.monotonic()));
        let taken = (received, Arc::clone(&queued));
        let batches = Batches::new(limits, throttle, taken, &backlog, delivery);
        let batches = Arc::new(tokio::sync::Mutex::new(batches));
        let send = move || {
            let batches = Arc::clone(&batches);
            async move { batches.lock().await.run().await }
        };
        runtime.supervise("audit webhook", send).detach();
        Self {
            mode: config.mode,
            truncate: config.truncate,
            buffer_size,
            items,
            queued,
            backlog,
            shares,
            errors,
            stopping,
        }
    }

    pub(super) fn truncate(&self) -> Option<&AuditTruncateConfig> {
        self.truncate.as_ref()
    }

    /// Resolves when a further request may begin.
    pub(super) async fn wait_for_capacity(&self) {
        if self.mode != AuditMode::Batch {
            self.backlog.room(QUEUE, QUEUE_BYTES).await;
        }
    }

    /// Reports whether so much waits that an event is to go without objects.
    pub(super) fn is_behind(&self) -> bool {
        self.backlog.bytes() > OBJECTS_BYTES
    }

    /// Takes the line of an event that a user has caused.
    pub(super) fn write(&self, line: &str, user: &str) -> Written {
        let event = in_a_list(line);
        if self.mode == AuditMode::Batch {
            self.write_to_buffer(event, user);
            return Written::default();
        }
        let (sent, received) = oneshot::channel();
        self.send(event, Some(sent), None);
        Written::pending(received, self.mode)
    }

    fn write_to_buffer(&self, event: String, user: &str) {
        let has_room = self.queued.load(Ordering::Acquire) < self.buffer_size;
        let share = has_room.then(|| self.shares.take(user, event.len())).flatten();
        match share {
            Some(_) => self.send(event, None, share),
            None => self.errors.with_label_values(&[BUFFER]).inc(),
        }
    }

    fn send(&self, event: String, sent: Option<oneshot::Sender<bool>>, share: Option<Share>) {
        let bytes = event.len();
        self.backlog.add(bytes);
        self.queued.fetch_add(1, Ordering::AcqRel);
        // Only a server that has ended takes none.
        if self.items.send(Item { event, sent, share }).is_err() {
            self.queued.fetch_sub(1, Ordering::AcqRel);
            self.backlog.remove(1, bytes);
            self.errors.with_label_values(&[BUFFER]).inc();
        }
    }

    /// Sends what is waiting without further waits, and resolves when nothing is under way.
    pub(super) async fn flush(&self) {
        self.stopping.cancel();
        self.backlog.emptied().await;
    }

    /// Events that are waiting or under way.
    pub(super) fn unsent(&self) -> usize {
        self.backlog.events()
    }
}
