//! Requests that are passed on: their addresses, headers and pages as upstream's proxy makes them, and what they may reach.
//! Over TLS to pods and services whatever certificate they have, without showing ours; to a kubelet only where our authority
//! knows it.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod own_address;
mod tls_server;
mod webhook_server;

use apiserver_auth::pki::{Pki, ServingIdentity, ServingNames, server_config};
use apiserver_server::ServerConfig;
use bytes::Bytes;
use common::{Cluster, config, start, start_with};
use http::Method;
use own_address::own_address_or_namespace;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use webhook_server::HookServer;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Serves with a certificate of an authority of its own, and returns whether it was shown one.
async fn serve(cluster: &Cluster, address: IpAddr) -> SocketAddr {
    let names: ServingNames = ["somebody.example".to_owned()].into();
    let pki = Pki::generate(&names, cluster.runtime.now()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let serving = ServingIdentity::new(&pki.serving, pki.cluster.certificate(), &provider).unwrap();
    let config = server_config(serving, &[cluster.server.pki().cluster.certificate().clone()]).unwrap();
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
async fn proxy_kubelet_client_certificate_is_shown_to_kubelets_only() {
    let test = "proxy_kubelet_client_certificate_is_shown_to_kubelets_only";
    let Some(address) = own_address_or_namespace(test) else {
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
    // Nothing is sent to a node for a client that does not switch protocols.
    for what in ["exec?command=true", "attach", "portforward"] {
        let answer = cluster
            .admin()
            .post(&format!("{PODS}/p/{what}"), String::new())
            .await;
        assert_eq!(
            answer.is(400).json()["message"],
            "Upgrade request required",
            "{what}"
        );
    }
    // A server that answers as a node's kubelet must be known to our authority.
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

/// An event at a backend.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// A request that is not answered came.
    Waiting,
    /// Its connection was closed.
    Closed,
}

/// Serves plain HTTP, one request for a connection: its head comes back, but `/page` has links, `/moved` is elsewhere and
/// `/silent` is not answered.
async fn backend(cluster: &Cluster, address: IpAddr) -> (SocketAddr, mpsc::UnboundedReceiver<Event>) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let local = listener.local_addr().unwrap();
    let (events, told) = mpsc::unbounded_channel();
    let runtime = cluster.runtime.clone();
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            runtime
                .spawn("backend-connection", answer(stream, events.clone()))
                .detach();
        }
    };
    cluster.runtime.spawn("backend", serving).detach();
    (local, told)
}

