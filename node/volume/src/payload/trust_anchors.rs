//! Trust anchors of ClusterTrustBundles as a file.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Files, PayloadContext, private};
use crate::VolumeError;

/// ClusterTrustBundles whose anchors a file has.
#[derive(Debug, Clone, PartialEq)]
pub enum TrustAnchors {
    /// Anchors of one bundle.
    Named {
        /// Its name.
        name: String,
        /// Without the bundle there are no anchors, which is no error.
        optional: bool,
    },
    /// Anchors of a signer's bundles.
    Signed {
        /// The signer.
        signer: String,
        /// Selection among its bundles; an absent selector matches none, an empty one all.
        selector: Option<LabelSelector>,
        /// Without a bundle there are no anchors, which is no error.
        optional: bool,
    },
}

impl TrustAnchors {
    fn of(source: &ClusterTrustBundleProjection) -> Result<Self, VolumeError> {
        let optional = source.optional == Some(true);
        match (&source.name, &source.signer_name) {
            (Some(name), _) => Ok(Self::Named {
                name: name.clone(),
                optional,
            }),
            (None, Some(signer)) => Ok(Self::Signed {
                signer: signer.clone(),
                selector: source.label_selector.clone(),
                optional,
            }),
            (None, None) => Err(VolumeError::Invalid(
                "ClusterTrustBundle projection requires either name or signerName to be set".into(),
            )),
        }
    }
}

/// Adds the file of the anchors.
pub(super) async fn add(
    files: &mut Files<'_>,
    context: &PayloadContext<'_>,
    source: &ClusterTrustBundleProjection,
    mode: Option<i32>,
) -> Result<(), VolumeError> {
    let wanted = TrustAnchors::of(source)?;
    let data: Arc<[u8]> = context.objects.trust_anchors(&wanted).await?;
    files.take(data.len())?;
    let file = private::file(context.pod, data, mode);
    files.payload.insert(source.path.clone(), file);
    Ok(())
}
