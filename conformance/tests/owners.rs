//! Ours records the owner of each field as the real kube-apiserver does, request by request (`conformance/owners`).

use std::path::Path;

use cluster::Cluster;
use conformance::owners;
use conformance::tenants::run::Sender;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_those_upstream_records() {
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
    let lines = owners::compare(Path::new(env!("CARGO_MANIFEST_DIR")), &sender)
        .await
        .expect("every request is answered");
    assert!(lines.is_empty(), "{} differ:\n{}", lines.len(), lines.join("\n"));
}
