//! Pods that compete for devices, agents that end, and disks that fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use machinery_runtime::{Runtime, Simulation};
use node_plugin_api::calls::{Connection, Transport};
use node_plugin_api::device_plugin::messages::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DevicePluginOptions,
    ListAndWatchResponse, NumaNode, PreStartContainerRequest, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest, TopologyInfo,
};
use node_plugin_api::device_plugin::server::{DevicePlugin, service};
use serde_json::{Value, json};
use tonic::Status;

use super::checkpoint::Data;
use super::claims::Claim;
use super::inventory::STOP_GRACE;
use super::manager::DeviceManager;
use super::registration::register;
use crate::plugins::sockets::{FoundSockets, PluginSockets};
use crate::saving::RETRY_AFTER;

pub(crate) const GPU: &str = "example.com/gpu";

const NIC: &str = "example.com/nic";
const A_MOMENT: Duration = Duration::from_secs(1);

/// A plugin of these devices, which gives whatever is requested, after a moment.
#[derive(Debug, Clone)]
struct Plugin(Runtime, &'static [&'static str]);

impl DevicePlugin for Plugin {
    fn options(&self) -> DevicePluginOptions {
        DevicePluginOptions::default()
    }

    fn list_and_watch(self: Arc<Self>) -> BoxStream<'static, Result<ListAndWatchResponse, Status>> {
        let devices = self.1.iter().map(|id| Device {
            id: (*id).to_owned(),
            health: "Healthy".to_owned(),
            topology: place(id),
        });
        let list = ListAndWatchResponse {
            devices: devices.collect(),
        };
        futures::stream::iter([Ok(list)])
            .chain(futures::stream::pending())
            .boxed()
    }

    fn preferred(
        &self,
        _: PreferredAllocationRequest,
    ) -> BoxFuture<'static, Result<PreferredAllocationResponse, Status>> {
        std::future::ready(Err(Status::unimplemented(""))).boxed()
    }

    fn allocate(&self, _: AllocateRequest) -> BoxFuture<'static, Result<AllocateResponse, Status>> {
        let container_responses = vec![ContainerAllocateResponse::default()];
        let runtime = self.0.clone();
        async move {
            runtime.sleep(A_MOMENT).await;
            Ok(AllocateResponse { container_responses })
        }
        .boxed()
    }

    fn pre_start(&self, _: PreStartContainerRequest) -> BoxFuture<'static, Result<(), Status>> {
        std::future::ready(Ok(())).boxed()
    }
}

#[async_trait]
impl PluginSockets for Plugin {
    async fn clean(&self, _: &Path) -> std::io::Result<()> {
        Ok(())
    }

    async fn serve(&self, _: &Path, _: Transport) -> std::io::Result<()> {
        std::future::pending().await
    }

    async fn connect(&self, _: &Path) -> Result<Transport, Status> {
        Ok(service(Arc::new(self.clone())))
    }

    async fn connect_once(&self, _: &Path) -> Result<Connection, Status> {
        Err(Status::unimplemented("no end of it is of interest"))
    }

    async fn list(&self, _: &Path) -> std::io::Result<FoundSockets> {
        Ok(FoundSockets::new())
    }

    async fn changed(&self, _: &Path) {
        std::future::pending().await
    }
}

/// The NUMA node of a device, where its name has one (`a@1`).
fn place(id: &str) -> Option<TopologyInfo> {
    let (_, node) = id.split_once('@')?;
    let nodes = vec![NumaNode {
        id: node.parse().unwrap(),
    }];
    Some(TopologyInfo { nodes })
}

/// An agent that has read what is in the folder.
pub(crate) async fn agent(
    runtime: &Runtime,
    folder: &Path,
    ids: &'static [&'static str],
) -> Arc<DeviceManager> {
    let manager = DeviceManager::new(
        runtime.clone(),
        Arc::new(Plugin(runtime.clone(), ids)),
        folder.to_owned(),
    );
    manager.load().await;
    manager.settle(|_| true);
    Arc::new(manager)
}

/// Its plugin registers, and lists.
pub(crate) async fn with_plugin(manager: &Arc<DeviceManager>) {
    with_plugin_of(manager, GPU).await;
}

async fn with_plugin_of(manager: &Arc<DeviceManager>, resource: &str) {
    let request = RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: "plugin.sock".to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    register(manager.clone(), request).await.unwrap();
    manager.runtime().sleep(A_MOMENT).await;
}

fn pod(uid: &str, count: u32) -> Pod {
    pod_of(uid, json!({"containers": [requesting("c", &[(GPU, count)])]}))
}

fn pod_of(uid: &str, spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
}

fn requesting(name: &str, devices: &[(&str, u32)]) -> Value {
    let limits = devices
        .iter()
        .map(|(resource, count)| ((*resource).to_owned(), json!(count.to_string())));
    let limits: serde_json::Map<String, Value> = limits.collect();
    json!({"name": name, "resources": {"limits": limits}})
}

