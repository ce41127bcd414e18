//! More connections than a server may have files open: it keeps what it needs to write, and lives through them.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::collections::BTreeMap;
use std::net::TcpStream;
use support::{Launch, Server, tool_or_skip};

/// A limit of few files, whatever the machine's owner allows elsewhere.
const LIMITED: [&str; 4] = ["sh", "-c", "ulimit -n 256 && exec \"$@\"", "sh"];
const CONNECTIONS: usize = 400;
/// Together more than a segment of the log: its next one is another file.
const OBJECTS: usize = 34;
const OBJECT_BYTES: usize = 900_000;

fn large(number: usize) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("large-{number}")),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("large".to_owned(), "y".repeat(OBJECT_BYTES))])),
        ..ConfigMap::default()
    }
}

/// The administrator's client; it repeats requests over the same connection.
async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("the administrator's");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("whole")).expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_of_files_end_no_server() {
    let test = "connections_beyond_the_limit_of_files_end_no_server";
    let Some(kubectl) = tool_or_skip(test, "kubectl") else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut launch = Launch::with(&["--controllers=-*", "--disable-scheduler"]);
    launch.through = LIMITED.iter().map(Into::into).collect();
    let server = Server::start_in(dir, kubectl, launch);
    let objects: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    objects.list(&ListParams::default()).await.expect("an answer");
    let crowd: Vec<_> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).expect("the kernel takes it"))
        .collect();
    for number in 0..OBJECTS {
        let made = objects.create(&PostParams::default(), &large(number)).await;
        made.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    }
    drop(crowd);
    server.until("the crowd to be forgotten", || {
        server.try_kubectl(&["get", "--raw", "/readyz"]).status.success()
    });
    let listed = objects.list(&ListParams::default()).await.expect("an answer");
    assert_eq!(listed.items.len(), OBJECTS);
    let said = server.log();
    assert!(!said.contains("Too many open files"), "{said}");
}
