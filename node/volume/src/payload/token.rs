//! Tokens of service accounts as files.

use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;

use super::{Files, PayloadContext, private};
use crate::VolumeError;

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
    let file = private::file(pod, data.into(), mode);
    files.payload.insert(source.path.clone(), file);
    Ok(())
}
