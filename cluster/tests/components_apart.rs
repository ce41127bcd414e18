//! Controllers and scheduler run on threads of their own, and so do the changes that they make in process: neither holds
//! up the threads that serve clients, nor waits for them.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use cluster::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use machinery_client::ApiResource;
use machinery_runtime::{Background, Runtime};
use serde_json::json;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tokio::runtime::Handle;

/// Time after which a change counts as stuck for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds every thread of this executor until the barrier that it returns is reached.
fn hold_all_threads(runtime: &Runtime) -> Arc<Barrier> {
    let threads = Handle::current().metrics().num_workers() + 1;
    let (held, released) = (Arc::new(Barrier::new(threads)), Arc::new(Barrier::new(threads)));
    for _ in 1..threads {
        let (held, released) = (held.clone(), released.clone());
        let stuck = async move {
            held.wait();
            released.wait();
        };
        runtime.spawn("stuck", stuck).detach();
    }
    held.wait();
    released
}

/// The change is begun, carried out and answered by the component's own threads.
#[tokio::test(flavor = "multi_thread")]
async fn components_change_objects_while_threads_of_requests_are_stuck() {
    let runtime = Runtime::real();
    let components = Background::start("components", 1).unwrap();
    let apart = runtime.on(&components);
    let cluster = Cluster::builder()
        .runtime(runtime.clone())
        .components_on(components)
        .start()
        .await
        .unwrap();
    let admin = cluster.admin();
    let (done, result) = channel();
    let released = hold_all_threads(&runtime);
    let change = async move {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
        let created = admin.create(&ApiResource::of::<ConfigMap>(), "default", &object);
        done.send(created.await.is_ok()).unwrap();
    };
    apart.spawn("component", change).detach();
    let created = result.recv_timeout(PATIENCE);
    released.wait();
    assert_eq!(created, Ok(true));
    cluster.shutdown().await;
}
