//! One queue of events and the task that writes them, in their order.

use super::bursts::{Bursts, Identity};
use super::dropped::{DropReason, DroppedEvents};
use super::{NewEvent, Reporter};
use crate::client::{Client, Patch};
use crate::error::ClientError;
use jiff::Timestamp;
use machinery_meta::{ObjectKey, syntax};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Events that wait to be sent, and the bytes of their messages.
const MAX_QUEUED: usize = 1_000;
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Different events whose count is remembered; the oldest are forgotten.
const MAX_REMEMBERED: usize = 4_096;
/// Attempts to send an event before it is dropped.
const SEND_ATTEMPTS: u32 = 3;
const SEND_RETRY: Duration = Duration::from_secs(1);

pub(super) struct Lane {
    client: Client,
    reporter: Arc<Reporter>,
    dropped: Arc<DroppedEvents>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(NewEvent, Timestamp)>,
    queued_bytes: usize,
    sending: bool,
    remembered: BTreeMap<Identity, Sent>,
    /// The order in which events were remembered.
    order: VecDeque<Identity>,
    bursts: Bursts,
}

/// An event that exists already.
#[derive(Debug, Clone)]
struct Sent {
    name: String,
    count: u32,
}

impl Lane {
    pub(super) fn new(client: Client, reporter: Arc<Reporter>, dropped: Arc<DroppedEvents>) -> Arc<Self> {
        Arc::new(Self {
            client,
            reporter,
            dropped,
            state: Mutex::default(),
        })
    }

    pub(super) fn put(self: &Arc<Self>, event: NewEvent) {
        let runtime = self.client.runtime();
        let start = {
            let mut state = self.state.lock();
            let bytes = state.queued_bytes + event.message.len();
            let is_full = state.queue.len() >= MAX_QUEUED || bytes > MAX_QUEUED_BYTES;
            if is_full {
                return self
                    .dropped
                    .count(DropReason::QueueFull, &event, &"too many events wait");
            }
            if self.reporter.bounds_bursts && !state.bursts.take(&event.about, runtime.monotonic()) {
                return self
                    .dropped
                    .count(DropReason::Burst, &event, &"too many events of one object");
            }
            state.queued_bytes = bytes;
            state.queue.push_back((event, runtime.now()));
            !std::mem::replace(&mut state.sending, true)
        };
        if start {
            let (lane, own) = (Arc::clone(self), runtime.clone());
            // Only the event that makes it panic is lost.
            let send = async move { own.again_after_panics("event recorder", || lane.send_all()).await };
            runtime.spawn("event recorder", send).detach();
        }
    }

    async fn send_all(&self) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.queue.pop_front();
                state.sending = next.is_some();
                state.queued_bytes -= next.as_ref().map_or(0, |(event, _)| event.message.len());
                next
            };
            let Some((event, at)) = next else { return };
            self.send(&event, at).await;
        }
    }

    async fn send(&self, event: &NewEvent, at: Timestamp) {
        for attempt in 1..=SEND_ATTEMPTS {
            match self.send_once(event, at).await {
                Ok(()) => return,
                // The namespace is going, or the event is not acceptable: trying again would change nothing.
                Err(error) if (400..500).contains(&error.code()) && error.code() != 429 => {
                    return self.dropped.count(DropReason::Refused, event, &error.chain());
                }
                Err(error) if attempt == SEND_ATTEMPTS => {
                    self.dropped.count(DropReason::NotWritten, event, &error.chain());
                }
                Err(error) => {
                    tracing::debug!(error = %error.chain(), reason = %event.reason, "an event was not written");
                    self.client.runtime().sleep(SEND_RETRY).await;
                }
            }
        }
    }

    async fn send_once(&self, event: &NewEvent, at: Timestamp) -> Result<(), ClientError> {
        let form = self.reporter.form;
        let identity = form.identity(event);
        let known = self.state.lock().remembered.get(&identity).cloned();
        if let Some(known) = known
            && self.repeat(event, identity, known, at).await?
        {
            return Ok(());
        }
        let namespace = event.about.namespace();
        let mut name = self.name(event, at);
        let body = form.body(&self.reporter, event, at, &name);
        let writes = self.client.writes();
        match writes.create(&form.resource(), namespace, &body).await {
            // Another event of the object at the same nanosecond, as a simulated clock has them.
            Err(error) if error.is_already_exists() => {
                name = self.client.runtime().uuid().to_string();
                let body = form.body(&self.reporter, event, at, &name);
                writes.create(&form.resource(), namespace, &body).await?;
            }
            created => drop(created?),
        }
        self.state.lock().remember(identity, Sent { name, count: 1 });
        Ok(())
    }

    /// Raises the count of an event; false where it has expired.
    async fn repeat(
        &self,
        event: &NewEvent,
        identity: Identity,
        mut known: Sent,
        at: Timestamp,
    ) -> Result<bool, ClientError> {
        let form = self.reporter.form;
        known.count = known.count.saturating_add(1);
        if let Some(change) = form.repetition(known.count, at) {
            let key = ObjectKey::new(event.about.namespace(), &known.name);
            let patched = self
                .client
                .patch(&form.resource(), &key, "", &Patch::Merge, &change);
            match patched.await {
                Err(error) if error.is_not_found() => return Ok(false),
                other => drop(other?),
            }
        }
        self.state.lock().remember(identity, known);
        Ok(true)
    }

    fn name(&self, event: &NewEvent, at: Timestamp) -> String {
        let name = format!("{}.{:x}", event.about.key.name, at.as_nanosecond());
        match syntax::dns1123_subdomain(&name).is_empty() {
            true => name,
            // Roles and the like have names that an event may not have.
            false => self.client.runtime().uuid().to_string(),
        }
    }
}

impl State {
    fn remember(&mut self, identity: Identity, sent: Sent) {
        if self.remembered.insert(identity, sent).is_none() {
            self.order.push_back(identity);
        }
        while self.order.len() > MAX_REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.remembered.remove(&oldest);
            }
        }
    }
}
