//! Where admission is asked: mutating on a candidate, validating on what is about to be stored.

use crate::context::RequestContext;
use crate::error::RegistryError;
use async_trait::async_trait;
use machinery_meta::{GroupVersionKind, GroupVersionResource};
use machinery_schema::Tree;

/// The operation admission is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// What is being done, without the objects.
#[derive(Debug, Clone)]
pub struct Attributes {
    pub operation: Operation,
    pub kind: GroupVersionKind,
    pub resource: GroupVersionResource,
    pub subresource: String,
    pub namespace: String,
    /// Empty while a name is still to be generated.
    pub name: String,
    pub dry_run: bool,
}

/// The admission chain; the server fills it.
#[async_trait]
pub trait Admission: Send + Sync {
    /// May change the candidate. Defaults are applied again afterwards.
    async fn mutate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError>;

    /// May only refuse. `object` is absent on delete.
    async fn validate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError>;

    /// Nothing would be asked about this; deletes then need not decode the object.
    fn is_idle(&self, _attributes: &Attributes) -> bool {
        false
    }
}

/// Admits everything: for the server's own writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct AdmitAll;

#[async_trait]
impl Admission for AdmitAll {
    async fn mutate(
        &self,
        _: &RequestContext,
        _: &Attributes,
        _: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn validate(
        &self,
        _: &RequestContext,
        _: &Attributes,
        _: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        Ok(())
    }

    fn is_idle(&self, _: &Attributes) -> bool {
        true
    }
}
