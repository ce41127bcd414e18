//! One watch stream, from what creates it to what ends it.

use crate::members::Members;
use crate::messages::{WatchCreate, WatchRequest, WatchResponse, WatchUnion, header};
use crate::refusals;
use crate::signal::Signal;
use crate::watchers::Message;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status, Streaming};

/// The longest a stream lives where connections break.
const LONGEST_LIFE: Duration = Duration::from_millis(300);

struct Stream {
    members: Arc<Members>,
    cut: Arc<Signal<bool>>,
    member: usize,
    needs_leader: bool,
    asked: WatchCreate,
    requests: Streaming<WatchRequest>,
    out: Sender<Result<WatchResponse, Status>>,
}

/// The reason for which a stream ends.
enum End {
    /// The client has gone, or the server ends it without a word.
    Quiet,
    Said(Status),
}

pub(crate) fn needs_leader(metadata: &MetadataMap) -> bool {
    metadata.get("hasleader").is_some_and(|value| value == "true")
}

/// Registers the watch of the first request.
pub(crate) async fn open(
    members: Arc<Members>,
    cut: Arc<Signal<bool>>,
    member: usize,
    request: Request<Streaming<WatchRequest>>,
) -> Result<Receiver<Result<WatchResponse, Status>>, Status> {
    let needs_leader = needs_leader(request.metadata());
    let mut requests = request.into_inner();
    let asked = match requests.message().await?.and_then(|request| request.union) {
        Some(WatchUnion::Create(asked)) => known(asked)?,
        _ => return Err(refusals::unknown_here("streams that do not begin with a watch")),
    };
    let (out, answers) = channel(members.felt.faults.window);
    let runtime = members.felt.runtime.clone();
    let stream = Stream {
        members,
        cut,
        member,
        needs_leader,
        asked,
        requests,
        out,
    };
    runtime.spawn("etcd watch", stream.run()).detach();
    Ok(answers)
}

/// The request as etcd understands it, unless it requests more than this model knows.
fn known(asked: WatchCreate) -> Result<WatchCreate, Status> {
    if asked.fragment || asked.watch_id != 0 || !asked.filters.is_empty() || asked.start_revision < 0 {
        return Err(refusals::unknown_here("an option of a watch"));
    }
    let key = if asked.key.is_empty() { vec![0] } else { asked.key };
    Ok(WatchCreate { key, ..asked })
}

impl Stream {
    async fn run(mut self) {
        let (queue, messages) = channel(self.members.felt.faults.queue);
        let (id, revision) = self.members.with(self.member, |state| {
            let id = state.watchers.add(self.asked.clone(), &state.store, queue);
            (id, state.store.revision())
        });
        let out = self.out.clone();
        let end = tokio::select! {
            biased;
            () = out.closed() => End::Quiet,
            end = self.live(id, revision, messages) => end,
        };
        self.members.with(self.member, |state| state.watchers.remove(id));
        if let End::Said(status) = end {
            // Behind what is under way; a reader that has gone does not receive it.
            drop(out.send(Err(status)).await);
        }
    }

    async fn live(&mut self, id: u64, revision: i64, messages: Receiver<Message>) -> End {
        let Self {
            members,
            cut,
            member,
            needs_leader,
            asked,
            requests,
            out,
        } = self;
        let delivery = deliver(members, *member, asked, revision, messages, out);
        tokio::select! {
            biased;
            end = cut_off(members, *member, *needs_leader) => end,
            end = broken(members) => end,
            end = listen(members, *member, id, requests) => end,
            () = cut.until(|cut| cut) => End::Said(refusals::lost()),
            () = members.until_restored() => End::Said(refusals::lost()),
            end = delivery => end,
        }
    }
}

/// A watch that requested a leader ends without one; another waits and gets nothing.
async fn cut_off(members: &Members, member: usize, needs_leader: bool) -> End {
    if !needs_leader {
        return pending().await;
    }
    members.until_cut_off(member, true).await;
    End::Said(refusals::no_leader())
}

/// Answers requests of the client after the first: those for progress.
async fn listen(members: &Members, member: usize, id: u64, requests: &mut Streaming<WatchRequest>) -> End {
    loop {
        match requests.message().await {
            Ok(Some(request)) => match request.union {
                Some(WatchUnion::Progress(_)) => {
                    members.with(member, |state| state.watchers.progress_of(id, &state.store));
                }
                _ => return End::Said(refusals::unknown_here("a second watch on a stream")),
            },
            Ok(None) | Err(_) => return End::Quiet,
        }
    }
}

async fn broken(members: &Members) -> End {
    if members.felt.faults.break_one_in == 0 {
        return pending().await;
    }
    members.felt.delay(LONGEST_LIFE).await;
    End::Said(refusals::lost())
}

/// Sends what the watcher is given, at the reader's pace.
async fn deliver(
    members: &Members,
    member: usize,
    asked: &WatchCreate,
    revision: i64,
    mut messages: Receiver<Message>,
    out: &Sender<Result<WatchResponse, Status>>,
) -> End {
    let created = WatchResponse {
        header: header(revision),
        created: true,
        ..WatchResponse::default()
    };
    let mut next = Some(created);
    while let Some(response) = next {
        members.felt.delay(members.felt.faults.delay).await;
        if members.felt.breaks() {
            return if members.felt.one_in(2) {
                End::Quiet
            } else {
                End::Said(refusals::lost())
            };
        }
        if out.send(Ok(response)).await.is_err() {
            return End::Quiet;
        }
        let message = messages.recv().await;
        next = message.map(|message| response_of(members, member, asked, message));
    }
    // The watcher is no more; its stream stays open until one side closes it.
    pending().await
}

fn response_of(members: &Members, member: usize, asked: &WatchCreate, message: Message) -> WatchResponse {
    match message {
        Message::Changes(mut events, revision) => {
            if asked.prev_kv {
                // Only now, as etcd does: what was there before may have been compacted meanwhile.
                members.with(member, |state| {
                    for event in &mut events {
                        event.prev_kv = state.store.before(event);
                    }
                });
            }
            WatchResponse {
                header: header(revision),
                events,
                ..WatchResponse::default()
            }
        }
        Message::Progress(revision) => WatchResponse {
            header: header(revision),
            ..WatchResponse::default()
        },
        Message::Compacted(compact_revision) => WatchResponse {
            header: header(0),
            canceled: true,
            compact_revision,
            ..WatchResponse::default()
        },
    }
}
