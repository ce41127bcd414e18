//! Attacks on a node: streams held open, its programs killed, its disk filled.

use super::{Scene, head};
use crate::bench::connection::Connection;
use crate::bench::process;
use crate::hostile::fixture::PROGRAM;
use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Idle streams to the attacker's own pod.
pub(super) async fn streams(scene: Scene, runtime: Runtime) -> Result<()> {
    const WAYS: [&str; 3] = [
        "exec?command=/hello&stdin=1&stdout=1",
        "attach?stdin=1&stdout=1",
        "portforward?ports=8080",
    ];
    let pod = scene.pod.clone().context("no pod")?;
    let way = WAYS[usize::try_from(runtime.random_u64() % 3).unwrap_or(0)];
    let protocol = match way.starts_with("port") {
        true => "SPDY/3.1+portforward.k8s.io",
        false => "v5.channel.k8s.io",
    };
    let _stream = upgraded(&scene, &format!("{pod}/{way}"), protocol).await?;
    runtime.sleep(Duration::from_secs(20)).await;
    Ok(())
}

/// A stream to a container that is open.
pub(super) async fn upgraded(scene: &Scene, path: &str, protocol: &str) -> Result<TlsStream<TcpStream>> {
    let rest = format!(
        "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: {protocol}\r\n"
    );
    let mut stream = scene.mallory.target.stream().await?;
    stream
        .write_all(head(scene, "GET", path, &rest).as_bytes())
        .await?;
    stream.flush().await?;
    let mut said = [0; 12];
    stream.read_exact(&mut said).await?;
    anyhow::ensure!(said.ends_with(b"101"), "{}", String::from_utf8_lossy(&said));
    Ok(stream)
}

/// A pod writes until its node's disk is full, is left alone for a while and deleted.
pub(super) async fn filled_disk(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let name = format!("filler-{:x}", runtime.random_u64());
    let pods = format!("/api/v1/namespaces/{}/pods", scene.mallory.namespace);
    let container = json!({
        "name": "filler", "image": "knarr.local/hello:1", "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM, "dd", "if=/dev/zero", "of=/filled/up", "bs=1M"],
        "volumeMounts": [{"name": "program", "mountPath": PROGRAM}, {"name": "filled", "mountPath": "/filled"}],
    });
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container],
        "volumes": [
            {"name": "program", "hostPath": {"path": PROGRAM, "type": "File"}},
            {"name": "filled", "emptyDir": {}},
        ],
    }});
    client.send_json(Method::POST, &pods, pod.to_string()).await?;
    let one = format!("{pods}/{name}");
    let ended = until_phase(&mut client, &runtime, &one).await;
    runtime.sleep(Duration::from_secs(10)).await;
    client.call(Method::DELETE, &one, &[], Bytes::new()).await?;
    ended?;
    runtime.sleep(Duration::from_secs(10)).await;
    Ok(())
}

/// Waits until a pod has run and failed.
async fn until_phase(client: &mut Connection, runtime: &Runtime, pod: &str) -> Result<()> {
    for _ in 0..60 {
        let answer = client.call(Method::GET, pod, &[], Bytes::new()).await?;
        let found: serde_json::Value = serde_json::from_slice(&answer)?;
        if found["status"]["phase"] == "Failed" {
            return Ok(());
        }
        runtime.sleep(Duration::from_secs(1)).await;
    }
    anyhow::bail!("{pod} has not filled the disk")
}

/// Kills the agent and then the container runtime; both are to come back.
pub(super) async fn killed(scene: Scene, runtime: Runtime) -> Result<()> {
    let data_dir = scene.data_dir.clone().context("no node")?;
    for program in [process::AGENT, "containerd"] {
        runtime.sleep(Duration::from_secs(15)).await;
        let found = process::of_cluster(&data_dir)
            .into_iter()
            .find(|(name, _)| *name == program);
        let (_, processes) = found.with_context(|| format!("no {program}"))?;
        processes.kill()?;
    }
    Ok(())
}
