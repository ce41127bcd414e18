//! Events of tasks, to subscribers.

use crate::Machine;
use containerd_client::events::{TaskExit, TaskOom, TaskStart};
use containerd_client::types::Envelope;
use parking_lot::Mutex;
use prost::Message;
use prost_types::Any;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Status;

type Sent = Result<Envelope, Status>;

/// Open streams.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(Mutex<Vec<UnboundedSender<Sent>>>);

impl Subscribers {
    pub(crate) fn add(&self) -> UnboundedReceiver<Sent> {
        let (events, stream) = unbounded_channel();
        self.0.lock().push(events);
        stream
    }

    /// Ends all streams.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    fn send(&self, event: &Envelope) {
        self.0
            .lock()
            .retain(|stream| stream.send(Ok(event.clone())).is_ok());
    }
}

impl Machine {
    pub(crate) fn publish_start(&self, id: &str) {
        let event = TaskStart {
            container_id: id.to_owned(),
            pid: 1,
        };
        self.publish("/tasks/start", "containerd.events.TaskStart", &event);
    }

    pub(crate) fn publish_exit(&self, id: &str, exit_code: i32) {
        let event = TaskExit {
            container_id: id.to_owned(),
            id: id.to_owned(),
            pid: 1,
            exit_status: u32::try_from(exit_code).unwrap_or(255),
            exited_at: None,
        };
        self.publish("/tasks/exit", "containerd.events.TaskExit", &event);
    }

    pub(crate) fn publish_out_of_memory(&self, id: &str) {
        let event = TaskOom {
            container_id: id.to_owned(),
        };
        self.publish("/tasks/oom", "containerd.events.TaskOOM", &event);
    }

    fn publish(&self, topic: &str, kind: &str, event: &impl Message) {
        if self.loses_event() {
            return;
        }
        self.subscribers.send(&Envelope {
            timestamp: None,
            namespace: node_cri::NAMESPACE.to_owned(),
            topic: topic.to_owned(),
            event: Some(Any {
                type_url: kind.to_owned(),
                value: event.encode_to_vec(),
            }),
        });
    }
}
