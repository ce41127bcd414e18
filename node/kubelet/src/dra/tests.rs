//! Drivers in memory, behind the agent's own calls; cases of upstream's `manager_test.go` and `dra_plugin_test.go`.

use super::manager::Dra;
use crate::config::KubeletConfig;
use crate::plugins::handlers::{Plugin, PluginHandler};
use crate::plugins::sockets::{FoundSockets, PluginSockets};
use async_trait::async_trait;
use http_body_util::Full;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use machinery_runtime::{Runtime, Simulation};
use node_plugin_api::calls::{Connection, Ended, Live, Transport};
use node_plugin_api::dra::messages::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesResponse, NodeUnprepareResourcesResponse,
};
use node_plugin_api::dra::server::{Answer, DraDriver, service};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

const DRIVER: &str = "driver.example";

/// A driver's manner.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Manner {
    #[default]
    Plain,
    /// It answers for no claim.
    Empty,
    /// It answers for claims without devices.
    Nil,
    Refuses,
    /// It answers for a claim that the kubelet did not request.
    Foreign,
    Hangs,
    Fails,
    Dirty,
}

#[derive(Debug)]
struct Model {
    name: String,
    manner: Mutex<Manner>,
    /// The call, and the uids of its claims.
    calls: Mutex<Vec<String>>,
    /// File that must name a claim before it is prepared.
    record: PathBuf,
}

impl Model {
    fn call(&self, call: &str, claims: &[Claim]) -> Manner {
        let uids: Vec<&str> = claims.iter().map(|claim| claim.uid.as_str()).collect();
        self.calls.lock().push(format!("{call} {}", uids.join(" ")));
        *self.manner.lock()
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock() = manner;
    }
}

/// Outcomes by claim, in a manner.
fn outcomes<T: Default>(
    manner: Manner,
    claims: Vec<Claim>,
    of: impl Fn(&Claim, &str) -> T,
) -> BTreeMap<String, T> {
    let claims = claims.into_iter();
    match manner {
        Manner::Empty => BTreeMap::new(),
        Manner::Foreign => [("stranger\u{1b}".to_owned(), T::default())].into(),
        Manner::Refuses => claims.map(|own| (own.uid.clone(), of(&own, "no"))).collect(),
        Manner::Nil => claims.map(|own| (own.uid, T::default())).collect(),
        _ => claims.map(|own| (own.uid.clone(), of(&own, ""))).collect(),
    }
}

async fn answer<T>(manner: Manner, answer: T) -> Result<T, Status> {
    match manner {
        Manner::Hangs => std::future::pending().await,
        Manner::Fails => Err(Status::internal("broken")),
        _ => Ok(answer),
    }
}

impl DraDriver for Model {
    fn prepare(&self, claims: Vec<Claim>) -> Answer<NodePrepareResourcesResponse> {
        let record = std::fs::read_to_string(&self.record).unwrap();
        for claim in &claims {
            assert!(record.contains(&claim.uid), "{claim:?} is not written down");
        }
        let manner = self.call("prepare", &claims);
        let of = |claim: &Claim, error: &str| NodePrepareResourceResponse {
            devices: vec![Device {
                pool_name: "pool".to_owned(),
                device_name: "device".to_owned(),
                cdi_device_ids: vec![format!("{}/dev={}", self.name, claim.name)],
                request_names: match manner {
                    Manner::Dirty => vec!["\u{1b}".to_owned()],
                    _ => Vec::new(),
                },
                share_id: Some("share".to_owned()),
            }],
            error: error.to_owned(),
        };
        let claims = outcomes(manner, claims, of);
        Box::pin(answer(manner, NodePrepareResourcesResponse { claims }))
    }

    fn unprepare(&self, claims: Vec<Claim>) -> Answer<NodeUnprepareResourcesResponse> {
        let manner = self.call("unprepare", &claims);
        let claims = outcomes(manner, claims, |_, error| {
            node_plugin_api::dra::messages::NodeUnprepareResourceResponse {
                error: error.to_owned(),
            }
        });
        Box::pin(answer(manner, NodeUnprepareResourcesResponse { claims }))
    }
}

