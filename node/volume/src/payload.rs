//! The files of configMap, secret, downwardAPI and projected volumes.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};

use crate::atomic_writer::{FileContent, Payload};
use crate::room::Room;
use crate::{NodeResources, VolumeError, downward};

/// Upstream's mode where neither the item nor the volume says one.
const DEFAULT_MODE: i32 = 0o644;
/// A token is private where the pod says who runs in it.
const PRIVATE_MODE: u32 = 0o600;
const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;

/// A service account token for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The service account.
    pub service_account: String,
    /// For whom; empty is the API server.
    pub audience: String,
    /// How long it should be valid.
    pub expiration_seconds: i64,
    /// The pod it is bound to: name and uid.
    pub pod: (String, String),
}

/// Where objects come from. `Ok(None)` is "does not exist".
#[async_trait]
pub trait ObjectSource: Send + Sync {
    /// A ConfigMap.
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError>;
    /// A Secret.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>, VolumeError>;
    /// A token, fresh enough to be used.
    async fn token(&self, request: &TokenRequest) -> Result<String, VolumeError>;
}

/// Whom a payload is for.
pub(crate) struct PayloadContext<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) objects: &'a dyn ObjectSource,
    pub(crate) node: &'a NodeResources,
}

/// A volume's files while they are gathered, within its own room and that of all of the pod's volumes.
struct Files<'a> {
    payload: Payload,
    volume: Room,
    pod: &'a mut Room,
}

impl Files<'_> {
    /// Before the bytes are copied.
    fn take(&mut self, bytes: usize) -> Result<(), VolumeError> {
        self.volume.take(bytes)?;
        self.pod.take(bytes)
    }
}

/// The payload of an API volume; `None` if the volume is of another type.
pub(crate) async fn of_volume(
    context: &PayloadContext<'_>,
    volume: &Volume,
    room: &mut Room,
) -> Result<Option<Payload>, VolumeError> {
    let mut files = Files {
        payload: Payload::new(),
        volume: Room::of_volume(),
        pod: room,
    };
    let namespace = context.pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &volume.config_map {
        let optional = source.optional == Some(true);
        let object = context.objects.config_map(namespace, &source.name).await?;
        let data = Data::of_config_map(object.as_deref(), &source.name, optional)?;
        project(
            &mut files,
            &data,
            &Wanted::new("config", &source.items, source.default_mode, optional),
        )?;
    } else if let Some(source) = &volume.secret {
        let optional = source.optional == Some(true);
        let name = source.secret_name.as_deref().unwrap_or_default();
        let object = context.objects.secret(namespace, name).await?;
        let data = Data::of_secret(object.as_deref(), name, optional)?;
        project(
            &mut files,
            &data,
            &Wanted::new("secret", &source.items, source.default_mode, optional),
        )?;
    } else if let Some(source) = &volume.downward_api {
        downward_files(&mut files, context, source.items.as_deref(), source.default_mode)?;
    } else if let Some(source) = &volume.projected {
        projected(&mut files, context, source).await?;
    } else {
        return Ok(None);
    }
    Ok(Some(files.payload))
}

async fn projected(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    source: &ProjectedVolumeSource,
) -> Result<(), VolumeError> {
    for part in source.sources.iter().flatten() {
        projection(files, context, part, source.default_mode).await?;
    }
    Ok(())
}

async fn projection(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    part: &VolumeProjection,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    let namespace = context.pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &part.config_map {
        let optional = source.optional == Some(true);
        let object = context.objects.config_map(namespace, &source.name).await?;
        let data = Data::of_config_map(object.as_deref(), &source.name, optional)?;
        project(
            files,
            &data,
            &Wanted::new("config", &source.items, mode, optional),
        )?;
    }
    if let Some(source) = &part.secret {
        let optional = source.optional == Some(true);
        let object = context.objects.secret(namespace, &source.name).await?;
        let data = Data::of_secret(object.as_deref(), &source.name, optional)?;
        project(
            files,
            &data,
            &Wanted::new("secret", &source.items, mode, optional),
        )?;
    }
    if let Some(source) = &part.downward_api {
        downward_files(files, context, source.items.as_deref(), mode)?;
    }
    if let Some(source) = &part.service_account_token {
        token(files, context, source, mode).await?;
    }
    if part.cluster_trust_bundle.is_some() || part.pod_certificate.is_some() {
        return Err(VolumeError::Invalid(
            "this kind of projection is not provided by this node".into(),
        ));
    }
    Ok(())
}

async fn token(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    source: &ServiceAccountTokenProjection,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    let pod = context.pod;
    let spec = pod.spec.as_ref();
    let account = spec
        .and_then(|spec| spec.service_account_name.clone())
        .filter(|name| !name.is_empty());
    let request = TokenRequest {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        service_account: account.unwrap_or_else(|| "default".into()),
        audience: source.audience.clone().unwrap_or_default(),
        expiration_seconds: source.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION_SECONDS),
        pod: (
            pod.metadata.name.clone().unwrap_or_default(),
            pod.metadata.uid.clone().unwrap_or_default(),
        ),
    };
    let data = context.objects.token(&request).await?.into_bytes();
    files.take(data.len())?;
    let group = spec
        .and_then(|spec| spec.security_context.as_ref())
        .and_then(|context| context.fs_group);
    let owner = only_user(pod);
    let private = group.is_some() || owner.is_some();
    let mode = if private { PRIVATE_MODE } else { bits(mode) };
    let data = data.into();
    files
        .payload
        .insert(source.path.clone(), FileContent { data, mode, owner });
    Ok(())
}

