use super::*;
use serde_json::{Value, json};

/// Every ConfigMap holds one key, `big`, of a MiB; every token is `token`.
struct Api(Arc<ConfigMap>);

impl Api {
    fn new() -> Self {
        let data = [("big".to_owned(), "x".repeat(1 << 20))].into();
        Self(Arc::new(ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        }))
    }
}

#[async_trait]
impl ObjectSource for Api {
    async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError> {
        Ok(Some(self.0.clone()))
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Option<Arc<Secret>>, VolumeError> {
        Ok(None)
    }

    async fn token(&self, _: &TokenRequest) -> Result<String, VolumeError> {
        Ok("token".into())
    }

    async fn trust_anchors(&self, wanted: &crate::TrustAnchors) -> Result<Arc<[u8]>, VolumeError> {
        Ok(Arc::from(format!("{wanted:?}").into_bytes()))
    }

    async fn pod_certificate(
        &self,
        _: &Pod,
        place: &crate::ProjectionPlace,
    ) -> Result<Arc<crate::Credentials>, VolumeError> {
        let text =
            |what: &str| Arc::from(format!("{what} of {} {}\n", place.volume, place.source).into_bytes());
        Ok(Arc::new(crate::Credentials {
            key: text("key"),
            chain: text("chain"),
        }))
    }

    async fn claim(&self, _: &str, _: &str) -> Result<Option<PersistentVolumeClaim>, VolumeError> {
        Ok(None)
    }

    async fn persistent_volume(&self, _: &str) -> Result<Option<PersistentVolume>, VolumeError> {
        Ok(None)
    }
}

async fn made(volume: Value, room: &mut Room) -> Result<Payload, VolumeError> {
    let context = PayloadContext {
        pod: &Pod::default(),
        objects: &Api::new(),
        node: &NodeResources::default(),
    };
    let volume = serde_json::from_value(volume).unwrap();
    Ok(of_volume(&context, &volume, room).await?.unwrap())
}

async fn refusal(volume: Value) -> String {
    let made = made(volume, &mut Room::of_pod()).await;
    made.unwrap_err().to_string()
}

fn items(count: usize) -> Vec<Value> {
    (0..count)
        .map(|at| json!({"key": "big", "path": at.to_string()}))
        .collect()
}

fn config_map(files: usize) -> Value {
    json!({"name": "v", "configMap": {"name": "m", "items": items(files)}})
}

const TOO_LARGE: &str = "a volume must not hold more than 33554432 bytes from API objects";

/// Rows of upstream's `TestMakePayload` of ConfigMaps and Secrets; those of the alpha gate `AtomicWriteVolumeUserFields` are
/// left out, but for the one with the gate off.
#[tokio::test]
async fn volume_has_the_files_of_upstreams_tables() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../../testdata/payloads.json")).unwrap();
    assert_eq!(rows.len(), 24);
    for row in rows {
        let found = files_of(&row);
        let found = found.map(|files| serde_json::to_value(files).unwrap());
        assert_eq!(found.ok().as_ref(), row.get("payload"), "{}", row["name"]);
    }
}

/// Text and mode of each file.
fn files_of(row: &Value) -> Result<std::collections::BTreeMap<String, (String, u32)>, VolumeError> {
    let bytes = |values: &Value| {
        let values = values.as_object().into_iter().flatten();
        let bytes = values.map(|(key, value)| {
            let text = value.as_str().unwrap().to_owned();
            (key.clone(), k8s_openapi::ByteString(text.into_bytes()))
        });
        bytes.collect::<std::collections::BTreeMap<_, _>>()
    };
    let config_map = ConfigMap {
        data: serde_json::from_value(row["data"].clone()).unwrap(),
        binary_data: Some(bytes(&row["binaryData"])),
        ..ConfigMap::default()
    };
    let secret = Secret {
        data: Some(bytes(&row["data"])),
        ..Secret::default()
    };
    let data = match row["kind"].as_str() {
        Some("secret") => Data::Secret(&secret),
        _ => Data::ConfigMap(&config_map),
    };
    let items = serde_json::from_value(row["items"].clone()).unwrap();
    let mode = row["mode"].as_i64().map(|mode| i32::try_from(mode).unwrap());
    let mut files = Files {
        payload: Payload::new(),
        volume: Room::of_volume(),
        pod: &mut Room::of_pod(),
    };
    let optional = row["optional"] == true;
    project(&mut files, &data, &Wanted::new("config", &items, mode, optional))?;
    let text = |file: FileContent| (String::from_utf8(file.data.to_vec()).unwrap(), file.mode);
    Ok((files.payload.into_iter().map(|(path, file)| (path, text(file)))).collect())
}