fn container(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

pub(crate) fn in_simulation<F: Future<Output = ()> + Send + 'static>(
    story: impl FnOnce(Runtime, tempfile::TempDir) -> F,
) {
    let simulation = Simulation::new(7);
    let runtime = simulation.runtime();
    simulation.run(story(runtime, tempfile::tempdir().unwrap()));
}

#[test]
fn pod_waits_for_what_a_rejected_one_gives_back() {
    in_simulation(|runtime, folder| async move {
        let manager = agent(&runtime, folder.path(), &["a", "b"]).await;
        with_plugin(&manager).await;
        let (first, second) = (pod("u", 2), pod("v", 2));
        let rejected = manager.allocate(&first, false).await.unwrap();
        let mut waiting = Box::pin(manager.allocate(&second, false));
        assert!((&mut waiting).now_or_never().is_none(), "it is not refused");
        drop(rejected);
        waiting.await.unwrap().keep();
        assert_eq!(manager.devices_of("v", "c")[GPU].len(), 2);
        assert!(manager.devices_of("u", "c").is_empty());
    });
}

#[test]
fn device_is_one_pods_though_its_plugin_registers_while_another_waits() {
    in_simulation(|runtime, folder| async move {
        let manager = agent(&runtime, folder.path(), &["a"]).await;
        with_plugin(&manager).await;
        let first = pod("u", 1);
        let rejected = manager.allocate(&first, false).await.unwrap();
        let second = pod_of(
            "v",
            json!({"containers": [requesting("c", &[(GPU, 1), (NIC, 1)])]}),
        );
        let third = pod_of("w", json!({"containers": [requesting("c", &[(NIC, 1)])]}));
        let mut waiting = Box::pin(manager.allocate(&second, false));
        assert!((&mut waiting).now_or_never().is_none());
        with_plugin_of(&manager, NIC).await;
        let mut taking = Box::pin(manager.allocate(&third, false));
        assert!((&mut taking).now_or_never().is_none());
        drop(rejected);
        let (waiting, taking) = futures::join!(waiting, taking);
        waiting.unwrap().keep();
        taking.unwrap().keep();
        assert_eq!(manager.devices_of("w", "c")[NIC].len(), 1);
        let own = manager.devices_of("v", "c");
        assert_eq!(own.keys().collect::<Vec<_>>(), [GPU]);
        // What is missing is given when it starts, or not.
        let refused = manager.container_options(&second, container(&second)).await;
        let words = "requested number of devices unavailable for example.com/nic";
        assert!(refused.unwrap_err().starts_with(words));
        let late = Claim {
            pod: &second,
            container: "c",
            resource: NIC,
            required: 1,
            nodes: None,
        };
        let response = ContainerAllocateResponse::default();
        let refused = manager.state.lock().give(late, ["a".to_owned()], response);
        refused.unwrap_err();
    });
}

#[test]
fn pod_that_is_refused_has_what_it_had_before() {
    in_simulation(|runtime, folder| async move {
        let manager = agent(&runtime, folder.path(), &["a", "b"]).await;
        with_plugin(&manager).await;
        manager.allocate(&pod("u", 1), false).await.unwrap().keep();
        let more = [("c", 1), ("d", 1), ("e", 1)].map(|(name, count)| requesting(name, &[(GPU, count)]));
        let more = pod_of("u", json!({"containers": more}));
        manager.allocate(&more, false).await.map(drop).unwrap_err();
        let had = ["c", "d"].map(|name| manager.devices_of("u", name).len());
        assert_eq!(had, [1, 0]);
        let data = Data::load(folder.path()).unwrap().unwrap();
        assert!(data.allocations().has_pod("u"));
    });
}

#[test]
fn checkpoint_is_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = ["kubelet_internal_checkpoint", "other"].map(|name| folder.path().join(name));
    Data::default().store(folder.path()).unwrap();
    assert_eq!(Data::load(folder.path()).unwrap(), Some(Data::default()));
    std::fs::rename(&own, &other).unwrap();
    std::os::unix::fs::symlink(&other, &own).unwrap();
    Data::load(folder.path()).unwrap_err();
}

#[test]
fn checkpoint_that_could_not_be_written_is_written_once_it_can() {
    in_simulation(|runtime, folder| async move {
        let missing = folder.path().join("device-plugins");
        let manager = agent(&runtime, &missing, &["a"]).await;
        with_plugin(&manager).await;
        runtime.sleep(RETRY_AFTER * 3).await;
        std::fs::create_dir(&missing).unwrap();
        runtime.sleep(RETRY_AFTER * 2).await;
        let data = Data::load(&missing).unwrap().unwrap();
        assert_eq!(data.resources().collect::<Vec<_>>(), [GPU]);
    });
}

