//! Connections that are idle, slow or many: places are found again, and clients that run the cluster always get one.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod gate;

use apiserver_server::ServerConfig;
use apiserver_storage::{LogStorage, Storage};
use bytes::Bytes;
use common::{Cluster, config, start_on, start_with};
use gate::GatedStorage;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use machinery_runtime::{Runtime, TaskHandle};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const SHORT: Duration = Duration::from_millis(300);
const READYZ: &[u8] = b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n";

type Sender = http2::SendRequest<Full<Bytes>>;

/// A connection of HTTP/2 whose end can be waited for.
async fn http2(cluster: &Cluster, anonymous: bool) -> (Sender, TaskHandle<hyper::Result<()>>) {
    let identity = (!anonymous).then_some(&cluster.admin);
    let stream = TokioIo::new(cluster.connect(identity).await);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    (sender, cluster.runtime.spawn("test-connection", connection))
}

async fn readyz(sender: &mut Sender) {
    let ask = Request::builder().uri("https://x/readyz").body(Full::default());
    assert_eq!(sender.send_request(ask.unwrap()).await.unwrap().status(), 200);
}

/// Reads one answer of `/readyz`.
async fn answered(stream: &mut TlsStream<TcpStream>) {
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\nok") {
        said.push(stream.read_u8().await.unwrap());
    }
}