/// The user all containers of a pod run as, if it says so and they agree.
fn only_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let general = spec
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    let own = |container: &k8s_openapi::api::core::v1::Container| {
        container
            .security_context
            .as_ref()
            .and_then(|context| context.run_as_user)
            .or(general)
    };
    let mut users = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(own);
    let first = users.next()??;
    if users.all(|user| user == Some(first)) {
        u32::try_from(first).ok()
    } else {
        None
    }
}

/// Which keys are shown, and how.
struct Wanted<'a> {
    kind: &'static str,
    items: Option<&'a [KeyToPath]>,
    mode: Option<i32>,
    optional: bool,
}

impl<'a> Wanted<'a> {
    fn new(kind: &'static str, items: &'a Option<Vec<KeyToPath>>, mode: Option<i32>, optional: bool) -> Self {
        Self {
            kind,
            items: items.as_deref().filter(|items| !items.is_empty()),
            mode,
            optional,
        }
    }
}

fn bits(mode: Option<i32>) -> u32 {
    u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or(0o644) & 0o777
}

fn project(files: &mut Files<'_>, data: &Data<'_>, wanted: &Wanted<'_>) -> Result<(), VolumeError> {
    let file = |data: Arc<[u8]>, mode| FileContent {
        data,
        mode: bits(mode),
        owner: None,
    };
    let Some(items) = wanted.items else {
        return data.entries().try_for_each(|(key, value)| {
            files.take(value.len())?;
            files
                .payload
                .insert(key.to_owned(), file(value.into(), wanted.mode));
            Ok(())
        });
    };
    let mut shared: HashMap<&str, Arc<[u8]>> = HashMap::new();
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                files.take(value.len())?;
                let value = shared.entry(&item.key).or_insert_with(|| value.into());
                let content = file(value.clone(), item.mode.or(wanted.mode));
                files.payload.insert(item.path.clone(), content);
            }
            None if wanted.optional => {}
            None => {
                return Err(VolumeError::KeyNotFound {
                    kind: wanted.kind,
                    key: item.key.clone(),
                });
            }
        }
    }
    Ok(())
}

/// The keys and values of an object.
enum Data<'a> {
    ConfigMap(&'a ConfigMap),
    Secret(&'a Secret),
    Nothing,
}

impl<'a> Data<'a> {
    fn of_config_map(object: Option<&'a ConfigMap>, name: &str, optional: bool) -> Result<Self, VolumeError> {
        object.map_or_else(
            || missing("configmap", name, optional),
            |object| Ok(Self::ConfigMap(object)),
        )
    }

    fn of_secret(object: Option<&'a Secret>, name: &str, optional: bool) -> Result<Self, VolumeError> {
        object.map_or_else(
            || missing("secret", name, optional),
            |object| Ok(Self::Secret(object)),
        )
    }

    fn get(&self, key: &str) -> Option<&'a [u8]> {
        match self {
            Self::ConfigMap(object) => {
                let binary = object.binary_data.as_ref().and_then(|data| data.get(key));
                let text = || object.data.as_ref().and_then(|data| data.get(key));
                let binary = binary.map(|value| value.0.as_slice());
                binary.or_else(|| text().map(String::as_bytes))
            }
            Self::Secret(object) => {
                let value = object.data.as_ref().and_then(|data| data.get(key));
                value.map(|value| value.0.as_slice())
            }
            Self::Nothing => None,
        }
    }

    fn entries(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (text, binary) = match self {
            Self::ConfigMap(object) => (object.data.as_ref(), object.binary_data.as_ref()),
            Self::Secret(object) => (None, object.data.as_ref()),
            Self::Nothing => (None, None),
        };
        let text = text.into_iter().flatten();
        let binary = binary.into_iter().flatten();
        text.map(|(key, value)| (key.as_str(), value.as_bytes()))
            .chain(binary.map(|(key, value)| (key.as_str(), value.0.as_slice())))
    }
}

fn missing<'a>(kind: &'static str, name: &str, optional: bool) -> Result<Data<'a>, VolumeError> {
    if optional {
        return Ok(Data::Nothing);
    }
    Err(VolumeError::ObjectNotFound {
        kind,
        name: name.to_string(),
    })
}

fn downward_files(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    for item in items.unwrap_or_default() {
        let text = if let Some(field) = &item.field_ref {
            downward::metadata_field(context.pod, &field.field_path)
                .ok_or_else(|| VolumeError::Invalid(format!("unsupported fieldPath: {}", field.field_path)))?
        } else if let Some(selector) = &item.resource_field_ref {
            downward::resource_field(context.pod, selector, None, context.node)?
        } else {
            continue;
        };
        files.take(text.len())?;
        let file = FileContent {
            data: text.into_bytes().into(),
            mode: bits(item.mode.or(mode)),
            owner: None,
        };
        files.payload.insert(item.path.clone(), file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
}
