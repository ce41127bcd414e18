//! Bodies and lists that cost more than they look like, and floods of events.

use super::{Scene, maps, own};
use anyhow::Result;
use bytes::Bytes;
use http::{Method, header};
use http_body_util::BodyExt;
use machinery_runtime::Runtime;
use serde_json::json;

/// Objects that make a list large.
const LARGE: usize = 50;
const LARGE_BYTES: usize = 200_000;

pub(super) async fn make_large(scene: &Scene) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    for number in 0..LARGE {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{number}")},
            "data": {"k": "v".repeat(LARGE_BYTES)}});
        client
            .send_json(Method::POST, &maps(scene), object.to_string())
            .await?;
    }
    Ok(())
}

pub(super) async fn large_list(scene: Scene, _: Runtime) -> Result<()> {
    const FORMS: [&str; 3] = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    ];
    let mut client = scene.mallory.target.connect().await?;
    for form in FORMS {
        client
            .call(
                Method::GET,
                &maps(&scene),
                &[(header::ACCEPT, form)],
                Bytes::new(),
            )
            .await?;
    }
    Ok(())
}

/// A patch that doubles what it finds, many times.
pub(super) async fn patch_bomb(scene: Scene, _: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bomb"}, "data": {"k": "v".repeat(10_000)}});
    let _ = client
        .send_json(Method::POST, &maps(&scene), object.to_string())
        .await;
    let copies =
        (0..4_000).map(|number| json!({"op": "copy", "from": "/data", "path": format!("/data/k{number}")}));
    let moves = (0..4_000).map(|_| json!({"op": "move", "from": "/metadata", "path": "/metadata"}));
    let patch = serde_json::Value::Array(copies.chain(moves).collect());
    let content = [(header::CONTENT_TYPE, "application/json-patch+json")];
    let one = format!("{}/bomb", maps(&scene));
    client
        .call(Method::PATCH, &one, &content, patch.to_string().into())
        .await?;
    Ok(())
}

pub(super) async fn deep_body(scene: Scene, _: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let aliases: Vec<String> = (1..60)
        .map(|level| format!("a{level}: &a{level} [*a{0},*a{0},*a{0}]", level - 1))
        .collect();
    let yaml = format!("a0: &a0 [x]\n{}\n", aliases.join("\n"));
    let wide = format!(
        "{{{}\"z\":1}}",
        (0..150_000)
            .map(|n| format!("\"k{n}\":{{}},"))
            .collect::<String>()
    );
    for (form, body) in [
        ("application/json", deep),
        ("application/yaml", yaml),
        ("application/json", wide),
    ] {
        let content = [(header::CONTENT_TYPE, form)];
        let answer = client
            .open(Method::POST, &maps(&scene), &content, body.into())
            .await?;
        // It is read to its end, for the next one.
        answer.into_body().collect().await?;
    }
    Ok(())
}

pub(super) async fn events(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let (events, namespace) = (own(&scene, "/api/v1", "events"), scene.mallory.namespace);
    for _ in 0..100 {
        let event = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("e-{:x}", runtime.random_u64()), "namespace": namespace},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "x"}, "reason": "Flood", "message": "m".repeat(900)});
        client.send_json(Method::POST, &events, event.to_string()).await?;
    }
    Ok(())
}