async fn answer(mut stream: TcpStream, events: mpsc::UnboundedSender<Event>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let (headers, body) = match path {
        "/silent" => {
            events.send(Event::Waiting).unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let _ = events.send(Event::Closed);
            return;
        }
        "/page" => (
            "content-type: text/html; charset=utf-8\r\naccess-control-allow-origin: *\r\n",
            "<a href=\"/rewriteme\">test</a>".to_owned(),
        ),
        "/moved" => ("location: /elsewhere/?a=b\r\n", String::new()),
        "/unchanged" => {
            let answer = "HTTP/1.1 304 Not Modified\r\nconnection: close\r\netag: e\r\ncontent-type: text/plain\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes()).await;
            return;
        }
        _ => ("content-type: text/plain\r\n", head.to_ascii_lowercase()),
    };
    let answer = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_passes_requests_on_as_upstreams() {
    let Some(address) = own_address_or_namespace("proxy_passes_requests_on_as_upstreams") else {
        return;
    };
    let cluster = start().await;
    let (at, _told) = backend(&cluster, address).await;
    make_objects(&cluster, at).await;
    let proxies = [
        format!("{PODS}/p:{}/proxy", at.port()),
        format!("{SERVICES}/s:web/proxy"),
    ];
    for proxy in proxies {
        let head = async |path: &str| {
            let client = cluster.admin().header("x-forwarded-for", "192.0.2.9");
            client.get(&format!("{proxy}{path}")).await.is(200).body
        };
        for (path, wanted) in [
            ("/", "/"),
            ("/a%20b/c%3fd?e=%20f&g", "/a%20b/c%3fd?e=%20f&g"),
            ("/%E9%23%25", "/%e9%23%25"),
            ("/a//b/../c/", "/a/c/"),
        ] {
            let head = head(path).await;
            assert!(head.starts_with(&format!("get {wanted} http/1.1\r\n")), "{head}");
            let forwarded = wanted.split('?').next().unwrap();
            let forwarded = format!("x-forwarded-uri: {proxy}{forwarded}\r\n").to_ascii_lowercase();
            assert!(head.contains(&forwarded), "{head}");
            assert!(head.contains("host: test\r\n"), "{head}");
            assert!(
                head.contains("x-forwarded-for: 192.0.2.9, 127.0.0.1\r\n"),
                "{head}"
            );
        }

        let root = format!("{proxy}?a=b");
        for method in [Method::GET, Method::HEAD] {
            let moved = cluster.admin().send(method, &root, Bytes::new()).await.is(301);
            assert_eq!(moved.headers["location"], format!("{proxy}/?a=b"));
        }
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let name = method.as_str().to_ascii_lowercase();
            let passed = cluster.admin().send(method, &root, Bytes::new()).await.is(200);
            assert!(
                passed.body.starts_with(&format!("{name} /?a=b http/1.1")),
                "{}",
                passed.body
            );
            let forwarded = format!("x-forwarded-uri: {proxy}/\r\n").to_ascii_lowercase();
            assert!(passed.body.contains(&forwarded), "{}", passed.body);
        }
        let client = cluster.admin().header("proxy-connection", "keep-alive");
        let client = client.header("te", "gzip, Trailers").header("connection", "te");
        let passed = client.get(&format!("{proxy}/")).await.is(200).body;
        assert!(
            passed.contains("te: trailers\r\n") && !passed.contains("proxy-connection"),
            "{passed}"
        );
        let unchanged = cluster.admin().get(&format!("{proxy}/unchanged")).await.is(304);
        assert_eq!(unchanged.headers["etag"], "e");
        assert!(!unchanged.headers.contains_key("content-type"));

        let page = cluster.admin().get(&format!("{proxy}/page")).await.is(200);
        assert_eq!(page.body, format!("<a href=\"{proxy}/rewriteme\">test</a>"));
        assert!(!page.headers.contains_key("access-control-allow-origin"));
        let moved = cluster.admin().get(&format!("{proxy}/moved")).await.is(200);
        assert_eq!(moved.headers["location"], format!("{proxy}/elsewhere/?a=b"));
    }
}

