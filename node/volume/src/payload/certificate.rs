//! A pod's own key and certificates as files.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodCertificateProjection;

use super::{Files, PayloadContext, private};
use crate::VolumeError;

/// Place of a projection in a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProjectionPlace {
    /// The volume.
    pub volume: String,
    /// Index among the volume's sources.
    pub source: usize,
}

/// A private key and the certificates for it, each as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The key, in PKCS #8.
    pub key: Arc<[u8]>,
    /// The certificate of the key, and those that lead to its authority.
    pub chain: Arc<[u8]>,
}

/// The key is not shown.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Adds the files that a projection names.
pub(super) async fn add(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    place: &ProjectionPlace,
    source: &PodCertificateProjection,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    let found = context.objects.pod_certificate(context.pod, place).await?;
    let bundle = || Arc::from([found.key.as_ref(), found.chain.as_ref()].concat());
    let mut add = |path: &Option<String>, data: &dyn Fn() -> Arc<[u8]>| {
        let Some(path) = path.as_ref().filter(|path| !path.is_empty()) else {
            return Ok(());
        };
        let data = data();
        files.take(data.len())?;
        let file = private::file(context.pod, data, mode);
        files.payload.insert(path.clone(), file);
        Ok(())
    };
    add(&source.credential_bundle_path, &bundle)?;
    add(&source.key_path, &|| found.key.clone())?;
    add(&source.certificate_chain_path, &|| found.chain.clone())
}
