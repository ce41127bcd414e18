use super::*;
use crate::config::KubeletConfig;
use crate::kubelet::{Host, worker_context};
use crate::node::facts::NodeFacts;
use crate::resource_managers::manager::ResourceManagers;
use kube::Client;
use machinery_meta::{ObjectHeader, ObjectKey, Uid};
use machinery_runtime::Runtime;
use node_cri::{CriClient, Transport};
use node_network::host_ports::LinuxHostPorts;
use node_sys::SystemExec;
use node_sys::mount::LinuxMounter;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Changes beside which a moment between two steps is seen.
const CHANGES: usize = 2_000;

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
        logind: Arc::new(node_sys::logind::SystemLogind::new(runtime.clone(), None)),
        kernel_log: Arc::new(node_sys::kernel_log::LinuxKernelLog),
        sockets: Arc::new(crate::plugins::sockets::UnixSockets::new(runtime.clone())),
        facts: NodeFacts::observe(&config),
    };
    let client = Client::new(tower::service_fn(away), "default");
    let managers = ResourceManagers::new(runtime, &config).unwrap();
    Pods::new(worker_context(runtime, &config, &client, host, managers.into()))
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

/// A pod whose state cannot be decoded runs on as it was known, and ends when it is deleted.
#[test]
fn pod_that_cannot_be_decoded_stays_until_it_is_deleted() {
    let simulation = machinery_runtime::Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let folder = tempfile::tempdir().unwrap();
        let pods = alone(&runtime, folder.path());
        let pod = |name: &str, annotations: serde_json::Value| -> Pod {
            let metadata = json!({"name": name, "namespace": "n", "uid": name, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap()
        };
        let header = |name: &str| ObjectHeader {
            key: ObjectKey::new("n", name),
            uid: Uid(name.to_owned()),
            ..ObjectHeader::default()
        };
        let is_gone = |uid: &str| {
            let inboxes = pods.inboxes.lock();
            inboxes.get(uid).map(|inbox| inbox.gone.load(Ordering::Acquire))
        };
        let mirror = pod("mirror", json!({"kubernetes.io/config.mirror": "h"}));
        pods.apply_change(TypedChange::All {
            objects: vec![pod("a", json!({})), pod("b", json!({})), mirror],
            unread: Vec::new(),
        });
        assert_eq!(pods.gone_pods(), 0);
        pods.apply_change(TypedChange::All {
            objects: Vec::new(),
            unread: vec![header("a"), header("mirror")],
        });
        assert_eq!((is_gone("a"), is_gone("b")), (Some(false), Some(true)));
        assert_eq!(pods.gone_pods(), 1, "one has remains to be removed");
        let mirrors = || pods.context.mirrors.all().len();
        assert_eq!(mirrors(), 1);
        let ends = |uid: &str| {
            let inboxes = pods.inboxes.lock();
            inboxes.get(uid).map(|inbox| inbox.ending.is_cancelled())
        };
        assert_eq!(ends("a"), Some(false));
        let deleted = |name: &str| ObjectHeader {
            deletion_timestamp: Some("2026-11-29T01:00:00Z".into()),
            ..header(name)
        };
        pods.apply_change(TypedChange::Unread(deleted("a")));
        assert_eq!(ends("a"), Some(true), "its deletion is asked for");
        pods.apply_change(TypedChange::Unread(deleted("mirror")));
        let mirror = pods.context.mirrors.all().remove(0);
        assert!(mirror.metadata.deletion_timestamp.is_some());
        assert_eq!(ends("mirror"), None, "it is no pod of its own");
        pods.apply_change(TypedChange::Gone(header("a")));
        pods.apply_change(TypedChange::Gone(header("mirror")));
        assert_eq!((is_gone("a"), mirrors()), (Some(true), 0));
    });
}

/// Another thread looks for the remains of deleted pods at any moment.
#[tokio::test]
async fn pod_that_can_be_decoded_again_is_known_at_every_moment() {
    let folder = tempfile::tempdir().unwrap();
    let pods = alone(&Runtime::real(), folder.path());
    let turned = |number: usize| {
        let id = format!("u{number}");
        pods.apply_change(TypedChange::Unread(ObjectHeader {
            key: ObjectKey::new("n", &id),
            uid: Uid(id.clone()),
            ..ObjectHeader::default()
        }));
        id
    };
    let looked_for = Mutex::new(turned(0));
    let (ended, unknown) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                let id = looked_for.lock().clone();
                unknown.fetch_or(!pods.is_known(&id), Ordering::AcqRel);
            }
        });
        for number in 0..CHANGES {
            let id = turned(number);
            looked_for.lock().clone_from(&id);
            let pod = serde_json::from_value(json!({"metadata": {"uid": id}, "spec": {"containers": []}}));
            let pod: Pod = pod.unwrap();
            match number % 8 {
                0 => pods.apply_change(TypedChange::All {
                    objects: vec![pod],
                    unread: Vec::new(),
                }),
                _ => pods.apply_change(TypedChange::Set(pod)),
            }
        }
        ended.store(true, Ordering::Release);
    });
    assert!(!unknown.into_inner());
}
