//! Keeps one sink equal to what the server has: a watch list (or a list), then a watch, resumed as long as it can be.
//!
//! ```text
//! start: watch with sendInitialEvents ── refused ──> list in pages, then watch from its revision
//! the stream ends or breaks: watch again from the last revision seen
//! 410, or a revision that the server does not have yet: start again · any error: back off first
//! ```

#[cfg(test)]
mod tests;

use crate::client::Client;
use crate::error::ClientError;
use crate::lines::{LineTooLong, Lines, MAX_LINE_BYTES};
use crate::object::{RawObject, Slices, parse_header};
use crate::resource::ListWatch;
use bytes::Bytes;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery_meta::{ObjectKey, Revision};
use machinery_runtime::Runtime;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

/// Receiver of a reflector's objects.
pub(crate) trait Sink: Send + Sync {
    /// An object was added or changed.
    fn upsert(&self, object: RawObject);
    /// An object is gone.
    fn delete(&self, key: &ObjectKey);
    /// These are all objects there are.
    fn replace(&self, objects: Vec<RawObject>);
    /// Everything up to this revision has been delivered.
    fn reached(&self, revision: Revision);
}

/// The shortest and longest wait after an error, as client-go's reflector has them.
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// After this much quiet the back-off starts from the shortest wait again.
const BACKOFF_RESET: Duration = Duration::from_secs(120);
/// A watch is asked to last between once and twice this long, so that many do not end together.
const WATCH_SECONDS_MIN: u64 = 300;
/// A watch that said nothing and ended sooner than this is not resumed at once.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// Time beyond the requested timeout for which a silent stream is kept.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// Objects per page of a list.
const PAGE_LIMIT: usize = 500;

