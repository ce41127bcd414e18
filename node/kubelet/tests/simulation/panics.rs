//! Every component of the agent outlives a panic: it is down and says so, the others go on, and it works again. In real
//! time, as a panic fails a simulation.
//!
//! The components come from the registry, so that a new one fails here until it is looked at. Network, service rules and
//! DNS are components of the same process in a scope each; `cmd/knarr` has their test.

use crate::model_csi::ModelDriver;
use crate::model_plugins::ModelPlugin;
use crate::pods::pod;
use crate::simulated_node::World;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use machinery_runtime::Runtime;
use node_kubelet::{Kubelet, KubeletConfig};
use node_plugin_api::device_plugin::messages::DevicePluginOptions;
use node_plugin_api::pod_resources;
use node_sys::cgroup::Cgroups;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PAUSE: Duration = Duration::from_millis(5);

/// The proof that a component works again.
#[derive(Clone, Copy)]
enum Proof {
    RecordsEvents,
    WritesStatus,
    RenewsLease,
    SeesTheNodeClosed,
    RunsPods,
    WeighsClasses,
    LeadsHostPorts,
    AnswersHealth,
    TakesConnections,
    TakesPlugins,
    TakesDrivers,
    ListsResources,
    RemovesSlices,
    /// It waits for longer than a test can, or for what a model does not do; that it runs again has to do.
    Runs,
}

const PROOFS: [(&str, Proof); 30] = [
    ("class weights", Proof::WeighsClasses),
    ("component events", Proof::RecordsEvents),
    ("device plugins", Proof::TakesPlugins),
    ("devices of claims", Proof::RemovesSlices),
    ("eviction", Proof::Runs),
    ("folders of logs", Proof::Runs),
    ("growth of volumes", Proof::Runs),
    ("healthz server", Proof::AnswersHealth),
    ("host ports", Proof::LeadsHostPorts),
    ("image collection", Proof::Runs),
    ("kubelet server", Proof::TakesConnections),
    ("log rotation", Proof::Runs),
    ("logs of evicted pods", Proof::Runs),
    ("node lease", Proof::RenewsLease),
    ("node status", Proof::WritesStatus),
    ("node watch", Proof::SeesTheNodeClosed),
    ("oom events", Proof::Runs),
    ("plugins", Proof::TakesDrivers),
    ("pod resources", Proof::ListsResources),
    ("pod storage", Proof::Runs),
    ("pod watch", Proof::RunsPods),
    ("processors of containers", Proof::Runs),
    ("pull records", Proof::Runs),
    ("relist", Proof::Runs),
    ("runtime events", Proof::Runs),
    ("service watch", Proof::RunsPods),
    ("serving certificate file", Proof::Runs),
    ("staged volumes", Proof::Runs),
    ("static pods", Proof::Runs),
    ("usage of volumes", Proof::Runs),
];
/// Tasks that end when they have done their work, or have none: no time is given to a shutdown here.
const ENDING: [&str; 3] = ["node registration", "node shutdown", "saved pods"];

struct Agent {
    world: World,
    /// With components of its own.
    runtime: Runtime,
    kubelet: Kubelet,
}

impl Agent {
    async fn new() -> Self {
        let mut world = World::new(Runtime::real()).await;
        world.end_agent().await;
        let runtime = Runtime::real();
        let config = KubeletConfig {
            port: 0,
            healthz_port: Some(0),
            ..world.config()
        };
        let started = Kubelet::start_serving_on(runtime.clone(), config, world.node_client(), world.host());
        let kubelet = started.await.unwrap();
        Self {
            world,
            runtime,
            kubelet,
        }
    }

