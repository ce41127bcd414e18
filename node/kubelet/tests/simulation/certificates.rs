//! Trust anchors and certificates in volumes: shown, replaced when they change, refused by a signer.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, PodCertificateRequest};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use machinery_runtime::Simulation;
use node_cri_model::Program;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair, SerialNumber,
};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);

/// A bundle appears after the pod that needs it, and changes while another shows it.
pub(crate) fn run_bundles(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let (one, two) = (authority("one"), authority("two"));
        create_bundle(&world, "roots", "", &one).await;
        create_bundle(&world, "s.io:s:a", "s.io/s", &one).await;
        let shows = [
            json!({"clusterTrustBundle": {"name": "roots", "path": "named.pem"}}),
            json!({"clusterTrustBundle": {"signerName": "s.io/s", "labelSelector": {}, "path": "signed.pem"}}),
            json!({"clusterTrustBundle": {"name": "never", "optional": true, "path": "none.pem"}}),
        ];
        world.create::<Pod>(pod(&world, "shows", &shows)).await.unwrap();
        world.until_running("shows", "", PATIENCE).await;
        until_shown(&world, "shows", "named.pem", &one).await;
        until_shown(&world, "shows", "signed.pem", &one).await;
        until_shown(&world, "shows", "none.pem", "").await;
        let needs = [json!({"clusterTrustBundle": {"name": "late", "path": "late.pem"}})];
        world.create::<Pod>(pod(&world, "needs", &needs)).await.unwrap();
        let missing = "MountVolume.SetUp failed for volume \"tls\" : while getting ClusterTrustBundle: \
            clustertrustbundle.certificates.k8s.io \"late\" not found";
        until_event(&world, "FailedMount", missing).await;
        assert!(world.running("needs").is_none());
        create_bundle(&world, "late", "", &two).await;
        world.until_running("needs", "", PATIENCE).await;
        create_bundle(&world, "s.io:s:b", "s.io/s", &two).await;
        let bundles: Api<ClusterTrustBundle> = Api::all(world.client.kube().clone());
        let changed = Patch::Merge(json!({"spec": {"trustBundle": two}}));
        bundles.patch("roots", &PatchParams::default(), &changed).await.unwrap();
        until_shown(&world, "shows", "named.pem", &two).await;
        until(&world, "both are shown", || {
            let shown = read(&world, "shows", "signed.pem");
            shown.contains(&one) && shown.contains(&two)
        })
        .await;
    });
}

/// A signer issues, and issues again; another denies.
pub(crate) fn run_certificates(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let signer = Signer::new(&world);
        let certificate = |signer: &str, key_type: &str, path: &str| {
            json!({"podCertificate": {"signerName": signer, "keyType": key_type, "credentialBundlePath": path,
                "maxExpirationSeconds": 7200, "userAnnotations": {"s.io/who": "me"}}})
        };
        let sources = [
            certificate("s.io/issues", "ED25519", "ed.pem"),
            certificate("s.io/issues", "ECDSAP256", "ec.pem"),
        ];
        world.create::<Pod>(pod(&world, "has", &sources)).await.unwrap();
        for (name, signer, key_type) in [
            ("denied", "s.io/denies", "ECDSAP384"),
            ("unknown", "s.io/issues", "ECDSAP521"),
        ] {
            let sources = [certificate(signer, key_type, "tls.pem")];
            world.create::<Pod>(pod(&world, name, &sources)).await.unwrap();
        }
        // The folder is known to be its pod's once the pod is saved, a little later.
        let is_saved = || !read(&world, "has", "ed.pem").is_empty();
        signer.until(|| world.running("has").is_some() && is_saved()).await;
        let (ed, ec) = (read(&world, "has", "ed.pem"), read(&world, "has", "ec.pem"));
        for bundle in [&ed, &ec] {
            assert_eq!(bundle.matches("-----BEGIN PRIVATE KEY-----").count(), 1, "the key, first");
            assert!(bundle.starts_with("-----BEGIN PRIVATE KEY-----\n"));
            assert_eq!(bundle.matches("-----BEGIN CERTIFICATE-----").count(), 1);
        }
        let denied = "MountVolume.SetUp failed for volume \"tls\" : PodCertificateRequest was permanently denied: \
            reason=\"NotYou\" message=\"ask another\"";
        signer.until_event("FailedMount", denied).await;
        signer.until_event("Denied", "was denied, reason=\"NotYou\", message=\"ask another\"").await;
        signer.until_event("Failed", "key type \"ECDSAP521\" is not supported by this node").await;
        assert!(world.running("denied").is_none() && world.running("unknown").is_none());
        let renewed = || read(&world, "has", "ed.pem") != ed && read(&world, "has", "ec.pem") != ec;
        signer.until(renewed).await;
        let key = |bundle: &str| bundle.split("-----END").next().unwrap().to_owned();
        assert_ne!(key(&ed), key(&read(&world, "has", "ed.pem")), "a new key each time");
    });
}

/// A signer that looks for requests now and then.
struct Signer<'a> {
    world: &'a World,
    issuer: Issuer<'static, KeyPair>,
    requests: Api<PodCertificateRequest>,
}

