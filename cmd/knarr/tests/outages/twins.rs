//! Records of containerd as a full disk and a second attempt leave them: two of one name.

use super::kills::{CONTAINERD, Names, Running, kill_and_wait, works};
use crate::support::cluster::Cluster;
use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::{Container, CreateContainerRequest, ListContainersRequest};
use tonic::Request;

/// containerd by itself would end at each start from then on.
pub(crate) fn two_records_of_one_name_do_not_keep_containerd_down(cluster: &Cluster) {
    let running = Running::start(cluster, "twins");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(record_twin(cluster));
    kill_and_wait(cluster, CONTAINERD);
    works(&running.story);
    running.end(Names::AllTheTime);
}

/// Records a container once more, under another ID and without a process.
async fn record_twin(cluster: &Cluster) {
    let socket = cluster.agent_dir().join("containerd/containerd.sock");
    let channel = containerd_client::connect(socket)
        .await
        .expect("containerd answers");
    let mut containers = ContainersClient::new(channel);
    let listed = containers
        .list(in_namespace(ListContainersRequest::default()))
        .await;
    let listed = listed.expect("a list").into_inner().containers;
    let label = |container: &Container| container.labels.get("io.kubernetes.container.name").cloned();
    let mut twin = listed
        .into_iter()
        .find(|own| label(own).as_deref() == Some("asker"))
        .expect("the asking container");
    let id: String = twin.id.chars().rev().collect();
    let known = twin
        .extensions
        .get_mut("io.cri-containerd.container.metadata")
        .expect("CRI's part");
    let text = String::from_utf8(std::mem::take(&mut known.value)).expect("JSON");
    known.value = text.replace(&twin.id, &id).into_bytes();
    twin.id = id;
    let folder = cluster
        .agent_dir()
        .join("containerd/root/io.containerd.grpc.v1.cri/containers");
    std::fs::create_dir(folder.join(&twin.id)).expect("a folder, without which the record is passed over");
    let request = CreateContainerRequest {
        container: Some(twin),
    };
    containers
        .create(in_namespace(request))
        .await
        .expect("a second record");
}

fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = "k8s.io".parse().expect("a header's value");
    request.metadata_mut().insert("containerd-namespace", namespace);
    request
}