    async fn until<T>(&self, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            self.runtime.sleep(PAUSE).await;
        }
    }

    /// The components that run or should.
    fn lasting(&self) -> Vec<&'static str> {
        let all = self.runtime.components().all().into_iter();
        let names = all.map(|(name, _)| name);
        names.filter(|name| !ENDING.contains(name)).collect()
    }

    fn restarts(&self, name: &str) -> u64 {
        let restarts = self.runtime.components().restarts();
        let own = restarts.iter().find(|(own, _)| *own == name);
        own.map_or(0, |(_, count)| *count)
    }

    /// The answer of `/healthz`; none while the server gives none.
    async fn health(&self) -> Option<String> {
        let port = self.kubelet.healthz_port().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let request = "GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.world.client.kube().clone())
    }

    /// A component panics and says so, and those that are still whole do not.
    async fn break_down(&self, name: &'static str, whole: &[&str]) {
        // Each time it fails it is down for longer.
        self.until(async || {
            self.runtime.components().break_down(name);
            match name {
                "healthz server" => (self.restarts(name) > 0).then_some(()),
                _ => self
                    .health()
                    .await
                    .filter(|answer| told_down(answer, name))
                    .map(drop),
            }
        })
        .await;
        let failed = whole.iter().filter(|name| self.restarts(name) > 0);
        assert_eq!(failed.collect::<Vec<_>>(), [] as [&&str; 0], "with {name}");
    }

    async fn prove(&self, proof: Proof, name: &'static str) {
        match proof {
            Proof::Runs => {}
            Proof::AnswersHealth => self.until_healthy().await,
            Proof::RecordsEvents => {
                for (name, _) in PROOFS {
                    self.until_event(
                        "ComponentRestarted",
                        &format!("Component {name} of the node agent failed"),
                    )
                    .await;
                }
            }
            Proof::WritesStatus => self.until_ready("True").await,
            Proof::RenewsLease => {
                let client = self.world.client.kube().clone();
                let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
                let node = self.world.node_name();
                leases.delete(node, &DeleteParams::default()).await.unwrap();
                self.until(async || leases.get_opt(node).await.unwrap()).await;
            }
            Proof::SeesTheNodeClosed => {
                let body = json!({"spec": {"unschedulable": true}});
                let (nodes, node) = (self.api::<Node>(), self.world.node_name());
                let patch = Patch::Merge(&body);
                nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
                self.until_event("NodeNotSchedulable", "Node n status is now")
                    .await;
            }
            Proof::RunsPods => {
                let pod_name = name.replace(' ', "-");
                let body = pod(&self.world, &pod_name, "stubborn");
                self.world.create::<Pod>(body).await.unwrap();
                self.until(async || self.world.running(&pod_name)).await;
            }
            Proof::WeighsClasses => {
                let mut body = pod(&self.world, "heavy", "stubborn");
                body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
                self.world.create::<Pod>(body).await.unwrap();
                self.until(async || {
                    let limits = self.world.groups.limits("/kubepods/burstable");
                    (limits.cpu_shares >= Some(3 * 1024)).then_some(())
                })
                .await;
            }
            Proof::LeadsHostPorts => {
                let body = pod(&self.world, "ported1", "serves");
                self.world.create::<Pod>(body).await.unwrap();
                self.until(async || {
                    let mut entries = self.world.host_ports.entries().into_keys();
                    entries.any(|key| key.port == 1025).then_some(())
                })
                .await;
            }
            Proof::TakesPlugins => {
                let options = DevicePluginOptions::default();
                let plugin = ModelPlugin::new(&self.runtime, "example.com/gpu", options, &["a"]);
                let registered = self.world.sockets.register(&self.runtime, &plugin);
                registered.await.unwrap();
            }
            Proof::TakesDrivers => {
                let driver = ModelDriver::new(&self.runtime, &self.world.mounts, "disks.example", false);
                driver.start(&self.world.sockets);
                let own = self.api::<CSINode>();
                self.until(async || {
                    let found = own.get_opt(self.world.node_name()).await.unwrap()?;
                    (!found.spec.drivers.is_empty()).then_some(())
                })
                .await;
            }
            Proof::ListsResources => {
                let agent = self.world.sockets.service("pod-resources/kubelet.sock").unwrap();
                let listed = pod_resources::list(&agent).await.unwrap();
                let mut names = listed.pod_resources.iter().map(|pod| pod.name.as_str());
                assert!(names.any(|name| name == "before"));
            }
            Proof::RemovesSlices => {
                let node = self.world.node_name();
                let slice = json!({"metadata": {"name": "slice"}, "spec": {
                    "driver": "dongles.example", "nodeName": node, "devices": [{"name": "a"}],
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
                let slices = self.api::<ResourceSlice>();
                let slice = serde_json::from_value(slice).unwrap();
                slices.create(&PostParams::default(), &slice).await.unwrap();
                // As the agent, it removes what no driver of its own has said.
                self.runtime.components().break_down(name);
                self.until(async || slices.get_opt("slice").await.unwrap().is_none().then_some(()))
                    .await;
            }
            Proof::TakesConnections => {
                let port = self.kubelet.port().unwrap();
                let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                stream.write_all(b"not TLS at all\r\n\r\n").await.unwrap();
                // A server that answers has accepted.
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer).await;
            }
        }
    }

    async fn until_healthy(&self) {
        self.until(async || {
            self.health()
                .await
                .filter(|answer| answer.ends_with("\r\n\r\nok"))
        })
        .await;
    }

    async fn until_event(&self, reason: &str, message: &str) {
        let events = self.api::<Event>();
        self.until(async || {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            let is_it = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.name.as_deref() == Some(self.world.node_name())
                    && event
                        .message
                        .as_deref()
                        .is_some_and(|text| text.starts_with(message))
            };
            all.iter().any(is_it).then_some(())
        })
        .await;
    }

    async fn until_ready(&self, expected: &str) {
        let nodes = self.api::<Node>();
        self.until(async || {
            let node = nodes.get(self.world.node_name()).await.unwrap();
            let conditions = node.status?.conditions?;
            let ready = conditions.iter().find(|own| own.type_ == "Ready")?;
            (ready.status == expected).then_some(())
        })
        .await;
    }

    /// Another writes that the node is not ready: its keeper writes what it is when it begins.
    async fn tell_it_is_not_ready(&self) {
        self.until_ready("True").await;
        let condition = json!({"type": "Ready", "status": "Unknown", "reason": "Lost", "message": "lost"});
        let body = json!({"status": {"conditions": [condition]}});
        let (nodes, patch) = (self.api::<Node>(), Patch::Strategic(&body));
        let params = PatchParams::default();
        let patching = nodes.patch_status(self.world.node_name(), &params, &patch);
        patching.await.unwrap();
    }
}

