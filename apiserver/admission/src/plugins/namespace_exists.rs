//! NamespaceExists: nothing is written in a namespace that does not exist. Off by default, as upstream's: NamespaceLifecycle
//! does more.

use super::objects::namespace_of;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use std::sync::Arc;

pub(super) struct NamespaceExists(Arc<dyn ObjectReader>);

impl NamespaceExists {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self(Arc::clone(reader))
    }
}

#[async_trait]
impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update, Operation::Delete]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation != Operation::Connect && request.is_in_namespace()
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        _: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        namespace_of(&*self.0, request.namespace).await.map(drop)
    }
}
