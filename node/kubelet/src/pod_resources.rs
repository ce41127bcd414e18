//! The pod-resources API: programs of the machine read at a socket which container has which devices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family};
use node_plugin_api::device_plugin::messages::{NumaNode, TopologyInfo};
use node_plugin_api::pod_resources::{
    AllocatableResourcesResponse, ContainerDevices, ContainerMemory, ContainerResources,
    GetPodResourcesRequest, GetPodResourcesResponse, KUBELET_SOCKET, ListPodResourcesResponse, PodResources,
    PodResourcesLister, service,
};
use tonic::Status;

use crate::managers::ManagerContext;
use crate::pods::{ContainerKind, all_containers, name, namespace, uid};
use crate::resource_managers::memory::table::Block;

/// Pause between two tries to serve the socket.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const LABELS: &[&str] = &["server_api_version"];
const REQUESTS: Family = Family::new(
    "kubelet_pod_resources_endpoint_requests_total",
    "[ALPHA] Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
    LABELS,
);
const LISTS: Family = Family::new(
    "kubelet_pod_resources_endpoint_requests_list",
    "[ALPHA] Number of requests to the PodResource List endpoint. Broken down by server api version.",
    LABELS,
);
const ALLOCATABLE: Family = Family::new(
    "kubelet_pod_resources_endpoint_requests_get_allocatable",
    "[ALPHA] Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.",
    LABELS,
);
const GETS: Family = Family::new(
    "kubelet_pod_resources_endpoint_requests_get",
    "[ALPHA] Number of requests to the PodResource Get endpoint. Broken down by server api version.",
    LABELS,
);
const GET_ERRORS: Family = Family::new(
    "kubelet_pod_resources_endpoint_errors_get",
    "[ALPHA] Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.",
    LABELS,
);

/// Devices by id, each with its NUMA nodes.
type Devices = BTreeMap<String, Vec<i64>>;

/// Registers the families.
pub(crate) fn begin_metrics(runtime: &Runtime) {
    drop(Requests::new(runtime));
}

/// Serves the socket for ever.
pub(crate) async fn serve(context: ManagerContext) {
    let socket = context.config.pod_resources_folder().join(KUBELET_SOCKET);
    let lister = Lister {
        requests: Arc::new(Requests::new(&context.runtime)),
        context: context.clone(),
    };
    loop {
        let served = context.sockets.serve(&socket, service(lister.clone()));
        if let Err(error) = served.await {
            tracing::error!(%error, socket = %socket.display(), "pod resources are not served");
        }
        context.runtime.sleep(AGAIN_AFTER).await;
    }
}

#[derive(Clone)]
struct Lister {
    context: ManagerContext,
    requests: Arc<Requests>,
}

/// Numbers of requests.
struct Requests {
    all: Counters,
    lists: Counters,
    allocatable: Counters,
    gets: Counters,
    get_errors: Counters,
}

impl Requests {
    fn new(runtime: &Runtime) -> Self {
        let of = |family| runtime.metrics().counters(family);
        Self {
            all: of(&REQUESTS),
            lists: of(&LISTS),
            allocatable: of(&ALLOCATABLE),
            gets: of(&GETS),
            get_errors: of(&GET_ERRORS),
        }
    }

    fn count(&self, own: &Counters) {
        self.all.of(&["v1"]).inc();
        own.of(&["v1"]).inc();
    }
}