impl<'a> Signer<'a> {
    fn new(world: &'a World) -> Self {
        Self {
            world,
            issuer: Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap()),
            requests: Api::namespaced(world.client.kube().clone(), "default"),
        }
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let until = self.world.runtime.monotonic() + Duration::from_secs(7200);
        while !is_so() {
            assert!(self.world.runtime.monotonic() < until, "it does not come to that");
            self.sign().await;
            self.world.runtime.sleep(Duration::from_secs(1)).await;
        }
    }

    async fn until_event(&self, reason: &str, message: &str) {
        let until = self.world.runtime.monotonic() + PATIENCE;
        while !has_event(self.world, reason, message).await {
            assert!(self.world.runtime.monotonic() < until, "no event {message}");
            self.sign().await;
            self.world.runtime.sleep(Duration::from_secs(1)).await;
        }
    }

    async fn sign(&self) {
        let all = self.requests.list(&ListParams::default()).await.unwrap();
        for request in all {
            if request.status.clone().unwrap_or_default().conditions.is_some() {
                continue;
            }
            let spec = &request.spec;
            assert_eq!(
                (spec.node_name.as_str(), spec.max_expiration_seconds),
                ("n", Some(7200))
            );
            assert_eq!(
                spec.unverified_user_annotations.as_ref().unwrap()["s.io/who"],
                "me"
            );
            let status = match spec.signer_name.as_str() {
                "s.io/issues" => self.issued(&request),
                _ => {
                    json!({"conditions": [condition("Denied", "NotYou", "ask another", self.world.runtime.now())]})
                }
            };
            let name = request.metadata.name.as_deref().unwrap();
            let patch = Patch::Merge(json!({ "status": status }));
            self.requests
                .patch_status(name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    }

    fn issued(&self, request: &PodCertificateRequest) -> Value {
        let now = whole_seconds(self.world.runtime.now());
        let after = now + SignedDuration::from_hours(2);
        let der = request.spec.stub_pkc_s10_request.0.clone();
        let mut wanted = CertificateSigningRequestParams::from_der(&der.into()).unwrap();
        let time = |at: Timestamp| {
            let at = at.as_second();
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(at).unwrap())
        };
        wanted.params.not_before = time(now);
        wanted.params.not_after = time(after);
        wanted.params.serial_number = Some(SerialNumber::from(7));
        let certificate = wanted.signed_by(&self.issuer).unwrap();
        json!({
            "conditions": [condition("Issued", "Issued", "", now)],
            "certificateChain": certificate.pem().replace("\r\n", "\n"),
            "notBefore": now, "notAfter": after, "beginRefreshAt": now + SignedDuration::from_mins(30),
        })
    }
}

fn condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": whole_seconds(now)})
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap()
}

fn authority(name: &str) -> String {
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
    own.pem().replace("\r\n", "\n")
}

async fn create_bundle(world: &World, name: &str, signer: &str, anchors: &str) {
    let mut spec = json!({ "trustBundle": anchors });
    if !signer.is_empty() {
        spec["signerName"] = json!(signer);
    }
    let bundles: Api<ClusterTrustBundle> = Api::all(world.client.kube().clone());
    let own = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    bundles
        .create(&kube::api::PostParams::default(), &own)
        .await
        .unwrap();
}

fn pod(world: &World, name: &str, sources: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": world.node_name(), "automountServiceAccountToken": false,
        "volumes": [{"name": "tls", "projected": {"sources": sources}}],
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(),
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]}],
    }})
}

/// Content of a file of a pod's volume; empty where it is not there.
fn read(world: &World, pod: &str, file: &str) -> String {
    let folders = std::fs::read_dir(world.data_dir().join("agent/pods")).unwrap();
    let of_pod = folders.flatten().find(|folder| {
        let saved = std::fs::read_to_string(folder.path().join("pod.json")).unwrap_or_default();
        saved.contains(&format!("\"name\":\"{pod}\""))
    });
    let Some(folder) = of_pod else {
        return String::new();
    };
    let below = folder
        .path()
        .join("volumes/kubernetes.io~projected/tls")
        .join(file);
    std::fs::read_to_string(below).unwrap_or_default()
}

async fn until_shown(world: &World, pod: &str, file: &str, content: &str) {
    until(world, file, || read(world, pod, file) == content).await;
}

async fn until(world: &World, what: &str, is_so: impl Fn() -> bool) {
    let until = world.runtime.monotonic() + PATIENCE;
    while !is_so() {
        assert!(world.runtime.monotonic() < until, "{what}");
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}

async fn until_event(world: &World, reason: &str, message: &str) {
    let until = world.runtime.monotonic() + PATIENCE;
    while !has_event(world, reason, message).await {
        assert!(world.runtime.monotonic() < until, "no event {message}");
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}

async fn has_event(world: &World, reason: &str, message: &str) -> bool {
    let events: Api<Event> = Api::namespaced(world.client.kube().clone(), "default");
    let all = events.list(&ListParams::default()).await.unwrap();
    all.into_iter().any(|event| {
        let text = event.message.unwrap_or_default();
        event.reason.as_deref() == Some(reason) && text.contains(message)
    })
}