/// Runs until its sink is gone.
pub(crate) async fn run(client: Client, runtime: Runtime, source: ListWatch, sink: Weak<dyn Sink>) {
    let mut reflector = Reflector {
        client,
        runtime: runtime.clone(),
        source,
        sink,
        position: Position::Unknown,
        watch_list: true,
        pending: None,
        heard: false,
    };
    let mut backoff = Backoff::default();
    loop {
        let outcome = reflector.round().await;
        match outcome {
            Ok(Ended::SinkGone) => return,
            // Every watch ends or breaks sooner or later, and is resumed at once: who waits is blind meanwhile.
            Ok(Ended::StreamClosed) => continue,
            Ok(Ended::TooSoon) => {}
            // Refusals of the watch list are expected once and answered by the fallback, without a wait.
            Ok(Ended::WatchListRefused) => continue,
            Err(error) => {
                let resource = &reflector.source.resource;
                if error.is_expired() || error.is_revision_too_large() {
                    tracing::debug!(%resource, error = %error.chain(), "revision not available, listing again");
                    reflector.position = Position::Expired;
                } else {
                    tracing::warn!(%resource, error = %error.chain(), "list or watch failed");
                }
            }
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

struct Reflector {
    client: Client,
    runtime: Runtime,
    source: ListWatch,
    sink: Weak<dyn Sink>,
    position: Position,
    /// False once the server has refused `sendInitialEvents`.
    watch_list: bool,
    /// Initial events collected so far, until their end bookmark.
    pending: Option<BTreeMap<ObjectKey, RawObject>>,
    /// True if the last stream carried an event.
    heard: bool,
}

impl Reflector {
    /// One request to watch, preceded by a list where needed, read to its end.
    async fn round(&mut self) -> Result<Ended, ClientError> {
        self.pending = None;
        self.heard = false;
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

    async fn watch(&mut self, mut query: Vec<(&'static str, String)>) -> Result<Ended, ClientError> {
        let seconds = WATCH_SECONDS_MIN + self.runtime.random_u64() % WATCH_SECONDS_MIN;
        query.extend(self.source.query());
        query.push(("watch", "true".to_owned()));
        query.push(("allowWatchBookmarks", "true".to_owned()));
        query.push(("timeoutSeconds", seconds.to_string()));
        let start = self.runtime.monotonic();
        let mut body = self.client.stream(&self.source.path(), &query).await?;
        let limit = Duration::from_secs(seconds) + WATCH_GRACE;
        let mut lines = Lines::default();
        loop {
            let piece = match self.runtime.timeout(limit, body.next()).await {
                Ok(Some(Ok(piece))) => piece,
                // What was delivered so far stands; only of an unfinished list nothing does.
                Ok(Some(Err(error))) if self.pending.is_some() => return Err(error),
                Ok(Some(Err(error))) => {
                    let resource = &self.source.resource;
                    tracing::debug!(%resource, error = %error.chain(), "watch interrupted");
                    return Ok(self.ended(start));
                }
                Ok(None) => return Ok(self.ended(start)),
                Err(_) => {
                    return Err(ClientError::TimedOut {
                        seconds: limit.as_secs(),
                    });
                }
            };
            if !self.take(&mut lines, piece)? {
                return Ok(Ended::SinkGone);
            }
        }
    }

    /// End of a watch that was requested at `start`.
    fn ended(&self, start: Duration) -> Ended {
        if self.heard || self.runtime.monotonic().saturating_sub(start) >= SHORTEST_WATCH {
            Ended::StreamClosed
        } else {
            Ended::TooSoon
        }
    }

    /// Takes one piece of the stream; `false` when nobody listens any more.
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
            limit_bytes: MAX_LINE_BYTES,
        })?;
        outcome.map(|()| true)
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
            let status: Status = serde_json::from_str(object).map_err(decode)?;
            return Err(ClientError::Status(Box::new(status)));
        }
        self.heard = true;
        let start = object.as_ptr() as usize - json.as_ptr() as usize;
        let bytes = line.part(start, start + object.len());
        match (&*event.kind, parse_header(object.as_bytes())) {
            ("ADDED" | "MODIFIED" | "DELETED", Ok((header, revision))) => {
                let gone = event.kind == "DELETED";
                self.deliver(
                    sink,
                    gone,
                    RawObject {
                        header,
                        revision,
                        bytes,
                    },
                );
            }
            (kind, read) => {
                if let ("ADDED" | "MODIFIED" | "DELETED", Err(error)) = (kind, read) {
                    self.left_out(&error);
                }
                let brief: Brief<'_> = serde_json::from_str(object).map_err(decode)?;
                self.mark(sink, &brief.metadata);
            }
        }
        Ok(())
    }

    fn left_out(&self, error: &serde_json::Error) {
        let resource = &self.source.resource;
        tracing::warn!(%resource, %error, "an object that cannot be read was left out");
    }

    fn deliver(&mut self, sink: &dyn Sink, gone: bool, object: RawObject) {
        if let Some(pending) = &mut self.pending {
            if gone {
                pending.remove(&object.header.key);
            } else {
                pending.insert(object.header.key.clone(), object);
            }
            return;
        }
        let revision = object.revision;
        if gone {
            sink.delete(&object.header.key);
        } else {
            sink.upsert(object);
        }
        self.reached(sink, revision);
    }

    /// Everything up to a bookmark has been delivered.
    fn mark(&mut self, sink: &dyn Sink, meta: &BriefMeta<'_>) {
        if self.pending.is_some() {
            if !meta.ends_initial_events() {
                return;
            }
            let all = self.pending.take().unwrap_or_default();
            sink.replace(all.into_values().collect());
        }
        self.reached(sink, meta.resource_version.parse().unwrap_or(Revision::ZERO));
    }

    /// Moves the revision forward; zero moves nothing.
    fn reached(&mut self, sink: &dyn Sink, revision: Revision) {
        if revision != Revision::ZERO {
            sink.reached(revision);
            self.position = Position::At(revision);
        }
    }

    /// Lists in pages and replaces the sink's content.
    async fn list(&mut self) -> Result<(), ClientError> {
        let mut objects = Vec::new();
        let mut next = String::new();
        // A first list may come from a cache; one after a 410 must be of the newest revision.
        let first = if matches!(self.position, Position::Unknown) {
            "0"
        } else {
            ""
        };
        let revision = loop {
            let mut query = self.source.query();
            query.push(("limit", PAGE_LIMIT.to_string()));
            if next.is_empty() {
                query.push(("resourceVersion", first.to_owned()));
            } else {
                query.push(("continue", next.clone()));
            }
            let body = self.client.get_path(&self.source.path(), &query).await?;
            let page = self.page(&body, &mut objects)?;
            if page.next.is_empty() {
                break page.resource_version.parse().unwrap_or(Revision::ZERO);
            }
            next = page.next.into_owned();
        };
        if let Some(sink) = self.sink.upgrade() {
            sink.replace(objects);
            self.reached(&*sink, revision);
        }
        Ok(())
    }

    fn page<'a>(&self, body: &'a Bytes, objects: &mut Vec<RawObject>) -> Result<ListMeta<'a>, ClientError> {
        let decode = |source| ClientError::Decode {
            what: "a list".to_owned(),
            source,
        };
        let list: List<'a> = serde_json::from_slice(body).map_err(decode)?;
        for item in list.items.unwrap_or_default() {
            match parse_header(item.get().as_bytes()) {
                Ok((header, revision)) => {
                    let start = item.get().as_ptr() as usize - body.as_ptr() as usize;
                    let bytes = Slices(vec![body.slice(start..start + item.get().len())]);
                    objects.push(RawObject {
                        header,
                        revision,
                        bytes,
                    });
                }
                Err(error) => self.left_out(&error),
            }
        }
        Ok(list.metadata)
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Brief<'a> {
    #[serde(borrow)]
    metadata: BriefMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BriefMeta<'a> {
    #[serde(default, borrow)]
    resource_version: Cow<'a, str>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl BriefMeta<'_> {
    fn ends_initial_events(&self) -> bool {
        let annotations = self.annotations.as_ref();
        annotations
            .and_then(|all| all.get("k8s.io/initial-events-end"))
            .is_some_and(|value| value == "true")
    }
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: ListMeta<'a>,
    #[serde(default, borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta<'a> {
    #[serde(default, borrow)]
    resource_version: Cow<'a, str>,
    #[serde(default, rename = "continue", borrow)]
    next: Cow<'a, str>,
}

/// Doubles up to the longest wait, with as much again at random, and forgets after a quiet time.
#[derive(Default)]
struct Backoff {
    wait: Duration,
    last: Option<Duration>,
}

impl Backoff {
    fn next(&mut self, runtime: &Runtime) -> Duration {
        let now = runtime.monotonic();
        let quiet = self
            .last
            .is_none_or(|last| now.saturating_sub(last) > BACKOFF_RESET);
        self.wait = if quiet {
            BACKOFF_MIN
        } else {
            (self.wait * 2).min(BACKOFF_MAX)
        };
        self.last = Some(now);
        let jitter = runtime.random_u64() % 1000;
        self.wait + self.wait * u32::try_from(jitter).unwrap_or(0) / 1000
    }
}
