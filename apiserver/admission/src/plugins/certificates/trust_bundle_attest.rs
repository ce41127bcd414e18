//! ClusterTrustBundleAttest: a bundle of a signer is published by users who may attest for it.

use super::{GROUP, SIGNER, require, stored_signer};
use crate::permissions::Permissions;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::Tree;
use std::sync::Arc;

pub(in crate::plugins) struct ClusterTrustBundleAttest(pub(in crate::plugins) Arc<dyn Permissions>);

#[async_trait]
impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.is(GROUP, "clustertrustbundles")
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(object) = object.filter(|own| !own.str_at(&SIGNER).is_empty()) else {
            return Ok(());
        };
        if old.is_some_and(|old| is_collected(object, old)) {
            return Ok(());
        }
        let right = ("attest", "attest for");
        require(&*self.0, request, right, stored_signer(object, old)).await
    }
}

/// Nothing but what garbage collection writes differs.
fn is_collected(object: &Tree, old: &Tree) -> bool {
    let rest = |tree: &Tree| {
        let mut rest = tree.clone();
        for name in ["ownerReferences", "finalizers", "managedFields"] {
            rest.remove(&["metadata", name]);
        }
        rest
    };
    rest(object) == rest(old)
}
