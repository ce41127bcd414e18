//! One request to watch, and its events.

use super::extension_watch::ExtensionWatch;
use super::frames::{Brief, Event};
use super::{Ended, Reflector, Sink};
use crate::answer;
use crate::error::ClientError;
use crate::lines::{LineTooLong, Lines, MAX_LINE_BYTES};
use crate::object::{RawObject, Slices, parse_header};
use bytes::Bytes;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery_meta::{Revision, SharedEvent, SharedEvents, SharedObject};
use std::sync::Arc;
use std::time::Duration;

/// Requested duration of a watch: between once and twice this, so that watches do not all end together (upstream's 5–10 minutes).
const WATCH_SECONDS_MIN: u64 = 300;
/// A watch that sent nothing and ended sooner than this is not resumed at once.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// Time beyond the requested timeout for which a silent stream is kept.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// The longest watch event of an API extension.
const MAX_LINE_OF_EXTENSION: usize = 4 << 20;

impl Reflector<'_> {
    pub(super) async fn watch(
        &mut self,
        mut query: Vec<(&'static str, String)>,
    ) -> Result<Ended, ClientError> {
        let seconds = WATCH_SECONDS_MIN + self.runtime.random_u64() % WATCH_SECONDS_MIN;
        query.extend(self.source.query());
        query.push(("watch", "true".to_owned()));
        query.push(("allowWatchBookmarks", "true".to_owned()));
        query.push(("timeoutSeconds", seconds.to_string()));
        let start = self.runtime.monotonic();
        let mut opened = self.client.open_watch(&self.source.path(), &query).await?;
        let mut of_extension = opened.room.clone().map(ExtensionWatch::of).transpose()?;
        self.answered(opened.room.take());
        // A half-open connection delivers nothing and no error; the server would have ended the watch by then.
        let limit = Duration::from_secs(seconds) + WATCH_GRACE;
        let mut lines = Lines::within(match of_extension {
            Some(_) => MAX_LINE_OF_EXTENSION,
            None => MAX_LINE_BYTES,
        });
        loop {
            // A server ends its watches, an extension may never.
            let left = match of_extension {
                Some(_) => limit.saturating_sub(self.runtime.monotonic().saturating_sub(start)),
                None => limit,
            };
            let piece = match self.runtime.timeout(left, opened.pieces.next()).await {
                Ok(Some(Ok(piece))) => piece,
                // What was delivered so far stands; only of an unfinished list nothing does.
                Ok(Some(Err(error))) if self.pending.is_some() => return Err(error),
                Ok(Some(Err(error))) => {
                    let resource = &self.source.resource;
                    tracing::debug!(%resource, error = %error.chain(), "watch interrupted");
                    return Ok(self.ended(start));
                }
                Ok(None) => return Ok(self.ended(start)),
                Err(_) if of_extension.is_some() && self.pending.is_none() => return Ok(self.ended(start)),
                Err(_) => {
                    return Err(ClientError::TimedOut {
                        seconds: limit.as_secs(),
                    });
                }
            };
            let length = piece.len();
            // A piece announces shared events, or has some bytes itself.
            let goes_on = match piece.is_empty() {
                true => self.take_shared(&opened.shared)?,
                false => self.take(&mut lines, piece)?,
            };
            if !goes_on {
                return Ok(Ended::SinkGone);
            }
            if let Some(of_extension) = &mut of_extension {
                of_extension.keep(lines.kept_bytes())?;
                self.pace(length).await;
            }
        }
    }

    /// End of a watch that was requested at `start`.
    fn ended(&self, start: Duration) -> Ended {
        if self.received || self.runtime.monotonic().saturating_sub(start) >= SHORTEST_WATCH {
            Ended::StreamClosed
        } else {
            Ended::TooSoon
        }
    }

    /// Takes one piece of the stream; `false` when the sink is gone.
    fn take(&mut self, lines: &mut Lines, piece: Bytes) -> Result<bool, ClientError> {
        let Some(sink) = self.sink.upgrade() else {
            return Ok(false);
        };
        let mut outcome = Ok(());
        let cut = lines.push(piece, |line| {
            if outcome.is_ok() {
                outcome = self.event(&*sink, &line);
            }
        });
        cut.map_err(|LineTooLong| ClientError::TooLarge {
            limit_bytes: lines.limit_bytes(),
        })?;
        outcome.map(|()| true)
    }

    /// Takes what a server of this process has announced; `false` when the sink is gone.
    fn take_shared(&mut self, shared: &SharedEvents) -> Result<bool, ClientError> {
        let Some(sink) = self.sink.upgrade() else {
            return Ok(false);
        };
        for event in shared.take() {
            match event {
                SharedEvent::Set(object) => self.deliver_shared(&*sink, false, object)?,
                SharedEvent::Gone(object) => self.deliver_shared(&*sink, true, object)?,
                SharedEvent::Reached {
                    revision,
                    ends_initial_events,
                } => {
                    self.received = true;
                    self.mark(&*sink, revision, ends_initial_events);
                }
                SharedEvent::Line(line) => self.event(&*sink, &Slices(vec![line]))?,
            }
        }
        Ok(true)
    }

    fn deliver_shared(
        &mut self,
        sink: &dyn Sink,
        gone: bool,
        object: SharedObject,
    ) -> Result<(), ClientError> {
        self.received = true;
        let bytes = Slices(object.json.into());
        let object = self.object(sink, object.header, object.revision, bytes, !gone)?;
        self.deliver(sink, gone, object);
        Ok(())
    }

    fn event(&mut self, sink: &dyn Sink, line: &Slices) -> Result<(), ClientError> {
        let json = line.joined();
        let decode = |source| ClientError::Decode {
            what: "a watch event".to_owned(),
            source,
        };
        let event: Event<'_> = serde_json::from_slice(&json).map_err(decode)?;
        let object = event.object.get();
        if event.kind == "ERROR" {
            let mut status: Status = serde_json::from_str(object).map_err(decode)?;
            answer::cut_message(&mut status);
            return Err(ClientError::Status(Box::new(status)));
        }
        self.received = true;
        let start = object.as_ptr() as usize - json.as_ptr() as usize;
        let bytes = line.part(start, start + object.len());
        let gone = event.kind == "DELETED";
        let delivered = match (&*event.kind, parse_header(object.as_bytes())) {
            ("ADDED" | "MODIFIED" | "DELETED", Ok((header, revision))) => {
                Some(self.object(sink, Arc::new(header), revision, bytes, !gone)?)
            }
            ("ADDED" | "MODIFIED" | "DELETED", Err(error)) => self.partial(sink, object, &error, !gone)?,
            _ => None,
        };
        match delivered {
            Some(object) => self.deliver(sink, gone, object),
            None => {
                let brief: Brief<'_> = serde_json::from_str(object).map_err(decode)?;
                let meta = &brief.metadata;
                let revision = meta.resource_version.parse().unwrap_or(Revision::ZERO);
                self.mark(sink, revision, meta.ends_initial_events());
            }
        }
        Ok(())
    }

    fn deliver(&mut self, sink: &dyn Sink, gone: bool, object: RawObject) {
        if let Some(pending) = &mut self.pending {
            if gone {
                // Changes during the initial events are part of that list, which is replaced as a whole at its
                // bookmark.
                pending.remove(&object.header.key);
            } else {
                pending.insert(object.header.key.clone(), object);
            }
            return;
        }
        let revision = object.revision;
        if gone {
            sink.delete(object);
        } else {
            sink.upsert(object);
        }
        self.reached(sink, revision);
    }

    /// Everything up to a bookmark has been delivered.
    fn mark(&mut self, sink: &dyn Sink, revision: Revision, ends_initial_events: bool) {
        if self.pending.is_some() {
            if !ends_initial_events {
                // The position must not move before the list is complete, or a resumed watch would skip the
                // rest of it.
                return;
            }
            let all = self.pending.take().unwrap_or_default();
            sink.replace(all.into_values().collect());
        }
        self.reached(sink, revision);
    }
}
