//! watch: a stream of events, each a line of JSON, with bookmarks and an end.

use super::event_writer::EventWriter;
use super::read::check_fields;
use super::watch_throttle::WatchThrottle;
use super::{Call, Inner};
use crate::body::{Body, BodyError};
use crate::error::ApiError;
use crate::hooks::WatchEvents;
use crate::negotiation::{Format, Representation};
use crate::params;
use crate::unread_memory::{HeldUnread, Holding};
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::{WatchEvent, Watcher};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Response, StatusCode};
use machinery_meta::{Revision, SharedEvents};
use machinery_runtime::{CancellationToken, HeavyFlow, Runtime};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Interval between bookmarks of a watch without events.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before a watch ends, so that its client can go on from there.
const LAST_BOOKMARK_BEFORE: Duration = Duration::from_secs(2);
/// The connection is handed about so many bytes at a time, a TLS record: a client that stops reading holds one such piece
/// in its connection, however large an object is.
const PIECE_BYTES: usize = 16 << 10;
/// Events that are encoded anew are encoded together up to this many bytes.
const ENCODED_BYTES: usize = LARGE_BODY_BYTES;
/// Timers ring up to this late by themselves.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

pub(crate) async fn watch(call: Call, endpoints: &Inner) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let options = params::watch(&call.query, &call.info.name)?;
    check_fields(call.row(), &options.predicate.fields)?;
    if showing.form.format == Format::Yaml {
        return Err(ApiError::NotAcceptable(vec![
            "application/json".into(),
            "application/json;stream=watch".into(),
            "application/vnd.kubernetes.protobuf;stream=watch".into(),
        ]));
    }
    if let Representation::MetadataList { .. } = showing.form.view {
        return Err(ApiError::NotAcceptableView {
            view: "PartialObjectMetadataList",
            found: "not a list".into(),
        });
    }
    let watcher = call.store.watch(&call.info.scope, &options).await?;
    let runtime = call.ctx.runtime.clone();
    let ended = ended(call.store.row.superseded.clone(), runtime.clone());
    let timeout = options.timeout;
    let timeout = timeout.unwrap_or_else(|| at_least(endpoints.min_request_timeout, &runtime));
    let now = runtime.monotonic();
    let (holding, body) = endpoints.unread_memory.join(&call.ctx);
    let shared = call.request.extensions().get::<SharedEvents>().cloned();
    // Lines of another form are no lines of JSON.
    let shared = shared.filter(|_| showing.form.format == Format::Json);
    let mut state = Streaming {
        shared,
        sent: endpoints.hooks.watch_events(call.row()),
        flow: call.ctx.heavy_flow(),
        holding,
        unsent: VecDeque::new(),
        encoded_bytes: 0,
        pending_bytes: 0,
        writer: EventWriter::new(call.store, showing),
        watcher,
        end: now + timeout,
        next_bookmark: options.bookmarks.then(|| next_bookmark(now, now + timeout)),
        delivered: Revision::ZERO,
        pending: VecDeque::new(),
        over: false,
        throttle: Arc::clone(&endpoints.watch_throttle),
        free_at: now,
        timer: (Duration::ZERO, future::pending().boxed()),
        ended,
        runtime,
    };
    let initial = state.watcher.initial_events();
    state.take(initial);
    let content_type = match showing.form.format {
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    let response = Response::builder()
        .status(StatusCode::OK)
        .header(CONTENT_TYPE, content_type)
        .header(CACHE_CONTROL, "no-cache, private")
        .body(body.begin(Body::stream(stream::unfold(state, step)), None));
    Ok(response.expect("headers are well formed"))
}

