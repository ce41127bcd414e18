//! Records of containerd as a full disk and a second attempt leave them: two of one name.

use super::kills::{CONTAINERD, Names, Running, kill_and_wait, works};
use crate::support::cluster::Cluster;
use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::{Container, CreateContainerRequest, ListContainersRequest};
use tonic::Request;
use tonic::transport::Channel;

/// containerd by itself would end at each start from then on.
pub(crate) fn two_records_of_one_name_do_not_keep_containerd_down(cluster: &Cluster) {
    let running = Running::start(cluster, "twins");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let own = record_of(records(cluster).await, "asker");
        record(cluster, own, |text| text).await;
    });
    kill_and_wait(cluster, CONTAINERD);
    works(&running.story);
    running.end(Names::AllTheTime);
}

/// Such a record is removed, as all that is left of pods that are gone.
pub(crate) fn a_record_without_a_sandbox_is_removed(cluster: &Cluster) {
    const GONE: &str = "00000000-0000-4000-8000-000000000001";
    let running = Running::start(cluster, "without-sandbox");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let records = || runtime.block_on(records(cluster));
    let own = record_of(records(), "asker");
    let uid = own.labels["io.kubernetes.pod.uid"].clone();
    runtime.block_on(record(cluster, own, |text| text.replace(&uid, GONE)));
    let is_there = || {
        let labels = records().into_iter().map(|own| own.labels);
        let mut uids = labels.filter_map(|mut own| own.remove("io.kubernetes.pod.uid"));
        uids.any(|uid| uid == GONE)
    };
    assert!(is_there());
    kill_and_wait(cluster, CONTAINERD);
    works(&running.story);
    cluster.kubectl.until("removed", || !is_there());
    running.end(Names::AllTheTime);
}

async fn client(cluster: &Cluster) -> ContainersClient<Channel> {
    let socket = cluster.agent_dir().join("containerd/containerd.sock");
    let channel = containerd_client::connect(socket).await;
    ContainersClient::new(channel.expect("containerd answers"))
}

async fn records(cluster: &Cluster) -> Vec<Container> {
    let request = in_namespace(ListContainersRequest::default());
    let listed = client(cluster).await.list(request).await;
    listed.expect("a list").into_inner().containers
}

fn record_of(records: Vec<Container>, name: &str) -> Container {
    let label = |container: &Container| container.labels.get("io.kubernetes.container.name").cloned();
    let mut found = records
        .into_iter()
        .filter(|own| label(own).as_deref() == Some(name));
    found.next().expect("a container of the name")
}

/// Records a container once more, under another ID, changed, and without a process.
async fn record(cluster: &Cluster, mut twin: Container, change: impl Fn(String) -> String) {
    let id: String = twin.id.chars().rev().collect();
    let known = twin.extensions.get_mut("io.cri-containerd.container.metadata");
    let known = known.expect("CRI's part");
    let text = String::from_utf8(std::mem::take(&mut known.value)).expect("JSON");
    known.value = change(text.replace(&twin.id, &id)).into_bytes();
    twin.labels
        .values_mut()
        .for_each(|label| *label = change(std::mem::take(label)));
    twin.id = id;
    let folders = cluster.agent_dir().join("containerd").join("root");
    let folder = folders
        .join("io.containerd.grpc.v1.cri/containers")
        .join(&twin.id);
    std::fs::create_dir(folder).expect("a folder, without which the record is passed over");
    let request = CreateContainerRequest {
        container: Some(twin),
    };
    let created = client(cluster).await.create(in_namespace(request)).await;
    created.expect("a second record");
}

fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = "k8s.io".parse().expect("a header's value");
    request.metadata_mut().insert("containerd-namespace", namespace);
    request
}