/// Plugins by their sockets, and connections to them.
#[derive(Debug, Default)]
struct Sockets {
    services: Mutex<BTreeMap<PathBuf, Transport>>,
    lives: Mutex<Vec<Live>>,
}

impl Sockets {
    fn die(&self, endpoint: &str) {
        self.services.lock().remove(Path::new(endpoint));
        self.lives.lock().clear();
    }
}

#[async_trait]
impl PluginSockets for Sockets {
    async fn clean(&self, _: &Path) -> std::io::Result<()> {
        Ok(())
    }

    async fn serve(&self, _: &Path, _: Transport) -> std::io::Result<()> {
        std::future::pending().await
    }

    async fn connect(&self, socket: &Path) -> Result<Transport, Status> {
        let found = self.services.lock().get(socket).cloned();
        found.ok_or_else(|| Status::unavailable("no such file or directory"))
    }

    async fn connect_once(&self, socket: &Path) -> Result<Connection, Status> {
        let transport = self.connect(socket).await?;
        let (live, ended) = Ended::of_live();
        self.lives.lock().push(live);
        Ok(Connection { transport, ended })
    }

    async fn list(&self, _: &Path) -> std::io::Result<FoundSockets> {
        Ok(FoundSockets::new())
    }

    async fn changed(&self, _: &Path) {
        std::future::pending().await
    }
}

/// An API server that has ResourceClaims by name, and what was sent to it beside their reads.
#[derive(Debug, Default)]
struct Server {
    claims: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let own = Arc::clone(self);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (code, answer) = own.answer(&request);
            async move {
                let body = Full::new(bytes::Bytes::from(answer.to_string()));
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer<B>(&self, request: &http::Request<B>) -> (u16, Value) {
        let path = request.uri().path_and_query().unwrap().as_str();
        let name = path.rsplit('/').next().unwrap();
        if request.method() != http::Method::GET {
            self.writes.lock().push(format!("{} {path}", request.method()));
            return (
                200,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            );
        }
        match self.claims.lock().get(name) {
            Some(found) => (200, found.clone()),
            None => {
                let message = format!("resourceclaims.resource.k8s.io {name:?} not found");
                let status = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": message});
                (404, status)
            }
        }
    }

    /// A claim of a driver, which is reserved for these pods.
    fn put(&self, name: &str, driver: &str, pods: &[&str]) {
        let reserved: Vec<Value> = pods
            .iter()
            .map(|uid| json!({"resource": "pods", "name": "p", "uid": uid}))
            .collect();
        let result = json!({"driver": driver, "pool": "pool", "device": "device", "request": "r"});
        let claim = json!({
            "kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
            "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
            "spec": {},
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved},
        });
        self.claims.lock().insert(name.to_owned(), claim);
    }
}

fn pod(uid: &str, claims: &[&str]) -> Pod {
    let own: Vec<Value> = claims
        .iter()
        .map(|name| json!({"name": name, "resourceClaimName": name}))
        .collect();
    let used: Vec<Value> = claims.iter().map(|name| json!({"name": name})).collect();
    let container = json!({"name": "main", "resources": {"claims": used}});
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": uid},
        "spec": {"resourceClaims": own, "containers": [container]},
    }))
    .unwrap()
}

struct World {
    runtime: Runtime,
    folder: tempfile::TempDir,
    sockets: Arc<Sockets>,
    server: Arc<Server>,
    driver: Arc<Model>,
    dra: Dra,
}

fn agent(runtime: &Runtime, folder: &Path, sockets: &Arc<Sockets>, server: &Arc<Server>) -> Dra {
    let mut config = KubeletConfig::for_data_dir(folder.to_owned());
    config.node_name = "n1".to_owned();
    let sockets: Arc<dyn PluginSockets> = sockets.clone();
    Dra::new(runtime, &server.client(), &Arc::new(config), &sockets)
}

