//! Keeps one sink equal to what the server has: a watch list (or a list), then a watch, resumed as long as it can be.
//!
//! ```text
//! start: watch with sendInitialEvents ── refused ──> list in pages, then watch from its revision
//! the stream ends or breaks: watch again from the last revision seen
//! 410, or a revision that the server does not have yet: start again · any error: back off first
//! ```

mod extension_watch;
mod failures;
mod frames;
mod list;
#[cfg(test)]
mod tests;
mod watch;

use crate::answer;
use crate::client::Client;
use crate::error::ClientError;
use crate::object::{RawObject, Slices};
use crate::resource::ListWatch;
use failures::{Backoff, Failures};
use frames::partial_header;
use machinery_meta::{ObjectHeader, ObjectKey, Revision};
use machinery_runtime::metrics::Family;
use machinery_runtime::{AnswerRoom, Runtime};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Receiver of a reflector's objects.
pub(crate) trait Sink: Send + Sync {
    /// An object was added or changed.
    fn upsert(&self, object: RawObject);
    /// An object is gone; this is how it last was.
    fn delete(&self, object: RawObject);
    /// Replaces all objects.
    fn replace(&self, objects: Vec<RawObject>);
    /// Everything up to this revision has been delivered.
    fn reached(&self, revision: Revision);
    /// Reports whether more than headers is read.
    fn reads_objects(&self) -> bool;
    /// Notes whether an API extension says what is delivered from here on.
    fn answered(&self, of_extension: bool);
    /// Nothing is known any more, until the next list.
    fn forget(&self);
    /// A list or watch failed; what is in the sink stands, and the next attempt comes later.
    fn failed(&self, _error: &ClientError) {}
}

/// Bytes that an object takes in stores and in what its readers make of it, beside its header.
const OBJECT_BYTES: usize = 512;
/// Retry interval after an answer of an API extension that exceeded its memory limit.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(300);
const NO_ROOM: Family = Family::new(
    "knarr_api_extension_views_dropped_total",
    "Times that controllers dropped their view of a resource of an API extension, which answered more than there is room for.",
    &["name"],
);

/// Runs until its sink is gone.
pub(crate) async fn run(client: Client, runtime: Runtime, source: ListWatch, sink: Weak<dyn Sink + '_>) {
    let mut reflector = Reflector {
        client,
        runtime: runtime.clone(),
        source,
        sink,
        position: Position::Unknown,
        watch_list: true,
        pending: None,
        received: false,
        room: None,
        failures: Failures::default(),
    };
    let mut backoff = Backoff::default();
    loop {
        let outcome = reflector.round().await;
        if outcome.is_ok() {
            reflector.failures.since = None;
        }
        match outcome {
            Ok(Ended::SinkGone) => return,
            // Every watch ends or breaks sooner or later, and is resumed at once: a wait would leave the informer behind.
            Ok(Ended::StreamClosed) => continue,
            Ok(Ended::TooSoon) => {}
            // Refusals of the watch list are expected once and answered by the fallback, without a wait.
            Ok(Ended::WatchListRefused) => continue,
            Err(ClientError::NoRoom(room)) => {
                reflector.drop_view(&room);
                runtime.sleep(NO_ROOM_PAUSE).await;
            }
            Err(error) => reflector.failed(&error),
        }
        runtime.sleep(backoff.next(&runtime)).await;
    }
}

enum Position {
    /// Nothing was listed yet.
    Unknown,
    /// The last revision cannot be resumed from (too old, or beyond the server's newest); the next list must be fresh.
    Expired,
    /// Everything up to here is in the sink.
    At(Revision),
}

enum Ended {
    SinkGone,
    StreamClosed,
    /// As before it, but so soon and so silent that the next would end no later.
    TooSoon,
    WatchListRefused,
}

struct Reflector<'a> {
    client: Client,
    runtime: Runtime,
    source: ListWatch,
    sink: Weak<dyn Sink + 'a>,
    position: Position,
    /// False once the server has refused `sendInitialEvents`.
    watch_list: bool,
    /// Initial events collected so far, until their end bookmark.
    pending: Option<BTreeMap<ObjectKey, RawObject>>,
    /// True if the last stream carried an event.
    received: bool,
    /// Room of the API extension that answers, if one does.
    room: Option<AnswerRoom>,
    failures: Failures,
}