/// This time, or up to twice as long.
fn at_least(time: Duration, runtime: &Runtime) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = runtime.random_u64() as f64 / u64::MAX as f64;
    time.saturating_add(time.mul_f64(share))
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
    /// Takes the events for a client in this process.
    shared: Option<SharedEvents>,
    /// Takes the size of each event.
    sent: Option<Arc<dyn WatchEvents>>,
    /// Flow that its frames are charged to as heavy work.
    flow: HeavyFlow,
    holding: Holding,
    writer: EventWriter,
    watcher: Watcher,
    end: Duration,
    next_bookmark: Option<Duration>,
    /// The revision that was last sent to the client.
    delivered: Revision,
    /// Changes that were taken and are not yet written: references, no copies.
    pending: VecDeque<WatchEvent>,
    /// Bytes of these as JSON, about.
    pending_bytes: usize,
    /// Bytes of events that were begun and are not yet sent.
    unsent: VecDeque<Bytes>,
    /// Bytes of it that were encoded together.
    encoded_bytes: usize,
    over: bool,
    throttle: Arc<WatchThrottle>,
    /// Time since which the watch is ready for the next events: its client requested them, or its delay was over.
    free_at: Duration,
    /// Kept from event to event, as `ended` is: to begin waiting costs more than to go on.
    timer: (Duration, BoxFuture<'static, ()>),
    ended: BoxFuture<'static, ()>,
    runtime: Runtime,
}

/// The kind's row was replaced (its schema changed, or it is no longer served), or the server stops.
fn ended(superseded: CancellationToken, runtime: Runtime) -> BoxFuture<'static, ()> {
    async move {
        tokio::select! {
            biased;
            () = superseded.cancelled() => {}
            () = runtime.cancelled() => {}
        }
    }
    .boxed()
}

type Frame = Result<Bytes, BodyError>;

/// The next piece of the stream: as many events as there are, up to a frame.
async fn step(mut state: Streaming) -> Option<(Frame, Streaming)> {
    if !state.unsent.is_empty() {
        return Some((state.piece(BytesMut::with_capacity(PIECE_BYTES)), state));
    }
    // Not before: until a client has read, no event is late.
    state.free_at = state.runtime.monotonic();
    loop {
        if state.over {
            return None;
        }
        if !state.pending.is_empty() {
            if !state.is_heavy() {
                return Some((state.frame(), state));
            }
            return heavy_frame(state).await;
        }
        if let Some(until) = state.delay_until() {
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
                    state.record_lag();
                }
                state.take(events);
            }
            None if wake >= state.end => return None,
            None => {
                state.next_bookmark = Some(next_bookmark(wake, state.end));
                let revision = state.watcher.position();
                if revision > state.delivered {
                    state.take(vec![WatchEvent::Bookmark {
                        revision,
                        initial: false,
                    }]);
                }
            }
        }
    }
}

/// The next piece where it is much work, once there is room for what is encoded, and in turn with other heavy work.
async fn heavy_frame(mut state: Streaming) -> Option<(Frame, Streaming)> {
    let bytes = state.next_bytes();
    tokio::select! {
        biased;
        () = state.holding.take(bytes) => {}
        () = &mut state.ended => return None,
    }
    let _place = Arc::clone(&state.holding.frames).acquire_owned().await.ok()?;
    let (runtime, flow) = (state.runtime.clone(), state.flow.clone());
    Some(runtime.heavy(flow, move || (state.frame(), state)).await)
}

impl Streaming {
    /// Time of the next frame, if it is delayed so that it carries more.
    fn delay_until(&self) -> Option<Duration> {
        // A watch that is behind catches up first.
        if self.watcher.is_behind() {
            return None;
        }
        self.throttle.delay_until(self.free_at, self.runtime.monotonic())
    }

    /// Records how long changes waited for the watch, which was ready for them.
    fn record_lag(&self) {
        if let Some(since) = self.watcher.outstanding_since() {
            let now = self.runtime.monotonic();
            self.throttle
                .record_lag(now.saturating_sub(since.max(self.free_at)), now);
        }
    }

    /// Bytes of the next frame as JSON, about.
    fn next_bytes(&self) -> usize {
        let mut bytes = 0;
        let within = |event: &&WatchEvent| {
            let is_begun = bytes < ENCODED_BYTES;
            bytes += length_of(event);
            is_begun
        };
        self.pending.iter().take_while(within).map(length_of).sum()
    }