fn described(endpoint: &str) -> Plugin {
    Plugin {
        name: DRIVER.to_owned(),
        endpoint: endpoint.into(),
        versions: vec!["v1.DRAPlugin".to_owned()],
        registered_at: format!("{endpoint}-reg").into(),
    }
}

impl World {
    fn new(runtime: Runtime) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (sockets, server) = (Arc::<Sockets>::default(), Arc::<Server>::default());
        let dra = agent(&runtime, folder.path(), &sockets, &server);
        let driver = Arc::new(Model {
            name: DRIVER.to_owned(),
            manner: Mutex::default(),
            calls: Mutex::default(),
            record: folder.path().join(super::checkpoint::FILE),
        });
        Self {
            runtime,
            folder,
            sockets,
            server,
            driver,
            dra,
        }
    }

    /// The driver listens at an endpoint and registers.
    async fn register(&self, endpoint: &str) {
        let service = service(self.driver.clone());
        self.sockets.services.lock().insert(endpoint.into(), service);
        self.dra.register(&described(endpoint)).await.unwrap();
        self.seconds(1).await;
    }

    async fn seconds(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    /// The agent is another, with what is on the disk.
    async fn restart(&mut self) {
        self.dra = agent(&self.runtime, self.folder.path(), &self.sockets, &self.server);
        self.dra.load().await;
    }

    fn wiped(&self) -> Vec<String> {
        std::mem::take(&mut *self.server.writes.lock())
    }

    fn devices(&self, pod: &Pod) -> Result<Vec<String>, String> {
        self.dra
            .cdi_devices(pod, &pod.spec.as_ref().unwrap().containers[0])
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(scenario: impl FnOnce(World) -> F + Send + 'static) {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move { scenario(World::new(runtime)).await });
}

#[test]
fn claims_of_a_pod_are_prepared_in_one_call_and_taken_back_with_the_last_pod() {
    run(|world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one", "two"]);
        world.server.put("b", DRIVER, &["one"]);
        let (one, two) = (pod("one", &["a", "b", "a"]), pod("two", &["a"]));
        world.dra.prepare(&one).await.unwrap();
        assert_eq!(world.driver.calls(), ["prepare uid-a uid-b"]);
        let devices = ["driver.example/dev=a", "driver.example/dev=b"].map(str::to_owned);
        assert_eq!(world.devices(&one).unwrap(), devices);
        // Prepared for the first pod, it is for the second, too.
        world.dra.prepare(&two).await.unwrap();
        world.dra.prepare(&one).await.unwrap();
        assert_eq!(world.driver.calls(), [""; 0]);
        let text = world.runtime.metrics().text();
        for expected in [
            "dra_resource_claims_in_use{driver_name=\"<any>\"} 2",
            "dra_resource_claims_in_use{driver_name=\"driver.example\"} 2",
            "dra_operations_duration_seconds_count{is_error=\"false\",operation_name=\"PrepareResources\"} 3",
            "dra_grpc_operations_duration_seconds_count{driver_name=\"driver.example\",grpc_status_code=\"OK\",\
             method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\"} 1",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        world.dra.unprepare("one").await.unwrap();
        assert_eq!(world.driver.calls(), ["unprepare uid-b"]);
        world.dra.unprepare("one").await.unwrap();
        world.dra.unprepare("two").await.unwrap();
        assert_eq!(world.driver.calls(), ["unprepare uid-a"]);
    });
}

#[test]
fn pod_without_claims_has_nothing_prepared() {
    run(|world| async move {
        world.dra.prepare(&pod("one", &[])).await.unwrap();
        world.dra.unprepare("one").await.unwrap();
        assert!(!world.dra.has_unknown(&pod("one", &[])));
        assert!(
            !world
                .runtime
                .metrics()
                .text()
                .contains("dra_operations_duration_seconds_count")
        );
    });
}

/// The words that refuse a pod with the claim `a`, and the calls that were made.
fn refused(manner: Manner, put: impl FnOnce(&Server) + Send + 'static) -> (String, Vec<String>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    run(move |world| async move {
        world.register("/d.sock").await;
        put(&world.server);
        world.driver.set(manner);
        let began = world.runtime.monotonic();
        let refused = world.dra.prepare(&pod("one", &["a"])).await.unwrap_err();
        let took = world.runtime.monotonic() - began;
        assert_eq!(took.as_secs() == 45, manner == Manner::Hangs, "{took:?}");
        sender.send((refused, world.driver.calls())).unwrap();
        // Where it was called it may have done something.
        world.driver.set(Manner::Plain);
        let was_called = manner != Manner::Plain;
        world.dra.unprepare("one").await.unwrap();
        assert_eq!(world.driver.calls().len(), usize::from(was_called), "{manner:?}");
    });
    receiver.recv().unwrap()
}

