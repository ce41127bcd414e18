//! Names that are not the cluster's: what leaves the node, and how often, whatever clients do.

use crate::config::DnsConfig;
use crate::forward::Forwarder;
use crate::query::kind;
use crate::saved;
use crate::server::{MAX_CONNECTIONS, Server};
use crate::tests::{question, shown, zone};
use crate::zone::Zone;
use machinery_client::Client;
use machinery_runtime::{Runtime, Scope};
use machinery_views::ServiceViews;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// A name server that gives every name an address, names that begin with `silent` nothing, and names that begin
/// with `large` an answer that needs a connection.
struct Elsewhere {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// An answer is sent for each permit.
    permits: Arc<Semaphore>,
}

/// Binds both transports to one free port.
async fn bound() -> (SocketAddr, UdpSocket, TcpListener) {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        // The port of the other transport may be another's.
        if let Ok(listener) = TcpListener::bind(address).await {
            return (address, socket, listener);
        }
    }
}

async fn elsewhere(scope: &Scope, rcode: u8) -> Elsewhere {
    let (address, socket, listener) = bound().await;
    let (asked, permits) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
    );
    let (counted, allowed) = (Arc::clone(&asked), Arc::clone(&permits));
    let datagrams = async move {
        let mut buffer = [0; 4096];
        loop {
            let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let question = &buffer[..length];
            if question[13..].starts_with(b"silent") {
                continue;
            }
            allowed.acquire().await.unwrap().forget();
            let large = question[13..].starts_with(b"large");
            socket
                .send_to(&answer(question, rcode, large), client)
                .await
                .unwrap();
        }
    };
    let connections = async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut question).await.unwrap();
            let answer = answer(&question, 0, false);
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat()).await.unwrap();
        }
    };
    scope.runtime().spawn("elsewhere", datagrams).detach();
    scope.runtime().spawn("elsewhere", connections).detach();
    Elsewhere {
        address,
        asked,
        permits,
    }
}

fn answer(question: &[u8], rcode: u8, truncated: bool) -> Vec<u8> {
    let end = crate::query::skip_name(question, 12).unwrap() + 4;
    let mut out = question[..end].to_vec();
    out[2] |= 0x80 | if truncated { 2 } else { 0 };
    out[3] = 0x80 | rcode;
    out[10..12].copy_from_slice(&[0, 0]);
    if rcode == 0 && !truncated {
        out[6..8].copy_from_slice(&[0, 1]);
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
    }
    out
}

/// The server under test, over both transports on one port.
async fn serve(scope: &Scope, upstream: &[SocketAddr]) -> SocketAddr {
    let runtime = scope.runtime().clone();
    let forwarder = Forwarder::new(upstream, runtime.clone());
    let server = Server::new(Arc::new(RwLock::new(zone())), forwarder, runtime.clone());
    let (address, socket, listener) = bound().await;
    let socket = Arc::new(socket);
    let other = Arc::clone(&server);
    runtime
        .spawn("udp", async move { server.datagrams(&socket).await })
        .detach();
    runtime
        .spawn("tcp", async move { other.connections(&listener).await })
        .detach();
    address
}

async fn client(own: &str, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((own, 0)).await.unwrap();
    socket.connect(server).await.unwrap();
    socket
}

async fn received(client: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    let length = client.recv(&mut buffer).await.unwrap();
    buffer.truncate(length);
    buffer
}

async fn ask(client: &UdpSocket, name: &str) -> String {
    client.send(&question(name, kind::A)).await.unwrap();
    shown(&received(client).await)
}

const FOUND: &str = "No Error; a.example. A 192.0.2.7";

