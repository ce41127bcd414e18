//! Upstream's tables of waits (`backoff_queue_test.go` 1.37), in `testdata/scheduling_queue.json`.

use crate::queue::Backoff;
use serde::Deserialize;
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