#[track_caller]
fn check_refused(manner: Manner, expected: &str) {
    let (refused, calls) = refused(manner, |server| server.put("a", DRIVER, &["one"]));
    assert_eq!(refused, format!("prepare dynamic resources: {expected}"));
    assert_eq!(calls, ["prepare uid-a"]);
}

#[test]
fn claim_that_its_driver_does_not_prepare_holds_up_its_pod() {
    check_refused(Manner::Empty, "NodePrepareResources skipped 1 ResourceClaims");
    check_refused(
        Manner::Refuses,
        "NodePrepareResources failed for ResourceClaim a: no",
    );
    check_refused(
        Manner::Foreign,
        r"NodePrepareResources returned result for unknown claim UID stranger\x1b",
    );
    check_refused(
        Manner::Fails,
        "NodePrepareResources: rpc error: code = Internal desc = broken",
    );
    check_refused(
        Manner::Hangs,
        "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
    );
    check_refused(
        Manner::Dirty,
        "DRA driver driver.example has answered control characters for ResourceClaim a",
    );
}

#[track_caller]
fn check_not_called(put: impl FnOnce(&Server) + Send + 'static, expected: &str) {
    let (refused, calls) = refused(Manner::Plain, put);
    assert_eq!(refused, format!("prepare dynamic resources: {expected}"));
    assert_eq!(calls, [""; 0]);
}

#[test]
fn claim_that_a_pod_may_not_use_is_not_prepared() {
    check_not_called(
        |_| {},
        "fetch ResourceClaim a: resourceclaims.resource.k8s.io \"a\" not found",
    );
    check_not_called(
        |server| server.put("a", DRIVER, &["other"]),
        "pod p (one) is not allowed to use ResourceClaim a (uid-a)",
    );
    check_not_called(
        |server| server.put("a", "other.example", &["one"]),
        "DRA driver other.example is not registered",
    );
    check_not_called(
        |server| {
            server.put("a", DRIVER, &["one"]);
            server.claims.lock().get_mut("a").unwrap()["status"]["allocation"] = Value::Null;
        },
        "ResourceClaim a: not allocated",
    );
}

#[test]
fn claim_without_devices_is_prepared() {
    run(|world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one"]);
        world.driver.set(Manner::Nil);
        world.dra.prepare(&pod("one", &["a"])).await.unwrap();
        assert_eq!(world.devices(&pod("one", &["a"])).unwrap(), [""; 0]);
    });
}

#[test]
fn claim_that_its_driver_keeps_is_taken_back_in_the_end() {
    run(|world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one", "two"]);
        world.dra.prepare(&pod("one", &["a"])).await.unwrap();
        for (manner, expected) in [
            (Manner::Empty, "NodeUnprepareResources skipped 1 ResourceClaims"),
            (
                Manner::Refuses,
                "NodeUnprepareResources failed for ResourceClaim a: no",
            ),
            (
                Manner::Hangs,
                "NodeUnprepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
            ),
        ] {
            world.driver.set(manner);
            let failed = world.dra.unprepare("one").await.unwrap_err();
            assert_eq!(failed, format!("unprepare dynamic resources: {expected}"));
        }
        let refused = world.dra.prepare(&pod("two", &["a"])).await.unwrap_err();
        assert_eq!(
            refused,
            "prepare dynamic resources: ResourceClaim a is being unprepared"
        );
        world.driver.set(Manner::Plain);
        world.dra.unprepare("one").await.unwrap();
        world.dra.prepare(&pod("two", &["a"])).await.unwrap();
        assert_eq!(world.driver.calls().last().unwrap(), "prepare uid-a");
    });
}