#[tokio::test]
async fn forwarded_question_is_asked_once_and_remembered() {
    let scope = Runtime::real().child_scope();
    let other = elsewhere(&scope, 0).await;
    other.permits.forget_permits(Semaphore::MAX_PERMITS);
    let server = serve(&scope, &[other.address]).await;
    let clients = [
        client("127.0.0.1", server).await,
        client("127.0.0.2", server).await,
    ];
    for (number, client) in (1..).zip(&clients) {
        let mut message = question("a.example", kind::A);
        message[1] = number;
        client.send(&message).await.unwrap();
        client.send(&message).await.unwrap();
    }
    // A question of the cluster is answered after those before it have been taken.
    for client in &clients {
        client
            .send(&question("web.ns.svc.cluster.local", kind::A))
            .await
            .unwrap();
        assert!(shown(&received(client).await).contains("10.96.0.5"));
    }
    other.permits.add_permits(1);
    for (number, client) in (1..).zip(&clients) {
        for _ in 0..2 {
            let answer = received(client).await;
            assert_eq!((answer[1], &*shown(&answer)), (number, FOUND));
        }
    }
    assert_eq!(
        ask(&clients[0], "A.exAmple").await,
        FOUND.replace("a.example", "A.exAmple")
    );
    assert_eq!(other.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn forwarding_one_address_cannot_take_all_of() {
    let scope = Runtime::real().child_scope();
    let other = elsewhere(&scope, 0).await;
    let server = serve(&scope, &[other.address]).await;
    let greedy = client("127.0.0.1", server).await;
    let mut refused = false;
    for number in 0..10_000 {
        let name = format!("silent{number}.example");
        greedy.send(&question(&name, kind::A)).await.unwrap();
        // A name of the cluster is answered at once, a refusal before it.
        greedy
            .send(&question("web.ns.svc.cluster.local", kind::A))
            .await
            .unwrap();
        refused = shown(&received(&greedy).await).starts_with("Server Failure");
        if refused {
            break;
        }
    }
    assert!(refused, "an address has a share and no more");
    let modest = client("127.0.0.2", server).await;
    assert_eq!(ask(&modest, "a.example").await, FOUND);
}

/// The next connection, of the same address or another, takes the place of the oldest.
#[tokio::test]
async fn connections_one_address_cannot_take_all_of() {
    let scope = Runtime::real().child_scope();
    let server = serve(&scope, &[]).await;
    let mut held = Vec::new();
    for _ in 0..=MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(server).await.unwrap();
        over_tcp(&mut stream, "web.ns.svc.cluster.local").await.unwrap();
        held.push(stream);
    }
    assert!(held[0].read_u8().await.is_err(), "the oldest gives way");
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut modest = socket.connect(server).await.unwrap();
    let answer = over_tcp(&mut modest, "web.ns.svc.cluster.local").await.unwrap();
    assert!(shown(&answer).contains("10.96.0.5"));
    assert!(held[1].read_u8().await.is_err(), "the next oldest does");
}

async fn over_tcp(stream: &mut TcpStream, name: &str) -> std::io::Result<Vec<u8>> {
    let question = question(name, kind::A);
    let length = u16::try_from(question.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &question].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn upstream_that_fails_passes_to_the_next() {
    let scope = Runtime::real().child_scope();
    let (failing, good) = (elsewhere(&scope, 2).await, elsewhere(&scope, 0).await);
    let server = serve(&scope, &[failing.address, good.address]).await;
    let client = client("127.0.0.1", server).await;
    assert_eq!(ask(&client, "a.example").await, FOUND);
    assert_eq!(failing.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn truncated_answer_is_fetched_over_a_connection() {
    let scope = Runtime::real().child_scope();
    let other = elsewhere(&scope, 0).await;
    let server = serve(&scope, &[other.address]).await;
    let client = client("127.0.0.1", server).await;
    assert_eq!(
        ask(&client, "large.example").await,
        "No Error; large.example. A 192.0.2.7"
    );
}

#[tokio::test]
async fn transfer_is_refused() {
    let scope = Runtime::real().child_scope();
    let other = elsewhere(&scope, 0).await;
    let server = serve(&scope, &[other.address]).await;
    let client = client("127.0.0.1", server).await;
    client.send(&question("a.example", kind::AXFR)).await.unwrap();
    assert_eq!(shown(&received(&client).await), "Query Refused");
}

/// A client of an API server that cannot be reached.
async fn away(folder: &Path, runtime: &Runtime) -> Client {
    let path = folder.join("kubeconfig");
    let config = "apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {}}]
current-context: a
";
    std::fs::write(&path, config).unwrap();
    Client::from_kubeconfig(&path, runtime.clone()).await.unwrap()
}

/// An answer of a server that is about to listen.
async fn until_answered(server: SocketAddr, name: &str, wanted: &str) -> String {
    let client = client("127.0.0.1", server).await;
    loop {
        // Before it listens the question is refused by the kernel.
        let _ = client.send(&question(name, kind::A)).await;
        let mut buffer = vec![0; 4096];
        if let Ok(length) = client.recv(&mut buffer).await {
            let answer = shown(&buffer[..length]);
            if answer.starts_with(wanted) {
                return answer;
            }
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn dns_answers_and_forwards_while_the_api_server_is_away() {
    let scope = Runtime::real().child_scope();
    let folder = tempfile::tempdir().unwrap();
    let other = elsewhere(&scope, 0).await;
    let free = bound().await.0;
    let config = DnsConfig {
        cluster_domain: "cluster.local".to_owned(),
        cluster_dns: Ipv4Addr::LOCALHOST,
        port: free.port(),
        upstream: vec![other.address],
        resolv_conf: None,
        saved_zone: Some(folder.path().join("zone")),
    };
    let client = away(folder.path(), scope.runtime()).await;
    let exec = Arc::new(node_sys::SystemExec);
    let name = "web.ns.svc.cluster.local";
    {
        // A first start: nothing is known of the cluster.
        let life = scope.runtime().child_scope();
        let views = ServiceViews::start(&client, life.runtime());
        drop(crate::start(
            config.clone(),
            views,
            exec.clone(),
            life.runtime().clone(),
        ));
        assert_eq!(until_answered(free, "a.example", "No Error").await, FOUND);
        assert_eq!(
            until_answered(free, name, "Server Failure").await,
            "Server Failure"
        );
        life.cancel();
        life.stopped().await;
    }
    // A later one: what was known is answered, and what was not is denied after a while.
    let known: RwLock<Zone> = RwLock::new(zone());
    saved::save(&known, &folder.path().join("zone")).unwrap();
    let views = ServiceViews::start(&client, scope.runtime());
    drop(crate::start(config, views, exec, scope.runtime().clone()));
    let found = until_answered(free, name, "No Error").await;
    assert_eq!(found, "No Error; web.ns.svc.cluster.local. A 10.96.0.5");
    let client = self::client("127.0.0.1", free).await;
    let absent = ask(&client, "absent.ns.svc.cluster.local").await;
    assert!(absent.starts_with("Non-Existent Domain"), "{absent}");
}
