//! CertificateApproval: requests are approved and denied by users who may approve for their signer.

use super::{GROUP, REQUESTS, require, stored_signer};
use crate::permissions::Permissions;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::Tree;
use std::sync::Arc;

pub(in crate::plugins) struct CertificateApproval(pub(in crate::plugins) Arc<dyn Permissions>);

#[async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        (request.group, request.resource, request.subresource) == (GROUP, REQUESTS, "approval")
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
        let right = ("approve", "approve requests with");
        require(&*self.0, request, right, stored_signer(object, old)).await
    }
}
