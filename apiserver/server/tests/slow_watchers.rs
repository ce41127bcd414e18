//! Clients that open a watch and never read it: the server holds a frame for each, never a queue. In a process of its
//! own, because what is looked at is the memory of the process.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::{Cluster, start};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCHERS: usize = 40;
const OBJECTS: usize = 60;
const OBJECT_BYTES: usize = 100_000;
const CHANGES: usize = 60;
/// Every watcher was sent 6 MB of state and 6 MB of changes, 480 MB together. A third is allowed: the store
/// itself, its history, the buffers of TLS and HTTP.
const MAX_GROWTH: usize = 160 << 20;

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

async fn write(cluster: &Cluster, name: &str, round: usize) {
    let data = json!({"round": round.to_string(), "x": "y".repeat(OBJECT_BYTES)});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    let ask = cluster.admin().header("content-type", "application/json");
    let path = format!("{CONFIG_MAPS}/{name}");
    let (method, path) = if round == 0 {
        (http::Method::POST, CONFIG_MAPS)
    } else {
        (http::Method::PUT, &*path)
    };
    let answer = ask.send(method, path, map.to_string().into()).await;
    assert!(answer.code.is_success(), "{}", answer.body);
}

async fn watcher(cluster: &Cluster) -> TlsStream<TcpStream> {
    let head =
        format!("GET {CONFIG_MAPS}?watch=1&fieldSelector=metadata.name!%3Dx HTTP/1.1\r\nhost: x\r\n\r\n");
    cluster.sent(head).await
}

/// Events of an answer in chunks, which end where they do.
struct Events {
    raw: BufReader<TlsStream<TcpStream>>,
    text: Vec<u8>,
}

impl Events {
    async fn of(stream: TlsStream<TcpStream>) -> Self {
        let (mut raw, text) = (BufReader::new(stream), Vec::new());
        while raw.read_line(&mut String::new()).await.unwrap() > 2 {}
        Self { raw, text }
    }

    async fn next(&mut self) -> serde_json::Value {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let mut size = String::new();
            self.raw.read_line(&mut size).await.unwrap();
            let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap()];
            self.raw.read_exact(&mut chunk).await.unwrap();
            self.raw.read_exact(&mut [0; 2]).await.unwrap();
            self.text.extend(chunk);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_watcher_uses_no_memory_and_loses_no_event() {
    let cluster = start().await;
    for number in 0..OBJECTS {
        write(&cluster, &format!("map-{number}"), 0).await;
    }
    let before = resident();
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        watchers.push(watcher(&cluster).await);
    }
    for round in 1..=CHANGES {
        write(&cluster, "map-0", round).await;
    }
    let growth = resident().saturating_sub(before);
    assert!(growth < MAX_GROWTH, "{} MB for {WATCHERS} watchers", growth >> 20);
    // One of them reads after all: everything is there, in order, each once.
    let mut events = Events::of(watchers.pop().unwrap()).await;
    let (mut state, mut next) = (0, 1);
    while next <= CHANGES {
        let event = events.next().await;
        let round = event["object"]["data"]["round"].as_str();
        match event["type"].as_str() {
            Some("ADDED") => state += 1,
            Some("MODIFIED") if round == Some(next.to_string().as_str()) => next += 1,
            Some(_) => panic!("{round:?} instead of change {next}"),
            None => {}
        }
    }
    // The state is of the moment the watch was opened.
    assert_eq!(state, OBJECTS);
}
