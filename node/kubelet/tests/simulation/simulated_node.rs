//! A node of models below the real agent, and a real API server behind faults.

use crate::host_ports::ModelHostPorts;
use crate::machine::{ModelGroups, ModelMounts, ModelVitals};
use crate::model_kernel_log::ModelKernelLog;
use crate::model_logind::ModelLogind;
use crate::model_plugins::ModelSockets;
use crate::unread::Garbling;
use apiserver_server::pki::Pki;
use cluster::{Cluster, Faults, Rates};
use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch};
use machinery_meta::{ObjectKey, UserInfo};
use machinery_runtime::{Runtime, Scope};
use node_cri::CriClient;
use node_cri_model::{Containerd, FaultProfile};
use node_kubelet::cdi::CdiSource;
use node_kubelet::node::facts::NodeFacts;
use node_kubelet::shutdown::ShutdownConfig;
use node_kubelet::static_pods::StaticPodSource;
use node_kubelet::{Host, Kubelet, KubeletConfig};
use node_sys::machine::Machine;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const NODE: &str = "n";
/// Keys of all worlds of this process: they are of the machine's own randomness.
static KEYS: OnceLock<Arc<Pki>> = OnceLock::new();

pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) faults: Faults,
    pub(crate) containerd: Containerd,
    pub(crate) mounts: Arc<ModelMounts>,
    pub(crate) groups: Arc<ModelGroups>,
    pub(crate) host_ports: Arc<ModelHostPorts>,
    pub(crate) vitals: Arc<ModelVitals>,
    pub(crate) sockets: Arc<ModelSockets>,
    pub(crate) logind: ModelLogind,
    pub(crate) kernel_log: ModelKernelLog,
    /// Periods of pods when the machine goes down, for agents that start from now on.
    pub(crate) shutdown: ShutdownConfig,
    /// Garbling of the agent's answers.
    pub(crate) garbling: Arc<Garbling>,
    cluster: Cluster,
    folder: tempfile::TempDir,
    agent: Option<Scope>,
}

