//! NamespaceLifecycle: nothing is made in a namespace that does not exist or is going away, and the system's own
//! namespaces are not deleted.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::GroupResource;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use std::sync::Arc;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) struct NamespaceLifecycle(Arc<dyn ObjectReader>);

impl NamespaceLifecycle {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self(Arc::clone(reader))
    }
}

/// Local access reviews ask about a namespace without putting anything into it.
fn is_review(request: &Request<'_>) -> bool {
    request.group == "authorization.k8s.io" && request.resource == "localsubjectaccessreviews"
}

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update, Operation::Delete]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let protects = request.operation == Operation::Delete
            && request.is("", "namespaces")
            && IMMORTAL.contains(&request.name);
        let creates = request.operation == Operation::Create
            && !request.namespace.is_empty()
            && request.resource != "namespaces"
            && !is_review(request);
        protects || creates
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        _: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let namespace = request.namespace;
        let Some(found) = find(&*self.0, "", "namespaces", "", namespace).await? else {
            let resource = GroupResource::new("", "namespaces");
            return Err(AdmissionError::NotFound {
                resource,
                name: namespace.to_owned(),
            });
        };
        if found.header.is_deleting() {
            return Err(AdmissionError::NamespaceTerminating(namespace.to_owned()));
        }
        Ok(())
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        _: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        if request.operation == Operation::Delete {
            return Err(AdmissionError::forbidden("this namespace may not be deleted"));
        }
        Ok(())
    }
}
