//! A watch on etcd: one stream, its answers taken one at a time.

use super::remote::{Remote, key, number, revision, unsigned};
use crate::{Event, Interest, Key, StorageError, Target, WatchCursor, WatchRequest};
use etcd_client::{EventType, KeyValue, WatchOptions, WatchResponse, WatchStream};
use futures::future::BoxFuture;
use machinery_meta::Revision;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

type Received = (WatchStream, Result<Option<WatchResponse>, StorageError>);

/// A cursor whose order etcd keeps. What has not been received waits at the server, which gives up on who is too slow.
pub(super) struct EtcdCursor {
    remote: Remote,
    interests: Vec<Interest>,
    receive: Option<BoxFuture<'static, Received>>,
    /// Received, not yet asked for; one answer at most.
    ready: VecDeque<Arc<Event>>,
    /// Everything up to here was received.
    received: Revision,
    position: Revision,
}

impl EtcdCursor {
    pub(super) async fn open(remote: &Remote, request: WatchRequest) -> Result<Self, StorageError> {
        let options = WatchOptions::new()
            .with_start_revision(number(request.after.next()))
            .with_prev_key()
            .with_progress_notify();
        let (start, options) = match common(&request.interests) {
            Common::Key(key) => (key, options),
            Common::Prefix(prefix) => (prefix, options.with_prefix()),
        };
        let stream = remote
            .waiting(remote.watch_client().watch(start, Some(options)))
            .await?;
        Ok(Self {
            receive: Some(receive(remote.clone(), stream)),
            remote: remote.clone(),
            interests: request.interests,
            ready: VecDeque::new(),
            received: request.after,
            position: request.after,
        })
    }

    fn take(&mut self, answer: &WatchResponse) -> Result<(), StorageError> {
        if answer.compact_revision() != 0 {
            let (asked, compacted) = (self.received, unsigned(answer.compact_revision()));
            if asked < compacted {
                return Err(StorageError::Compacted { asked, compacted });
            }
            // A member restored from a snapshot goes by the last event of a watch, not by the marks it has had since.
            let why = "etcd gave up a watch that is not behind".to_owned();
            return Err(StorageError::Unavailable(why));
        }
        if answer.canceled() {
            return Err(StorageError::Unavailable(format!(
                "etcd ended a watch: {}",
                answer.cancel_reason()
            )));
        }
        for told in answer.events() {
            let kv = told
                .kv()
                .ok_or_else(|| StorageError::Unavailable("etcd told of a change of nothing".to_owned()))?;
            self.received = self.received.max(unsigned(kv.mod_revision()));
            // Several interests share one stream; what others keep in between may be of a form nobody here knows.
            let Ok(key) = key(kv) else { continue };
            if !self.interests.iter().any(|interest| interest.target.covers(&key)) {
                continue;
            }
            let event = event(&self.remote, told, kv, key)?;
            if self.interests.iter().any(|interest| interest.matches(&event)) {
                self.ready.push_back(Arc::new(event));
            }
        }
        if answer.events().is_empty() && !answer.created() {
            // A progress mark: everything before it was sent.
            self.received = self.received.max(revision(answer.header()));
        }
        Ok(())
    }

    fn hand_out(&mut self, max: usize) -> Vec<Arc<Event>> {
        let count = max.min(self.ready.len());
        let events: Vec<_> = self.ready.drain(..count).collect();
        // Changes of one group share a revision: it is reached when the last of them was handed out.
        let reached = self
            .ready
            .front()
            .map_or(self.received, |next| Revision(next.revision.0 - 1));
        self.position = self.position.max(reached);
        events
    }
}

fn receive(remote: Remote, mut stream: WatchStream) -> BoxFuture<'static, Received> {
    Box::pin(async move {
        let answer = remote.waiting(stream.message()).await;
        (stream, answer)
    })
}

/// The smallest part of the key space that holds every interest; what is not wanted is left out here.
enum Common {
    Key(Vec<u8>),
    Prefix(Vec<u8>),
}

fn common(interests: &[Interest]) -> Common {
    if let [
        Interest {
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

fn event(remote: &Remote, told: &etcd_client::Event, kv: &KeyValue, key: Key) -> Result<Event, StorageError> {
    let previous = told.prev_kv().map(|kv| remote.entry(kv)).transpose()?;
    let revision = unsigned(kv.mod_revision());
    let is_put = told.event_type() == EventType::Put;
    let creates = is_put && kv.create_revision() == kv.mod_revision();
    if previous.is_none() && !creates {
        // etcd looks for what was there when it sends, and leaves it out when that is compacted by then. Without it
        // nobody can say whether an object has left a selection.
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

impl WatchCursor for EtcdCursor {
    fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Vec<Arc<Event>>, StorageError>> {
        loop {
            if !self.ready.is_empty() {
                return Poll::Ready(Ok(self.hand_out(max.max(1))));
            }
            self.position = self.position.max(self.received);
            let Some(receive_next) = self.receive.as_mut() else {
                return Poll::Ready(Err(StorageError::Unavailable("the watch has ended".to_owned())));
            };
            let Poll::Ready((stream, answer)) = receive_next.as_mut().poll(cx) else {
                return Poll::Pending;
            };
            self.receive = None;
            match answer {
                Ok(Some(answer)) => self.take(&answer)?,
                Ok(None) => {
                    return Poll::Ready(Err(StorageError::Unavailable("etcd ended a watch".to_owned())));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            self.receive = Some(receive(self.remote.clone(), stream));
        }
    }

    fn position(&self) -> Revision {
        self.position
    }
}

impl fmt::Debug for EtcdCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdCursor")
            .field("interests", &self.interests)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
