//! Network, service rules and DNS of an agent outlive panics: of their own loop, and of an informer below it. The component
//! that it belongs to begins again whole, with empty caches; no other does, but for the two readers of the watches of services. The kubelet's components have their test in
//! `node/kubelet/tests/simulation/panics.rs`.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use async_trait::async_trait;
use cluster::{Cluster, identities};
use k8s_openapi::api::core::v1::Service;
use machinery_client::{ApiResource, Client};
use machinery_runtime::Runtime;
use machinery_views::ServiceViews;
use node_dns::DnsConfig;
use node_network::NetworkConfig;
use node_network::third_party::PluginFolders;
use node_proxy::affinity::AffinityEntry;
use node_proxy::elements::Delta;
use node_proxy::flows::Flows;
use node_proxy::{Kernel, KernelError, NodePortAddresses, ProxyConfig};
use node_sys::routes::{Range, Routes};
use node_sys::{CommandOutput, CommandSpec, Exec, ExecError};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt;

const PAUSE: Duration = Duration::from_millis(5);
const ADDRESS: &str = "10.96.0.77";
const COMPONENTS: [&str; 4] = ["dns", "pod network", "proxy", ServiceViews::COMPONENT];
/// Restarts of each that a panic of one of them causes.
const ENDED_BY: [[u64; 4]; 4] = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 1, 1]];

/// Tables that were to be applied.
#[derive(Debug, Default)]
struct Scripts(Mutex<Vec<String>>);

impl Scripts {
    fn hold(&self, text: &str) -> bool {
        self.0.lock().unwrap().iter().any(|script| script.contains(text))
    }
}

#[async_trait]
impl Kernel for Scripts {
    async fn apply(&self, script: String) -> Result<(), KernelError> {
        self.0.lock().unwrap().push(script);
        Ok(())
    }

    async fn change(&self, _: &Delta) -> Result<(), KernelError> {
        Ok(())
    }

    async fn notes(&self) -> Result<Vec<AffinityEntry>, KernelError> {
        Ok(Vec::new())
    }

    async fn delete_affinity_entries(&self, _: Vec<AffinityEntry>) -> Result<(), KernelError> {
        Ok(())
    }

    async fn delete_conntrack_entries(&self, _: Flows) -> Result<usize, KernelError> {
        Ok(0)
    }
}

/// No program and no route of this machine.
#[derive(Debug)]
struct Nothing;

#[async_trait]
impl Exec for Nothing {
    async fn run(&self, _: CommandSpec) -> Result<CommandOutput, ExecError> {
        Ok(CommandOutput::default())
    }
}

impl Routes for Nothing {
    fn list(&self) -> io::Result<BTreeMap<Range, Ipv4Addr>> {
        Ok(BTreeMap::new())
    }

    fn set(&self, _: Range, _: Ipv4Addr) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: Range) -> io::Result<()> {
        Ok(())
    }
}

struct Agent {
    cluster: Cluster,
    /// With components of its own.
    runtime: Runtime,
    kernel: Arc<Scripts>,
    folder: tempfile::TempDir,
}

