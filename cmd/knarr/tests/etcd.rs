//! `knarr server --etcd-servers`: several servers on one store, upstream's among them, and how it is reached.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::etcd::Etcd;
use support::upstream::Upstream;
use support::{Launch, Server, free_port, tool_or_skip};

/// One of the two runs no loops: which of several does is decided by leases, and not here.
const NO_LOOPS: [&str; 2] = ["--controllers=-*", "--disable-scheduler"];

#[test]
fn etcd_two_servers_see_each_others_writes() {
    let name = "etcd_two_servers_see_each_others_writes";
    let Some((kubectl, etcd)) = tool_or_skip(name, "kubectl").zip(Etcd::start_or_skip(name)) else {
        return;
    };
    let flags = ["--etcd-servers", &etcd.endpoint];
    let one = Server::start(kubectl.clone(), &flags);
    let other = Server::start(kubectl, &[&flags[..], &NO_LOOPS].concat());
    let mut watch = other
        .command(&["get", "configmaps", "--watch", "--output-watch-events"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut told = BufReader::new(watch.stdout.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok);
    let mut next = |what: &str| {
        let line = told
            .by_ref()
            .find(|line| line.split_whitespace().nth(1) == Some("shared"));
        assert!(
            line.as_ref().is_some_and(|line| line.starts_with(what)),
            "{line:?} instead of {what}"
        );
    };
    one.kubectl(&["create", "configmap", "shared", "--from-literal=a=1"]);
    next("ADDED");
    assert_eq!(
        other.kubectl(&["get", "configmap", "shared", "-o", "jsonpath={.data.a}"]),
        "1"
    );
    one.kubectl(&["patch", "configmap", "shared", "-p", r#"{"data":{"a":"2"}}"#]);
    next("MODIFIED");
    other.kubectl(&["delete", "configmap", "shared"]);
    next("DELETED");
    one.refused(&["get", "configmap", "shared"]);
    end(&mut watch);
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

const OBJECTS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'example/web:1', resources: {limits: {cpu: 500m}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: 30123}]}
---
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
data: {a: AAEC}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: '5 4 * * *'
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
";

/// Reads to which both servers must answer alike, whichever of them wrote the objects.
const READ: [(&[&str], &str); 6] = [
    (
        &[
            "deployment",
            "web",
            "-o",
            "jsonpath={.spec.template.spec.containers[0].resources.limits.cpu}",
        ],
        "500m",
    ),
    (
        &["service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"],
        "30123",
    ),
    (&["hpa", "web", "-o", "jsonpath={.spec.maxReplicas}"], "3"),
    (&["secret", "key", "-o", "jsonpath={.data.a}"], "AAEC"),
    (
        &["cronjob", "nightly", "-o", "jsonpath={.spec.schedule}"],
        "5 4 * * *",
    ),
    (
        &["service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"],
        "10.96.0.1",
    ),
];

const KIND: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.knarr.test}
spec:
  group: knarr.test
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {oars: {type: integer}}}}
";
const BOAT: &str = "{apiVersion: knarr.test/v1, kind: Boat, metadata: {name: ormen}, spec: {oars: 34}}";

#[test]
fn etcd_objects_of_upstream_are_read_and_the_reverse() {
    let name = "etcd_objects_of_upstream_are_read_and_the_reverse";
    let Some(etcd) = Etcd::start_or_skip(name) else {
        return;
    };
    let Some(upstream) = Upstream::start_or_skip(name, &etcd, &[]) else {
        return;
    };
    upstream.feed(OBJECTS);
    upstream.feed(KIND);
    upstream.kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/boats.knarr.test",
        "--timeout=60s",
    ]);
    upstream.feed(BOAT);
    let flags = [&["--etcd-servers", &etcd.endpoint][..], &NO_LOOPS].concat();
    let ours = Server::start(upstream.kubectl.clone(), &flags);
    let boat = ["get", "boat", "ormen", "-o", "jsonpath={.spec.oars}"];
    for (object, expected) in READ {
        assert_eq!(
            ours.kubectl(&[&["get"], object].concat()),
            expected,
            "{object:?} written by upstream"
        );
    }
    ours.until("the custom kind", || ours.try_kubectl(&boat).stdout == b"34");
    let taken = ours.refused(&[
        "create",
        "service",
        "nodeport",
        "second",
        "--tcp=80",
        "--node-port=30123",
    ]);
    assert!(taken.contains("provided port is already allocated"), "{taken}");
    // Now written by ours, as JSON, and read by upstream's.
    for object in [
        "deployment/web",
        "service/web",
        "hpa/web",
        "secret/key",
        "cronjob/nightly",
        "boat/ormen",
    ] {
        ours.kubectl(&["label", object, "seen=yes"]);
        let label = ["get", object, "-o", "jsonpath={.metadata.labels.seen}"];
        assert_eq!(upstream.kubectl(&label), "yes", "{object} written by us");
    }
    for (object, expected) in READ {
        assert_eq!(
            upstream.kubectl(&[&["get"], object].concat()),
            expected,
            "{object:?} written by us"
        );
    }
    assert_eq!(upstream.kubectl(&boat), "34");
    ours.kubectl(&["create", "configmap", "mine", "--from-literal=a=b"]);
    assert_eq!(
        upstream.kubectl(&["get", "configmap", "mine", "-o", "jsonpath={.data.a}"]),
        "b"
    );
}

fn write(path: PathBuf, text: &str) -> PathBuf {
    std::fs::write(&path, text).expect("written");
    path
}

