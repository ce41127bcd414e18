//! Upstream's tables of waits (`backoff_queue_test.go` 1.37), in `testdata/scheduling_queue.json`, and of operations
//! (`scheduling_queue_test.go`), in `testdata/queue_operations.json`.
//!
//! Left out of the latter is what belongs to groups of pods, whose gates are off, to hints as functions, and to nominations.

use super::make_pod;
use crate::framework::ClusterEvents;
use crate::pod::PodInfo;
use crate::queue::{Backoff, Queue};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Times in nanoseconds.
#[derive(Deserialize)]
struct Row {
    name: String,
    initial: u64,
    most: u64,
    unschedulable: u32,
    errors: u32,
    wait: u64,
}

#[test]
fn pods_back_off_as_upstream() {
    let rows = include_str!("../../testdata/scheduling_queue.json");
    for row in serde_json::from_str::<Vec<Row>>(rows).unwrap() {
        let backoff = Backoff {
            initial: Duration::from_nanos(row.initial),
            most: Duration::from_nanos(row.most),
        };
        let wait = backoff.wait(row.unschedulable, row.errors);
        assert_eq!(wait, Duration::from_nanos(row.wait), "{}", row.name);
    }
}

#[derive(Deserialize)]
struct Operations {
    name: String,
    steps: Vec<Step>,
    /// Pods that came to queues, by queue and event.
    #[serde(default)]
    incoming: BTreeMap<String, u64>,
}

/// One operation. Those that look at the queue say what they expect.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Step {
    op: String,
    /// Seconds since the beginning.
    at: u64,
    pod: String,
    priority: i32,
    labels: Value,
    attempts: Option<u32>,
    first_tried: Option<u64>,
    timed_out: Option<bool>,
}

impl Step {
    fn pod(&self) -> Arc<PodInfo> {
        make_pod(
            &self.pod,
            json!({"priority": self.priority, "labels": self.labels}),
        )
    }

    fn run(&self, queue: &mut Queue, name: &str) {
        let (now, pod) = (Duration::from_secs(self.at), self.pod());
        match &*self.op {
            "add" | "update" => queue.set(pod, None, now),
            "gate" => queue.set(pod, Some("gate"), now),
            "delete" => drop(queue.remove(&pod.key)),
            "reject" => queue.reject(&pod.key, BTreeSet::from(["plugin"]), ClusterEvents::ANY, now),
            "retry" => queue.retry(&pod.key, now),
            "event" => queue.happened(ClusterEvents::NODE_ADD, now),
            "flush" => drop(queue.peek(now).cloned()),
            "empty" => assert!(!queue.has_next(now), "{name}"),
            "wakes" => assert_eq!(queue.next_wake(), Some(now), "{name}"),
            "pop" => self.pops(queue, now, name),
            other => panic!("{other}"),
        }
    }

    fn pops(&self, queue: &mut Queue, now: Duration, name: &str) {
        let Some(popped) = queue.pop(now) else {
            panic!("{name}: nothing to pop");
        };
        let first = popped.first_tried.as_secs();
        let found = (&*popped.pod.key.name, popped.attempts, first, popped.timed_out);
        let expected = (
            &*self.pod,
            self.attempts.unwrap_or(popped.attempts),
            self.first_tried.unwrap_or(first),
            self.timed_out.unwrap_or(popped.timed_out),
        );
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn queue_does_the_operations_of_upstream() {
    let rows = include_str!("../../testdata/queue_operations.json");
    for row in serde_json::from_str::<Vec<Operations>>(rows).unwrap() {
        let mut queue = Queue::new(Backoff::default());
        for (at, step) in row.steps.iter().enumerate() {
            step.run(&mut queue, &format!("{}, step {at}", row.name));
        }
        let incoming = queue.tallies.take_incoming();
        let incoming = incoming
            .iter()
            .map(|((queue, event), count)| (format!("{queue} {event}"), *count));
        let incoming: BTreeMap<String, u64> = incoming.collect();
        if !row.incoming.is_empty() {
            assert_eq!(incoming, row.incoming, "{}", row.name);
        }
    }
}
