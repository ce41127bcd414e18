//! Credentials that prove nothing.

use super::Scene;
use anyhow::{Result, ensure};
use base64::Engine;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use machinery_runtime::Runtime;
use serde_json::json;
use std::time::Duration;

/// Bytes of the longest invented token: a head has room for as many and few more.
const LONGEST: usize = 100 << 10;
/// Some clients leave then: the review goes on without them.
const PATIENCE: Duration = Duration::from_secs(1);

/// Random tokens, which nothing in the server knows, so that it asks its webhook about each.
pub(super) async fn invented(scene: Scene, runtime: Runtime) -> Result<()> {
    let random = runtime.random_u64();
    let length = match random % 8 {
        0 => LONGEST,
        _ => 32,
    };
    let token = format!("{random:016x}{}", "x".repeat(length));
    let mut client = scene.nobody.with_token(token).connect().await?;
    let asking = async {
        let answer = client
            .open(Method::GET, "/api/v1/pods", &[], Bytes::new())
            .await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        ensure!(status == StatusCode::UNAUTHORIZED, "{status}");
        anyhow::Ok(())
    };
    match random % 4 {
        1 => drop(runtime.timeout(PATIENCE, asking).await),
        _ => asking.await?,
    }
    Ok(())
}

/// Requests with one forged token: the webhook reviews it as well.
const FORGED: usize = 3;

/// Reviews, and tokens with claims of the cluster and a signature of no known key, from the address that the tenants have.
pub(super) async fn forged(scene: Scene, runtime: Runtime) -> Result<()> {
    let claims = json!({"iss": "https://kubernetes.default.svc", "sub": "x", "exp": 1, "aud": ["x"]});
    let part = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let token = format!(
        "{}.{}.{}",
        part(r#"{"alg":"ES256","kid":"x"}"#),
        part(&claims.to_string()),
        part(&format!("{:064x}", runtime.random_u64()))
    );
    let mut own = scene.mallory.target.connect().await?;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": scene.mallory.namespace}});
    for _ in 0..20 {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        own.send_json(Method::POST, path, review.to_string()).await?;
    }
    let forged = scene.nobody.for_client(Some(token), None)?;
    let mut client = forged.connect().await?;
    for _ in 0..FORGED {
        let answer = client
            .open(Method::GET, "/api/v1/pods", &[], Bytes::new())
            .await?;
        answer.into_body().collect().await?;
    }
    Ok(())
}