/// Reports whether an answer of `/healthz` says that this component is down.
fn told_down(answer: &str, name: &str) -> bool {
    let names = answer.rsplit("components are down: ").next().unwrap_or_default();
    answer.starts_with("HTTP/1.1 500 ") && names.trim_end().split(", ").any(|own| own == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_component_that_panics_is_down_alone_and_works_again() {
    let agent = Agent::new().await;
    let known: Vec<&'static str> = PROOFS.iter().map(|(name, _)| *name).collect();
    assert_eq!(agent.lasting(), known, "each component has its proof");
    agent.until_healthy().await;
    agent
        .world
        .create::<Pod>(pod(&agent.world, "before", "stubborn"))
        .await
        .unwrap();
    let before = agent.until(async || agent.world.running("before")).await;
    agent.tell_it_is_not_ready().await;
    // While the health server is down no answer says which components are.
    let last = "healthz server";
    let others = known.iter().filter(|name| **name != last);
    let mut whole: Vec<&'static str> = [last].into_iter().chain(others.copied()).collect();
    while let Some(name) = whole.pop() {
        agent.break_down(name, &whole).await;
    }
    let all_up = known.iter().map(|name| (*name, None)).collect::<Vec<_>>();
    agent
        .until(async || (agent.runtime.components().all() == all_up).then_some(()))
        .await;
    for (name, proof) in PROOFS {
        agent.prove(proof, name).await;
        let panics = agent.runtime.components().panics();
        assert!(
            panics.iter().any(|(task, count)| *task == name && *count > 0),
            "{name} is counted"
        );
    }
    agent.until_healthy().await;
    assert_eq!(agent.world.running("before"), Some(before), "pods run on");
}
