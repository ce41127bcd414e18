//! Requests that are passed on over TLS: to pods and services whatever certificate they have, without showing ours; to a
//! kubelet only where our authority knows it.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod common;

use apiserver_auth::pki::{Pki, ServingIdentity, ServingNames, server_config};
use common::{Cluster, start};
use serde_json::json;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// An address of this machine that is not the loopback's: requests are not passed on to that.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Serves with a certificate of an authority of its own, and tells whether it was shown one.
async fn serve(cluster: &Cluster, address: IpAddr) -> SocketAddr {
    let names: ServingNames = ["somebody.example".to_owned()].into();
    let pki = Pki::generate(&names, cluster.runtime.now()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let serving = ServingIdentity::new(&pki.serving, &provider).unwrap();
    let config = server_config(serving, &[cluster.server.pki().cluster.certificate()]).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let local = listener.local_addr().unwrap();
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let shown = stream.get_ref().1.peer_certificates().is_some();
            let _ = stream.read(&mut [0; 4_096]).await;
            let said = format!("shown a certificate: {shown}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{said}",
                said.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    };
    cluster.runtime.spawn("tls-server", serving).detach();
    local
}

async fn create(cluster: &Cluster, path: &str, object: serde_json::Value) {
    cluster.admin().post(path, object.to_string()).await.is(201);
}

/// Writes the status of what was made just now.
async fn set_status(cluster: &Cluster, path: &str, status: serde_json::Value) {
    let patch = json!({ "status": status }).to_string();
    let patched = cluster
        .admin()
        .header("content-type", "application/merge-patch+json")
        .send(http::Method::PATCH, &format!("{path}/status"), patch.into())
        .await;
    patched.is(200);
}

/// A node whose kubelet is there, a pod on it that has this address, and a service of that pod.
async fn make_objects(cluster: &Cluster, at: SocketAddr) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    create(cluster, "/api/v1/namespaces/default/serviceaccounts", account).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    create(cluster, "/api/v1/nodes", node).await;
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": at.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": at.port()}},
    });
    set_status(cluster, "/api/v1/nodes/n", status).await;
    let containers = json!([{"name": "c", "image": "i"}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": containers},
    });
    create(cluster, PODS, pod).await;
    let ip = at.ip().to_string();
    set_status(
        cluster,
        &format!("{PODS}/p"),
        json!({"podIP": ip, "podIPs": [{"ip": ip}]}),
    )
    .await;
    let ports = json!([{"name": "web", "port": 443}]);
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}});
    create(cluster, SERVICES, service).await;
    let target = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}, "targetRef": target}],
        "ports": [{"name": "web", "port": at.port()}],
    });
    create(cluster, SLICES, slice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_certificate_will_do_but_a_kubelets_and_only_kubelets_see_ours() {
    let Some(address) = own_address().filter(|address| !address.is_loopback()) else {
        println!("SKIPPED, not passed: this machine has no address but the loopback's");
        return;
    };
    let cluster = start().await;
    let at = serve(&cluster, address).await;
    let other = serve(&cluster, address).await;
    make_objects(&cluster, at).await;
    let port = at.port();
    let paths = [
        format!("{PODS}/https:p:{port}/proxy/"),
        format!("{SERVICES}/https:s:web/proxy/"),
        format!("/api/v1/nodes/https:n:{}/proxy/", other.port()),
    ];
    for path in paths {
        let answer = cluster.admin().get(&path).await.is(200);
        assert_eq!(answer.body, "shown a certificate: false", "{path}");
    }
    // Who says to be a node's kubelet must be known to our authority.
    for path in [
        "/api/v1/nodes/n/proxy/".to_owned(),
        format!("/api/v1/nodes/https:n:{port}/proxy/"),
        format!("{PODS}/p/log"),
    ] {
        let answer = cluster.admin().get(&path).await;
        assert!(answer.code.is_server_error(), "{path}: {}", answer.body);
        assert!(
            answer.body.contains("invalid peer certificate"),
            "{path}: {}",
            answer.body
        );
    }
}
