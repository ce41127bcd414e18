//! The files of configMap, secret, downwardAPI and projected volumes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};

use crate::atomic_writer::{FileContent, Payload};
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
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, VolumeError>;
    /// A Secret.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, VolumeError>;
    /// A token, fresh enough to be used.
    async fn token(&self, request: &TokenRequest) -> Result<String, VolumeError>;
}

/// Whom a payload is for.
pub(crate) struct PayloadContext<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) objects: &'a dyn ObjectSource,
    pub(crate) node: &'a NodeResources,
}

/// The payload of an API volume; `None` if the volume is of another type.
pub(crate) async fn of_volume(
    context: &PayloadContext<'_>,
    volume: &Volume,
) -> Result<Option<Payload>, VolumeError> {
    let mut payload = Payload::new();
    let namespace = context.pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &volume.config_map {
        let optional = source.optional == Some(true);
        let object = context.objects.config_map(namespace, &source.name).await?;
        let data = config_map_data(object, &source.name, optional)?;
        project(
            &mut payload,
            &data,
            &Wanted::new("config", &source.items, source.default_mode, optional),
        )?;
    } else if let Some(source) = &volume.secret {
        let optional = source.optional == Some(true);
        let name = source.secret_name.as_deref().unwrap_or_default();
        let data = secret_data(context.objects.secret(namespace, name).await?, name, optional)?;
        project(
            &mut payload,
            &data,
            &Wanted::new("secret", &source.items, source.default_mode, optional),
        )?;
    } else if let Some(source) = &volume.downward_api {
        downward_files(
            &mut payload,
            context,
            source.items.as_deref(),
            source.default_mode,
        )?;
    } else if let Some(source) = &volume.projected {
        projected(&mut payload, context, source).await?;
    } else {
        return Ok(None);
    }
    Ok(Some(payload))
}

async fn projected(
    payload: &mut Payload,
    context: &PayloadContext<'_>,
    source: &ProjectedVolumeSource,
) -> Result<(), VolumeError> {
    for part in source.sources.iter().flatten() {
        projection(payload, context, part, source.default_mode).await?;
    }
    Ok(())
}

async fn projection(
    payload: &mut Payload,
    context: &PayloadContext<'_>,
    part: &VolumeProjection,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    let namespace = context.pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &part.config_map {
        let optional = source.optional == Some(true);
        let object = context.objects.config_map(namespace, &source.name).await?;
        let data = config_map_data(object, &source.name, optional)?;
        project(
            payload,
            &data,
            &Wanted::new("config", &source.items, mode, optional),
        )?;
    }
    if let Some(source) = &part.secret {
        let optional = source.optional == Some(true);
        let data = secret_data(
            context.objects.secret(namespace, &source.name).await?,
            &source.name,
            optional,
        )?;
        project(
            payload,
            &data,
            &Wanted::new("secret", &source.items, mode, optional),
        )?;
    }
    if let Some(source) = &part.downward_api {
        downward_files(payload, context, source.items.as_deref(), mode)?;
    }
    if let Some(source) = &part.service_account_token {
        token(payload, context, source, mode).await?;
    }
    if part.cluster_trust_bundle.is_some() || part.pod_certificate.is_some() {
        return Err(VolumeError::Invalid(
            "this kind of projection is not provided by this node".into(),
        ));
    }
    Ok(())
}

async fn token(
    payload: &mut Payload,
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
    let group = spec
        .and_then(|spec| spec.security_context.as_ref())
        .and_then(|context| context.fs_group);
    let owner = only_user(pod);
    let private = group.is_some() || owner.is_some();
    let mode = if private { PRIVATE_MODE } else { bits(mode) };
    payload.insert(source.path.clone(), FileContent { data, mode, owner });
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

fn project(
    payload: &mut Payload,
    data: &BTreeMap<String, Vec<u8>>,
    wanted: &Wanted<'_>,
) -> Result<(), VolumeError> {
    let file = |data: &[u8], mode| FileContent {
        data: data.to_vec(),
        mode: bits(mode),
        owner: None,
    };
    let Some(items) = wanted.items else {
        payload.extend(
            data.iter()
                .map(|(key, value)| (key.clone(), file(value, wanted.mode))),
        );
        return Ok(());
    };
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                payload.insert(item.path.clone(), file(value, item.mode.or(wanted.mode)));
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

fn config_map_data(
    object: Option<ConfigMap>,
    name: &str,
    optional: bool,
) -> Result<BTreeMap<String, Vec<u8>>, VolumeError> {
    let Some(object) = object else {
        return missing("configmap", name, optional);
    };
    let text = object
        .data
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.into_bytes()));
    Ok(text
        .chain(
            object
                .binary_data
                .into_iter()
                .flatten()
                .map(|(key, value)| (key, value.0)),
        )
        .collect())
}

fn secret_data(
    object: Option<Secret>,
    name: &str,
    optional: bool,
) -> Result<BTreeMap<String, Vec<u8>>, VolumeError> {
    let Some(object) = object else {
        return missing("secret", name, optional);
    };
    Ok(object
        .data
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.0))
        .collect())
}

fn missing(kind: &'static str, name: &str, optional: bool) -> Result<BTreeMap<String, Vec<u8>>, VolumeError> {
    if optional {
        return Ok(BTreeMap::new());
    }
    Err(VolumeError::ObjectNotFound {
        kind,
        name: name.to_string(),
    })
}

fn downward_files(
    payload: &mut Payload,
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
        let file = FileContent {
            data: text.into_bytes(),
            mode: bits(item.mode.or(mode)),
            owner: None,
        };
        payload.insert(item.path.clone(), file);
    }
    Ok(())
}