    /// Reports whether the next frame is much work: what is not sent as it is stored is encoded anew.
    fn is_heavy(&self) -> bool {
        !self.writer.is_as_stored() && self.next_bytes() >= LARGE_BODY_BYTES
    }

    /// Events to be written, none of which are left.
    fn take(&mut self, events: Vec<WatchEvent>) {
        self.pending_bytes = events.iter().map(length_of).sum();
        self.pending = events.into();
    }

    /// The first piece of the next events.
    fn frame(&mut self) -> Frame {
        if matches!(self.writer.showing.form.view, Representation::Table { .. }) {
            // Ages are those of the moment in which a row is sent.
            self.writer.showing.now = self.runtime.now();
        }
        let most = match self.writer.is_as_stored() {
            true => PIECE_BYTES,
            false => ENCODED_BYTES,
        };
        if let Some(shared) = self.shared.clone() {
            return self.share(&shared, most);
        }
        self.encoded_bytes = 0;
        let mut out = BytesMut::with_capacity(self.pending_bytes.min(most));
        while out.len() < most && self.unsent.is_empty() {
            let Some(event) = self.next_pending() else {
                break;
            };
            if !self.write(&event, &mut out) {
                break;
            }
        }
        // Little more than a piece is one, without another copy.
        if self.unsent.is_empty() && out.len() > 2 * PIECE_BYTES {
            self.encoded_bytes = out.len();
            self.unsent.push_back(out.freeze());
            out = BytesMut::with_capacity(PIECE_BYTES);
        }
        self.piece(out)
    }

    fn next_pending(&mut self) -> Option<WatchEvent> {
        let event = self.pending.pop_front()?;
        self.pending_bytes -= length_of(&event);
        self.delivered = self.delivered.max(revision_of(&event));
        Some(event)
    }

    /// Announces the next events to a client in this process, about `most` bytes of them.
    fn share(&mut self, to: &SharedEvents, most: usize) -> Frame {
        let mut bytes = 0;
        while bytes < most && !self.over {
            let Some(event) = self.next_pending() else {
                break;
            };
            let (length, ends) = self.writer.share(&event, to);
            if let Some(sent) = &self.sent {
                sent.sent(length);
            }
            bytes += length;
            self.over |= ends;
        }
        let left = self.left();
        self.holding.left(left);
        Ok(Bytes::new())
    }

    /// Writes an event; `false` where the watch ends there.
    fn write(&mut self, event: &WatchEvent, out: &mut BytesMut) -> bool {
        let before = out.len();
        let written = self.writer.write(event, out, &mut self.unsent);
        if let Err(error) = &written {
            self.writer.fail(error, out);
        }
        if let Some(sent) = &self.sent {
            let unsent: usize = self.unsent.iter().map(Bytes::len).sum();
            sent.sent(out.len() - before + unsent);
        }
        self.over |= written.is_err() || matches!(event, WatchEvent::Failed(_));
        written.is_ok()
    }

    /// A piece that begins so, with what follows in it. It shares nothing with what is left, so that the connection keeps
    /// the piece alone from being freed.
    fn piece(&mut self, mut out: BytesMut) -> Frame {
        while let Some(next) = self.unsent.front_mut().filter(|_| out.len() < PIECE_BYTES) {
            let bytes = next.len().min(PIECE_BYTES - out.len());
            out.put_slice(&next[..bytes]);
            next.advance(bytes);
            if next.is_empty() {
                self.unsent.pop_front();
            }
        }
        let left = self.left();
        self.holding.left(left);
        Ok(out.freeze())
    }

    /// Memory that is held until the client has read on. Encoded bytes are there until the last of them is sent.
    fn left(&self) -> HeldUnread {
        let unsent = self.unsent.iter().map(Bytes::len).sum();
        let (encoded, stored) = match (unsent, self.encoded_bytes) {
            (0, _) => (0, 0),
            (stored, 0) => (0, stored),
            (_, encoded) => (encoded, 0),
        };
        HeldUnread {
            encoded,
            referred: self.pending_bytes + stored,
        }
    }
}

/// Bytes of an event as JSON, about.
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