/// An anonymous connection that has sent one request.
async fn asked_once(cluster: &Cluster) -> TlsStream<TcpStream> {
    let mut stream = cluster.connect(None).await;
    stream.write_all(READYZ).await.unwrap();
    answered(&mut stream).await;
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_of_http2_ends_with_goaway() {
    let cluster = start_with(ServerConfig {
        idle_timeout: SHORT,
        ..config()
    })
    .await;
    let (mut sender, ended) = http2(&cluster, false).await;
    readyz(&mut sender).await;
    // A connection that breaks off without GOAWAY ends with an error.
    ended.await.unwrap().unwrap();
    assert!(sender.is_closed());
}

/// Upstream's `UnauthenticatedHTTP2DOSMitigation`.
#[tokio::test(flavor = "multi_thread")]
async fn connection_of_http2_ends_with_goaway_after_an_answer_to_a_stranger() {
    let cluster = start_with(config()).await;
    for (path, token, expected) in [
        ("https://x/readyz", None, 200),
        ("https://x/api/v1/pods", None, 403),
        ("https://x/readyz", Some("Bearer guessed"), 401),
    ] {
        let (mut sender, ended) = http2(&cluster, true).await;
        let mut ask = Request::builder().uri(path);
        if let Some(token) = token {
            ask = ask.header("authorization", token);
        }
        let answer = sender
            .send_request(ask.body(Full::default()).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status(), expected);
        drop(answer);
        ended.await.unwrap().unwrap();
        assert!(sender.is_closed(), "{path} {expected}");
    }
    let (mut known, _ended) = http2(&cluster, false).await;
    readyz(&mut known).await;
    readyz(&mut known).await;
    let mut older = asked_once(&cluster).await;
    older.write_all(READYZ).await.unwrap();
    answered(&mut older).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_of_http1_ends_as_late_as_one_of_http2() {
    // The time for a head is not that between requests.
    let cluster = start_with(ServerConfig {
        header_timeout: SHORT,
        idle_timeout: SHORT * 10,
        ..config()
    })
    .await;
    let mut stream = asked_once(&cluster).await;
    cluster.runtime.sleep(SHORT * 3).await;
    stream.write_all(READYZ).await.unwrap();
    answered(&mut stream).await;
    assert!(stream.read_u8().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn head_of_a_later_request_is_bounded_too() {
    let cluster = start_with(ServerConfig {
        header_timeout: SHORT,
        ..config()
    })
    .await;
    let mut stream = asked_once(&cluster).await;
    stream.write_all(&READYZ[..20]).await.unwrap();
    // Well before the 90 seconds that an idle connection has.
    let ended = cluster
        .runtime
        .timeout(Duration::from_secs(45), stream.read_u8())
        .await;
    assert!(ended.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_server_closes_the_longest_idle_connection() {
    let cluster = start_with(ServerConfig {
        max_connections: 2,
        ..config()
    })
    .await;
    let (mut first, first_ended) = http2(&cluster, false).await;
    readyz(&mut first).await;
    let (mut second, _second_ended) = http2(&cluster, false).await;
    readyz(&mut second).await;
    let (mut third, _third_ended) = http2(&cluster, false).await;
    readyz(&mut third).await;
    first_ended.await.unwrap().unwrap();
    readyz(&mut second).await;
    readyz(&mut third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_connections_does_not_lock_out_the_administrator() {
    let cluster = start_with(ServerConfig {
        max_connections: 8,
        max_connections_per_address: 4,
        ..config()
    })
    .await;
    let (mut admin, _ended) = http2(&cluster, false).await;
    readyz(&mut admin).await;
    let mut flood = Vec::new();
    for at in 0..32 {
        flood.push(match at % 2 {
            0 => asked_once(&cluster).await,
            // Says nothing at all.
            _ => cluster.connect(None).await,
        });
    }
    readyz(&mut admin).await;
    // A new connection gets in as well.
    cluster.admin().get("/api/v1/namespaces").await.is(200);
    readyz(&mut admin).await;
    drop(flood);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_paths_answer_under_a_flood_of_anonymous_requests() {
    const HELD: &str = "/api/v1/namespaces/default/configmaps/held";
    let gated = Arc::new(GatedStorage::new(
        LogStorage::memory(&Runtime::real()).await.unwrap(),
    ));
    let few = ServerConfig {
        max_requests_inflight: 1,
        max_mutating_requests_inflight: 0,
        ..config()
    };
    let cluster = start_on(few, Arc::clone(&gated) as Arc<dyn Storage>).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    cluster.admin().post(bindings, binding.to_string()).await.is(201);
    while cluster.nobody().get(HELD).await.code != 404 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    gated.hold_reads("/registry/configmaps/default/held");
    let crowd = (0..16).map(|_| async {
        let mut stream = cluster.connect(None).await;
        let head = format!("GET {HELD} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    });
    let crowd = futures::future::join_all(crowd).await;
    // No other request gets through: this one has little time to wait.
    cluster
        .nobody()
        .get(&format!("{HELD}?timeout=400ms"))
        .await
        .is(429);
    for path in ["/livez", "/readyz", "/healthz", "/readyz?verbose"] {
        cluster.nobody().get(path).await.is(200);
    }
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_of_http2_that_floods_with_control_frames_is_closed() {
    let cluster = start_with(config()).await;
    let frame = |kind: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, 0, 0, 0, 0, stream], payload].concat()
    };
    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    begin.extend(frame(4, 0, &[]));
    let floods = [
        frame(8, 0, &[0, 0, 0, 1]),
        frame(2, 1, &[0, 0, 0, 0, 1]),
        frame(4, 0, &[]),
    ];
    for flood in floods {
        let (mut reader, mut writer) = tokio::io::split(cluster.connect(None).await);
        writer.write_all(&begin).await.unwrap();
        // The answer to the ping shows that all before it was taken.
        let ping = frame(6, 0, b"all-read");
        let sent = [flood.repeat(5_000), ping].concat();
        let sending = cluster.runtime.spawn("test-flood", async move {
            let _ = writer.write_all(&sent).await;
            let _ = writer.flush().await;
            writer
        });
        let mut said = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = reader.read(&mut piece).await {
            said.extend_from_slice(&piece[..length]);
            assert!(
                !said.windows(8).any(|part| part == b"all-read"),
                "{flood:?} was taken"
            );
        }
        drop(sending.await);
    }
    asked_once(&cluster).await;
}

/// Reads an answer: its head, and as many bytes as that says.
async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    head
}

/// As Go's server: a body of 256 KiB is read after the answer is known, a longer one ends the connection.
#[tokio::test(flavor = "multi_thread")]
async fn connection_goes_on_after_an_answer_that_left_a_small_body_unread() {
    let cluster = start_with(config()).await;
    let head = |more: &str| {
        format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\nimpersonate-user: x\r\ncontent-type: application/json\r\n{more}\r\n"
        )
    };
    let sized = |bytes: usize| head(&format!("content-length: {bytes}\r\n")) + &" ".repeat(bytes);
    let chunked = head("transfer-encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n";
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    for request in [sized(2), sized(200_000), chunked, sized(2)] {
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let head = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 403 "), "{head}");
        assert!(!head.contains("connection: close"), "{head}");
    }
    let asking = head("expect: 100-continue\r\ncontent-length: 2\r\n");
    for request in [sized(300_000), asking] {
        let mut stream = cluster.connect(Some(&cluster.admin)).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let head = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 403 "), "{head}");
        assert!(head.contains("connection: close\r\n"), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_to_a_body_that_is_too_large_has_the_phrase_of_go() {
    let cluster = start_with(config()).await;
    let head =
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n";
    let mut stream = cluster.sent(head.to_owned() + &" ".repeat(4_000_000)).await;
    let head = answer(&mut stream).await;
    assert!(
        head.starts_with("http/1.1 413 request entity too large\r\n"),
        "{head}"
    );
}

/// Each answer has a chance of one in fifty to be the last of its connection.
#[tokio::test(flavor = "multi_thread")]
async fn goaway_chance_ends_a_connection_in_use() {
    let cluster = start_with(ServerConfig {
        goaway_chance: 0.02,
        ..config()
    })
    .await;
    let (mut sender, _connection) = http2(&cluster, false).await;
    let mut answered = 0;
    while sender.ready().await.is_ok() {
        let request = Request::get("https://test/version").body(Full::default());
        let Ok(response) = sender.send_request(request.unwrap()).await else {
            break;
        };
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
        answered += 1;
        assert!(answered < 10_000, "the connection goes on");
    }
    assert!(answered > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_without_a_timeout_ends_after_the_time_of_the_flag() {
    let cluster = start_with(ServerConfig {
        min_request_timeout: Duration::from_millis(10),
        ..config()
    })
    .await;
    let watch = "/api/v1/namespaces/default/configmaps?watch=true";
    cluster.admin().get(watch).await.is(200);
}