#[test]
fn checkpoint_is_written_though_its_caller_has_gone() {
    in_simulation(|runtime, folder| async move {
        let manager = agent(&runtime, folder.path(), &["a", "b"]).await;
        with_plugin(&manager).await;
        let first = pod("u", 1);
        manager.allocate(&first, false).await.unwrap().keep();
        {
            let mut state = manager.state.lock();
            state.allocations.release("u");
            state.generation += 1;
        }
        assert!(manager.saver.save().now_or_never().is_none());
        runtime.sleep(Duration::from_secs(1)).await;
        let data = Data::load(folder.path()).unwrap().unwrap();
        assert!(!data.allocations().has_pod("u"));
        // The next one has nothing to write.
        assert!(manager.saver.save().now_or_never().is_some());
    });
}

#[test]
fn container_does_not_start_with_devices_that_are_not_on_the_disk() {
    in_simulation(|runtime, folder| async move {
        let missing = folder.path().join("device-plugins");
        let manager = agent(&runtime, &missing, &["a", "b"]).await;
        with_plugin(&manager).await;
        let first = pod("u", 1);
        for _ in 0..2 {
            let refused = manager
                .container_options(&first, container(&first))
                .await
                .unwrap_err();
            assert!(
                refused.starts_with("failed to write checkpoint file"),
                "{refused}"
            );
        }
        std::fs::create_dir(&missing).unwrap();
        manager
            .container_options(&first, container(&first))
            .await
            .unwrap();
    });
}

#[test]
fn container_does_not_start_with_devices_that_are_gone_since_the_agent_before() {
    in_simulation(|runtime, folder| async move {
        let first = pod("u", 1);
        let before = agent(&runtime, folder.path(), &["a"]).await;
        with_plugin(&before).await;
        before.allocate(&first, false).await.unwrap().keep();
        let words = "cannot allocate unhealthy devices example.com/gpu";
        let after = agent(&runtime, folder.path(), &["b"]).await;
        let refused = after.container_options(&first, container(&first)).await;
        assert_eq!(
            refused.unwrap_err(),
            format!("no healthy devices present; {words}")
        );
        assert_eq!(after.lost(&first, ["c"]), None, "no plugin has listed yet");
        with_plugin(&after).await;
        let refused = after.container_options(&first, container(&first)).await;
        let gone = format!("previously allocated devices are no longer healthy; {words}");
        assert_eq!(refused.unwrap_err(), gone);
        assert_eq!(after.lost(&first, ["c"]), Some(gone));
        assert_eq!(after.lost(&first, []), None, "nothing of it starts");
        let again = agent(&runtime, folder.path(), &["a", "b"]).await;
        with_plugin(&again).await;
        again.container_options(&first, container(&first)).await.unwrap();
    });
}

#[test]
fn pod_of_which_something_runs_keeps_its_devices_before_its_plugin_is_back() {
    in_simulation(|runtime, folder| async move {
        let requesting = |name: &str| requesting(name, &[(GPU, 1)]);
        let containers = json!({"initContainers": [requesting("i")], "containers": [requesting("c")]});
        let first = pod_of("u", containers);
        let before = agent(&runtime, folder.path(), &["a"]).await;
        with_plugin(&before).await;
        before.allocate(&first, false).await.unwrap().keep();
        let after = agent(&runtime, folder.path(), &["a"]).await;
        // A pod without a status, as a static one's is after a restart.
        after.allocate(&first, true).await.unwrap().keep();
        let refused = after.allocate(&first, false).await.map(drop);
        assert!(refused.unwrap_err().starts_with("no healthy devices present"));
        assert_eq!(after.devices_of("u", "c").len(), 1, "it has not ended");
    });
}

#[test]
fn without_a_checkpoint_the_nodes_resources_have_no_devices_until_their_plugins_are_there() {
    in_simulation(|runtime, folder| async move {
        let manager = agent(&runtime, folder.path(), &["a"]).await;
        let capacity = json!({GPU: "4", "cpu": "2", "hugepages-2Mi": "0"});
        let node: Node = serde_json::from_value(json!({"status": {"capacity": capacity}})).unwrap();
        manager.expect_of(&node);
        assert_eq!(manager.node_devices().capacity, [(GPU.to_owned(), 0)].into());
        let first = pod("u", 1);
        manager
            .container_options(&first, container(&first))
            .await
            .unwrap_err();
        with_plugin(&manager).await;
        manager
            .container_options(&first, container(&first))
            .await
            .unwrap();
        // What has been away for long is not awaited by the next agent.
        let next = agent(&runtime, folder.path(), &["a"]).await;
        next.expect_of(&node);
        runtime.sleep(STOP_GRACE + Duration::from_secs(1)).await;
        next.node_devices();
        runtime.sleep(Duration::from_secs(1)).await;
        let data = Data::load(folder.path()).unwrap().unwrap();
        assert_eq!(data.resources().count(), 0);
    });
}
