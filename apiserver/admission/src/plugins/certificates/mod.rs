//! Certificates: the rights to approve and sign requests for them, and to publish bundles of trust (upstream's plugins
//! CertificateApproval, CertificateSigning, ClusterTrustBundleAttest and CertificateSubjectRestriction).
//!
//! Writing the object is one right, acting for the signer it names another: a verb on `signers` by the signer's name,
//! or by its domain with `/*`. No user gets the certificate of a cluster's master by a request for it. Requests of nodes are
//! checked by NodeRestriction, PodCertificateRequests by the rules, as upstream's registry does.

mod approval;
mod signing;
mod subject_restriction;
mod trust_bundle_attest;

#[cfg(test)]
mod tests;

pub(super) use approval::CertificateApproval;
pub(super) use signing::CertificateSigning;
pub(super) use subject_restriction::CertificateSubjectRestriction;
pub(super) use trust_bundle_attest::ClusterTrustBundleAttest;

use crate::permissions::{Permissions, Right};
use crate::{AdmissionError, Request};
use machinery_meta::UserInfo;
use machinery_schema::Tree;

pub(crate) const GROUP: &str = "certificates.k8s.io";
pub(crate) const SIGNER: [&str; 2] = ["spec", "signerName"];
const REQUESTS: &str = "certificatesigningrequests";

/// Reports whether the user may act for a signer.
pub(crate) async fn may_act_for(
    permissions: &dyn Permissions,
    user: &UserInfo,
    verb: &str,
    signer: &str,
) -> Result<bool, AdmissionError> {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer, &format!("{domain}/*")] {
        let right = Right {
            verb,
            group: GROUP,
            resource: "signers",
            namespace: "",
            name,
        };
        if permissions.has(user, right).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a request of a user without the right `verb` on the signer; the words follow "user not permitted to".
async fn require(
    permissions: &dyn Permissions,
    request: &Request<'_>,
    (verb, words): (&str, &str),
    signer: &str,
) -> Result<(), AdmissionError> {
    if may_act_for(permissions, request.user, verb, signer).await? {
        return Ok(());
    }
    Err(AdmissionError::forbidden(format!(
        "user not permitted to {words} signerName {signer:?}"
    )))
}

/// The signer of the stored request, whatever the write says.
fn stored_signer<'a>(object: &'a Tree, old: Option<&'a Tree>) -> &'a str {
    old.unwrap_or(object).str_at(&SIGNER)
}
