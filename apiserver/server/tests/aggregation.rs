//! Group versions that other servers answer, behind a real server.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod extension_server;
mod own_address;
mod tls_server;

use apiserver_server::ServerConfig;
use bytes::Bytes;
use common::{Answer, Cluster, config, post_head, start_with};
use extension_server::{ExtensionServer, Manner};
use http::Method;
use http_body_util::Full;
use machinery_meta::UserInfo;
use machinery_runtime::AnswerRoom;
use own_address::own_address_or_namespace;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::Service;

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const GROUPS: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct World {
    cluster: Cluster,
    at: IpAddr,
}

impl World {
    /// `None` where no address of this machine may be called; the test is over elsewhere.
    async fn new(test: &str) -> Option<Self> {
        Self::with(test, config()).await
    }

    async fn with(test: &str, config: ServerConfig) -> Option<Self> {
        let at = own_address_or_namespace(test)?;
        let cluster = start_with(config).await;
        Some(Self { cluster, at })
    }

    async fn server(&self, name: &str, manner: Manner) -> ExtensionServer {
        let front_proxy = self.cluster.server.pki().front_proxy.certificate().clone();
        ExtensionServer::start(&self.cluster.runtime, (name, self.at), &front_proxy, manner).await
    }

    async fn service(&self, name: &str) {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"name": "api", "port": 443}]}});
        self.cluster
            .admin()
            .post(SERVICES, service.to_string())
            .await
            .is(201);
    }

    async fn slice(&self, name: &str, address: &str, port: u16) {
        let slice = json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": if address.contains(':') { "IPv6" } else { "IPv4" },
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "api", "port": port, "protocol": "TCP"}]});
        self.cluster.admin().post(SLICES, slice.to_string()).await.is(201);
    }

    async fn register(&self, name: &str, ca_bundle: &str) {
        let own = json!({"metadata": {"name": format!("v1.{name}.example")}, "spec": {"group": format!("{name}.example"),
            "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10, "caBundle": ca_bundle,
            "service": {"namespace": "default", "name": name}}});
        self.cluster
            .admin()
            .post(API_SERVICES, own.to_string())
            .await
            .is(201);
    }

    /// An extension that is registered with all that leads to it.
    async fn extension(&self, name: &str, manner: Manner) -> ExtensionServer {
        let server = self.server(name, manner).await;
        self.service(name).await;
        self.slice(name, &self.at.to_string(), server.address.port())
            .await;
        self.register(name, &server.ca_bundle).await;
        server
    }

    /// The condition of an APIService once it has this reason.
    async fn condition(&self, name: &str, reason: &str) -> Value {
        let path = format!("{API_SERVICES}/v1.{name}.example");
        loop {
            let own = self.get(&path).await.is(200).json();
            let condition = own["status"]["conditions"][0].clone();
            if condition["reason"] == reason {
                return condition;
            }
            self.pause().await;
        }
    }

    /// The document at a path, once it is as it should be.
    async fn until(&self, path: &str, accept: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.cluster.admin().header("accept", accept).get(path).await;
            if answer.code == 200 {
                let found = answer.json();
                if is_so(&found) {
                    return found;
                }
            }
            self.pause().await;
        }
    }

    async fn pause(&self) {
        self.cluster.runtime.sleep(Duration::from_millis(10)).await;
    }

    async fn get(&self, path: &str) -> Answer {
        self.cluster.admin().get(path).await
    }
}

