//! Events put together to batches, each of which is sent by a task of its own.
//!
//! A batch is full by its events or bytes; in the mode `batch` one that is not waits for more, up to a time from its first event.
//! In the others it goes at once, with the events that came while none could be sent. Batches wait for the throttle, and for one of
//! the places of those under way.

use super::delivery::Delivery;
use super::shares::Share;
use super::throttle::Throttle;
use super::{MAX_UNDER_WAY, PREFIX};
use crate::filters::audit::backend::Backlog;
use bytes::Bytes;
use futures::future::{Either, pending};
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

const HEAD: &str = r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
const TAIL: &str = "]}\n";

/// An event, and the receiver of the news whether it was sent, where a request waits for that.
#[derive(Debug)]
pub(super) struct Item {
    /// JSON without its kind, which the list has.
    pub(super) event: String,
    pub(super) sent: Option<oneshot::Sender<bool>>,
    /// Of what its user may have waiting, where that is bounded.
    #[expect(
        dead_code,
        reason = "it is held for as long as the event waits or is under way"
    )]
    pub(super) share: Option<Share>,
}

/// Events that are sent together. They leave the backlog with it.
#[derive(Debug)]
struct Batch {
    items: Vec<Item>,
    events: usize,
    bytes: usize,
    backlog: Arc<Backlog>,
}

impl Batch {
    fn new(backlog: &Arc<Backlog>) -> Self {
        Self {
            items: Vec::new(),
            events: 0,
            bytes: 0,
            backlog: Arc::clone(backlog),
        }
    }

    fn events(&self) -> usize {
        self.events
    }

    fn push(&mut self, item: Item) {
        self.events += 1;
        self.bytes += item.event.len();
        self.items.push(item);
    }

    /// The list of its events, which are not kept beside it.
    fn body(&mut self) -> Bytes {
        let commas = self.events;
        let mut body = String::with_capacity(HEAD.len() + self.bytes + commas + TAIL.len());
        body.push_str(HEAD);
        for (at, item) in self.items.iter_mut().enumerate() {
            if at > 0 {
                body.push(',');
            }
            body.push_str(&std::mem::take(&mut item.event));
        }
        body.push_str(TAIL);
        body.into()
    }

    /// Sends the news to the requests that wait for it.
    fn finish(mut self, is_sent: bool) {
        for sent in self.items.drain(..).filter_map(|item| item.sent) {
            // A client that went waits no more.
            let _ = sent.send(is_sent);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.backlog.remove(self.events, self.bytes);
    }
}

/// Bounds of a batch.
#[derive(Debug, Clone)]
pub(super) struct BatchLimits {
    pub(super) events: usize,
    pub(super) bytes: usize,
    /// Time that the first event of one waits for others.
    pub(super) wait: Option<Duration>,
}

/// Makes batches and sends them. It outlives a panic of its work.
pub(super) struct Batches {
    limits: BatchLimits,
    throttle: Option<Throttle>,
    items: mpsc::UnboundedReceiver<Item>,
    /// Events among the items.
    queued: Arc<AtomicUsize>,
    /// An event for which the last batch had no room.
    carried: Option<Item>,
    batch: Batch,
    places: Arc<Semaphore>,
    delivery: Arc<Delivery>,
}

enum Next {
    Item(Item),
    /// The batch is not to wait for more.
    Due,
    /// No more events come.
    End,
}

impl Batches {
    pub(super) fn new(
        limits: BatchLimits,
        throttle: Option<Throttle>,
        (items, queued): (mpsc::UnboundedReceiver<Item>, Arc<AtomicUsize>),
        backlog: &Arc<Backlog>,
        delivery: Delivery,
    ) -> Self {
        Self {
            limits,
            throttle,
            items,
            queued,
            carried: None,
            batch: Batch::new(backlog),
            places: Arc::new(Semaphore::new(MAX_UNDER_WAY)),
            delivery: Arc::new(delivery),
        }
    }

    fn runtime(&self) -> Runtime {
        self.delivery.runtime.clone()
    }

    /// Sends events until no more come.
    pub(super) async fn run(&mut self) -> Result<(), String> {
        while self.collect().await {
            self.wait_for_throttle().await;
            let place = Arc::clone(&self.places).acquire_owned().await;
            let place = place.map_err(|closed| closed.to_string())?;
            let empty = Batch::new(&self.batch.backlog);
            let mut batch = std::mem::replace(&mut self.batch, empty);
            let delivery = Arc::clone(&self.delivery);
            let delivering = async move {
                let is_sent = delivery.deliver(batch.body(), batch.events()).await;
                batch.finish(is_sent);
                drop(place);
            };
            self.runtime().spawn("audit-webhook", delivering).detach();
        }
        Ok(())
    }

    /// Fills the batch; `false` where no event came, and none comes any more.
    async fn collect(&mut self) -> bool {
        let mut since = self.runtime().monotonic();
        loop {
            match self.next(since).await {
                Next::Item(item) => {
                    let held = self.batch.bytes;
                    if held > 0 && held + item.event.len() > self.limits.bytes {
                        self.carried = Some(item);
                        return true;
                    }
                    if self.batch.events == 0 {
                        since = self.runtime().monotonic();
                    }
                    self.batch.push(item);
                    if self.batch.events >= self.limits.events {
                        return true;
                    }
                }
                Next::Due => return true,
                Next::End => return self.batch.events > 0,
            }
        }
    }

    async fn next(&mut self, since: Duration) -> Next {
        if let Some(item) = self.carried.take() {
            return Next::Item(item);
        }
        if let Ok(item) = self.items.try_recv() {
            return self.taken(item);
        }
        let runtime = self.runtime();
        let due = match self.limits.wait {
            _ if self.batch.events == 0 => Either::Left(pending()),
            None => return Next::Due,
            Some(wait) => Either::Right(runtime.sleep_until(since.saturating_add(wait))),
        };
        let stopping = self.delivery.stopping.clone();
        let is_empty = self.batch.events == 0;
        tokio::select! { biased;
            item = self.items.recv() => match item {
                Some(item) => self.taken(item),
                None => Next::End,
            },
            () = stopping.cancelled(), if !is_empty => Next::Due,
            () = due => Next::Due,
        }
    }

    fn taken(&self, item: Item) -> Next {
        self.queued.fetch_sub(1, Ordering::AcqRel);
        Next::Item(item)
    }

    async fn wait_for_throttle(&mut self) {
        let runtime = self.runtime();
        let Some(throttle) = &mut self.throttle else {
            return;
        };
        let pause = throttle.take(runtime.monotonic());
        if pause.is_zero() {
            return;
        }
        tokio::select! { biased;
            () = self.delivery.stopping.cancelled() => {}
            () = runtime.sleep(pause) => {}
        }
    }
}

/// The JSON of an event in a list, of its line.
pub(super) fn in_a_list(line: &str) -> String {
    let line = line.trim_end();
    match line.strip_prefix(PREFIX) {
        Some(rest) => format!("{{{rest}"),
        None => line.to_owned(),
    }
}
