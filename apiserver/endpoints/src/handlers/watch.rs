//! watch: a stream of events, each a line of JSON, with bookmarks and an end.

use super::pace::Pace;
use super::read::check_fields;
use super::{Call, Inner};
use crate::body::{Body, BodyError};
use crate::framing::ObjectFrame;
use crate::hooks::WatchEvents;
use crate::negotiation::{Format, View};
use crate::respond::{self, Showing};
use crate::{params, status, table};
use apiserver_registry::Entry;
use apiserver_registry::context::flow_of;
use apiserver_registry::{RegistryError, Store, WatchEvent, Watcher};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Response, StatusCode};
use machinery_meta::Revision;
use machinery_runtime::{CancellationToken, Runtime};
use machinery_schema::{Tree, encode_json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A watch without `timeoutSeconds` ends after this long, or up to twice as long.
const MIN_WATCH: Duration = Duration::from_secs(30 * 60);
/// How often a quiet watch is told that nothing happened.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before a watch ends, so that its client can go on from there.
const LAST_BOOKMARK_BEFORE: Duration = Duration::from_secs(2);
/// A frame is sent once it has this many bytes: a client that stops reading holds one frame, however long the initial
/// state is.
const FRAME_BYTES: usize = 64 << 10;
/// Timers ring up to this late by themselves.
const TIMER_GRAIN: Duration = Duration::from_millis(1);
/// Says that the initial state is complete.
const INITIAL_END_ANNOTATION: &str = "k8s.io/initial-events-end";

pub(crate) async fn watch(call: Call, endpoints: &Inner) -> Result<Response<Body>, RegistryError> {
    let showing = call.showing()?;
    let name = if call.info.verb == "watch" && call.query.get("fieldSelector").is_none() {
        call.info.name.as_str()
    } else {
        ""
    };
    let options = params::watch(&call.query, name)?;
    check_fields(call.row(), &options.predicate.fields)?;
    if showing.form.format == Format::Yaml {
        return Err(RegistryError::NotAcceptable(vec![
            "application/json".into(),
            "application/json;stream=watch".into(),
            "application/vnd.kubernetes.protobuf;stream=watch".into(),
        ]));
    }
    if let View::MetadataList { .. } = showing.form.view {
        return Err(RegistryError::NotAcceptableView {
            view: "PartialObjectMetadataList",
            found: "not a list".into(),
        });
    }
    let watcher = call.store.watch(&call.info.scope, &options).await?;
    let runtime = call.ctx.runtime.clone();
    let ended = ended(call.store.row.retired.clone(), runtime.clone());
    let timeout = options.timeout.unwrap_or_else(|| MIN_WATCH + jitter(&runtime));
    let now = runtime.monotonic();
    let mut state = Streaming {
        sent: endpoints.hooks.watch_events(call.row()),
        flow: flow_of(&call.ctx.user),
        writer: EventWriter::new(call.store, showing),
        watcher,
        end: now + timeout,
        next_bookmark: options.bookmarks.then(|| next_bookmark(now, now + timeout)),
        told: Revision::ZERO,
        pending: VecDeque::new(),
        over: false,
        pace: Arc::clone(&endpoints.pace),
        free_at: now,
        timer: (Duration::ZERO, future::pending().boxed()),
        ended,
        runtime,
    };
    state.pending = state.watcher.initial_events().into();
    let content_type = match showing.form.format {
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    let response = Response::builder()
        .status(StatusCode::OK)
        .header(CONTENT_TYPE, content_type)
        .header(CACHE_CONTROL, "no-cache, private")
        .body(Body::stream(stream::unfold(state, step)));
    Ok(response.expect("headers are well formed"))
}

fn jitter(runtime: &Runtime) -> Duration {
    Duration::from_secs(runtime.random_u64() % MIN_WATCH.as_secs())
}

fn next_bookmark(now: Duration, end: Duration) -> Duration {
    let last = end.saturating_sub(LAST_BOOKMARK_BEFORE);
    if now + BOOKMARK_EVERY >= last && now < last {
        last
    } else {
        now + BOOKMARK_EVERY
    }
}

struct Streaming {
    /// Takes the size of each event.
    sent: Option<Arc<dyn WatchEvents>>,
    /// Whose heavy work its frames are.
    flow: Arc<str>,
    writer: EventWriter,
    watcher: Watcher,
    end: Duration,
    next_bookmark: Option<Duration>,
    /// The revision the client was last told.
    told: Revision,
    /// Changes that were taken and are not yet written: references, no copies.
    pending: VecDeque<WatchEvent>,
    over: bool,
    pace: Arc<Pace>,
    /// When the watch was ready for what comes next: it was asked for it, or its rest was over.
    free_at: Duration,
    /// Kept from event to event, as `ended` is: to begin waiting costs more than to go on.
    timer: (Duration, BoxFuture<'static, ()>),
    ended: BoxFuture<'static, ()>,
    runtime: Runtime,
}

/// The kind's row was replaced (its schema changed, or it is no longer served), or the server stops.
fn ended(retired: CancellationToken, runtime: Runtime) -> BoxFuture<'static, ()> {
    async move {
        tokio::select! {
            biased;
            () = retired.cancelled() => {}
            () = runtime.cancelled() => {}
        }
    }
    .boxed()
}

type Frame = Result<Bytes, BodyError>;

/// The next piece of the stream: as many events as there are, up to a frame.
async fn step(mut state: Streaming) -> Option<(Frame, Streaming)> {
    // Not before: until a client has read, nobody is late.
    state.free_at = state.runtime.monotonic();
    loop {
        if state.over {
            return None;
        }
        if !state.pending.is_empty() {
            if !state.is_heavy() {
                let frame = state.frame();
                return Some((frame, state));
            }
            let (runtime, flow) = (state.runtime.clone(), Arc::clone(&state.flow));
            let made = runtime.heavy(flow, move || (state.frame(), state));
            return Some(made.await);
        }
        if let Some(until) = state.rest() {
            tokio::select! {
                biased;
                () = state.runtime.sleep_until(until) => state.free_at = until + TIMER_GRAIN,
                () = &mut state.ended => return None,
            }
        }
        let wake = state
            .next_bookmark
            .map_or(state.end, |bookmark| bookmark.min(state.end));
        if state.timer.0 != wake {
            state.timer = (wake, state.runtime.sleep_until(wake));
        }
        let caught_up = !state.watcher.is_behind();
        let events = tokio::select! {
            biased;
            events = state.watcher.next() => Some(events),
            () = &mut state.timer.1 => None,
            () = &mut state.ended => return None,
        };
        match events {
            Some(events) if events.is_empty() => return None,
            Some(events) => {
                if caught_up {
                    state.note_lateness();
                }
                state.pending = events.into();
            }
            None if wake >= state.end => return None,
            None => {
                state.next_bookmark = Some(next_bookmark(wake, state.end));
                let revision = state.watcher.position();
                if revision > state.told {
                    state.pending.push_back(WatchEvent::Bookmark {
                        revision,
                        initial: false,
                    });
                }
            }
        }
    }
}

impl Streaming {
    /// Until when nothing is asked for, so that more is told at once.
    fn rest(&self) -> Option<Duration> {
        // Whoever is behind catches up first.
        if self.watcher.is_behind() {
            return None;
        }
        self.pace.rest(self.free_at, self.runtime.monotonic())
    }

    /// Changes have come: notes how long they had to wait for the watch, which was ready for them.
    fn note_lateness(&self) {
        if let Some(since) = self.watcher.outstanding_since() {
            let now = self.runtime.monotonic();
            self.pace.came(now.saturating_sub(since.max(self.free_at)), now);
        }
    }

    /// About how many bytes the next frame has as JSON.
    fn next_bytes(&self) -> usize {
        let mut bytes = 0;
        let within = |event: &&WatchEvent| {
            let is_begun = bytes < FRAME_BYTES;
            bytes += length_of(event);
            is_begun
        };
        self.pending.iter().take_while(within).map(length_of).sum()
    }

    /// Reports whether the next frame is much work: what is not sent as it is stored is encoded anew.
    fn is_heavy(&self) -> bool {
        !self.writer.is_as_stored() && self.next_bytes() >= FRAME_BYTES
    }

    fn frame(&mut self) -> Frame {
        if matches!(self.writer.showing.form.view, View::Table { .. }) {
            // Ages are those of the moment in which a row is told.
            self.writer.showing.now = self.runtime.now();
        }
        let mut out = BytesMut::with_capacity(self.next_bytes().min(FRAME_BYTES));
        while out.len() < FRAME_BYTES {
            let Some(event) = self.pending.pop_front() else {
                break;
            };
            self.told = self.told.max(revision_of(&event));
            let before = out.len();
            let written = self.writer.write(&event, &mut out);
            if let Err(error) = &written {
                self.writer.fail(error, &mut out);
            }
            if let Some(sent) = &self.sent {
                sent.sent(out.len() - before);
            }
            self.over |= written.is_err() || matches!(&event, WatchEvent::Failed(_));
            if written.is_err() {
                break;
            }
        }
        Ok(out.freeze())
    }
}

/// About how many bytes an event has as JSON.
fn length_of(event: &WatchEvent) -> usize {
    const AROUND: usize = 128;
    AROUND
        + match event {
            WatchEvent::Added(entry) | WatchEvent::Modified(entry) | WatchEvent::Deleted(entry, _) => {
                entry.record.len()
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Failed(_) => AROUND,
        }
}

fn revision_of(event: &WatchEvent) -> Revision {
    match event {
        WatchEvent::Added(entry) | WatchEvent::Modified(entry) => entry.revision,
        WatchEvent::Deleted(_, revision) | WatchEvent::Bookmark { revision, .. } => *revision,
        WatchEvent::Failed(_) => Revision::ZERO,
    }
}

/// Writes events in the negotiated form.
struct EventWriter {
    store: Store,
    showing: Showing,
    frame: ObjectFrame,
    heads_sent: bool,
}

impl EventWriter {
    fn new(store: Store, showing: Showing) -> Self {
        let frame = ObjectFrame::whole(&store.row);
        Self {
            store,
            showing,
            frame,
            heads_sent: false,
        }
    }

    /// Reports whether events have the objects as they are stored; those of an older form are few.
    fn is_as_stored(&self) -> bool {
        self.showing.form.format == Format::Json && self.showing.form.view == View::Whole
    }

    fn write(&mut self, event: &WatchEvent, out: &mut BytesMut) -> Result<(), RegistryError> {
        match event {
            WatchEvent::Added(entry) => self.entry("ADDED", entry, entry.revision, out),
            WatchEvent::Modified(entry) => self.entry("MODIFIED", entry, entry.revision, out),
            WatchEvent::Deleted(entry, revision) => self.entry("DELETED", entry, *revision, out),
            WatchEvent::Bookmark { revision, initial } => {
                let object = self.bookmark(*revision, *initial);
                self.tree("BOOKMARK", &object, out)
            }
            WatchEvent::Failed(error) => {
                self.fail(error, out);
                Ok(())
            }
        }
    }

    fn entry(
        &mut self,
        kind: &str,
        entry: &Entry,
        revision: Revision,
        out: &mut BytesMut,
    ) -> Result<(), RegistryError> {
        let form = self.showing.form;
        let row = &self.store.row;
        if self.is_as_stored() && respond::is_current(row, entry) {
            out.reserve(self.frame.len(&entry.record, revision) + 48);
            out.put_slice(b"{\"type\":\"");
            out.put_slice(kind.as_bytes());
            out.put_slice(b"\",\"object\":");
            self.frame.write(&entry.record, revision, out);
            out.put_slice(b"}\n");
            return Ok(());
        }
        if let View::Metadata { beta } = form.view {
            return self.metadata(kind, table::partial_metadata(&entry.record, revision, beta), out);
        }
        let mut object = self.store.decode(entry)?;
        object.set_str(&["metadata", "resourceVersion"], &revision.to_string());
        self.tree(kind, &object, out)
    }

    /// An event about metadata alone, in the format of the watch.
    fn metadata(&self, kind: &str, json: Vec<u8>, out: &mut BytesMut) -> Result<(), RegistryError> {
        if self.showing.form.format == Format::Protobuf {
            return crate::protobuf::watch_event(kind, &respond::metadata_tree(&json)?, out);
        }
        put_event(kind, &json, out);
        Ok(())
    }

    fn tree(&mut self, kind: &str, object: &Tree, out: &mut BytesMut) -> Result<(), RegistryError> {
        let json = match self.showing.form.view {
            View::Metadata { beta } => return self.metadata(kind, respond::metadata_of(object, beta), out),
            _ if self.showing.form.format == Format::Protobuf => {
                return crate::protobuf::watch_event(kind, object, out);
            }
            View::Whole | View::MetadataList { .. } => {
                let mut json = Vec::new();
                encode_json(object, &mut json);
                json
            }
            View::Table { beta } => {
                let meta = table::list_meta(object.str_at(&["metadata", "resourceVersion"]), "", None);
                let heads = !std::mem::replace(&mut self.heads_sent, true);
                let mut json = table::table_head(&self.store.row.columns, beta, &meta, heads).into_bytes();
                json.extend(respond::row_of(
                    &self.store.row.columns,
                    self.showing,
                    object,
                    beta,
                ));
                json.extend_from_slice(b"]}");
                json
            }
        };
        put_event(kind, &json, out);
        Ok(())
    }

    fn bookmark(&self, revision: Revision, initial: bool) -> Tree {
        let row = &self.store.row;
        let mut object = Tree::new(&row.schema, row.ty);
        object.set_str(&["kind"], &row.gvk.kind);
        object.set_str(&["apiVersion"], &row.gvk.api_version());
        object.set_str(&["metadata", "resourceVersion"], &revision.to_string());
        if initial {
            object.set_str(&["metadata", "annotations", INITIAL_END_ANNOTATION], "true");
        }
        object
    }

    fn fail(&self, error: &RegistryError, out: &mut BytesMut) {
        let json = status::of(error).to_json();
        if self.showing.form.format == Format::Protobuf {
            crate::protobuf::watch_error(&json, out);
        } else {
            put_event("ERROR", json.as_bytes(), out);
        }
    }
}

fn put_event(kind: &str, json: &[u8], out: &mut BytesMut) {
    out.reserve(json.len() + 48);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(json);
    out.put_slice(b"}\n");
}