/// The versions of a group in an aggregated document.
fn version<'a>(groups: &'a Value, group: &str) -> Option<&'a Value> {
    let items = groups["items"].as_array()?;
    let own = items.iter().find(|own| own["metadata"]["name"] == group)?;
    own["versions"].get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_requests_carry_the_user_and_no_credentials() {
    let Some(world) = World::new("aggregated_requests_carry_the_user_and_no_credentials").await else {
        return;
    };
    let server = world.extension("boats", Manner::Good).await;
    world.condition("boats", "Passed").await;
    let ask = world.cluster.admin().header("x-remote-user", "forged");
    let ask = ask
        .header("x-remote-group", "forged")
        .header("connection", "x-remote-group");
    let ask = ask.header("content-type", "application/json");
    let path = "/apis/boats.example/v1/namespaces/default/boats";
    let answer = ask
        .send(
            Method::POST,
            &format!("{path}?dryRun=All"),
            Bytes::from_static(b"{\"a\":1}"),
        )
        .await
        .is(200);
    assert_eq!(answer.headers["x-own"], "kept");
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
    assert!(!answer.headers.contains_key("keep-alive"));
    assert_eq!(
        answer.json(),
        json!({"method": "POST", "path": format!("{path}?dryRun=All"), "body": "{\"a\":1}"})
    );
    let headers = server.seen(&format!("POST {path}")).remove(0);
    let all = |name: &str| {
        let values = headers.get_all(name).iter();
        values
            .map(|own| own.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("x-remote-user"), ["admin"]);
    assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
    for name in ["authorization", "connection", "impersonate-user"] {
        assert!(all(name).is_empty(), "{name}");
    }
    assert_eq!(all("host"), [server.address.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_requests_pass_authentication_and_authorization() {
    let Some(world) = World::new("aggregated_requests_pass_authentication_and_authorization").await else {
        return;
    };
    let server = world.extension("boats", Manner::Good).await;
    world.condition("boats", "Passed").await;
    let path = "/apis/boats.example/v1/namespaces/default/boats";
    let before = server.seen(&format!("GET {path}")).len();
    world.cluster.nobody().get(path).await.is(403);
    world.cluster.nobody().token("none").get(path).await.is(401);
    let runtime = &world.cluster.runtime;
    let pki = world.cluster.server.pki();
    let jane = pki.cluster.client("jane", None, runtime.now()).unwrap();
    world.cluster.as_identity(&jane).get(path).await.is(403);
    assert_eq!(server.seen(&format!("GET {path}")).len(), before);
    let role = json!({"metadata": {"name": "boats"}, "rules": [{"apiGroups": ["boats.example"], "resources": ["boats"], "verbs": ["list"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    world.cluster.admin().post(rbac, role.to_string()).await.is(201);
    let binding = json!({"metadata": {"name": "boats"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "boats"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    world
        .cluster
        .admin()
        .post(bindings, binding.to_string())
        .await
        .is(201);
    while world.cluster.as_identity(&jane).get(path).await.code != 200 {
        world.pause().await;
    }
    let acting = world.cluster.admin().header("impersonate-user", "jane");
    acting.get(path).await.is(200);
    let seen = server.seen(&format!("GET {path}"));
    assert!(
        seen.iter()
            .all(|own| own["x-remote-user"] == "jane" && !own.contains_key("impersonate-user"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_this_process_learn_that_an_extension_answers() {
    let Some(world) = World::new("clients_of_this_process_learn_that_an_extension_answers").await else {
        return;
    };
    let _server = world.extension("boats", Manner::Good).await;
    world.condition("boats", "Passed").await;
    let admin = UserInfo::named("admin", [UserInfo::MASTERS]);
    let mut service = world.cluster.server.service_as(admin);
    let mut answered_by = async |path: &str| {
        let request = http::Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let answer = service.call(request).await.unwrap();
        let room = answer.extensions().get::<AnswerRoom>();
        room.map(|room| room.name().to_owned())
    };
    let path = "/apis/boats.example/v1/namespaces/default/boats";
    let own = Some("v1.boats.example".to_owned());
    assert_eq!(answered_by(path).await, own);
    assert_eq!(answered_by(&format!("{path}?watch=1")).await, own);
    assert_eq!(answered_by("/api/v1/namespaces").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_watches_stream_and_protocols_are_switched() {
    let Some(world) = World::new("aggregated_watches_stream_and_protocols_are_switched").await else {
        return;
    };
    let _server = world.extension("boats", Manner::Good).await;
    world.condition("boats", "Passed").await;
    let path = "/apis/boats.example/v1/boats";
    let watch = format!("GET {path}?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut stream = world.cluster.sent(watch).await;
    assert!(read_until(&mut stream, "ADDED").await.starts_with("HTTP/1.1 200"));
    let switch =
        format!("GET {path}/one/shell HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let mut stream = world.cluster.sent(switch).await;
    assert!(
        read_until(&mut stream, "\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 101")
    );
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(read_until(&mut stream, "hello").await, "hello");
}

async fn read_until(stream: &mut (impl AsyncReadExt + Unpin), end: &str) -> String {
    let (mut read, mut buffer) = (String::new(), [0; 512]);
    while !read.contains(end) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn api_service_condition_says_why_it_is_unavailable() {
    let Some(world) = World::new("api_service_condition_says_why_it_is_unavailable").await else {
        return;
    };
    let server = world.server("boats", Manner::Good).await;
    world.register("boats", &server.ca_bundle).await;
    let condition = world.condition("boats", "ServiceNotFound").await;
    assert_eq!(condition["status"], "False");
    assert_eq!(
        condition["message"],
        "service/boats in \"default\" is not present"
    );
    let refused = world.get("/apis/boats.example/v1/boats").await.is(503);
    assert_eq!(refused.body, "service unavailable\n");
    let wrong = json!({"metadata": {"name": "boats"}, "spec": {"ports": [{"name": "api", "port": 80}]}});
    world
        .cluster
        .admin()
        .post(SERVICES, wrong.to_string())
        .await
        .is(201);
    let condition = world.condition("boats", "ServicePortError").await;
    assert_eq!(
        condition["message"],
        "service/boats in \"default\" is not listening on port 443"
    );
    let own = format!("{SERVICES}/boats");
    world
        .cluster
        .admin()
        .send(Method::DELETE, &own, Bytes::new())
        .await
        .is(200);
    world.service("boats").await;
    let condition = world.condition("boats", "EndpointsNotFound").await;
    assert_eq!(
        condition["message"],
        "cannot find endpointslices for service/boats in \"default\""
    );
    let empty = json!({"metadata": {"name": "empty", "labels": {"kubernetes.io/service-name": "boats"}}, "addressType": "IPv4",
        "endpoints": [], "ports": [{"name": "api", "port": 1}]});
    world
        .cluster
        .admin()
        .post(SLICES, empty.to_string())
        .await
        .is(201);
    let condition = world.condition("boats", "MissingEndpoints").await;
    assert_eq!(
        condition["message"],
        "endpointslices for service/boats in \"default\" have no addresses with port name \"api\""
    );
    world
        .slice("boats", &world.at.to_string(), server.address.port())
        .await;
    let condition = world.condition("boats", "Passed").await;
    assert_eq!(
        (&condition["status"], &condition["message"]),
        (&json!("True"), &json!("all checks passed"))
    );
    let metrics = world.get("/metrics").await.body;
    assert!(metrics.contains("aggregator_unavailable_apiservice{name=\"v1.boats.example\"} 0"));
    assert!(metrics.contains("aggregator_unavailable_apiservice{name=\"v1.apps\"} 0"));
    let slices = format!("{SLICES}/boats");
    world
        .cluster
        .admin()
        .send(Method::DELETE, &slices, Bytes::new())
        .await
        .is(200);
    world.condition("boats", "MissingEndpoints").await;
    let total =
        "aggregator_unavailable_apiservice_total{name=\"v1.boats.example\",reason=\"MissingEndpoints\"} 1";
    while !world.get("/metrics").await.body.contains(total) {
        world.pause().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_service_with_a_foreign_certificate_is_not_asked() {
    let Some(world) = World::new("api_service_with_a_foreign_certificate_is_not_asked").await else {
        return;
    };
    let (own, other) = (
        world.server("boats", Manner::Good).await,
        world.server("boats", Manner::Good).await,
    );
    world.service("boats").await;
    world
        .slice("boats", &world.at.to_string(), own.address.port())
        .await;
    world.register("boats", &other.ca_bundle).await;
    let condition = world.condition("boats", "FailedDiscoveryCheck").await;
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("failing or missing response from https://"),
        "{message}"
    );
    assert!(
        message.contains("x509: certificate signed by unknown authority"),
        "{message}"
    );
    assert!(own.seen("GET /apis/boats.example/v1").is_empty());
    let patch = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    let ask = world
        .cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    let path = format!("{API_SERVICES}/v1.boats.example");
    ask.send(Method::PATCH, &path, Bytes::from(patch.to_string()))
        .await
        .is(200);
    world.condition("boats", "Passed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_extensions_lead_to_no_address_of_this_machine_or_link() {
    let name = "services_of_extensions_lead_to_no_address_of_this_machine_or_link";
    let Some(world) = World::new(name).await else {
        return;
    };
    let port = world.cluster.address.port();
    for (at, (address, port)) in [("127.0.0.1", port), ("169.254.169.254", 443), ("10.96.0.1", 443)]
        .into_iter()
        .enumerate()
    {
        let name = format!("boats{at}");
        world.service(&name).await;
        // Validation refuses some of these already.
        let slice = json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}], "ports": [{"name": "api", "port": port}]});
        let written = world.cluster.admin().post(SLICES, slice.to_string()).await;
        world.register(&name, "").await;
        let reason = match written.code.as_u16() {
            201 => "FailedDiscoveryCheck",
            _ => "EndpointsNotFound",
        };
        let condition = world.condition(&name, reason).await;
        let message = condition["message"].as_str().unwrap();
        assert!(
            written.code != 201 || message.contains("address not allowed"),
            "{address}: {message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_shows_what_extensions_serve_and_not_what_they_claim() {
    let name = "discovery_shows_what_extensions_serve_and_not_what_they_claim";
    let Some(world) = World::new(name).await else {
        return;
    };
    let own = world.until("/apis", GROUPS, |_| true).await;
    let apps = version(&own, "apps").unwrap().clone();
    let server = world.extension("boats", Manner::Good).await;
    let _plain = world.extension("plain", Manner::Plain).await;
    let is_there = |groups: &Value| {
        let is_fresh = |group| version(groups, group).is_some_and(|own| own["freshness"] == "Current");
        is_fresh("boats.example") && is_fresh("plain.example")
    };
    let groups = world.until("/apis", GROUPS, is_there).await;
    let boats = &version(&groups, "boats.example").unwrap()["resources"];
    let kind = |kind: &str| json!({"group": "", "version": "", "kind": kind});
    let expected = json!([{"resource": "boats", "responseKind": kind("Boat"), "scope": "Namespaced", "singularResource": "boat",
        "verbs": ["create", "delete", "get", "list", "watch"], "shortNames": ["bt"],
        "subresources": [{"subresource": "status", "responseKind": kind(""), "verbs": ["get"]}]}]);
    assert_eq!(*boats, expected);
    let plain = &version(&groups, "plain.example").unwrap()["resources"];
    assert_eq!(plain[0]["subresources"][0]["responseKind"], kind("Boat"));
    assert_eq!(*version(&groups, "apps").unwrap(), apps);
    assert!(version(&groups, "unregistered.example").is_none());
    let names = |list: &Value, at: &str| {
        let all = list.as_array().unwrap().iter();
        all.map(|own| own.pointer(at).unwrap().as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let listed = names(&world.get("/apis").await.json()["groups"], "/name");
    assert_eq!(listed, names(&groups["items"], "/metadata/name"));
    assert_eq!(listed[0], "apiregistration.k8s.io");
    let of = |name: &str| listed.iter().position(|own| own == name).unwrap();
    assert!(
        of("storagemigration.k8s.io") < of("boats.example") && of("plain.example") < of("metrics.k8s.io")
    );
    let group = world.get("/apis/boats.example").await.is(200).json();
    assert_eq!(
        group["preferredVersion"],
        json!({"groupVersion": "boats.example/v1", "version": "v1"})
    );
    let version_list = world.get("/apis/boats.example/v1").await.is(200).json();
    assert_eq!(version_list["kind"], "APIResourceList");
    let own = world
        .until("/openapi/v3", "*/*", |root| {
            !root["paths"]["apis/boats.example/v1"].is_null()
        })
        .await;
    assert_eq!(
        own["paths"]["apis/boats.example/v1"]["serverRelativeURL"],
        "/openapi/v3/apis/boats.example/v1?hash=1"
    );
    assert!(!own["paths"]["apis/apps/v1"].to_string().contains("forged"));
    world.get("/openapi/v3/apis/boats.example/v1").await.is(200);
    assert_eq!(server.seen("GET /openapi/v3/apis/boats.example/v1").len(), 1);
    let merged = world
        .until("/openapi/v2", "*/*", |own| {
            !own["definitions"]["example.Boat"].is_null()
        })
        .await;
    assert!(!merged["paths"]["/apis/boats.example/v1/boats"].is_null());
    assert!(merged["paths"]["/apis/apps/v1/forged"].is_null());
    let boat = &merged["definitions"]["example.Boat"];
    assert_eq!(
        boat["x-kubernetes-group-version-kind"].as_array().unwrap().len(),
        1
    );
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(
        boat["properties"]["metadata"]["$ref"],
        format!("#/definitions/{meta}_v2")
    );
    assert!(
        !merged["definitions"][meta]["properties"].is_null(),
        "this server's own stays"
    );
    let path = format!("{API_SERVICES}/v1.boats.example");
    world
        .cluster
        .admin()
        .send(Method::DELETE, &path, Bytes::new())
        .await
        .is(200);
    world
        .until("/apis", GROUPS, |groups| {
            version(groups, "boats.example").is_none()
        })
        .await;
    world.get("/apis/boats.example/v1").await.is(404);
}

/// The answer begins, so that nothing but the body's own memory bounds how many wait to be sent.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_an_extension_does_not_read_are_counted_until_they_are_sent() {
    let name = "bodies_that_an_extension_does_not_read_are_counted_until_they_are_sent";
    let Some(world) = World::new(name).await else {
        return;
    };
    let _server = world.extension("unreading", Manner::Unreading).await;
    world.condition("unreading", "Passed").await;
    let path = "/apis/unreading.example/v1/namespaces/default/boats";
    let body = json!({"a": "x".repeat((3 << 20) - 64)}).to_string();
    let (mut held, mut last) = (Vec::new(), [0; 12]);
    while held.len() < 40 && &last != b"HTTP/1.1 429" {
        let mut stream = world.cluster.sent(post_head(path, &body) + &body).await;
        stream.read_exact(&mut last).await.unwrap();
        held.push(stream);
    }
    assert_eq!(&last, b"HTTP/1.1 429", "{} bodies were held", held.len());
    assert!(held.len() > 1);
}

/// Requests of extensions hold no seats, which bound elsewhere how many beginnings of bodies are not counted.
#[tokio::test(flavor = "multi_thread")]
async fn aggregated_requests_have_their_whole_bodies_counted() {
    let name = "aggregated_requests_have_their_whole_bodies_counted";
    let tight = ServerConfig {
        body_memory_bytes: 16 << 10,
        ..config()
    };
    let Some(world) = World::with(name, tight).await else {
        return;
    };
    let _server = world.extension("boats", Manner::Good).await;
    world.condition("boats", "Passed").await;
    let path = "/apis/boats.example/v1/namespaces/default/boats";
    let post = |bytes| world.cluster.admin().post(path, vec![b' '; bytes]);
    post(20_000).await.is(429);
    post(10_000).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn extensions_that_misbehave_are_stale_and_delay_nobody() {
    let name = "extensions_that_misbehave_are_stale_and_delay_nobody";
    let Some(world) = World::new(name).await else {
        return;
    };
    let mut servers = Vec::new();
    for (name, manner) in [
        ("hanging", Manner::Hanging),
        ("endless", Manner::Endless),
        ("nested", Manner::Nested),
        ("redirecting", Manner::Redirecting),
    ] {
        servers.push(world.extension(name, manner).await);
    }
    servers.push(world.extension("broken", Manner::Broken).await);
    let good = world.extension("boats", Manner::Good).await;
    for name in ["hanging", "endless", "nested", "redirecting", "boats"] {
        world.condition(name, "Passed").await;
    }
    let broken = world.condition("broken", "FailedDiscoveryCheck").await;
    assert!(
        broken["message"]
            .as_str()
            .unwrap()
            .contains("bad status from https://")
    );
    // A hundred requests that are never answered hold no seat.
    let path = "/apis/hanging.example/v1/boats";
    let mut hanging = Vec::new();
    for _ in 0..100 {
        hanging.push(
            world
                .cluster
                .sent(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"))
                .await,
        );
    }
    while servers[0].seen(&format!("GET {path}")).len() < 100 {
        world.pause().await;
    }
    let is_so = |groups: &Value| {
        let is =
            |group: &str, freshness| version(groups, group).is_some_and(|own| own["freshness"] == freshness);
        is("boats.example", "Current")
            && ["hanging", "endless", "nested", "broken"]
                .iter()
                .all(|own| is(&format!("{own}.example"), "Stale"))
    };
    world.until("/apis", GROUPS, is_so).await;
    world.get("/apis/boats.example/v1/boats").await.is(200);
    let redirected = world.get("/apis/redirecting.example/v1/boats").await.is(502);
    assert!(
        redirected.body.contains("attempted to redirect"),
        "{}",
        redirected.body
    );
    assert!(!redirected.headers.contains_key("location"));
    let metrics = world.get("/metrics").await.body;
    let executing = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_flowcontrol_current_executing_seats"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum::<f64>();
    assert!(executing < 20.0, "{executing}");
    assert!(good.connections() > 0);
    drop(hanging);
}
