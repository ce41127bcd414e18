//! A KMS plugin below a server: health, metrics, and what clients are answered while it is ill.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_kms_model::{KmsPlugin, endpoint};
use apiserver_storage::encryption::{Encryption, ResourceNames};
use apiserver_storage::{LogOptions, LogStorage};
use common::{Cluster, config, start_on};
use machinery_runtime::Runtime;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn encryption(runtime: &Runtime, socket: &Path) -> Arc<Encryption> {
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{
            "resources": ["secrets"],
            "providers": [{"kms": {"apiVersion": "v2", "name": "model", "endpoint": endpoint(socket), "timeout": "200ms"}}],
        }],
    });
    let (own, file) = (runtime.clone(), file.to_string());
    let load = move || {
        let names = ResourceNames::new(apiserver_server::stored_resources());
        Arc::new(Encryption::new(&own, names, Path::new("/enc"), file.as_bytes()).unwrap())
    };
    runtime.blocking(load).await.unwrap()
}

/// A server with a log of its own in the folder.
async fn start(runtime: &Runtime, folder: &Path, encryption: &Arc<Encryption>) -> Cluster {
    let options = LogOptions {
        encryption: Some(Arc::clone(encryption)),
        reserve_bytes: 0,
        ..LogOptions::new(folder.join("storage"))
    };
    let (storage, _) = LogStorage::open(runtime, options).await.unwrap();
    start_on(config(), Arc::new(storage)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_plugin_shows_in_health_and_metrics() {
    let (runtime, folder) = (Runtime::real(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("kms.sock");
    let plugin = KmsPlugin::start(&runtime, &socket, "one").unwrap();
    let encryption = encryption(&runtime, &socket).await;
    let cluster = start(&runtime, folder.path(), &encryption).await;
    let admin = || cluster.admin();
    let secret = json!({"metadata": {"name": "a"}, "stringData": {"b": "c"}}).to_string();
    admin().post(SECRETS, secret).await.is(201);
    for path in ["/readyz/kms-providers", "/healthz/kms-providers"] {
        assert_eq!(admin().get(path).await.is(200).body, "ok");
    }
    admin().get("/livez/kms-providers").await.is(404);
    let metrics = admin().get("/metrics").await.is(200).body;
    for line in [
        "apiserver_envelope_encryption_key_id_hash_total{",
        "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{",
        "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{",
        "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"model\"} 1",
        "apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code=\"OK\",method_name=\"/v2.KeyManagementService/Encrypt\",provider_name=\"model\"} 1",
        "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"OK\",transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:kms:v2:model:\"}",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains("\"one\""), "ids of keys are hashes");

    plugin.behave(|conduct| conduct.key_id = String::new());
    let is_ill = async {
        loop {
            encryption.ask_plugins();
            let answer = admin().get("/readyz/kms-providers").await;
            if answer.code == 500 {
                return answer.body;
            }
            runtime.sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(60);
    let why = runtime.timeout(limit, is_ill).await.expect("it is so in time");
    assert_eq!(
        why,
        "internal server error: kms-provider-0: kmsv2 Provider model is not healthy, error: got invalid KMSv2 KeyID hash \"\": keyID is empty\n"
    );
    admin().get("/readyz").await.is(500);
    admin().get("/livez").await.is(200);
    let metrics = admin().get("/metrics").await.is(200).body;
    let line = "apiserver_envelope_encryption_invalid_key_id_from_status_total{error=\"empty\",provider_name=\"model\"}";
    assert!(metrics.contains(line), "{metrics}");
    admin().get(&format!("{SECRETS}/a")).await.is(200);
}

/// Nothing is stored plain for want of a key, and everything else is served.
#[tokio::test(flavor = "multi_thread")]
async fn kms_plugin_that_is_not_there_refuses_writes_of_its_resources() {
    let (runtime, folder) = (Runtime::real(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("kms.sock");
    let encryption = encryption(&runtime, &socket).await;
    let cluster = start(&runtime, folder.path(), &encryption).await;
    let admin = || cluster.admin();
    let object = json!({"metadata": {"name": "a"}}).to_string();
    let refused = admin().post(SECRETS, object.clone()).await.is(500).json();
    assert_eq!(refused["reason"], "InternalError");
    assert_eq!(
        refused["message"],
        "Internal error occurred: got unexpected nil transformer"
    );
    admin()
        .post("/api/v1/namespaces/default/configmaps", object)
        .await
        .is(201);
}
