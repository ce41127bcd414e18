//! Follows the objects of a resource for ever: all there are, then their changes, and all again after a watch that ended.
//!
//! Loops of the server itself follow by this one; components, which reach the API as clients, by `machinery-client`'s
//! reflector.

use super::{Store, WatchEvent, Watcher};
use crate::engine::error::RegistryError;
use crate::engine::options::WatchOptions;
use crate::engine::scope::Scope;
use apiserver_storage::Entry;
use machinery_meta::Predicate;
use std::sync::Arc;
use std::time::Duration;

/// Change of one object.
#[derive(Debug, Clone)]
pub enum ObjectChange {
    /// Added or changed, as it is now.
    Set(Arc<Entry>),
    /// Deleted, as it last was.
    Gone(Arc<Entry>),
}

/// State or changes of the objects that a [`Follower`] follows.
#[derive(Debug, Clone)]
pub enum Followed {
    /// All objects there are: what was known before and is not among them has gone.
    All(Vec<Arc<Entry>>),
    /// Changes in their order.
    Changes(Vec<ObjectChange>),
}

impl Followed {
    /// Changes, of all objects there are where all were read: for readers that keep nothing that could be gone.
    pub fn changes(self) -> Vec<ObjectChange> {
        match self {
            Self::All(entries) => entries.into_iter().map(ObjectChange::Set).collect(),
            Self::Changes(changes) => changes,
        }
    }

    /// Objects as they are now, for readers that do not need to know what has gone.
    pub fn present(self) -> impl Iterator<Item = Arc<Entry>> {
        self.changes().into_iter().filter_map(|change| match change {
            ObjectChange::Set(entry) => Some(entry),
            ObjectChange::Gone(_) => None,
        })
    }
}

/// Reader of the objects of a resource. Nothing is read before the first call.
#[derive(Debug)]
pub struct Follower {
    store: Store,
    scope: Scope,
    predicate: Predicate,
    retry: Duration,
    watcher: Option<Watcher>,
    /// Time of the next attempt, by the runtime's monotonic clock.
    resume_at: Option<Duration>,
}

impl Store {
    /// Follows the objects of a scope that match, with this pause after a watch that ended.
    pub fn follow(&self, scope: Scope, predicate: Predicate, retry: Duration) -> Follower {
        Follower {
            store: self.clone(),
            scope,
            predicate,
            retry,
            watcher: None,
            resume_at: None,
        }
    }
}

impl Follower {
    /// All objects there are; [`Self::next`] goes on from here.
    ///
    /// # Errors
    /// The objects cannot be read now; a later call may succeed.
    pub async fn begin(&mut self) -> Result<Vec<Arc<Entry>>, RegistryError> {
        let options = WatchOptions {
            predicate: self.predicate.clone(),
            ..WatchOptions::default()
        };
        let mut watcher = self.store.watch(&self.scope, &options).await?;
        let mut entries = Vec::new();
        for event in watcher.initial_events() {
            match event {
                WatchEvent::Added(entry) | WatchEvent::Modified(entry) => entries.push(entry),
                WatchEvent::Failed(error) => return Err(error),
                WatchEvent::Deleted(..) | WatchEvent::Bookmark { .. } => {}
            }
        }
        self.watcher = Some(watcher);
        self.resume_at = None;
        Ok(entries)
    }

    /// The next changes, or all objects where nothing was read yet or a watch has ended. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Followed {
        loop {
            if let Some(resume_at) = self.resume_at {
                self.store.registry.runtime().sleep_until(resume_at).await;
                self.resume_at = None;
            }
            match self.step().await {
                Ok(Some(followed)) => return followed,
                // The storage of a server that stops ends every watch at once: without a pause this would never yield.
                Ok(None) => self.begin_again(),
                Err(error) => {
                    let resource = self.store.row.group_resource();
                    tracing::warn!(%error, %resource, "watch failed, listing again");
                    self.begin_again();
                }
            }
        }
    }

    /// Reads all objects again after the pause: the reader could not take what it received.
    pub fn begin_again(&mut self) {
        self.watcher = None;
        self.resume_at = Some(self.store.registry.runtime().monotonic() + self.retry);
    }

    /// The next state or changes; `None` where the watch has ended.
    async fn step(&mut self) -> Result<Option<Followed>, RegistryError> {
        let Some(watcher) = &mut self.watcher else {
            return self.begin().await.map(Followed::All).map(Some);
        };
        let events = watcher.next().await;
        if events.is_empty() {
            return Ok(None);
        }
        let mut changes = Vec::with_capacity(events.len());
        for event in events {
            match event {
                WatchEvent::Added(entry) | WatchEvent::Modified(entry) => {
                    changes.push(ObjectChange::Set(entry));
                }
                WatchEvent::Deleted(entry, _) => changes.push(ObjectChange::Gone(entry)),
                WatchEvent::Failed(error) => return Err(error),
                WatchEvent::Bookmark { .. } => {}
            }
        }
        Ok(Some(Followed::Changes(changes)))
    }
}
