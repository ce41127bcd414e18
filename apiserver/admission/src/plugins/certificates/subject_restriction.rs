//! CertificateSubjectRestriction: no request is for a client's certificate of the group `system:masters`, nor one that
//! cannot be read.

use super::{GROUP, REQUESTS, SIGNER};
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use apiserver_registry::kinds::certificates::organizations;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_meta::UserInfo;
use machinery_schema::Tree;

/// Signs certificates that the API server takes for users.
pub(super) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(in crate::plugins) struct CertificateSubjectRestriction;

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.is(GROUP, REQUESTS)
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        object: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        match object.and_then(refusal) {
            Some(why) => Err(AdmissionError::Forbidden(why)),
            None => Ok(()),
        }
    }
}

fn refusal(object: &Tree) -> Option<String> {
    if object.str_at(&SIGNER) != CLIENT_SIGNER {
        return None;
    }
    // What is no request at all is refused by its validation.
    let text = STANDARD.decode(object.str_at(&["spec", "request"])).ok()?;
    let groups = organizations(&text);
    if groups.iter().any(Option::is_none) {
        return Some("unable to read the organizations of the request".to_owned());
    }
    let masters = UserInfo::MASTERS;
    groups
        .iter()
        .any(|group| group.as_deref() == Some(masters))
        .then(|| format!("use of {CLIENT_SIGNER} signer with {masters} group is not allowed"))
}