/// The path that admission leaves is the one that is requested.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_follows_the_path_of_a_webhook() {
    let Some(address) = own_address_or_namespace("proxy_follows_the_path_of_a_webhook") else {
        return;
    };
    let cluster = start().await;
    let hooks = HookServer::start(&cluster.runtime).await;
    let (at, _told) = backend(&cluster, address).await;
    make_objects(&cluster, at).await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/proxy"], "operations": ["CONNECT"]});
    let webhook = json!({"name": "detour.hooks.example", "clientConfig": hooks.client("/detour"), "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    create(
        &cluster,
        path,
        json!({"metadata": {"name": "detour"}, "webhooks": [webhook]}),
    )
    .await;
    let proxied = format!("{PODS}/p:{}/proxy/a/b%20c/?d=e", at.port());
    let head = loop {
        let head = cluster.admin().get(&proxied).await.is(200).body;
        // The configuration counts once the server has read it.
        if !hooks.seen("/detour").is_empty() {
            break head;
        }
        assert!(head.starts_with("get /a/b%20c/?d=e http/1.1\r\n"), "{head}");
    };
    assert!(
        head.starts_with("get /detour%20of/it/?d=e http/1.1\r\n"),
        "{head}"
    );
    assert_eq!(hooks.seen("/detour")[0]["object"]["path"], "/a/b c/");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_reaches_neither_this_machine_nor_the_server_itself() {
    let test = "proxy_reaches_neither_this_machine_nor_the_server_itself";
    let Some(other) = own_address_or_namespace(test) else {
        return;
    };
    let cluster = start().await;
    let port = cluster.address.port();
    let node = async |name: &str, kind: &str, address: &str| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        create(&cluster, "/api/v1/nodes", node).await;
        let status = json!({
            "addresses": [{"type": kind, "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        });
        set_status(&cluster, &format!("/api/v1/nodes/{name}"), status).await;
    };
    node("loopback", "InternalIP", "127.0.0.1").await;
    node("named", "Hostname", "localhost").await;
    node("link", "InternalIP", "169.254.169.254").await;
    node("itself", "InternalIP", &other.to_string()).await;
    node("service", "InternalIP", "10.96.0.1").await;
    for path in [
        "loopback/proxy/healthz",
        "loopback:1/proxy/",
        "named/proxy/api/v1/secrets",
        "http:named:1/proxy/",
        "link/proxy/",
        "itself/proxy/api/v1/secrets",
        "service:443/proxy/api/v1/secrets",
    ] {
        let answer = cluster
            .admin()
            .get(&format!("/api/v1/nodes/{path}"))
            .await
            .is(400);
        assert_eq!(answer.json()["message"], "address not allowed", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_to_what_has_no_address_or_port_answers_as_upstreams() {
    let cluster = start().await;
    make_objects(&cluster, "10.9.8.7:80".parse().unwrap()).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}});
    create(&cluster, "/api/v1/nodes", node).await;
    let nowhere = "no preferred addresses found; known addresses: []";
    let known = "no preferred addresses found; known addresses: [{Foo 1.2.3.4} {Bar h}]";
    let refused = |path: String, code: u16, reason: serde_json::Value, message: String| {
        let cluster = &cluster;
        async move {
            let answer = cluster.admin().get(&path).await.is(code).json();
            assert_eq!(
                (&answer["reason"], &answer["message"]),
                (&reason, &json!(message)),
                "{path}"
            );
        }
    };
    let none = || serde_json::Value::Null;
    refused(
        "/api/v1/nodes/bare/proxy/".to_owned(),
        500,
        none(),
        nowhere.to_owned(),
    )
    .await;
    let addresses = json!([{"type": "Foo", "address": "1.2.3.4"}, {"type": "Bar", "address": "h"}]);
    set_status(&cluster, "/api/v1/nodes/bare", json!({"addresses": addresses})).await;
    refused(
        "/api/v1/nodes/bare:70000/proxy/".to_owned(),
        500,
        none(),
        known.to_owned(),
    )
    .await;
    for (path, port) in [
        (format!("{PODS}/p:70000/proxy/"), "70000"),
        ("/api/v1/nodes/n:65536/proxy/".to_owned(), "65536"),
    ] {
        let message = format!("error trying to reach service: dial tcp: address {port}: invalid port");
        refused(path, 503, json!("ServiceUnavailable"), message).await;
    }
    refused(
        format!("{PODS}/p:x/proxy/"),
        400,
        json!("BadRequest"),
        "invalid port \"x\"".to_owned(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn proxied_request_ends_with_its_client() {
    let Some(address) = own_address_or_namespace("proxied_request_ends_with_its_client") else {
        return;
    };
    let cluster = start().await;
    let (at, mut told) = backend(&cluster, address).await;
    make_objects(&cluster, at).await;
    for method in ["GET", "POST"] {
        let path = format!("{PODS}/p:{}/proxy/silent", at.port());
        let request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n");
        let client = cluster.sent(request).await;
        assert_eq!(told.recv().await, Some(Event::Waiting));
        drop(client);
        assert_eq!(told.recv().await, Some(Event::Closed), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxied_connections_are_bounded_by_user() {
    let Some(address) = own_address_or_namespace("proxied_connections_are_bounded_by_user") else {
        return;
    };
    let config = ServerConfig {
        max_proxied_connections: 2,
        ..config()
    };
    let cluster = start_with(config).await;
    let (at, mut told) = backend(&cluster, address).await;
    make_objects(&cluster, at).await;
    let proxy = format!("{PODS}/p:{}/proxy", at.port());
    let first = cluster
        .sent(format!("GET {proxy}/silent HTTP/1.1\r\nhost: test\r\n\r\n"))
        .await;
    assert_eq!(told.recv().await, Some(Event::Waiting));
    let refused = cluster.admin().get(&format!("{proxy}/")).await.is(429);
    assert_eq!(refused.headers["retry-after"], "1");
    drop(first);
    assert_eq!(told.recv().await, Some(Event::Closed));
    // An answer that was read, or whose client has gone, gives its place back, which may be a moment later.
    for _ in 0..3 {
        let mut code = 429;
        for _ in 0..1_000 {
            code = cluster.admin().get(&format!("{proxy}/")).await.code.as_u16();
            if code != 429 {
                break;
            }
            cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(code, 200);
    }
}
