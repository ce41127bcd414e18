//! Clients that are slow, many or gone: the server answers the others, and finishes what it began.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod gate;

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
/// Longer than a test waits for anything.
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

#[tokio::test(flavor = "multi_thread")]
async fn head_sent_too_slowly_closes_connection() {
    let cluster = impatient().await;
    let beginnings: [&[u8]; 4] = [
        b"",
        b"GET /api HTTP/1.1\r\nhost: x\r\nx-slow: ",
        b"PRI * HTTP/2.0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for beginning in beginnings {
        let mut stream = cluster.sent(beginning).await;
        // What the server says before it hangs up is its own; that it does is what counts.
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
    }
    cluster.admin().get("/readyz").await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let cluster = start().await;
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let head = format!(
        "GET /readyz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n",
        "y".repeat(300_000)
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let mut said = vec![0; 64];
    let length = stream.read(&mut said).await.unwrap_or(0);
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_taken_back_at_once_leave_nothing_behind() {
    let cluster = start().await;
    let mut sender = cluster.http2().await;
    for _ in 0..20_000 {
        let ask = Request::builder()
            .uri(format!("https://x{CONFIG_MAPS}"))
            .body(Full::<Bytes>::default());
        if sender.ready().await.is_err() {
            // The server has had enough of it.
            break;
        }
        drop(sender.send_request(ask.unwrap()));
        tokio::task::yield_now().await;
    }
    drop(sender);
    let gauge = "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1";
    // The asking itself is the one; what was taken back goes with its connection.
    while !cluster.admin().get("/metrics").await.is(200).body.contains(gauge) {
        cluster.runtime.sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_began_finishes_without_its_client() {
    let runtime = machinery_runtime::Runtime::real();
    let gated = Arc::new(GatedStorage::new(LogStorage::memory(&runtime).await.unwrap()));
    let cluster = start_on(config(), Arc::clone(&gated) as Arc<dyn Storage>).await;
    let begun = gated.close_gate("/registry/configmaps/default/left");
    let body = config_map("left", 1);
    let stream = cluster.sent(post_head(CONFIG_MAPS, &body) + &body).await;
    begun.await.unwrap();
    drop(stream);
    // The server has seen it go once it answers somebody who came later.
    cluster.admin().get("/readyz").await.is(200);
    cluster.admin().get(&format!("{CONFIG_MAPS}/left")).await.is(404);
    gated.open_gate();
    while cluster.admin().get(&format!("{CONFIG_MAPS}/left")).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn write_without_its_client_keeps_its_seats() {
    let runtime = machinery_runtime::Runtime::real();
    let gated = Arc::new(GatedStorage::new(LogStorage::memory(&runtime).await.unwrap()));
    // Each level has one seat.
    let few = ServerConfig {
        max_requests_inflight: 0,
        max_mutating_requests_inflight: 1,
        request_timeout: LONG,
        ..config()
    };
    let cluster = start_on(few, Arc::clone(&gated) as Arc<dyn Storage>).await;
    let anna = trusted(&cluster, "anna").await;
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("left", 1))
        .await
        .is(201);
    let begun = gated.close_gate("/registry/configmaps/default/left");
    let mut stream = cluster.connect(Some(&anna)).await;
    let head = format!("DELETE {CONFIG_MAPS}/left HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    begun.await.unwrap();
    drop(stream);
    // Another user of the level waits for the seat that the lost delete still has.
    let somebody = identity(&cluster, "somebody", "somebodies");
    let theirs = cluster.as_identity(&somebody);
    let mut write = std::pin::pin!(theirs.post(CONFIG_MAPS, config_map("mine", 1)));
    tokio::select! { biased;
        answer = &mut write => panic!("answered with {} without a seat", answer.code),
        () = until_gauge(&cluster, WAITING, |count| count == 1) => {}
    }
    // Its time goes on meanwhile: a request that has little is rejected, and one that says nonsense about it does not wait.
    let at = |timeout: &str| format!("{CONFIG_MAPS}?timeout={timeout}");
    let hurried = cluster.as_identity(&somebody);
    hurried.post(&at("200ms"), config_map("mine", 1)).await.is(429);
    let confused = cluster.as_identity(&somebody);
    confused.post(&at("soon"), config_map("mine", 1)).await.is(400);
    // The administrator does not wait.
    cluster.admin().get(CONFIG_MAPS).await.is(200);
    gated.open_gate();
    write.await.is(403);
    cluster.admin().get(&format!("{CONFIG_MAPS}/left")).await.is(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_after_deadline_is_not_begun() {
    let runtime = machinery_runtime::Runtime::real();
    let gated = Arc::new(GatedStorage::new(LogStorage::memory(&runtime).await.unwrap()));
    let cluster = start_on(config(), Arc::clone(&gated) as Arc<dyn Storage>).await;
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("first", 1))
        .await
        .is(201);
    let begun = gated.close_gate("/registry/configmaps/default/first");
    let path = format!("{CONFIG_MAPS}/first?timeout=300ms");
    let patch = Bytes::from_static(br#"{"data":{"by":"the late one"}}"#);
    let late = cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    let (answer, ()) = tokio::join!(late.send(Method::PATCH, &path, patch), async {
        begun.await.unwrap();
    });
    answer.is(504);
    // Another writes while the late one is held at the gate: its own write then finds another revision.
    let other = Bytes::from_static(br#"{"data":{"by":"another"}}"#);
    let sent = cluster
        .admin()
        .header("content-type", "application/merge-patch+json")
        .send(Method::PATCH, &format!("{CONFIG_MAPS}/first"), other)
        .await;
    sent.is(200);
    gated.open_gate();
    while !cluster.admin().get("/metrics").await.body.contains(NO_MUTATION) {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    let left = cluster.admin().get(&format!("{CONFIG_MAPS}/first")).await.json();
    assert_eq!(left["data"]["by"], "another");
}

/// Far more than the buffers between two sockets hold, so that an answer that is not read cannot be sent.
const OBJECTS: usize = 12;
const OBJECT_BYTES: usize = 1_000_000;

/// A server with large objects, and room for lists of a few of them.
async fn with_large_objects(answer_pace_interval: Duration) -> Cluster {
    let cluster = start_with(ServerConfig {
        list_memory_bytes: 2 * OBJECT_BYTES,
        answer_pace_interval,
        ..config()
    })
    .await;
    for number in 0..OBJECTS {
        let body = config_map(&format!("large-{number}"), OBJECT_BYTES);
        cluster.admin().post(CONFIG_MAPS, body).await.is(201);
    }
    for user in ["anna", "bert"] {
        trusted(&cluster, user).await;
    }
    cluster
}

async fn yaml_list(cluster: &Cluster, identity: &apiserver_auth::pki::Identity) -> common::Answer {
    let ask = cluster.as_identity(identity).header("accept", "application/yaml");
    ask.get(CONFIG_MAPS).await
}

/// A connection of this user's on which a list was begun and is not read.
async fn unread_list(cluster: &Cluster, identity: &apiserver_auth::pki::Identity) -> TlsStream<TcpStream> {
    let mut stream = cluster.connect(Some(identity)).await;
    let head = format!("GET {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\naccept: application/yaml\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream.read_u8().await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn list_memory_is_shared_between_users() {
    let cluster = with_large_objects(LONG).await;
    let (anna, bert) = (
        identity(&cluster, "anna", "people"),
        identity(&cluster, "bert", "people"),
    );
    // Larger than all there is, but alone: it is answered.
    assert!(yaml_list(&cluster, &anna).await.is(200).body.len() > OBJECTS * OBJECT_BYTES);
    let slow = unread_list(&cluster, &anna).await;
    let refused = yaml_list(&cluster, &anna).await.is(429);
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(
        refused.body.contains("reason: TooManyRequests\n"),
        "{}",
        refused.body
    );
    // Sent from what is stored, a list weighs next to nothing.
    drop(cluster.as_identity(&anna).get(CONFIG_MAPS).await.is(200));
    // What one user does not read is that user's own trouble.
    drop(yaml_list(&cluster, &bert).await.is(200));
    let node = identity(&cluster, "system:kube-scheduler", "system:authenticated");
    assert_ne!(yaml_list(&cluster, &node).await.code, 429);
    drop(slow);
    while yaml_list(&cluster, &anna).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_not_read_is_abandoned() {
    let cluster = with_large_objects(SHORT).await;
    let anna = identity(&cluster, "anna", "people");
    let mut slow = unread_list(&cluster, &anna).await;
    // The client keeps its connection and never reads.
    while yaml_list(&cluster, &anna).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(10)).await;
    }
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(rest.len() < OBJECTS * OBJECT_BYTES, "the answer was given up");
}

/// A chunked body is as long as it turns out to be.
#[tokio::test(flavor = "multi_thread")]
async fn body_without_length_is_bounded() {
    let cluster = start().await;
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let piece = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..64 {
        if stream.write_all(&piece).await.is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n").await;
    // What TLS still holds is sent too; a server that has hung up already may have answered before.
    let _ = stream.flush().await;
    let mut said = vec![0; 64];
    let length = stream.read(&mut said).await.unwrap();
    assert!(
        said[..length].starts_with(b"HTTP/1.1 413 "),
        "{}",
        String::from_utf8_lossy(&said)
    );
    let delete = cluster
        .admin()
        .send(Method::DELETE, &format!("{CONFIG_MAPS}/none"), Bytes::new())
        .await;
    delete.is(404);
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A certificate with this name in this group.
fn identity(cluster: &Cluster, name: &str, group: &str) -> apiserver_auth::pki::Identity {
    let authority = &cluster.server.pki().cluster;
    authority
        .client(name, Some(group), cluster.runtime.now())
        .unwrap()
}

/// Half of a large body that is said to be whole, on that many connections of one service account.
async fn half_sent(cluster: &Cluster, count: usize, whole: usize) -> Vec<TlsStream<TcpStream>> {
    let account = identity(
        cluster,
        "system:serviceaccount:evil:default",
        "system:serviceaccounts",
    );
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let sent = post_head(path, &" ".repeat(whole)) + &" ".repeat(whole / 2);
    let begun = (0..count).map(|_| async {
        let mut stream = cluster.connect(Some(&account)).await;
        // Who has its answer already need not be heard out.
        let _ = stream.write_all(sent.as_bytes()).await;
        let _ = stream.flush().await;
        stream
    });
    futures::future::join_all(begun).await
}

/// A server that waits long for the rest of a body.
async fn patient() -> Cluster {
    start_with(ServerConfig {
        body_pace_interval: LONG,
        max_mutating_requests_inflight: 64,
        ..config()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_reaches_client_that_still_sends() {
    let cluster = start().await;
    let somebody = identity(&cluster, "somebody", "somebodies");
    let large = config_map("large", 8 << 20);
    let refused = (0..8).map(|_| cluster.as_identity(&somebody).post(CONFIG_MAPS, large.clone()));
    for refused in futures::future::join_all(refused).await {
        refused.is(403);
    }
}

/// Otherwise the client sends its next request on a connection that ends, and hears nothing.
#[tokio::test(flavor = "multi_thread")]
async fn answer_to_half_a_body_says_that_its_connection_ends() {
    let cluster = start().await;
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let whole = " ".repeat(64 << 20);
    let sent = post_head(CONFIG_MAPS, &whole) + &whole[..1000];
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_do_not_block_other_writers() {
    const WHOLE: usize = 3 << 20;
    /// An eighth of the memory of bodies is a user's: so many halves it has room for.
    const FITTING: usize = 5;
    let cluster = patient().await;
    let node = identity(&cluster, "system:node:n", "system:nodes");
    let meta = json!({"name": "n", "namespace": "kube-node-lease"});
    let spec = json!({"holderIdentity": "n", "leaseDurationSeconds": 40});
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec});
    let made = cluster.as_identity(&node).post(LEASES, lease.to_string()).await;
    made.is(201);
    let crowd = half_sent(&cluster, 22, WHOLE).await;
    until_gauge(&cluster, ARRIVING, |count| count >= FITTING).await;
    let large = config_map("large", 1_000_000);
    cluster.admin().post(CONFIG_MAPS, large.clone()).await.is(201);
    let renewal = cluster
        .as_identity(&node)
        .header("content-type", "application/merge-patch+json");
    let patch = Bytes::from_static(br#"{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}"#);
    let renewed = renewal.send(Method::PATCH, &format!("{LEASES}/n"), patch).await;
    renewed.is(200);
    // Another user is refused for missing rights, and not for missing memory.
    let somebody = identity(&cluster, "somebody", "somebodies");
    let refused = cluster.as_identity(&somebody).post(CONFIG_MAPS, large).await;
    refused.is(403);
    assert!(gauge(&cluster, ARRIVING).await >= FITTING, "the crowd has left");
    drop(crowd);
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

/// A write of another service account of the level is answered.
async fn good_account_is_answered(cluster: &Cluster) {
    let good = "system:serviceaccount:good:default";
    let account = identity(cluster, good, "system:serviceaccounts");
    let refused = cluster
        .as_identity(&account)
        .post(CONFIG_MAPS, config_map("x", 1));
    refused.await.is(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_of_one_user_leave_seats_to_the_level() {
    const CROWD: usize = 32;
    let cluster = with_single_seats().await;
    let crowd = half_sent(&cluster, CROWD, 1_000).await;
    until_gauge(&cluster, ARRIVING, |count| count == CROWD).await;
    good_account_is_answered(&cluster).await;
    assert_eq!(gauge(&cluster, ARRIVING).await, CROWD, "the crowd has left");
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_bodies_are_discarded_without_seats() {
    let cluster = with_single_seats().await;
    let crowd = half_sent(&cluster, 4, 4 << 20).await;
    until_gauge(&cluster, ARRIVING, |count| count > 0).await;
    good_account_is_answered(&cluster).await;
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_comes_late_is_carried_out() {
    let cluster = with_single_seats().await;
    let (body, anna) = (config_map("late", 1), trusted(&cluster, "anna").await);
    let (first, rest) = body.split_at(10);
    let mut stream = cluster.connect(Some(&anna)).await;
    let beginning = post_head(CONFIG_MAPS, &body) + first;
    stream.write_all(beginning.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    until_gauge(&cluster, ARRIVING, |count| count == 1).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut said = [0; 13];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(said.escape_ascii().to_string(), "HTTP/1.1 201 ");
    assert_eq!(gauge(&cluster, ARRIVING).await, 0);
}

/// Without seats their number is bounded by the memory of a user's bodies.
#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_of_one_user_are_bounded_in_number() {
    /// A user's part of the memory of bodies is one whole body here.
    const FITTING: usize = (3 << 20) / (16 << 10);
    let cluster = start_with(ServerConfig {
        body_pace_interval: LONG,
        body_memory_bytes: 16 << 20,
        ..config()
    })
    .await;
    let mut crowd = half_sent(&cluster, FITTING, 1_000).await;
    until_gauge(&cluster, ARRIVING, |count| count == FITTING).await;
    crowd.extend(half_sent(&cluster, 1, 1_000).await);
    // The rest of a body that is refused is discarded before the answer.
    until_gauge(&cluster, ARRIVING, |count| count == FITTING + 1).await;
    let mut said = [0; 13];
    crowd.last_mut().unwrap().write_all(&[b' '; 500]).await.unwrap();
    crowd.last_mut().unwrap().read_exact(&mut said).await.unwrap();
    assert_eq!(said.escape_ascii().to_string(), "HTTP/1.1 429 ");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_unlimited_is_never_exhausted() {
    let cluster = start_with(ServerConfig {
        body_pace_interval: LONG,
        max_requests_inflight: 0,
        max_mutating_requests_inflight: 0,
        ..config()
    })
    .await;
    let crowd = half_sent(&cluster, 250, 1_000).await;
    until_gauge(&cluster, ARRIVING, |count| count == crowd.len()).await;
    assert_eq!(gauge(&cluster, WAITING).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_stalls_is_refused() {
    let cluster = start_with(ServerConfig {
        body_pace_interval: SHORT,
        ..config()
    })
    .await;
    for mut stream in half_sent(&cluster, 1, 1_000).await {
        let mut said = String::new();
        let status: serde_json::Value = loop {
            let mut more = [0; 4096];
            let count = stream.read(&mut more).await.unwrap();
            assert!(count > 0, "no status: {said}");
            said.push_str(std::str::from_utf8(&more[..count]).unwrap());
            let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            if let Ok(status) = serde_json::from_str(body) {
                break status;
            }
        };
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
        assert_eq!(
            (&status["kind"], &status["reason"]),
            (&"Status".into(), &"Timeout".into())
        );
        assert_eq!(status["code"], 408);
    }
}

/// A request, and whether some of it was heavy work.
async fn is_heavy(cluster: &Cluster, request: impl Future<Output = common::Answer>) -> bool {
    const TURNS: &str = "knarr_heavy_work_turns_total";
    let before = gauge(cluster, TURNS).await;
    let answer = request.await;
    assert!(answer.code.is_success(), "{}", answer.code);
    gauge(cluster, TURNS).await > before
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_requests_are_made_off_the_threads_that_serve_others() {
    let cluster = start().await;
    let large = format!("{CONFIG_MAPS}/large");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml, labels: {a: &a b, c: *a}}\n";
    let short = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: short}\n";
    let send = |method, path: &str, content: &str, body: String| {
        let ask = cluster.admin().header("content-type", content);
        let path = path.to_owned();
        async move { ask.send(method, &path, body.into()).await }
    };
    let get = |path: &str, accept: &str, encoding: &str| {
        let ask = cluster.admin().header("accept", accept);
        let (ask, path) = (ask.header("accept-encoding", encoding), path.to_owned());
        async move { ask.get(&path).await }
    };
    let json = "application/json";
    let post = send(Method::POST, CONFIG_MAPS, json, config_map("small", 100));
    assert!(!is_heavy(&cluster, post).await);
    let post = send(Method::POST, CONFIG_MAPS, json, config_map("large", 200_000));
    assert!(is_heavy(&cluster, post).await);
    let post = send(Method::POST, CONFIG_MAPS, "application/yaml", short.to_owned());
    assert!(!is_heavy(&cluster, post).await);
    let post = send(Method::POST, CONFIG_MAPS, "application/yaml", yaml.to_owned());
    assert!(is_heavy(&cluster, post).await);
    for (name, body, expected) in [
        ("short", short.to_owned(), false),
        ("yaml", yaml.to_owned(), true),
        ("small", config_map("small", 10_000), false),
        ("large", config_map("large", 200_000), true),
    ] {
        let path = format!("{CONFIG_MAPS}/{name}?fieldManager=m&force=true");
        let applied = send(Method::PATCH, &path, APPLY, body);
        assert_eq!(is_heavy(&cluster, applied).await, expected, "{name}");
    }
    let merge = "application/merge-patch+json";
    let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let of_small = send(
        Method::PATCH,
        &format!("{CONFIG_MAPS}/small"),
        merge,
        patch.clone(),
    );
    assert!(!is_heavy(&cluster, of_small).await);
    assert!(is_heavy(&cluster, send(Method::PATCH, &large, merge, patch)).await);
    for path in [&large, CONFIG_MAPS] {
        // As it is stored.
        assert!(!is_heavy(&cluster, get(path, json, "identity")).await);
        assert!(is_heavy(&cluster, get(path, json, "gzip")).await);
        for form in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
            assert!(
                is_heavy(&cluster, get(path, form, "identity")).await,
                "{path} {form}"
            );
        }
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert!(is_heavy(&cluster, get(CONFIG_MAPS, table, "identity")).await);
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
    assert!(!is_heavy(&cluster, get(&watch, json, "identity")).await);
    assert!(is_heavy(&cluster, get(&watch, protobuf, "identity")).await);
    let delete = send(Method::DELETE, &large, json, String::new());
    assert!(is_heavy(&cluster, delete).await);
}

/// The plugin reads all of an account for a pod, however small that is.
#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_large_account_is_heavy() {
    let cluster = start().await;
    let account = |name: &str, secrets: usize| {
        let named = |at: usize| json!({"name": format!("secret-{at:06}")});
        let secrets: Vec<Value> = (0..secrets).map(named).collect();
        let object = json!({"metadata": {"name": name}, "imagePullSecrets": secrets});
        cluster
            .admin()
            .post("/api/v1/namespaces/default/serviceaccounts", object.to_string())
    };
    account("small", 10).await.is(201);
    account("large", 4_000).await.is(201);
    let pod = |account: &str| {
        let spec = json!({"serviceAccountName": account, "imagePullSecrets": [{"name": "own"}],
            "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
        let (path, cluster) = ("/api/v1/namespaces/default/pods?dryRun=All", &cluster);
        async move { cluster.admin().post(path, pod).await.is(201) }
    };
    assert!(!is_heavy(&cluster, pod("small")).await);
    assert!(is_heavy(&cluster, pod("large")).await);
}

/// Holds every thread for heavy work until what it returns is dropped.
async fn busy_with_heavy_work(cluster: &Cluster) -> Vec<mpsc::Sender<()>> {
    // One more is kept for flows with little debt, as these are.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2) + 1;
    let mut holds = Vec::new();
    for number in 0..threads {
        let (hold, held) = mpsc::channel::<()>();
        let piece = cluster
            .runtime
            .heavy(HeavyFlow::of_account(format!("busy-{number}")), move || {
                held.recv().is_ok()
            });
        cluster
            .runtime
            .spawn("test-heavy", async move { assert!(!piece.await) })
            .detach();
        holds.push(hold);
    }
    until_gauge(cluster, RUNNING, |count| count == threads).await;
    holds
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_requests_wait_for_their_turn_without_seats() {
    let cluster = with_single_seats().await;
    let anna = trusted(&cluster, "anna").await;
    let holds = busy_with_heavy_work(&cluster).await;
    let (body, path) = ("{metadata: {name: &n heavy, labels: {n: *n}}}", CONFIG_MAPS);
    let posting = async {
        let ask = cluster
            .as_identity(&anna)
            .header("content-type", "application/yaml");
        ask.send(Method::POST, path, body.into()).await
    };
    let others = async {
        until_gauge(&cluster, WAITING_FOR_A_TURN, |count| count > 0).await;
        // Another one of the level.
        let bert = identity(&cluster, "bert", "people");
        let refused = cluster.as_identity(&bert).post(path, config_map("x", 1));
        refused.await.is(403);
        drop(holds);
    };
    let (posted, ()) = futures::join!(posting, others);
    posted.is(201);
}

const WAITING_FOR_A_TURN: &str = "knarr_heavy_work_tasks{state=\"waiting\"}";

#[tokio::test(flavor = "multi_thread")]
async fn heavy_request_whose_client_leaves_before_it_writes_is_not_carried_out() {
    let cluster = start().await;
    let holds = busy_with_heavy_work(&cluster).await;
    let dry_run = format!("{CONFIG_MAPS}?dryRun=All");
    for path in [CONFIG_MAPS, &dry_run] {
        let body = config_map("left", 100_000);
        let stream = cluster.sent(post_head(path, &body) + &body).await;
        until_gauge(&cluster, WAITING_FOR_A_TURN, |count| count == 1).await;
        drop(stream);
        // All threads are still held: it ends without a turn.
        until_gauge(&cluster, WAITING_FOR_A_TURN, |count| count == 0).await;
    }
    drop(holds);
    let left = format!("{CONFIG_MAPS}/left");
    cluster.admin().get(&left).await.is(404);
}

/// As Flux, Argo CD and client-go's `Apply` send them, all of one flow.
#[tokio::test(flavor = "multi_thread")]
async fn small_applies_of_one_user_wait_for_no_heavy_work() {
    let cluster = start().await;
    let _holds = busy_with_heavy_work(&cluster).await;
    let applies = (0..200).map(|number| {
        let name = format!("applied-{number}");
        let ask = cluster.admin().header("content-type", APPLY);
        async move {
            let path = format!("{CONFIG_MAPS}/{name}?fieldManager=flux");
            let body = config_map(&name, 100);
            ask.send(Method::PATCH, &path, body.into()).await.is(201);
        }
    });
    futures::stream::iter(applies)
        .buffer_unordered(16)
        .collect::<Vec<()>>()
        .await;
}

/// The timer of the server's end of a connection, as the kernel shows it: 02 is that of keepalive.
fn kernel_timer(server: SocketAddr, client: SocketAddr) -> Option<String> {
    let hex = |address: SocketAddr| format!("0100007F:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields[1] == hex(server) && fields[2] == hex(client);
        is_it.then(|| fields[5].split(':').next().unwrap_or_default().to_owned())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_asked_whether_their_clients_are_there() {
    let cluster = start().await;
    let stream = cluster.connect(Some(&cluster.admin)).await;
    let client = stream.get_ref().0.local_addr().unwrap();
    loop {
        match kernel_timer(cluster.address, client).as_deref() {
            Some("02") => return,
            // What was sent last is not acknowledged yet.
            Some("01") => cluster.runtime.sleep(Duration::from_millis(5)).await,
            other => panic!("no keepalive: {other:?}"),
        }
    }
}
