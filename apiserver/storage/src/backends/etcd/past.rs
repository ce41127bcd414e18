//! Changes that memory no longer has, read from etcd for one slow watch: by few at a time, for a bounded time, never at
//! the client's pace.

use super::follower::{ended, refused};
use super::remote::{Remote, key, number, revision, unsigned};
use crate::cursor::PastEvents;
use crate::feed::Slot;
use crate::{Event, Key, StorageError, Target, WatchFilter};
use etcd_client::{EventType, KeyValue, WatchOptions, WatchResponse};
use machinery_meta::Revision;
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// See the module.
#[derive(Debug)]
pub(super) struct Past {
    remote: Remote,
    reads: Semaphore,
}

/// Streams beside the one watch, whatever clients do.
const READS: usize = 2;
/// One read takes no longer; then its watch fails, and its client begins again from its position.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// Interval of progress requests.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Changes received for one watch.
struct Reading<'a> {
    remote: &'a Remote,
    slot: &'a Slot,
    events: Vec<Arc<Event>>,
    /// Everything before it was received.
    next: Revision,
}

impl Past {
    pub(super) fn new(remote: Remote) -> Self {
        Self {
            remote,
            reads: Semaphore::new(READS),
        }
    }

    /// The changes from `from` to at most `until` that a cursor wants: those of whole revisions, until there are `max`.
    pub(super) async fn events(
        &self,
        runtime: &Runtime,
        slot: &Slot,
        from: Revision,
        until: Revision,
        max: usize,
    ) -> Result<PastEvents, StorageError> {
        let closed = |_| StorageError::Closed;
        let _permit = self.reads.acquire().await.map_err(closed)?;
        let reading = Reading {
            remote: &self.remote,
            slot,
            events: Vec::new(),
            next: from,
        };
        let read = runtime
            .timeout(READ_WITHIN, reading.run(runtime, until, max))
            .await;
        read.map_err(|_| StorageError::Unavailable("etcd has not sent older changes in time".to_owned()))?
    }
}

impl Reading<'_> {
    async fn run(
        mut self,
        runtime: &Runtime,
        until: Revision,
        max: usize,
    ) -> Result<PastEvents, StorageError> {
        let options = WatchOptions::new()
            .with_start_revision(number(self.next))
            .with_prev_key();
        let (start, options) = match common(&self.slot.interests) {
            Common::Key(key) => (key, options),
            Common::Prefix(prefix) => (prefix, options.with_prefix()),
        };
        let mut client = self.remote.watch_client();
        let opened = client.watch(start, Some(options));
        let (mut requests, mut answers) = self.remote.waiting(opened).await?.split();
        while self.next <= until && self.events.len() < max {
            tokio::select! {
                biased;
                answer = self.remote.waiting(answers.message()) => {
                    let answer = answer?.ok_or_else(ended)?;
                    let changed = answer.events().iter();
                    let values = changed.flat_map(|change| change.kv().into_iter().chain(change.prev_kv()));
                    self.remote.prepare(values.collect()).await;
                    self.take(&answer, until, max)?;
                }
                () = runtime.sleep(ASK_AGAIN) => self.remote.waiting(requests.request_progress()).await?,
            }
        }
        Ok(PastEvents {
            events: self.events,
            next: self.next.min(until.next()),
        })
    }

    fn take(&mut self, answer: &WatchResponse, until: Revision, max: usize) -> Result<(), StorageError> {
        if let Some(error) = refused(answer, Revision(self.next.0.saturating_sub(1))) {
            return Err(error);
        }
        if answer.events().is_empty() && !answer.created() {
            self.next = self.next.max(revision(answer.header()).next());
        }
        for change in answer.events() {
            let kv = change.kv().ok_or_else(ended)?;
            let at = unsigned(kv.mod_revision());
            if at > until {
                self.next = until.next();
                return Ok(());
            }
            // Changes of a group share a revision: it is delivered to its end.
            if at >= self.next && self.events.len() >= max {
                return Ok(());
            }
            self.next = self.next.max(at.next());
            // Several interests share one stream; what others keep in between may be of an unknown form.
            let Ok(key) = key(kv) else { continue };
            if !self.slot.may_match(Some(&key)) {
                continue;
            }
            let event = event(self.remote, change, kv, key)?;
            if self.slot.wants(&event) {
                self.events.push(Arc::new(event));
            }
        }
        Ok(())
    }
}

/// The smallest part of the key space that holds every interest; what is not wanted is left out here.
enum Common {
    Key(Vec<u8>),
    Prefix(Vec<u8>),
}

fn common(interests: &[WatchFilter]) -> Common {
    if let [
        WatchFilter {
            target: Target::Key(key),
            ..
        },
    ] = interests
    {
        return Common::Key(key.as_str().into());
    }
    let mut texts = interests.iter().map(|interest| match &interest.target {
        Target::Key(key) => key.as_str(),
        Target::Prefix(prefix) => prefix.as_str(),
    });
    let first = texts.next().unwrap_or("/");
    let shared = texts.fold(first, |shared, text| {
        let length = shared
            .bytes()
            .zip(text.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        shared.get(..length).unwrap_or("/")
    });
    Common::Prefix(shared.into())
}

fn event(
    remote: &Remote,
    change: &etcd_client::Event,
    kv: &KeyValue,
    key: Key,
) -> Result<Event, StorageError> {
    let previous = change.prev_kv().map(|kv| remote.entry(kv)).transpose()?;
    let revision = unsigned(kv.mod_revision());
    let is_put = change.event_type() == EventType::Put;
    let creates = is_put && kv.create_revision() == kv.mod_revision();
    if previous.is_none() && !creates {
        // etcd looks for what was there when it sends, and leaves it out when that is compacted by then. Without it
        // it is unknown whether an object has left a selection.
        return Err(StorageError::Compacted {
            asked: Revision(revision.0.saturating_sub(1)),
            compacted: revision,
        });
    }
    let entry = if is_put { Some(remote.entry(kv)?) } else { None };
    Ok(Event {
        revision,
        key,
        entry,
        previous,
    })
}
