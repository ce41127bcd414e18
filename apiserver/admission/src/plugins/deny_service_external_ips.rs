//! DenyServiceExternalIPs: no service requests external addresses that it does not have. With them a writer of services could
//! take others' traffic (CVE-2020-8554), so it is on here (decision 0044); upstream leaves it off.

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::{Ref, Tree};
use std::collections::HashSet;

pub(super) struct DenyServiceExternalIps;

fn addresses(service: &Tree) -> impl Iterator<Item = &str> {
    let listed = service.at(&["spec", "externalIPs"]).into_iter();
    listed.flat_map(Ref::items).filter_map(Ref::as_str)
}

#[async_trait]
impl Plugin for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "services")
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(service) = object else { return Ok(()) };
        let had: HashSet<&str> = old.into_iter().flat_map(addresses).collect();
        if addresses(service).all(|address| had.contains(address)) {
            return Ok(());
        }
        Err(AdmissionError::forbidden(
            "Use of external IPs is denied by admission control",
        ))
    }
}
