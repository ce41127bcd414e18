//! Connections and what is sent and read on them: too little, too late, or not at all.

use super::{Scene, head, maps, own};
use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use machinery_runtime::Runtime;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longer than the server lets a connection idle.
const HELD: Duration = Duration::from_secs(120);

/// Waits until the server has had enough.
async fn until_dropped(mut stream: impl AsyncReadExt + Unpin, runtime: &Runtime) -> Result<()> {
    let mut buffer = [0; 1_024];
    let reading = async { while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {} };
    let ended = runtime.timeout(HELD, reading).await;
    ended.context("the server still holds it")
}

pub(super) async fn half_sent_head(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.nobody.stream().await?;
    stream
        .write_all(b"GET /api HTTP/1.1\r\nhost: x\r\nx-slow: ")
        .await?;
    stream.flush().await?;
    until_dropped(stream, &runtime).await
}

pub(super) async fn half_sent_body(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.mallory.target.stream().await?;
    let path = maps(&scene);
    let rest = "content-type: application/json\r\ncontent-length: 3000000\r\n";
    stream
        .write_all(head(&scene, "POST", &path, rest).as_bytes())
        .await?;
    stream.write_all(&[b' '; 100_000]).await?;
    stream.flush().await?;
    until_dropped(stream, &runtime).await
}

pub(super) async fn silent(scene: Scene, runtime: Runtime) -> Result<()> {
    until_dropped(scene.nobody.tcp().await?, &runtime).await
}

pub(super) async fn idle(scene: Scene, runtime: Runtime) -> Result<()> {
    until_dropped(scene.nobody.stream().await?, &runtime).await
}

pub(super) async fn opened(scene: Scene, _: Runtime) -> Result<()> {
    scene.nobody.stream().await.map(drop)
}

pub(super) async fn unread_list(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.mallory.target.stream().await?;
    let request = head(&scene, "GET", &maps(&scene), "accept: application/yaml\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    runtime.sleep(Duration::from_secs(30)).await;
    Ok(())
}

pub(super) async fn unread_watch(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.mallory.target.stream().await?;
    let path = format!("{}?watch=1", maps(&scene));
    stream
        .write_all(head(&scene, "GET", &path, "").as_bytes())
        .await?;
    stream.flush().await?;
    runtime.sleep(Duration::from_secs(30)).await;
    Ok(())
}

pub(super) async fn watches(scene: Scene, _: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let path = format!("{}?watch=1&timeoutSeconds=300", own(&scene, "/api/v1", "pods"));
    let answer = client.open(Method::GET, &path, &[], Bytes::new()).await?;
    anyhow::ensure!(answer.status().is_success(), "{}", answer.status());
    Ok(())
}