impl World {
    /// A node with its images, and an agent on it.
    pub(crate) async fn new(runtime: Runtime) -> Self {
        let faults = Faults::new(Rates::NONE);
        let mut builder = Cluster::builder().runtime(runtime.clone()).faults(faults.clone());
        if let Some(keys) = KEYS.get() {
            builder = builder.keys(keys.clone());
        }
        let cluster = builder.start().await.unwrap();
        KEYS.get_or_init(|| cluster.server().pki().clone());
        let groups = Arc::new(ModelGroups::new(runtime.clone()));
        let mut world = Self {
            client: cluster.admin(),
            containerd: Containerd::start(&runtime, FaultProfile::slow(), groups.clone()),
            mounts: Arc::new(ModelMounts::new(runtime.clone())),
            host_ports: Arc::new(ModelHostPorts::new(runtime.clone())),
            vitals: Arc::default(),
            sockets: Arc::default(),
            logind: ModelLogind::default(),
            kernel_log: ModelKernelLog::default(),
            shutdown: ShutdownConfig::default(),
            garbling: Arc::default(),
            folder: tempfile::tempdir().unwrap(),
            agent: None,
            runtime,
            faults,
            groups,
            cluster,
        };
        world.containerd.add_image(crate::pods::IMAGE);
        world.containerd.publish_image(crate::pods::REMOTE_IMAGE);
        world
            .create::<ServiceAccount>(json!({"metadata": {"name": "default"}}))
            .await
            .unwrap();
        world
            .create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"key": "value"}}))
            .await
            .unwrap();
        world
            .create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"key": "value"}}))
            .await
            .unwrap();
        world.start_agent();
        world
    }

    pub(crate) fn node_name(&self) -> &'static str {
        NODE
    }

    /// The agent's data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of static pods, which is not there unless a test makes it.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// The folder in which drivers describe devices.
    pub(crate) fn cdi(&self) -> PathBuf {
        self.folder.path().join("cdi")
    }

    /// No request reaches the API server any more.
    pub(crate) fn take_api_away(&self) {
        self.faults.set(Rates {
            lose_request: 1000,
            ..Rates::NONE
        });
    }

    /// The id of the one container of a pod that runs.
    pub(crate) fn running(&self, pod: &str) -> Option<String> {
        let containers = self.containerd.containers().into_iter();
        let mut of_pod =
            containers.filter(|found| found.runs && found.labels["io.kubernetes.pod.name"] == pod);
        of_pod.next().map(|found| found.id)
    }

    /// Waits until a container of a pod runs that is not this one, and returns it.
    pub(crate) async fn until_running(&self, pod: &str, not: &str, patience: Duration) -> String {
        let until = self.runtime.monotonic() + patience;
        loop {
            if let Some(found) = self.running(pod).filter(|id| id != not) {
                return found;
            }
            let now = self.runtime.monotonic();
            assert!(now < until, "nothing of {pod} runs after {patience:?}");
            self.runtime.sleep(Duration::from_millis(500)).await;
        }
    }

    /// Everything goes wrong now and then.
    pub(crate) fn break_things(&self) {
        self.faults.set(Rates {
            hang: 4,
            ..Rates::SOME
        });
        self.containerd.set_weather(FaultProfile::stormy());
        self.mounts.fail_one_in(20);
        self.groups.fail_one_in(40);
        self.host_ports.fail_one_in(10);
    }

    /// Nothing goes wrong any more.
    pub(crate) fn disable_faults(&self) {
        self.faults.set(Rates::NONE);
        self.containerd.begin();
        self.containerd.set_weather(FaultProfile::slow());
        self.mounts.fail_one_in(0);
        self.groups.fail_one_in(0);
        self.host_ports.fail_one_in(0);
    }

    /// The agent dies.
    pub(crate) async fn end_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stopped().await;
        }
        self.sockets.forget_agent();
    }

    /// An agent begins; where it cannot, it is started again, as its server does.
    pub(crate) fn start_agent(&mut self) {
        let scope = self.runtime.child_scope();
        let runtime = scope.runtime().clone();
        let (client, config, host) = (self.node_client(), self.config(), self.host());
        let agent = async move {
            let (own, again) = (runtime.clone(), Duration::from_secs(1));
            loop {
                let life = own.child_scope();
                let begun = Kubelet::start_on(
                    life.runtime().clone(),
                    config.clone(),
                    client.clone(),
                    host.clone(),
                );
                match begun.await {
                    Ok(_agent) => std::future::pending().await,
                    Err(_) => own.sleep(again).await,
                }
            }
        };
        scope.runtime().spawn("agent", agent).detach();
        self.agent = Some(scope);
    }

    /// The machine below the agent.
    pub(crate) fn host(&self) -> Host {
        Host {
            cri: CriClient::connect_through(self.containerd.transport(), "/model".into()),
            cgroups: self.groups.clone(),
            mounter: self.mounts.clone(),
            host_ports: self.host_ports.clone(),
            vitals: self.vitals.clone(),
            logind: Arc::new(self.logind.clone()),
            kernel_log: Arc::new(self.kernel_log.clone()),
            sockets: self.sockets.clone(),
            facts: facts(),
        }
    }

    /// The API as the agent has it.
    pub(crate) fn node_client(&self) -> kube::Client {
        let client = self.cluster.component_as(UserInfo::node(NODE)).kube().clone();
        crate::unread::garbled(client, self.garbling.clone())
    }

    pub(crate) fn config(&self) -> KubeletConfig {
        let resolv_conf = self.folder.path().join("resolv.conf");
        std::fs::write(&resolv_conf, "nameserver 192.0.2.53\n").unwrap();
        let decode =
            |content: &[u8]| serde_json::from_slice::<Value>(content).map_err(|error| error.to_string());
        KubeletConfig {
            static_pods: Some(StaticPodSource {
                path: self.manifests(),
                decode,
            }),
            cdi: CdiSource {
                folders: vec![self.cdi()],
                ..CdiSource::default()
            },
            shutdown: self.shutdown.clone(),
            node_name: NODE.to_owned(),
            node_ip: [192, 0, 2, 1].into(),
            resolv_conf,
            ..KubeletConfig::for_data_dir(self.folder.path().join("agent"))
        }
    }

    /// A number below `sides`.
    pub(crate) fn dice(&self, sides: u64) -> u64 {
        self.runtime.random_u64() % sides
    }

    /// One of these, where there are any.
    pub(crate) fn pick<T>(&self, mut from: Vec<T>) -> Option<T> {
        let sides = from.len() as u64;
        (sides > 0).then(|| from.swap_remove(self.dice(sides) as usize))
    }

    pub(crate) async fn create<K: Resource<Scope: 'static>>(
        &self,
        mut object: Value,
    ) -> Result<(), ClientError> {
        object["apiVersion"] = json!(K::API_VERSION);
        object["kind"] = json!(K::KIND);
        let resource = ApiResource::of::<K>();
        self.client.create(&resource, "default", &object).await.map(drop)
    }

    /// Pods as the API has them.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let client = self.client.kube().clone();
        let pods: kube::Api<Pod> = kube::Api::namespaced(client, "default");
        pods.list(&kube::api::ListParams::default()).await.unwrap().items
    }

    /// Changes a label of a pod.
    pub(crate) async fn label(&self, name: &str, value: &str) {
        let body = json!({"metadata": {"labels": {"touched": value}}});
        let (pods, key) = (ApiResource::of::<Pod>(), ObjectKey::new("default", name));
        self.client
            .patch(&pods, &key, "", &Patch::Merge, &body)
            .await
            .unwrap();
    }

    /// Deletes a pod, within its own time or another.
    pub(crate) async fn delete(&self, name: &str, grace_period_seconds: Option<i64>) {
        let options = DeleteOptions {
            grace_period_seconds,
            ..DeleteOptions::default()
        };
        let key = ObjectKey::new("default", name);
        match self
            .client
            .delete(&ApiResource::of::<Pod>(), &key, &options)
            .await
        {
            Err(error) if !error.is_not_found() => panic!("deleting {name}: {error}"),
            _ => {}
        }
    }
}

fn facts() -> NodeFacts {
    NodeFacts {
        machine: Machine {
            cpus: 64,
            memory_bytes: 64 << 30,
            tasks_max: 1 << 20,
            architecture: "amd64",
            hostname: NODE.to_owned(),
            ..Machine::default()
        },
        storage_bytes: 1 << 40,
        runtime_version: String::new(),
        supplemental_groups_policy: false,
    }
}