impl PodResourcesLister for Lister {
    fn list(&self) -> BoxFuture<'static, Result<ListPodResourcesResponse, Status>> {
        self.requests.count(&self.requests.lists);
        let pods = self.context.pods.list().into_iter();
        let running = pods.filter(|pod| !self.context.pods.has_ended(uid(pod)));
        let pod_resources = running.map(|pod| self.of_pod(&pod)).collect();
        Box::pin(std::future::ready(Ok(ListPodResourcesResponse { pod_resources })))
    }

    fn allocatable(&self) -> BoxFuture<'static, Result<AllocatableResourcesResponse, Status>> {
        self.requests.count(&self.requests.allocatable);
        let healthy = self.context.workers.devices.healthy();
        let response = AllocatableResourcesResponse {
            devices: entries(healthy),
            cpu_ids: self.context.workers.resource_managers.allocatable_cpus().ids(),
            memory: memory_entries(self.context.workers.resource_managers.allocatable_memory()),
        };
        Box::pin(std::future::ready(Ok(response)))
    }

    fn get(
        &self,
        request: GetPodResourcesRequest,
    ) -> BoxFuture<'static, Result<GetPodResourcesResponse, Status>> {
        self.requests.count(&self.requests.gets);
        let found = self.context.pods.find(&request.pod_namespace, &request.pod_name);
        let found = found.map(|pod| GetPodResourcesResponse {
            pod_resources: Some(self.of_pod(&pod)),
        });
        let found = found.ok_or_else(|| {
            self.requests.get_errors.of(&["v1"]).inc();
            let (pod, namespace) = (request.pod_name, request.pod_namespace);
            Status::unknown(format!("pod {pod} in namespace {namespace} not found"))
        });
        Box::pin(std::future::ready(found))
    }
}

impl Lister {
    /// Init containers that have ended have nothing, as upstream.
    fn of_pod(&self, pod: &Pod) -> PodResources {
        let containers = all_containers(pod).filter(|(kind, _)| *kind != ContainerKind::Init);
        PodResources {
            name: name(pod).to_owned(),
            namespace: namespace(pod).to_owned(),
            containers: containers
                .map(|(_, container)| self.of_container(pod, container))
                .collect(),
        }
    }

    fn of_container(&self, pod: &Pod, container: &Container) -> ContainerResources {
        let workers = &self.context.workers;
        let devices = workers.devices.devices_of(uid(pod), &container.name);
        let cpus = workers
            .resource_managers
            .exclusive_cpus_of(uid(pod), &container.name);
        let memory = workers.resource_managers.memory_of(uid(pod), &container.name);
        ContainerResources {
            name: container.name.clone(),
            devices: entries(devices),
            cpu_ids: cpus.ids(),
            memory: memory_entries(memory),
        }
    }
}

/// One entry for each block, with all of its NUMA nodes.
fn memory_entries(blocks: Vec<Block>) -> Vec<ContainerMemory> {
    let entry = |block: Block| {
        let nodes = block.nodes.iter().map(|node| NumaNode { id: i64::from(*node) });
        ContainerMemory {
            memory_type: block.kind,
            size: block.size,
            topology: Some(TopologyInfo {
                nodes: nodes.collect(),
            }),
        }
    };
    blocks.into_iter().map(entry).collect()
}

/// One entry for each device, and for each NUMA node of one, as upstream.
fn entries(resources: BTreeMap<String, Devices>) -> Vec<ContainerDevices> {
    let mut entries = Vec::new();
    for (resource_name, devices) in resources {
        for (id, nodes) in devices {
            let entry = |topology| ContainerDevices {
                resource_name: resource_name.clone(),
                device_ids: vec![id.clone()],
                topology,
            };
            if nodes.is_empty() {
                entries.push(entry(None));
            }
            for id in nodes {
                let nodes = vec![NumaNode { id }];
                entries.push(entry(Some(TopologyInfo { nodes })));
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of upstream's `TestListPodResourcesV1`.
    #[test]
    fn devices_are_listed_by_numa_node() {
        let devices = [
            ("dev0".to_owned(), vec![0]),
            ("dev1".to_owned(), vec![0, 1]),
            ("dev2".to_owned(), Vec::new()),
        ];
        let found = entries([("resource".to_owned(), devices.into())].into());
        let place = |entry: &ContainerDevices| {
            let nodes = entry.topology.iter().flat_map(|topology| &topology.nodes);
            (
                entry.device_ids.join(","),
                nodes.map(|node| node.id).collect::<Vec<_>>(),
            )
        };
        let expected = [
            ("dev0", vec![0]),
            ("dev1", vec![0]),
            ("dev1", vec![1]),
            ("dev2", vec![]),
        ];
        let expected = expected.map(|(id, nodes)| (id.to_owned(), nodes));
        assert_eq!(found.iter().map(place).collect::<Vec<_>>(), expected);
    }
}