impl Agent {
    async fn new() -> Self {
        Self {
            cluster: Cluster::builder().start().await.unwrap(),
            runtime: Runtime::real(),
            kernel: Arc::default(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A client whose first request panics in the task that made it; `later` says what becomes of the others.
    fn client(&self, later: Later) -> Client {
        let service = self.cluster.server().service_as(identities::admin());
        let asked = Arc::new(AtomicUsize::new(0));
        let call = move |request: http::Request<kube::client::Body>| {
            let (service, asked) = (service.clone(), asked.clone());
            async move {
                match (asked.fetch_add(1, Ordering::Relaxed), later) {
                    (0, _) => panic!("the first request of a client"),
                    (_, Later::Served) => service.oneshot(request).await,
                    (_, Later::Unanswered) => std::future::pending().await,
                }
            }
        };
        Client::in_process(tower::service_fn(call), self.runtime.clone())
    }

    fn zone(&self) -> PathBuf {
        self.folder.path().join("zone")
    }

    fn start(&self) {
        let network = NetworkConfig {
            node_name: "n".into(),
            cluster_cidr: "10.244.0.0/16".parse().unwrap(),
            cni_config_dir: self.folder.path().join("cni"),
            third_party_config_dir: self.folder.path().join("net.d"),
            plugins: PluginFolders {
                from: Vec::new(),
                links: self.folder.path().join("plugins"),
            },
            is_enabled: true,
            host_settings: self.folder.path().join("settings"),
            mtu: None,
        };
        // Where it knows its nodes it sets up the machine that the test runs on.
        let client = self.client(Later::Unanswered);
        node_network::start(
            network,
            client,
            Arc::new(Nothing),
            Arc::new(Nothing),
            self.runtime.clone(),
        )
        .detach();
        let proxy = ProxyConfig {
            node_name: "n".into(),
            node_ip: None,
            cluster_cidr: None,
            service_cidr: None,
            local_addresses: Vec::new(),
            node_port_addresses: NodePortAddresses::default(),
        };
        let client = self.client(Later::Served);
        let views = ServiceViews::start(&client, &self.runtime);
        let (kernel, runtime) = (self.kernel.clone(), self.runtime.clone());
        node_proxy::start(proxy, self.cluster.admin(), views.clone(), kernel, runtime).detach();
        let dns = DnsConfig {
            cluster_domain: "cluster.local".into(),
            cluster_dns: Ipv4Addr::LOCALHOST,
            port: 0,
            upstream: Vec::new(),
            resolv_conf: None,
            saved_zone: Some(self.zone()),
        };
        node_dns::start(dns, views, Arc::new(Nothing), self.runtime.clone()).detach();
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            self.runtime.sleep(PAUSE).await;
        }
    }

    /// A service that rules and names are made from.
    async fn create_service(&self) {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"clusterIP": ADDRESS, "selector": {"app": "s"}, "ports": [{"port": 80}]}});
        let (admin, services) = (self.cluster.admin(), ApiResource::of::<Service>());
        admin.create(&services, "default", &service).await.unwrap();
    }

    /// Waits until both have seen the service, and have written it.
    async fn until_written(&self) {
        let in_zone = || std::fs::read_to_string(self.zone()).is_ok_and(|text| text.contains(ADDRESS));
        self.until(|| self.kernel.hold(ADDRESS) && in_zone()).await;
    }

    /// Clears what the components have written.
    fn forget_written(&self) {
        self.kernel.0.lock().unwrap().clear();
        std::fs::remove_file(self.zone()).unwrap();
    }

    /// Restarts of each component, in the order of their names.
    fn restarts(&self) -> [u64; 4] {
        let all = self.runtime.components().restarts();
        COMPONENTS.map(|name| {
            all.iter()
                .find(|(own, _)| *own == name)
                .map_or(0, |(_, count)| *count)
        })
    }
}

#[derive(Clone, Copy)]
enum Later {
    Served,
    Unanswered,
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_services_begin_again_with_their_informers_and_without_each_other() {
    let agent = Agent::new().await;
    agent.create_service().await;
    agent.start();
    let all_up = || agent.runtime.components().all() == COMPONENTS.map(|name| (name, None));
    // The first requests of network and watches panicked; readers that had seen those watches began again with them.
    agent.until(|| agent.restarts()[1] == 1).await;
    agent.until_written().await;
    agent.until(all_up).await;
    let [dns, network, proxy, watches] = agent.restarts();
    assert!(dns <= 1 && proxy <= 1 && (network, watches) == (1, 1));
    let panics = agent.runtime.components().panics();
    assert!(
        panics.iter().all(|(task, _)| !COMPONENTS.contains(task)),
        "tasks below them panicked, not they: {panics:?}"
    );
    // Each ends alone, but for the watches: their readers end with them.
    let mut expected = agent.restarts();
    agent.forget_written();
    for (name, ended) in COMPONENTS.into_iter().zip(ENDED_BY) {
        agent.runtime.components().break_down(name);
        expected = std::array::from_fn(|at| expected[at] + ended[at]);
        agent.until(|| agent.restarts() == expected).await;
        agent.until(all_up).await;
    }
    agent.until_written().await;
    assert_eq!(agent.restarts(), expected);
}