#[tokio::test]
async fn volume_of_one_key_under_many_names_is_bounded_and_its_bytes_are_there_once() {
    let made = made(config_map(32), &mut Room::of_pod()).await.unwrap();
    assert_eq!(made.len(), 32);
    assert!(made.values().all(|file| Arc::ptr_eq(&file.data, &made["0"].data)));
    assert_eq!(refusal(config_map(33)).await, TOO_LARGE);
}

#[tokio::test]
async fn volume_of_many_sources_is_bounded() {
    let whole = vec![json!({"configMap": {"name": "m"}}); 33];
    let volume = json!({"name": "v", "projected": {"sources": whole}});
    assert_eq!(
        refusal(volume).await,
        TOO_LARGE,
        "also where each replaces the one before"
    );
    let token = |at: usize| json!({"serviceAccountToken": {"path": at.to_string()}});
    let tokens: Vec<Value> = (0..10_001).map(token).collect();
    let volume = json!({"name": "v", "projected": {"sources": tokens}});
    assert_eq!(
        refusal(volume).await,
        "a volume must not hold more than 10000 files from API objects"
    );
    let field = |at: usize| json!({"path": at.to_string(), "fieldRef": {"fieldPath": "metadata.labels"}});
    let fields: Vec<Value> = (0..10_001).map(field).collect();
    let volume = json!({"name": "v", "downwardAPI": {"items": fields}});
    assert_eq!(
        refusal(volume).await,
        "a volume must not hold more than 10000 files from API objects"
    );
}

#[tokio::test]
async fn volumes_of_a_pod_are_bounded_together() {
    let mut room = Room::of_pod();
    made(config_map(32), &mut room).await.unwrap();
    made(config_map(32), &mut room).await.unwrap();
    let error = made(config_map(1), &mut room).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "a pod's volumes must not hold more than 67108864 bytes from API objects"
    );
}

#[tokio::test]
async fn trust_anchors_are_asked_for_by_name_or_by_signer() {
    let file = |source: Value| async move {
        let volume = json!({"name": "v", "projected": {"sources": [{"clusterTrustBundle": source}]}});
        let made = made(volume, &mut Room::of_pod()).await?;
        Ok::<_, VolumeError>(String::from_utf8(made["ca.pem"].data.to_vec()).unwrap())
    };
    assert_eq!(
        file(json!({"name": "roots", "path": "ca.pem"})).await.unwrap(),
        "Named { name: \"roots\", optional: false }"
    );
    assert_eq!(
        file(json!({"signerName": "s.io/s", "optional": true, "path": "ca.pem"}))
            .await
            .unwrap(),
        "Signed { signer: \"s.io/s\", selector: None, optional: true }"
    );
    let refused = file(json!({"path": "ca.pem"})).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "ClusterTrustBundle projection requires either name or signerName to be set"
    );
}

#[tokio::test]
async fn pod_certificate_has_the_files_that_its_projection_names() {
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let certificate = |paths: Value| {
        let mut source = json!({"signerName": "s.io/s", "keyType": "ED25519"});
        source
            .as_object_mut()
            .unwrap()
            .extend(paths.as_object().unwrap().clone());
        json!({ "podCertificate": source })
    };
    let sources = [
        token,
        certificate(json!({"credentialBundlePath": "tls/bundle.pem"})),
        certificate(json!({"keyPath": "key.pem", "certificateChainPath": "chain.pem"})),
    ];
    let volume = json!({"name": "v", "projected": {"sources": sources, "defaultMode": 0o640}});
    let made = made(volume, &mut Room::of_pod()).await.unwrap();
    let files: Vec<(&str, String, u32)> = made
        .iter()
        .map(|(path, file)| {
            let text = String::from_utf8(file.data.to_vec()).unwrap();
            (path.as_str(), text, file.mode)
        })
        .collect();
    let expected = [
        ("chain.pem", "chain of v 2\n".to_owned(), 0o640),
        ("key.pem", "key of v 2\n".to_owned(), 0o640),
        ("tls/bundle.pem", "key of v 1\nchain of v 1\n".to_owned(), 0o640),
        ("token", "token".to_owned(), 0o640),
    ];
    assert_eq!(files, expected);
}

#[test]
fn pod_certificate_shows_no_key_in_a_log() {
    let credentials = crate::Credentials {
        key: Arc::from(*b"secret"),
        chain: Arc::from(*b"chain"),
    };
    assert_eq!(format!("{credentials:?}"), "Credentials { .. }");
}
