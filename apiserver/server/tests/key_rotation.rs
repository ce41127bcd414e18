//! Signing keys are replaced without ending the tokens of the key before.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::jwt::SigningKey;
use apiserver_server::ServerConfig;
use apiserver_storage::{LogStorage, Storage};
use common::{Cluster, config, start_on};
use machinery_runtime::Runtime;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const OLD_ISSUER: &str = "https://old.example.com";

async fn token(cluster: &Cluster) -> String {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{ACCOUNTS}/bot/token");
    let answer = cluster.admin().post(&path, asked.to_string()).await.is(201);
    answer.json()["status"]["token"].as_str().unwrap().to_owned()
}

async fn code(cluster: &Cluster, token: &str) -> u16 {
    let answer = cluster.nobody().token(token).get("/api/v1/namespaces").await;
    answer.code.as_u16()
}

fn key_file(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, SigningKey::generate().unwrap().to_pem()).unwrap();
    path
}

fn signing(key: &Path, others: &[&PathBuf], issuers: &[&str]) -> ServerConfig {
    ServerConfig {
        service_account_signing_key_file: Some(key.to_owned()),
        service_account_key_files: others.iter().map(|path| (*path).clone()).collect(),
        service_account_issuers: issuers.iter().map(|issuer| (*issuer).to_owned()).collect(),
        ..config()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_keys_and_issuers_are_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (
        key_file(folder.path(), "first"),
        key_file(folder.path(), "second"),
    );
    let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&Runtime::real()).await.unwrap());
    let before = start_on(signing(&first, &[], &[OLD_ISSUER]), Arc::clone(&storage)).await;
    let bot = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    before.admin().post(ACCOUNTS, bot.to_string()).await.is(201);
    let of_first = token(&before).await;
    assert_eq!(code(&before, &of_first).await, 403);

    let issuers = ["https://new.example.com", OLD_ISSUER];
    let during = start_on(signing(&second, &[&first], &issuers), Arc::clone(&storage)).await;
    let of_second = token(&during).await;
    assert_eq!(code(&during, &of_first).await, 403);
    assert_eq!(code(&during, &of_second).await, 403);
    let keys = during.admin().get("/openid/v1/jwks").await.is(200).json();
    assert_eq!(keys["keys"].as_array().unwrap().len(), 2);
    let found = during
        .admin()
        .get("/.well-known/openid-configuration")
        .await
        .is(200);
    assert_eq!(found.json()["issuer"], issuers[0]);
    assert_eq!(code(&before, &of_second).await, 401);

    let after = start_on(signing(&second, &[], &issuers), Arc::clone(&storage)).await;
    assert_eq!(code(&after, &of_first).await, 401);
    assert_eq!(code(&after, &of_second).await, 403);
}
