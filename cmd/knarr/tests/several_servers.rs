//! Two servers on one etcd: either is killed, clients go on at the other one; and the commands of
//! `docs/several-servers.md`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::etcd::Etcd;
use support::{Kubectl, Server, text, tool_or_skip};

const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// Short times, so that a test need not wait as long as a cluster may.
const SOON: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

fn server(kubectl: &Path, etcd: &Etcd, number: usize) -> Server {
    let flags = [
        "--etcd-servers",
        &etcd.endpoint,
        "--advertise-address",
        ADDRESSES[number],
    ];
    Server::start(kubectl.to_owned(), &[&flags[..], &SOON].concat())
}

fn url(server: &Server) -> String {
    format!("https://127.0.0.1:{}", server.port)
}

async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("the administrator's");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("whole")).expect("a client")
}

/// Config maps that a watch delivered, in order. It goes on at the other server whenever one is gone, from the last
/// revision that it saw, and never lists again.
struct Watch {
    told: Arc<Mutex<Vec<String>>>,
    failed: Arc<Mutex<Option<String>>>,
}

impl Watch {
    fn start(one: &Server, other: &Server) -> Self {
        let watch = Self {
            told: Arc::default(),
            failed: Arc::default(),
        };
        let (told, failed) = (Arc::clone(&watch.told), Arc::clone(&watch.failed));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let clients = runtime.block_on(async { [client(one).await, client(other).await] });
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let why = follow(clients, &told).await;
                *failed.lock().expect("unharmed") = Some(why);
            });
        });
        watch
    }

    #[track_caller]
    fn wait_for(&self, names: &[String], kubectl: &Kubectl) {
        kubectl.until("the watch to be told", || {
            let failed = self.failed.lock().expect("unharmed").clone();
            assert_eq!(failed, None);
            *self.told.lock().expect("unharmed") == *names
        });
    }
}

async fn follow(clients: [Client; 2], told: &Mutex<Vec<String>>) -> String {
    let apis = clients.map(Api::<ConfigMap>::default_namespaced);
    let ours = "story=servers";
    let listed = apis[0]
        .list(&ListParams::default().labels(ours))
        .await
        .expect("a list");
    let mut version = listed.metadata.resource_version.expect("a revision");
    for turn in 0.. {
        let params = WatchParams::default().labels(ours).timeout(290);
        if let Ok(stream) = apis[turn % 2].watch(&params, &version).await {
            pin_mut!(stream);
            while let Some(event) = stream.next().await {
                match event {
                    Ok(WatchEvent::Added(map)) => {
                        told.lock().expect("unharmed").push(map.name_any());
                        version = map.resource_version().expect("a revision");
                    }
                    Ok(WatchEvent::Modified(map) | WatchEvent::Deleted(map)) => {
                        version = map.resource_version().expect("a revision");
                    }
                    Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                    Ok(WatchEvent::Error(status)) if status.code == 410 => return status.message,
                    Ok(WatchEvent::Error(_)) | Err(_) => break,
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!("turns have no end")
}

fn make(server: &Server, name: &str) -> String {
    let object = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{story: servers}}}}}}"
    );
    server.feed(&["create"], &object);
    name.to_owned()
}

fn announced(server: &Server) -> Vec<String> {
    let path = "jsonpath={.endpoints[*].addresses[*]}";
    let found = server.kubectl(&["get", "endpointslice", "kubernetes", "-o", path]);
    let mut addresses: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
    addresses.sort();
    addresses
}

fn scales_to(server: &Server, replicas: usize) {
    let wanted = replicas.to_string();
    server.kubectl(&["scale", "deployment", "web", "--replicas", &wanted]);
    server.until("the deployment's pods", || {
        let pods = server.kubectl(&["get", "pods", "--selector", "app=web", "-o", "name"]);
        pods.lines().count() == replicas
    });
}

