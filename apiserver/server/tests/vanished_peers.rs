//! Connections whose other side has vanished without a word, as a machine that loses its power does.
//!
//! The server and its peer have a network namespace each, which go when the test ends.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]
#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod common;

use apiserver_server::ServerConfig;
use common::{Cluster, config, start_with};
use machinery_runtime::{KeepAlive, LingeringClose, Runtime, UnreadFlag};
use node_sys::namespace::in_network_namespace;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

const SECOND: Duration = Duration::from_secs(1);
/// Keepalive that ends a connection after three seconds of silence.
const BRIEF: KeepAlive = KeepAlive {
    idle: SECOND,
    interval: SECOND,
    probes: 2,
};
const WATCH: &[u8] = b"GET /api/v1/configmaps?watch=true HTTP/1.1\r\nhost: x\r\n\r\n";

/// Number of the next link.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Two namespaces and a link between them.
struct Link {
    names: [String; 2],
}

impl Link {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["s", "c"].map(|name| format!("knvp{}{name}{number}", std::process::id()));
        let link = Self { names };
        let [server, client] = &link.names;
        for name in &link.names {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        ip(&[
            "-n", server, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", client,
        ]);
        for (name, address) in [(server, "192.0.2.1/24"), (client, "192.0.2.2/24")] {
            ip(&["-n", name, "address", "add", address, "dev", "eth0"]);
            ip(&["-n", name, "link", "set", "eth0", "up"]);
        }
        link
    }

    fn inside<T: Send>(&self, at: usize, act: impl FnOnce() -> T + Send) -> T {
        let path = PathBuf::from("/run/netns").join(&self.names[at]);
        in_network_namespace(&path, act).unwrap()
    }

    fn connect(&self, to: SocketAddr) -> TcpStream {
        let stream = self.inside(1, || std::net::TcpStream::connect(to).unwrap());
        stream.set_nonblocking(true).unwrap();
        TcpStream::from_std(stream).unwrap()
    }

    /// Cuts the peer off: nothing of it arrives, and nothing arrives there.
    fn cut(&self) {
        ip(&["-n", &self.names[1], "link", "set", "eth0", "down"]);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            drop(Command::new("ip").args(["netns", "delete", name]).status());
        }
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).status().unwrap();
    assert!(done.success(), "ip {arguments:?}");
}

/// Watches that the server has open.
async fn watches(cluster: &Cluster) -> u32 {
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    let of_maps = |line: &&str| {
        line.starts_with("apiserver_longrunning_requests{") && line.contains("resource=\"configmaps\"")
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<u32>().ok();
    metrics.lines().filter(of_maps).filter_map(value).sum()
}

async fn until_watches_are(cluster: &Cluster, expected: u32) {
    while watches(cluster).await != expected {
        cluster.runtime.sleep(SECOND / 10).await;
    }
}

async fn watch(cluster: &Cluster, stream: TcpStream) -> TlsStream<TcpStream> {
    let mut stream = cluster.connect_over(stream, Some(&cluster.admin)).await;
    stream.write_all(WATCH).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(
        head.starts_with(b"HTTP/1.1 200 "),
        "{}",
        String::from_utf8_lossy(&head)
    );
    stream
}

async fn story(link: &Link) {
    let cluster = start_with(ServerConfig {
        listen: Some("0.0.0.0:0".parse().unwrap()),
        advertise_address: Some("192.0.2.1".parse().unwrap()),
        tcp_keep_alive: BRIEF,
        ..config()
    })
    .await;
    let port = cluster.address.port();
    let far = watch(&cluster, link.connect(SocketAddr::from(([192, 0, 2, 1], port)))).await;
    let near = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))
        .await
        .unwrap();
    let near = watch(&cluster, near).await;
    until_watches_are(&cluster, 2).await;
    link.cut();
    // The silent one whose other side answers stays.
    until_watches_are(&cluster, 1).await;
    drop(far);
    drop(near);
    until_watches_are(&cluster, 0).await;
}

/// The same with an event on its way, of which keepalive does not ask.
async fn story_of_events(link: &Link) {
    let cluster = start_with(ServerConfig {
        listen: Some("0.0.0.0:0".parse().unwrap()),
        advertise_address: Some("192.0.2.1".parse().unwrap()),
        tcp_keep_alive: BRIEF,
        ..config()
    })
    .await;
    let port = cluster.address.port();
    let far = watch(&cluster, link.connect(SocketAddr::from(([192, 0, 2, 1], port)))).await;
    until_watches_are(&cluster, 1).await;
    link.cut();
    let map = r#"{"metadata": {"name": "a"}}"#;
    let path = "/api/v1/namespaces/default/configmaps";
    cluster.admin().post(path, map).await.is(201);
    until_watches_are(&cluster, 0).await;
    drop(far);
}

/// Writes until the connection ends.
async fn write_all(stream: TcpStream) -> std::io::Error {
    let unread = UnreadFlag::default();
    let stream = LingeringClose::new(stream, |stream| stream, Runtime::real(), &unread);
    let mut stream = stream.ends_as(BRIEF);
    loop {
        if let Err(error) = stream.write_all(&[0; 65_536]).await {
            return error;
        }
    }
}

async fn story_of_readers(link: &Link) {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let paused = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))
        .await
        .unwrap();
    let mut to_paused = std::pin::pin!(write_all(listener.accept().await.unwrap().0));
    assert!(futures::poll!(to_paused.as_mut()).is_pending());
    let far = link.connect(SocketAddr::from(([192, 0, 2, 1], port)));
    let to_far = write_all(listener.accept().await.unwrap().0);
    link.cut();
    tokio::select! { biased;
        ended = to_far => assert_eq!(ended.kind(), std::io::ErrorKind::TimedOut, "{ended}"),
        ended = to_paused => panic!("a reader that pauses was cut off: {ended}"),
    }
    drop((far, paused));
}

/// Runs a scenario at the server's end of a link.
fn told<'l, F: Future<Output = ()>>(link: &'l Link, story: impl FnOnce(&'l Link) -> F + Send) {
    link.inside(0, || {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        executor.unwrap().block_on(story(link));
    });
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn watch_whose_peer_has_vanished_is_dropped() {
    told(&Link::new(), story);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn watch_with_an_event_on_its_way_to_a_vanished_peer_is_dropped() {
    told(&Link::new(), story_of_events);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn readers_that_pause_are_told_from_vanished_ones() {
    told(&Link::new(), story_of_readers);
}
