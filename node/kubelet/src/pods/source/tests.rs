use super::*;
use crate::config::KubeletConfig;
use crate::kubelet::{Host, worker_context};
use crate::node::facts::NodeFacts;
use kube::Client;
use machinery_runtime::Runtime;
use node_cri::{CriClient, Transport};
use node_network::host_ports::LinuxHostPorts;
use node_sys::SystemExec;
use node_sys::mount::LinuxMounter;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The pods of a node whose runtime has nothing, and whose API server is away.
fn alone(runtime: &Runtime, folder: &Path) -> Arc<Pods> {
    let config = Arc::new(KubeletConfig::for_data_dir(folder.to_owned()));
    let nothing = |_: http::Request<tonic::body::Body>| async {
        Ok::<_, tonic::Status>(crate::cri_answers::empty_message())
    };
    let away = |_: http::Request<kube::client::Body>| async {
        Err::<http::Response<http_body_util::Empty<bytes::Bytes>>, _>(std::io::Error::other("away"))
    };
    let host = Host {
        cri: CriClient::connect_through(Transport::new(tower::service_fn(nothing)), PathBuf::new()),
        cgroups: node_sys::cgroup::detect(),
        mounter: Arc::new(LinuxMounter),
        host_ports: Arc::new(LinuxHostPorts::new(&[], Arc::new(SystemExec), runtime.clone())),
        vitals: Arc::new(node_sys::vitals::LinuxVitals),
        facts: NodeFacts::observe(&config),
    };
    let client = Client::new(tower::service_fn(away), "default");
    Pods::new(worker_context(runtime, &config, &client, host))
}

#[test]
fn status_is_the_workers_word_also_where_the_api_server_has_not_heard_it() {
    let simulation = machinery_runtime::Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let folder = tempfile::tempdir().unwrap();
        let pods = alone(&runtime, folder.path());
        // One that the node refuses: nothing is made for it.
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c"}],
                "securityContext": {"sysctls": [{"name": "kernel.shmmax", "value": "1"}]}},
            "status": {"phase": "Pending"},
        }))
        .unwrap();
        let phase = || pods.status(&pod).phase.clone();
        assert_eq!(phase().as_deref(), Some("Pending"), "nothing was said yet");
        pods.set(pod.clone());
        runtime.sleep(Duration::from_secs(60)).await;
        assert_eq!(phase().as_deref(), Some("Failed"));
        let heard = pods.find("n", "p").and_then(|known| known.status.clone());
        assert_eq!(heard.and_then(|status| status.phase).as_deref(), Some("Pending"));
    });
}
