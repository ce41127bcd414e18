//! Ours answers tenants as the real kube-apiserver does, request by request (`conformance/tenants`).

use std::path::Path;

use cluster::Cluster;
use conformance::tenants::{self, run::Sender};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_get_what_upstream_gives_them() {
    let cluster = Cluster::builder()
        .server(|config| config.allow_unenforced = true)
        .start()
        .await
        .expect("the cluster starts");
    let client = cluster.admin();
    let sender = Sender {
        client: client.kube().clone(),
        runtime: cluster.runtime().clone(),
    };
    let lines = tenants::compare_all(Path::new(env!("CARGO_MANIFEST_DIR")), &sender)
        .await
        .expect("every request is answered");
    assert!(lines.is_empty(), "{} differ:\n{}", lines.len(), lines.join("\n"));
}