/// A certificate for this machine, its key and the authority that signed both, as files.
fn certificates(dir: &Path, folder: &str) -> [PathBuf; 3] {
    let dir = dir.join(folder);
    std::fs::create_dir(&dir).expect("a folder");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let leaf = leaf.signed_by(&key, &authority).expect("signed");
    [
        write(dir.join("ca.pem"), &authority.pem()),
        write(dir.join("leaf.pem"), &leaf.pem()),
        write(dir.join("leaf.key"), &key.serialize_pem()),
    ]
}

/// Starts a server that is to give up, and returns what it says.
fn complaint(dir: &Path, flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args([
            "server",
            "--disable-agent",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            "0",
        ])
        .arg("--data-dir")
        .arg(dir.join("none"))
        .args(flags)
        .output()
        .expect("it starts");
    assert!(!output.status.success(), "it started");
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn etcd_is_reached_with_certificates_and_missed_with_advice() {
    let name = "etcd_is_reached_with_certificates_and_missed_with_advice";
    let Some((kubectl, binary)) = tool_or_skip(name, "kubectl").zip(tool_or_skip(name, "etcd")) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let [authority, certificate, key] =
        certificates(dir.path(), "right").map(|path| path.display().to_string());
    let etcd = Etcd::start_with_tls(&binary, authority.as_ref(), certificate.as_ref(), key.as_ref());
    let servers = ["--etcd-servers", &etcd.endpoint];
    let trusting = [&servers[..], &["--etcd-cafile", &authority]].concat();
    let known = [
        &trusting[..],
        &["--etcd-certfile", &certificate, "--etcd-keyfile", &key],
    ]
    .concat();
    let server = Server::start(kubectl, &[&known[..], &NO_LOOPS].concat());
    assert!(server.kubectl(&["get", "namespaces"]).contains("kube-system"));
    drop(server);
    let [stranger, _, _] = certificates(dir.path(), "wrong").map(|path| path.display().to_string());
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for flags in [
        trusting.clone(),
        [&servers[..], &["--etcd-cafile", &stranger]].concat(),
        vec!["--etcd-servers", &nobody],
    ] {
        let said = complaint(dir.path(), &flags);
        assert!(
            said.contains("nothing answers there as etcd would"),
            "{flags:?}: {said}"
        );
    }
    let said = complaint(
        dir.path(),
        &[&servers[..], &["--etcd-cafile", "/nowhere/ca.pem"]].concat(),
    );
    assert!(
        said.contains("--etcd-cafile /nowhere/ca.pem: No such file"),
        "{said}"
    );
}

/// An etcd that is frozen, then one that is dead.
#[test]
fn etcd_away_reads_of_any_revision_and_watches_go_on_from_memory() {
    let name = "etcd_away_reads_of_any_revision_and_watches_go_on_from_memory";
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        let Some((kubectl, etcd)) = tool_or_skip(name, "kubectl").zip(Etcd::start_or_skip(name)) else {
            return;
        };
        let server = Server::start(
            kubectl,
            &[&["--etcd-servers", &etcd.endpoint][..], &NO_LOOPS].concat(),
        );
        server.kubectl(&["create", "configmap", "kept", "--from-literal=a=1"]);
        server.kubectl(&[
            "create",
            "role",
            "readers",
            "--verb=get,list,watch",
            "--resource=configmaps",
        ]);
        server.kubectl(&[
            "create",
            "rolebinding",
            "readers",
            "--role=readers",
            "--user=reader",
        ]);
        let all = "/api/v1/namespaces/default/configmaps";
        let raw = |path: &str| server.kubectl(&["get", "--as=reader", "--raw", path]);
        server.until("the role to be known", || {
            server
                .try_kubectl(&["get", "--as=reader", "--raw", all])
                .status
                .success()
        });
        etcd.signal(signal);
        for path in [
            format!("{all}/kept?resourceVersion=0"),
            format!("{all}?resourceVersion=0"),
            format!("{all}?resourceVersion=0&limit=1"),
            format!("{all}?resourceVersion=0&fieldSelector=metadata.name%3Dkept"),
            format!("{all}?resourceVersion=0&watch=true&timeoutSeconds=1"),
            format!(
                "{all}?resourceVersion=0&watch=true&timeoutSeconds=1&sendInitialEvents=true\
                 &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            ),
        ] {
            let told = raw(&path);
            assert!(told.contains(r#""name":"kept""#), "{path}: {told}");
        }
        let refused = server.refused(&["get", "--as=reader", "--raw", all]);
        assert!(refused.contains("etcd is not reachable"), "{refused}");
        for inner in ["127.0.0.1", "tcp", "transport", "gRPC", "tonic", "Connection"] {
            assert!(!refused.contains(inner), "{refused}");
        }
    }
}

#[test]
fn etcd_beside_a_directory_that_holds_objects_is_refused_unless_they_are_to_be_ignored() {
    let name = "etcd_beside_a_directory_that_holds_objects_is_refused_unless_they_are_to_be_ignored";
    let Some((kubectl, etcd)) = tool_or_skip(name, "kubectl").zip(Etcd::start_or_skip(name)) else {
        return;
    };
    let mut server = Server::start(kubectl.clone(), &NO_LOOPS);
    server.kubectl(&["create", "configmap", "kept"]);
    server.stop();
    let dir = server.dir.path().to_owned();
    let flags = ["--etcd-servers", &etcd.endpoint];
    std::fs::rename(dir.join("data"), dir.join("none")).expect("moved");
    let said = complaint(&dir, &flags);
    for part in [
        "holds",
        "objects",
        "knarr storage backup",
        "--format etcd",
        "--ignore-local-objects",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let other = tempfile::tempdir().expect("a directory");
    std::fs::rename(dir.join("none"), other.path().join("data")).expect("moved");
    let ignored = [&flags[..], &["--ignore-local-objects"], &NO_LOOPS].concat();
    let server = Server::start_in(other, kubectl, Launch::with(&ignored));
    server.refused(&["get", "configmap", "kept"]);
}
