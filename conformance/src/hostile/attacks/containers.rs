//! Attacks by what pods print, mount and have refreshed.

use super::node::upgraded;
use super::{Scene, delete, head, named, own};
use crate::bench::connection::Connection;
use crate::hostile::fixture::PROGRAM;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The pod that prints without an end.
const PRINTER: &str = "printer";
const LINE_BYTES: usize = 1_000;
const RUNNING: &str = "Running";
const FAILED: &str = "Failed";
/// One of so many clients deletes a pod that was evicted.
const LEFT: u64 = 20;
/// Time for which a stream is held, and a pod.
const HELD: Duration = Duration::from_secs(20);
/// Volumes of one pod.
const TOKENS: usize = 64;
const ABSENT: usize = 100;
/// Bytes of output that are read in a piece, and the time of one: 16 MiB a second.
const PIECE: usize = 1 << 20;
const PACE: Duration = Duration::from_micros(62_500);
const PIECES: usize = 320;

fn line() -> String {
    "x".repeat(LINE_BYTES)
}

/// A pod that runs this, with these volumes beside the program.
fn pod(name: &str, command: &[&str], volumes: Vec<Value>) -> Value {
    let mount = |volume: &Value| {
        let name = volume["name"].as_str().unwrap_or_default().to_owned();
        let path = match name.as_str() {
            "program" => PROGRAM.to_owned(),
            other => format!("/volumes/{other}"),
        };
        json!({"name": name, "mountPath": path})
    };
    let program = json!({"name": "program", "hostPath": {"path": PROGRAM, "type": "File"}});
    let volumes: Vec<Value> = std::iter::once(program).chain(volumes).collect();
    let mounts: Vec<Value> = volumes.iter().map(mount).collect();
    let container = json!({"name": "c", "image": "knarr.local/hello:1", "imagePullPolicy": "IfNotPresent",
        "command": command, "volumeMounts": mounts});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes}})
}

async fn phase(client: &mut Connection, pod: &str) -> Result<String> {
    let found = client.call(Method::GET, pod, &[], Bytes::new()).await?;
    let found: Value = serde_json::from_slice(&found)?;
    Ok(found["status"]["phase"].as_str().unwrap_or_default().to_owned())
}

/// Waits until a pod runs.
async fn until_running(client: &mut Connection, runtime: &Runtime, pod: &str) -> Result<()> {
    for _ in 0..30 {
        let phase = phase(client, pod).await?;
        ensure!(phase != FAILED, "{pod} was evicted");
        if phase == RUNNING {
            return Ok(());
        }
        runtime.sleep(Duration::from_secs(1)).await;
    }
    anyhow::bail!("{pod} does not run")
}

/// A log that grows faster than anything reads it is followed, and nothing of it is read.
pub(super) async fn unread_log(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let pods = own(&scene, "/api/v1", "pods");
    let printer = pod(PRINTER, &[PROGRAM, "yes", &line()], Vec::new());
    // Another client may have made it.
    let _ = client.send_json(Method::POST, &pods, printer.to_string()).await;
    let one = format!("{pods}/{PRINTER}");
    if let Err(error) = until_running(&mut client, &runtime, &one).await {
        // One that was evicted for its log is left there: its node has to do without it being deleted.
        runtime.sleep(HELD).await;
        if runtime.random_u64().is_multiple_of(LEFT) {
            delete(&mut client, &one).await?;
        }
        return Err(error);
    }
    let follow = match runtime.random_u64() % 2 {
        0 => "?follow=true",
        _ => "",
    };
    let mut stream = scene.mallory.target.stream().await?;
    stream
        .write_all(head(&scene, "GET", &format!("{one}/log{follow}"), "").as_bytes())
        .await?;
    stream.flush().await?;
    runtime.sleep(HELD).await;
    Ok(())
}

/// Output of a program as fast as a client with 16 MiB a second reads it, or does not read it at all.
pub(super) async fn output(scene: Scene, runtime: Runtime) -> Result<()> {
    let pod = scene.pod.clone().context("no pod")?;
    let path = format!(
        "{pod}/exec?command={PROGRAM}&command=yes&command={}&stdout=1",
        line()
    );
    let mut stream = upgraded(&scene, &path, "v5.channel.k8s.io").await?;
    if runtime.random_u64().is_multiple_of(2) {
        runtime.sleep(HELD).await;
        return Ok(());
    }
    let mut piece = vec![0; PIECE];
    for _ in 0..PIECES {
        let pace = runtime.sleep(PACE);
        stream.read_exact(&mut piece).await?;
        pace.await;
    }
    Ok(())
}

/// Makes a pod, leaves it for a while and deletes it. Returns whether it ran.
async fn kept(scene: &Scene, runtime: &Runtime, name: &str, pod: &Value) -> Result<bool> {
    let mut client = scene.mallory.target.connect().await?;
    let pods = own(scene, "/api/v1", "pods");
    client.send_json(Method::POST, &pods, pod.to_string()).await?;
    let one = format!("{pods}/{name}");
    runtime.sleep(HELD).await;
    let ran = phase(&mut client, &one).await.map(|phase| phase == RUNNING);
    let path = format!("{one}?gracePeriodSeconds=1");
    client.call(Method::DELETE, &path, &[], Bytes::new()).await?;
    ran
}

/// A pod whose tokens are as many as it may have, and live as short as they may.
pub(super) async fn many_tokens(scene: Scene, runtime: Runtime) -> Result<()> {
    let token = |at: usize| {
        let token = json!({"path": "token", "expirationSeconds": 600, "audience": format!("audience-{at}")});
        json!({"name": format!("token-{at}"), "projected": {"sources": [{"serviceAccountToken": token}]}})
    };
    let name = named("tokens", &runtime);
    let volumes = (0..TOKENS).map(token).collect();
    let own = pod(&name, &[PROGRAM, "sleep", "1000"], volumes);
    let ran = kept(&scene, &runtime, &name, &own).await?;
    ensure!(ran, "{name} does not run");
    Ok(())
}

/// A pod with volumes of a driver that no node has.
pub(super) async fn absent_driver(scene: Scene, runtime: Runtime) -> Result<()> {
    let volume = |at: usize| json!({"name": format!("absent-{at}"), "csi": {"driver": "absent.example"}});
    let name = named("absent", &runtime);
    let volumes = (0..ABSENT).map(volume).collect();
    let own = pod(&name, &[PROGRAM, "sleep", "1000"], volumes);
    let ran = kept(&scene, &runtime, &name, &own).await?;
    ensure!(!ran, "{name} runs");
    Ok(())
}