#[test]
fn pod_whose_driver_does_not_answer_holds_up_no_other() {
    run(|world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one"]);
        world.server.put("b", "other.example", &["two"]);
        let other = Arc::new(Model {
            name: "other.example".to_owned(),
            manner: Mutex::default(),
            calls: Mutex::default(),
            record: world.driver.record.clone(),
        });
        world
            .sockets
            .services
            .lock()
            .insert("/o.sock".into(), service(other));
        let mut plugin = described("/o.sock");
        plugin.name = "other.example".to_owned();
        world.dra.register(&plugin).await.unwrap();
        world.driver.set(Manner::Hangs);
        let dra = world.dra.clone();
        let stuck = world.runtime.spawn("stuck", async move {
            let _ = dra.prepare(&pod("one", &["a"])).await;
        });
        world.seconds(1).await;
        let began = world.runtime.monotonic();
        world.dra.prepare(&pod("two", &["b"])).await.unwrap();
        assert!((world.runtime.monotonic() - began).as_secs() < 1 && !stuck.is_finished());
    });
}

#[test]
fn claims_outlive_the_agent_and_those_of_pods_that_have_gone_are_taken_back() {
    run(|mut world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one", "two"]);
        world.server.put("b", DRIVER, &["two"]);
        let (one, two) = (pod("one", &["a"]), pod("two", &["a", "b"]));
        world.dra.prepare(&one).await.unwrap();
        world.dra.prepare(&two).await.unwrap();
        world.driver.calls();
        world.restart().await;
        // A container that starts again needs no driver.
        assert_eq!(world.devices(&one).unwrap(), ["driver.example/dev=a"]);
        assert!(!world.dra.has_unknown(&two));
        world.dra.reconcile(|uid| uid == "one").await;
        assert_eq!(world.driver.calls(), [""; 0], "its driver has not come back");
        world.register("/d.sock").await;
        world.dra.reconcile(|uid| uid == "one").await;
        assert_eq!(world.driver.calls(), ["unprepare uid-b"]);
        world.restart().await;
        world.register("/d.sock").await;
        world.dra.reconcile(|_| false).await;
        assert_eq!(world.driver.calls(), ["unprepare uid-a"]);
        world.restart().await;
        world.register("/d.sock").await;
        world.dra.reconcile(|_| false).await;
        assert_eq!(world.driver.calls(), [""; 0]);
    });
}

#[test]
fn damaged_checkpoint_is_survived_and_claims_are_prepared_again() {
    run(|mut world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one"]);
        let one = pod("one", &["a"]);
        world.dra.prepare(&one).await.unwrap();
        std::fs::write(&world.driver.record, "{").unwrap();
        world.restart().await;
        world.register("/d.sock").await;
        assert!(world.dra.has_unknown(&one));
        assert_eq!(
            world.devices(&one).unwrap_err(),
            "internal error: unable to get claim info for ResourceClaim a in namespace ns"
        );
        world.driver.calls();
        world.dra.prepare(&one).await.unwrap();
        assert_eq!(world.driver.calls(), ["prepare uid-a"]);
        assert!(!world.dra.has_unknown(&one));
    });
}

