//! NamespaceAutoProvision: a namespace in which something is created is made first, where it is absent. Off by default, as
//! upstream's.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use std::fmt;
use std::sync::Arc;

/// Makes namespaces; the server gives its own.
#[async_trait]
pub trait NamespaceProvisioner: fmt::Debug + Send + Sync {
    /// Makes a namespace, unless it is there by now.
    ///
    /// # Errors
    /// The message of the refusal.
    async fn provision(&self, name: &str) -> Result<(), String>;
}

pub(super) struct NamespaceAutoProvision {
    reader: Arc<dyn ObjectReader>,
    provisioner: Arc<dyn NamespaceProvisioner>,
}

impl NamespaceAutoProvision {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>, provisioner: Arc<dyn NamespaceProvisioner>) -> Self {
        Self {
            reader: Arc::clone(reader),
            provisioner,
        }
    }
}

#[async_trait]
impl Plugin for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && !request.dry_run && request.is_in_namespace()
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        _: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let name = request.namespace;
        if find(&*self.reader, "", "namespaces", "", name).await?.is_some() {
            return Ok(());
        }
        let made = self.provisioner.provision(name).await;
        made.map_err(AdmissionError::Forbidden)
    }
}