impl Reflector<'_> {
    /// One request to watch, preceded by a list where needed, read to its end.
    async fn round(&mut self) -> Result<Ended, ClientError> {
        self.pending = None;
        // A list that a broken watch has left unfinished: its part must not be mixed with the next one.
        self.received = false;
        if let Position::At(revision) = &self.position {
            let query = vec![("resourceVersion", revision.to_string())];
            return self.watch(query).await;
        }
        if self.watch_list {
            self.pending = Some(BTreeMap::new());
            let query = vec![
                ("sendInitialEvents", "true".to_owned()),
                ("resourceVersionMatch", "NotOlderThan".to_owned()),
            ];
            return match self.watch(query).await {
                Err(error) if error.code() == 400 || error.is_invalid() => {
                    // For the life of this reflector: a server without watch lists does not gain them while it
                    // runs (upstream falls back for good too).
                    self.watch_list = false;
                    Ok(Ended::WatchListRefused)
                }
                other => other,
            };
        }
        self.list().await?;
        let Position::At(revision) = &self.position else {
            return Ok(Ended::TooSoon);
        };
        self.watch(vec![("resourceVersion", revision.to_string())]).await
    }

    /// Logs a failure, and notes whether the next list must be fresh.
    fn failed(&mut self, error: &ClientError) {
        let (resource, why) = (&self.source.resource, error.chain());
        let why = answer::cut(&why);
        if error.is_expired() || error.is_revision_too_large() {
            tracing::debug!(%resource, error = why, "revision not available, listing again");
            self.position = Position::Expired;
            // Expired and not unknown: the next list must be fresh, as one from the watch cache may be as old
            // as the refused revision.
            return;
        }
        if self.failures.warns(error.code() == 404, self.runtime.monotonic()) {
            tracing::warn!(%resource, error = why, "list or watch failed");
        } else {
            tracing::debug!(%resource, error = why, "list or watch failed");
        }
        if let Some(sink) = self.sink.upgrade() {
            sink.failed(error);
        }
    }

    /// Empties the sink and releases its memory: readers would take a part of the objects for all of them.
    fn drop_view(&mut self, room: &AnswerRoom) {
        self.pending = None;
        self.position = Position::Expired;
        if let Some(sink) = self.sink.upgrade() {
            sink.forget();
        }
        let (resource, extension) = (&self.source.resource, room.name());
        self.runtime.metrics().counters(&NO_ROOM).of(&[extension]).inc();
        if room.warns(self.runtime.monotonic()) {
            tracing::warn!(%resource, extension, "an API extension answers more than there is room for; its objects are not seen");
        }
    }

    /// Notes the room of the server that answers from here on.
    fn answered(&mut self, room: Option<AnswerRoom>) {
        if let Some(sink) = self.sink.upgrade() {
            sink.answered(room.is_some());
        }
        self.room = room;
    }

    /// Sleeps while an API extension is over its rate of bytes.
    async fn pace(&self, bytes: usize) {
        if let Some(room) = &self.room {
            let pause = room.pause_after(bytes, self.runtime.monotonic());
            if !pause.is_zero() {
                self.runtime.sleep(pause).await;
            }
        }
    }

    /// An object with the room that it takes if it stays, and without what the sink does not read.
    fn object(
        &self,
        sink: &dyn Sink,
        header: Arc<ObjectHeader>,
        revision: Revision,
        mut bytes: Slices,
        stays: bool,
    ) -> Result<RawObject, ClientError> {
        if !sink.reads_objects() {
            bytes = Slices::default();
        }
        let room = match &self.room {
            Some(room) if stays => {
                let taken = OBJECT_BYTES + header.footprint() + bytes.len();
                Some(Box::new(
                    room.hold(taken)
                        .ok_or_else(|| ClientError::NoRoom(room.clone()))?,
                ))
            }
            _ => None,
        };
        Ok(RawObject {
            header,
            revision,
            bytes,
            room,
            is_partial: false,
        })
    }

    /// An object whose header cannot be read, as far as it says which one it is: it is there, or has gone, all the same.
    fn partial(
        &self,
        sink: &dyn Sink,
        json: &str,
        error: &serde_json::Error,
        stays: bool,
    ) -> Result<Option<RawObject>, ClientError> {
        self.left_out(error);
        let Some((header, revision)) = partial_header(json) else {
            return Ok(None);
        };
        let object = self.object(sink, Arc::new(header), revision, Slices::default(), stays)?;
        Ok(Some(RawObject {
            is_partial: true,
            ..object
        }))
    }

    /// Logs an object that cannot be read, and of others no sooner than a while after it.
    fn left_out(&self, error: &serde_json::Error) {
        if !self.failures.warns_of_object(self.runtime.monotonic()) {
            return;
        }
        let (resource, why) = (&self.source.resource, error.to_string());
        tracing::warn!(%resource, error = answer::cut(&why), "an object that cannot be read was left out");
    }

    /// Moves the revision forward; zero moves nothing.
    fn reached(&mut self, sink: &dyn Sink, revision: Revision) {
        if revision != Revision::ZERO {
            sink.reached(revision);
            self.position = Position::At(revision);
        }
    }
}
