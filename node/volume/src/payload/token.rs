//! Tokens of service accounts as files.

use k8s_openapi::api::core::v1::{Container, Pod, ServiceAccountTokenProjection};

use super::{Files, PayloadContext, bits};
use crate::VolumeError;
use crate::atomic_writer::FileContent;

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
    /// Audience of the token; empty is the API server.
    pub audience: String,
    /// Requested lifetime in seconds.
    pub expiration_seconds: i64,
    /// The pod it is bound to: name and uid.
    pub pod: (String, String),
}

/// Adds the file of a token.
pub(super) async fn add(
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
    let own = |container: &Container| {
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
