//! Events of tasks, from containerd. The caller opens a lost stream again, after
//! which it must list everything once: events in between are lost.

use containerd_client::events::{TaskExit, TaskOom, TaskStart};
use containerd_client::services::v1::SubscribeRequest;
use containerd_client::services::v1::events_client::EventsClient;
use containerd_client::types::Envelope;
use futures::future::BoxFuture;
use prost::Message;

use crate::{CriClient, NAMESPACE, in_namespace};

/// One thing that happened to a container (or the pause container of a sandbox).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEvent {
    /// Its process runs.
    Started {
        /// The container's (or sandbox's) id.
        container_id: String,
    },
    /// Its process ended.
    Exited {
        /// The container's (or sandbox's) id.
        container_id: String,
    },
    /// It, or a child of it, was killed for memory.
    OutOfMemory {
        /// The container's id.
        container_id: String,
    },
}

impl TaskEvent {
    /// The container (or sandbox) that it is about.
    pub fn container_id(&self) -> &str {
        match self {
            Self::Started { container_id }
            | Self::Exited { container_id }
            | Self::OutOfMemory { container_id } => container_id,
        }
    }
}

/// A subscription. containerd answers a subscriber with its first event, so that its beginning is unknown.
pub struct TaskEvents(Subscription);

enum Subscription {
    Requested(BoxFuture<'static, Option<tonic::Streaming<Envelope>>>),
    Answered(Box<tonic::Streaming<Envelope>>),
}

impl std::fmt::Debug for TaskEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskEvents").finish_non_exhaustive()
    }
}

/// Subscribes, once the first event is waited for.
pub fn subscribe(client: &CriClient) -> TaskEvents {
    let mut events = EventsClient::new(client.channel());
    TaskEvents(Subscription::Requested(Box::pin(async move {
        let filter = format!("namespace=={NAMESPACE},topic~=\"^/tasks/\"");
        let request = in_namespace(SubscribeRequest {
            filters: vec![filter],
        });
        let answer = events.subscribe(request).await;
        answer.ok().map(tonic::Response::into_inner)
    })))
}

impl TaskEvents {
    /// The next event; `None` once the stream has ended, or where there is none.
    pub fn next_event(&mut self) -> BoxFuture<'_, Option<TaskEvent>> {
        Box::pin(async move {
            loop {
                let stream = match &mut self.0 {
                    Subscription::Requested(answer) => {
                        let stream = answer.await?;
                        self.0 = Subscription::Answered(Box::new(stream));
                        continue;
                    }
                    Subscription::Answered(stream) => stream,
                };
                let envelope = stream.message().await.ok()??;
                if let Some(event) = decode(&envelope) {
                    return Some(event);
                }
            }
        })
    }
}

fn decode(envelope: &Envelope) -> Option<TaskEvent> {
    let payload = envelope.event.as_ref()?.value.as_slice();
    match envelope.topic.as_str() {
        "/tasks/start" => {
            let event = TaskStart::decode(payload).ok()?;
            Some(TaskEvent::Started {
                container_id: event.container_id,
            })
        }
        "/tasks/exit" => {
            let event = TaskExit::decode(payload).ok()?;
            // A process started by exec has an id of its own; only the container's init counts.
            (event.id == event.container_id).then_some(TaskEvent::Exited {
                container_id: event.container_id,
            })
        }
        "/tasks/oom" => {
            let event = TaskOom::decode(payload).ok()?;
            Some(TaskEvent::OutOfMemory {
                container_id: event.container_id,
            })
        }
        _ => None,
    }
}
