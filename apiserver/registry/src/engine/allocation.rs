//! Things that objects of a kind hold elsewhere and share with others, such as addresses and ports: taken and given back with
//! a write. They stand beside the kinds and not in their strategies, since they read the registry, which holds strategies.

use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::kind::Kind;
use crate::engine::registry::Registry;
use crate::engine::row::ResourceRow;
use apiserver_storage::Write;
use futures::future::BoxFuture;
use machinery_schema::{Ref, Tree};

/// The operation that a kind allocates for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AllocationChange<'a> {
    Create,
    Update { old: Ref<'a> },
    Delete,
}

/// The writes that land with an object.
pub(crate) type Allocation<'a> = BoxFuture<'a, Result<Vec<Write>, RegistryError>>;
/// Takes or gives back what an object holds elsewhere, the last that may change the object of a create or update.
pub(crate) type Allocate =
    for<'a> fn(&'a RequestContext, &'a Registry, AllocationChange<'a>, &'a mut Tree) -> Allocation<'a>;

/// Kinds that allocate, each with its function.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocators(&'static [(&'static Kind, Allocate)]);

impl Allocators {
    pub(crate) const fn of(all: &'static [(&'static Kind, Allocate)]) -> Self {
        Self(all)
    }

    /// The function of the kind that a row serves; `None` where it allocates nothing.
    pub(crate) fn find(self, row: &ResourceRow) -> Option<Allocate> {
        let kind = row.built_in?;
        let mut all = self.0.iter();
        all.find(|(own, _)| *own == kind).map(|(_, allocate)| *allocate)
    }
}

/// The kinds that a server is built with.
#[derive(Debug)]
pub struct BuiltIn {
    /// Rows of every kind and version.
    pub rows: Vec<ResourceRow>,
    /// Kinds that allocate.
    pub allocators: Allocators,
}
