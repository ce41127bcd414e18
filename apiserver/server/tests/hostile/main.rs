//! Clients that are slow, many or gone: the server answers the others, and finishes what it began.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../gate/mod.rs"]
mod gate;
#[path = "../tls_server/mod.rs"]
mod tls_server;
#[path = "../webhook_server/mod.rs"]
mod webhook_server;

mod bodies;
mod connections;
mod heavy_work;
mod lists;
mod webhooks;
mod writes;

use apiserver_server::ServerConfig;
use apiserver_storage::{LogStorage, Storage};
use bytes::Bytes;
use common::{Cluster, config, post_head, start, start_on, start_with};
use futures::StreamExt;
use gate::GatedStorage;
use http::{Method, Request};
use http_body_util::Full;
use machinery_runtime::HeavyFlow;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NO_MUTATION: &str = "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0";
/// The metric of mutations that wait for a seat.
const WAITING: &str = "apiserver_current_inqueue_requests{request_kind=\"mutating\"}";
/// The metric of mutations without a seat whose bodies are still arriving.
const ARRIVING: &str = "knarr_request_bodies_arriving{request_kind=\"mutating\"}";
const APPLY: &str = "application/apply-patch+yaml";
const RUNNING: &str = "knarr_heavy_work_tasks{state=\"running\"}";
/// A time longer than a test waits for anything.
const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(300);

/// The value of a gauge; zero before its first use.
async fn gauge(cluster: &Cluster, name: &str) -> usize {
    let text = cluster.admin().get("/metrics").await.is(200).body;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

/// Time after which an awaited event is considered lost.
const GIVE_UP: Duration = Duration::from_secs(120);

async fn until_gauge(cluster: &Cluster, name: &str, is_right: impl Fn(usize) -> bool) {
    let began = cluster.runtime.monotonic();
    loop {
        let value = gauge(cluster, name).await;
        if is_right(value) {
            return;
        }
        assert!(
            cluster.runtime.monotonic() - began < GIVE_UP,
            "{name} stays at {value}"
        );
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

async fn impatient() -> Cluster {
    start_with(ServerConfig {
        header_timeout: SHORT,
        ..config()
    })
    .await
}

fn config_map(name: &str, bytes: usize) -> String {
    let (meta, data) = (json!({"name": name}), json!({"x": "y".repeat(bytes)}));
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}).to_string()
}

/// A certificate with this name in this group.
fn identity(cluster: &Cluster, name: &str, group: &str) -> apiserver_auth::pki::Identity {
    let authority = &cluster.server.pki().cluster;
    authority
        .client(name, Some(group), cluster.runtime.now())
        .unwrap()
}

/// Lets a user do everything, and be an ordinary one nevertheless.
async fn trusted(cluster: &Cluster, user: &str) -> apiserver_auth::pki::Identity {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    cluster.admin().post(bindings, binding.to_string()).await.is(201);
    let own = identity(cluster, user, "people");
    while cluster.as_identity(&own).get(CONFIG_MAPS).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    own
}

/// Every level has one seat.
async fn with_single_seats() -> Cluster {
    start_with(ServerConfig {
        body_pace_interval: LONG,
        max_requests_inflight: 0,
        max_mutating_requests_inflight: 8,
        ..config()
    })
    .await
}
