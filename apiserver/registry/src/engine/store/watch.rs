//! Watch: state first where asked, then changes, seen through the selectors.

use super::Store;
use crate::engine::error::RegistryError;
use crate::engine::options::WatchOptions;
use crate::engine::scope::Scope;
use apiserver_storage::{
    Entry, Event, Key, Page, RangeOptions, ReadAt, StorageError, WatchCursor, WatchFilter, WatchRequest,
};
use machinery_meta::{Predicate, Revision};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// An event for a watcher.
#[derive(Debug, Clone)]
pub enum WatchEvent {
    Added(Arc<Entry>),
    Modified(Arc<Entry>),
    /// The object as it last was, with the revision of the change that took it from sight.
    Deleted(Arc<Entry>, Revision),
    /// Everything up to here has been sent; `initial` marks the end of the initial state.
    Bookmark {
        revision: Revision,
        initial: bool,
    },
    /// The watch ends here.
    Failed(RegistryError),
}

/// Changes handed out at a time.
const BATCH: usize = 64;

/// A watch under way.
#[derive(Debug)]
pub struct Watcher {
    initial: VecDeque<Arc<Entry>>,
    /// After the initial state a bookmark says that it was complete.
    initial_bookmark: Option<Revision>,
    failed: Option<RegistryError>,
    cursor: Option<Box<dyn WatchCursor>>,
    /// The last changes were as many as are handed out at a time: there may be more already.
    behind: bool,
    predicate: Predicate,
    /// Converts changes, where a webhook has to; those that wait for it.
    converting: Option<Store>,
    unconverted: Vec<Event>,
}

impl Store {
    /// Begins a watch. Errors that upstream sends as the first event are sent so.
    pub async fn watch(&self, scope: &Scope, options: &WatchOptions) -> Result<Watcher, RegistryError> {
        let wants_state = match (options.send_initial_events, options.since) {
            (Some(wanted), _) => wanted,
            (None, None | Some(Revision::ZERO)) => true,
            (None, Some(_)) => false,
        };
        let begin = self.beginning(scope, options, wants_state).await;
        let (initial, after) = match begin {
            Ok(begin) => begin,
            Err(error) => return Ok(Watcher::failing(error)),
        };
        let request = WatchRequest {
            interests: self.interests(scope, &options.predicate)?,
            after,
        };
        let initial_bookmark =
            (options.send_initial_events == Some(true) && options.bookmarks).then_some(after);
        match self.storage().watch(request).await {
            Ok(cursor) => Ok(Watcher {
                initial: initial.into(),
                initial_bookmark,
                failed: None,
                cursor: Some(cursor),
                behind: false,
                predicate: options.predicate.clone(),
                converting: self.row.stored.webhook.is_some().then(|| self.clone()),
                unconverted: Vec::new(),
            }),
            Err(error) => Ok(Watcher::failing(self.watch_error(&error, options.since))),
        }
    }

    /// The initial state and the revision after which changes count.
    async fn beginning(
        &self,
        scope: &Scope,
        options: &WatchOptions,
        wants_state: bool,
    ) -> Result<(Vec<Arc<Entry>>, Revision), RegistryError> {
        if !wants_state {
            return match options.since {
                None => {
                    let current = self.storage().current_revision().await;
                    Ok((Vec::new(), current.map_err(|error| self.storage_error(&error))?))
                }
                Some(Revision::ZERO) => Ok((Vec::new(), self.state(scope, options.since, 1).await?.revision)),
                Some(since) => Ok((Vec::new(), since)),
            };
        }
        let page = self.state(scope, options.since, 0).await?;
        let entries = self.shown(page.entries).await?.into_iter();
        let entries = entries.filter(|entry| options.predicate.matches(&entry.record.header));
        Ok((entries.collect(), page.revision))
    }

    /// A state no older than a revision; for zero the one in memory, also while etcd is away.
    async fn state(
        &self,
        scope: &Scope,
        since: Option<Revision>,
        limit: usize,
    ) -> Result<Page, RegistryError> {
        let range = RangeOptions {
            at: since.map_or(ReadAt::Latest, ReadAt::NotBefore),
            limit,
            ..RangeOptions::default()
        };
        let page = self.storage().range(&self.prefix(scope)?, &range).await;
        page.map_err(|error| self.storage_error(&error))
    }

    /// Names, namespaces and nodes are dispatch keys: the watch is woken for those only.
    fn interests(&self, scope: &Scope, predicate: &Predicate) -> Result<Vec<WatchFilter>, RegistryError> {
        let namespace = self.place(scope)?;
        let name = predicate.fields.required("metadata.name").unwrap_or_default();
        if !name.is_empty()
            && (!self.row.namespaced || !namespace.is_empty())
            && let Ok(key) = Key::parse(&self.row.key(namespace, name))
        {
            return Ok(vec![WatchFilter::key(key)]);
        }
        let interest = WatchFilter::prefix(self.prefix(scope)?);
        Ok(vec![match predicate.fields.required("spec.nodeName") {
            Some(node) => interest.with_field("spec.nodeName", node),
            None => interest,
        }])
    }

