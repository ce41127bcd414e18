//! CertificateSigning: certificates and conditions of requests are written by users who may sign for their signer.

use super::{GROUP, REQUESTS, require, stored_signer};
use crate::permissions::Permissions;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::Tree;
use std::sync::Arc;

pub(in crate::plugins) struct CertificateSigning(pub(in crate::plugins) Arc<dyn Permissions>);

#[async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        (request.group, request.resource, request.subresource) == (GROUP, REQUESTS, "status")
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(object) = object else {
            return Ok(());
        };
        let changed = |path: &[&str]| old.is_none_or(|old| old.at(path) != object.at(path));
        if !changed(&["status", "certificate"]) && !changed(&["status", "conditions"]) {
            return Ok(());
        }
        let right = ("sign", "sign requests with");
        require(&*self.0, request, right, stored_signer(object, old)).await
    }
}