#[test]
fn claim_that_its_driver_has_not_answered_for_starts_no_container() {
    run(|mut world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one"]);
        let one = pod("one", &["a"]);
        world.dra.prepare(&one).await.unwrap();
        std::fs::write(&world.driver.record, "{").unwrap();
        world.restart().await;
        world.register("/d.sock").await;
        world.driver.set(Manner::Refuses);
        world.dra.prepare(&one).await.unwrap_err();
        for _ in 0..2 {
            assert!(world.dra.has_unknown(&one), "it is prepared again first");
            assert_eq!(
                world.devices(&one).unwrap_err(),
                "ResourceClaim a in namespace ns is not prepared by DRA driver driver.example"
            );
            // The next agent reads that there was no answer.
            world.restart().await;
        }
        world.register("/d.sock").await;
        world.driver.set(Manner::Plain);
        world.dra.prepare(&one).await.unwrap();
        assert!(!world.dra.has_unknown(&one));
        assert_eq!(world.devices(&one).unwrap(), ["driver.example/dev=a"]);
    });
}

#[test]
fn claims_are_given_back_once_that_is_on_the_disk() {
    run(|world| async move {
        world.register("/d.sock").await;
        world.server.put("a", DRIVER, &["one"]);
        world.dra.prepare(&pod("one", &["a"])).await.unwrap();
        let record = &world.driver.record;
        std::fs::remove_file(record).unwrap();
        std::fs::create_dir(record).unwrap();
        for _ in 0..2 {
            let failed = world.dra.unprepare("one").await.unwrap_err();
            let expected = "unprepare dynamic resources: checkpoint ResourceClaim state: ";
            assert!(failed.starts_with(expected), "{failed}");
        }
        std::fs::remove_dir(record).unwrap();
        world.dra.unprepare("one").await.unwrap();
        let text = std::fs::read_to_string(record).unwrap();
        assert!(!text.contains("uid-a"), "{text}");
    });
}

#[test]
fn driver_whose_name_is_no_subdomain_is_refused() {
    run(|world| async move {
        let mut plugin = described("/d.sock");
        world.dra.validate(&plugin).unwrap();
        plugin.name = "a,spec.nodeName=n2".to_owned();
        assert_eq!(
            world.dra.validate(&plugin).unwrap_err(),
            "invalid DRA driver name \"a,spec.nodeName=n2\""
        );
    });
}

#[test]
fn slices_of_a_driver_that_does_not_come_back_are_removed() {
    run(|world| async move {
        let of_driver = "DELETE /apis/resource.k8s.io/v1/resourceslices?&fieldSelector=spec.driver%3Ddriver.example%2Cspec.nodeName%3Dn1";
        world.register("/d.sock").await;
        world.seconds(60).await;
        assert_eq!(world.wiped(), [""; 0]);
        // It dies without a word, and comes back in time.
        world.sockets.die("/d.sock");
        world.seconds(20).await;
        world
            .sockets
            .services
            .lock()
            .insert("/d.sock".into(), service(world.driver.clone()));
        world.seconds(60).await;
        assert_eq!(world.wiped(), [""; 0]);
        world.sockets.die("/d.sock");
        world.seconds(29).await;
        assert_eq!(world.wiped(), [""; 0]);
        world.seconds(2).await;
        assert_eq!(world.wiped(), [of_driver]);
        // Another plugin of the driver takes over from one that goes.
        world.register("/new.sock").await;
        world.dra.deregister(&described("/d.sock")).await;
        world.seconds(60).await;
        assert_eq!(world.wiped(), [""; 0]);
        world.dra.deregister(&described("/new.sock")).await;
        world.seconds(60).await;
        assert_eq!(world.wiped(), [of_driver]);
        world.dra.wipe(None).await;
        let of_node = "DELETE /apis/resource.k8s.io/v1/resourceslices?&fieldSelector=spec.nodeName%3Dn1";
        assert_eq!(world.wiped(), [of_node]);
    });
}

#[test]
fn pod_that_waits_for_a_driver_is_woken_when_it_comes() {
    run(|world| async move {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&woken);
        world
            .dra
            .on_change(Arc::new(move |uid| own.lock().push(uid.to_owned())));
        world.server.put("a", DRIVER, &["one", "gone"]);
        for uid in ["one", "gone"] {
            world.dra.prepare(&pod(uid, &["a"])).await.unwrap_err();
        }
        world.dra.forget_pod("gone");
        world.register("/d.sock").await;
        assert_eq!(*woken.lock(), ["one"]);
    });
}