    fn watch_error(&self, error: &StorageError, since: Option<Revision>) -> RegistryError {
        match error {
            StorageError::Compacted { asked, compacted } => too_old(since.unwrap_or(*asked), *compacted),
            other => self.storage_error(other),
        }
    }
}

fn too_old(asked: Revision, compacted: Revision) -> RegistryError {
    let message = format!("too old resource version: {asked} ({compacted})");
    RegistryError::Expired {
        message,
        fresh_continue: None,
    }
}

impl Watcher {
    fn failing(error: RegistryError) -> Self {
        Self {
            initial: VecDeque::new(),
            initial_bookmark: None,
            failed: Some(error),
            cursor: None,
            behind: false,
            predicate: Predicate::default(),
            converting: None,
            unconverted: Vec::new(),
        }
    }

    /// Everything up to here has been delivered.
    pub fn position(&self) -> Revision {
        self.cursor
            .as_ref()
            .map_or(Revision::ZERO, |cursor| cursor.position())
    }

    /// Earliest time of the first of the changes handed out last, by the runtime's clock, where that is known.
    pub fn outstanding_since(&self) -> Option<Duration> {
        self.cursor.as_ref()?.outstanding_since()
    }

    /// Reports whether there may be more changes without waiting.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Events there are without waiting: the initial state, and how it ended.
    pub fn initial_events(&mut self) -> Vec<WatchEvent> {
        if let Some(error) = self.failed.take() {
            return vec![WatchEvent::Failed(error)];
        }
        let mut events: Vec<WatchEvent> = self.initial.drain(..).map(WatchEvent::Added).collect();
        if let Some(revision) = self.initial_bookmark.take() {
            events.push(WatchEvent::Bookmark {
                revision,
                initial: true,
            });
        }
        events
    }

    /// The next changes; empty at the end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Vec<WatchEvent> {
        loop {
            if let Some(seen) = self.next_converted().await {
                return seen;
            }
            let Some(cursor) = self.cursor.as_mut() else {
                return Vec::new();
            };
            match cursor.next_batch(BATCH).await {
                Ok(events) if self.converting.is_some() => {
                    self.behind = events.len() >= BATCH;
                    self.unconverted = events.iter().map(|event| states_of(event)).collect();
                }
                Ok(events) => {
                    self.behind = events.len() >= BATCH;
                    let seen: Vec<WatchEvent> = events
                        .iter()
                        .filter_map(|event| seen_through(&self.predicate, event))
                        .collect();
                    if !seen.is_empty() {
                        return seen;
                    }
                }
                Err(StorageError::Compacted { asked, compacted }) => {
                    self.cursor = None;
                    return vec![WatchEvent::Failed(too_old(asked, compacted))];
                }
                // The server stops: a stream that just ends is resumed, one that fails begins with a list.
                Err(StorageError::Closed) => {
                    self.cursor = None;
                    return Vec::new();
                }
                Err(error) => {
                    self.cursor = None;
                    return vec![WatchEvent::Failed(super::storage_error(&error))];
                }
            }
        }
    }
}

impl Watcher {
    /// Events of changes that a webhook has converted; they are kept until then, so that none is lost when the caller stops
    /// waiting.
    async fn next_converted(&mut self) -> Option<Vec<WatchEvent>> {
        let store = self
            .converting
            .as_ref()
            .filter(|_| !self.unconverted.is_empty())?;
        let states = self.unconverted.iter();
        let states = states.flat_map(|event| event.previous.iter().chain(&event.entry));
        let shown = store.shown(states.cloned().collect()).await;
        let mut events = std::mem::take(&mut self.unconverted);
        let mut shown = match shown {
            Ok(shown) => shown.into_iter(),
            Err(error) => {
                self.cursor = None;
                return Some(vec![WatchEvent::Failed(error)]);
            }
        };
        for event in &mut events {
            for state in [&mut event.previous, &mut event.entry] {
                *state = state.take().and_then(|_| shown.next());
            }
        }
        let seen = events
            .iter()
            .filter_map(|event| seen_through(&self.predicate, event));
        Some(seen.collect()).filter(|seen: &Vec<_>| !seen.is_empty())
    }
}

/// The same change, whose states are to be converted.
fn states_of(event: &Event) -> Event {
    Event {
        revision: event.revision,
        key: event.key.clone(),
        entry: event.entry.clone(),
        previous: event.previous.clone(),
    }
}

/// The event of a change for a watcher of matching objects only: an object can begin and cease to match.
fn seen_through(predicate: &Predicate, event: &Event) -> Option<WatchEvent> {
    let matches = |entry: &Option<Arc<Entry>>| {
        entry
            .as_ref()
            .filter(|entry| predicate.matches(&entry.record.header))
            .cloned()
    };
    match (matches(&event.previous), matches(&event.entry)) {
        (None, Some(new)) => Some(WatchEvent::Added(new)),
        (Some(_), Some(new)) => Some(WatchEvent::Modified(new)),
        // An object that no longer matches is sent as upstream sends it: as it last matched.
        (Some(old), None) => Some(WatchEvent::Deleted(old, event.revision)),
        (None, None) => None,
    }
}
