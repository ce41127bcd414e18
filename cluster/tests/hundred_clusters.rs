//! A hundred clusters in one process leave nothing behind. Alone in its binary, since it counts what the process has.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use cluster::{Cluster, Selection};
use k8s_openapi::api::core::v1::ConfigMap;
use machinery_client::ApiResource;
use machinery_runtime::Runtime;
use serde_json::json;
use std::time::Duration;

/// A guard against hanging, not an assertion: everything here takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

async fn until<T, F: Future<Output = Option<T>>>(runtime: &Runtime, what: &str, look: impl Fn() -> F) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            runtime.sleep(LOOK_EVERY).await;
        }
    };
    runtime
        .timeout(PATIENCE, looking)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// Threads, open descriptors and bytes of this process: those it has allocated and not freed. Resident memory says more of
/// the allocator, which keeps pages and never has the same ones, than of what was left behind.
fn process() -> (usize, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let number = |name: &str| -> usize {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (number("Threads:"), descriptors, machinery_fuzz::held_by_all())
}

/// The most bytes they may leave: a cluster that stayed would be 3 MB.
const LEFT_BYTES: usize = 1 << 20;
/// The most threads: tokio keeps idle blocking threads for a while.
const LEFT_THREADS: usize = 64;
const CLUSTERS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_hundred_leave_nothing_behind() {
    // The first hundred pays for what a process needs once.
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    hundred_clusters(tasks).await;
    let before = process();
    let running = hundred_clusters(tasks).await;
    let after = process();
    println!("threads, descriptors, bytes: before {before:?}, with {CLUSTERS} {running:?}, after {after:?}");
    assert_eq!(after.1, before.1, "descriptors");
    assert!(
        after.0 <= before.0 + LEFT_THREADS,
        "threads: {before:?} {after:?}"
    );
    assert!(after.2 <= before.2 + LEFT_BYTES, "bytes: {before:?} {after:?}");
}

/// Starts them, lets each serve, drops them and waits until their tasks have ended; what the process had with all of them.
async fn hundred_clusters(tasks: usize) -> (usize, usize, usize) {
    let mut all = Vec::new();
    for _ in 0..CLUSTERS {
        all.push(start_and_serve().await);
    }
    let running = process();
    drop(all);
    until(&Runtime::real(), "every task has ended", || async {
        let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        (left <= tasks).then_some(())
    })
    .await;
    running
}

/// A whole control plane: every controller, the scheduler, a listener.
async fn start_and_serve() -> Cluster {
    let cluster = Cluster::builder()
        .controllers(Selection::Default)
        .scheduler()
        .bind_address("127.0.0.1:0".parse().unwrap())
        .start()
        .await
        .unwrap();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}});
    cluster
        .admin()
        .create(&ApiResource::of::<ConfigMap>(), "default", &map)
        .await
        .unwrap();
    cluster
}