#[test]
fn several_servers_are_one_cluster_whichever_is_killed() {
    let name = "several_servers_are_one_cluster_whichever_is_killed";
    let Some((kubectl, etcd)) = tool_or_skip(name, "kubectl").zip(Etcd::start_or_skip(name)) else {
        return;
    };
    let mut one = server(&kubectl, &etcd, 0);
    let mut other = server(&kubectl, &etcd, 1);
    // Certificates and tokens of one are good for the other, and each is known by the same authority.
    let at_other = ["--server", &url(&other)[..]];
    let who = [&["auth", "whoami"], &at_other[..]].concat();
    one.kubectl(&who);
    one.until("an account", || {
        one.try_kubectl(&["get", "serviceaccount", "default"])
            .status
            .success()
    });
    let token = one.kubectl(&["create", "token", "default"]);
    let review = format!(
        "{{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {{token: '{}'}}}}",
        token.trim()
    );
    let reviewed = other.feed(&["create", "-o", "jsonpath={.status.user.username}"], &review);
    assert_eq!(reviewed, "system:serviceaccount:default:default");
    other.until("both addresses", || announced(&other) == ADDRESSES);
    one.kubectl(&[
        "create",
        "deployment",
        "web",
        "--image=example/web:1",
        "--replicas=1",
    ]);
    scales_to(&other, 2);

    let watch = Watch::start(&one, &other);
    let mut names = vec![make(&one, "a"), make(&other, "b")];
    watch.wait_for(&names, &other);
    one.stop();
    names.push(make(&other, "c"));
    scales_to(&other, 4);
    watch.wait_for(&names, &other);
    other.until("the killed one to be taken out", || {
        announced(&other) == ADDRESSES[1..]
    });
    one.start_again();
    other.until("it to be back", || announced(&other) == ADDRESSES);
    other.stop();
    names.push(make(&one, "d"));
    scales_to(&one, 1);
    watch.wait_for(&names, &one);
    let transitions = "jsonpath={.spec.leaseTransitions}";
    let lease = [
        "get",
        "lease",
        "-n",
        "kube-system",
        "kube-controller-manager",
        "-o",
        transitions,
    ];
    let count: u32 = one.kubectl(&lease).parse().expect("a number");
    assert!(count >= 2, "the lease changed hands {count} times");
}

#[test]
fn several_servers_refuse_a_data_directory_of_another_cluster() {
    let name = "several_servers_refuse_a_data_directory_of_another_cluster";
    let Some((kubectl, etcd)) = tool_or_skip(name, "kubectl").zip(Etcd::start_or_skip(name)) else {
        return;
    };
    // Its authorities, made without etcd, become those of the first etcd it is given.
    let mut first = Server::start(kubectl.clone(), &[]);
    let authority = |server: &Server| {
        std::fs::read_to_string(server.dir.path().join("data/pki/ca.crt")).expect("an authority")
    };
    let own = authority(&first);
    first.stop();
    let foreign = first.dir.path().join("data");
    let second = server(&kubectl, &etcd, 0);
    assert_ne!(authority(&second), own);
    let refused = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args([
            "server",
            "--disable-agent",
            "--ignore-local-objects",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            "0",
        ])
        .args(["--etcd-servers", &etcd.endpoint, "--data-dir"])
        .arg(&foreign)
        .output()
        .expect("it starts");
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("belongs to another cluster"), "{said}");
    assert_eq!(authority(&first), own, "nothing of it was changed");
}

/// The lines of the page's blocks of commands.
fn commands_of_the_page() -> Vec<&'static str> {
    let page = include_str!("../../../docs/several-servers.md");
    let blocks = page.split("```sh\n").skip(1);
    blocks
        .flat_map(|block| block.split("```").next().unwrap_or_default().lines())
        .collect()
}

#[test]
fn page_several_servers_commands_work() {
    let name = "page_several_servers_commands_work";
    let Some((kubectl, etcd)) = tool_or_skip(name, "kubectl").zip(Etcd::start_or_skip(name)) else {
        return;
    };
    let mut servers: Vec<Server> = Vec::new();
    for line in commands_of_the_page() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["knarr", "server", flags @ ..] = &words[..] {
            let flags = flags
                .iter()
                .map(|flag| flag.replace("http://10.0.0.10:2379", &etcd.endpoint));
            // The harness gives each a folder of its own.
            let flags: Vec<String> = flags.take_while(|flag| flag != "--data-dir").collect();
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            servers.push(Server::start(kubectl.clone(), &flags));
            continue;
        }
        let [one, other] = &servers[..] else {
            panic!("{line}: the page starts two servers first");
        };
        let line = line.replace("https://10.0.0.2:6443", &url(other));
        // The leases are taken soon after the start.
        one.until(&line, || {
            let output = Command::new("sh")
                .args([
                    "-c",
                    &format!("set -e; kubectl() {{ \"$KUBECTL\" \"$@\"; }}; {line}"),
                ])
                .env("KUBECTL", &kubectl)
                .env("KUBECONFIG", one.kubeconfig())
                .env("HOME", one.dir.path())
                .stdin(Stdio::null())
                .output()
                .expect("a shell");
            output.status.success() && !output.stdout.is_empty()
        });
    }
    let config = std::fs::read_to_string(servers[0].kubeconfig()).expect("a kubeconfig");
    assert!(config.contains(&url(&servers[1])), "the kubeconfig was switched");
}
