//! The subject of a record of owners: a kind in one version, through one of its addresses.

use super::reset::{self, Reset};
use crate::engine::row::ResourceRow;
use crate::engine::strategy::ObjectPart;
use machinery_meta::GroupVersionKind;
use machinery_schema::apply::{Comparison, Typed};
use machinery_schema::{Schema, Tree, TypeId, to_untyped};
use std::sync::Arc;

/// The versions in which a kind is served.
pub trait Versions: Send + Sync {
    /// The kind in another version, by an `apiVersion`.
    fn row(&self, api_version: &str) -> Option<Arc<ResourceRow>>;
}

/// A kind without other versions.
impl Versions for () {
    fn row(&self, _: &str) -> Option<Arc<ResourceRow>> {
        None
    }
}

/// See the module.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub schema: &'a Arc<Schema>,
    pub ty: TypeId,
    pub gvk: &'a GroupVersionKind,
    /// As entries name it.
    pub subresource: &'static str,
    /// Upstream keeps the object as free-form JSON: elements are in the order of their text.
    pub(super) free_form: bool,
    reset: Reset,
    row: Option<(&'a ResourceRow, ObjectPart)>,
    versions: &'a dyn Versions,
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("gvk", &self.gvk)
            .field("subresource", &self.subresource)
            .finish_non_exhaustive()
    }
}

impl<'a> Subject<'a> {
    /// A part of a row's objects.
    pub fn part(row: &'a ResourceRow, part: ObjectPart, versions: &'a dyn Versions) -> Self {
        Self {
            schema: &row.schema,
            ty: row.ty,
            gvk: &row.gvk,
            subresource: part.subresource(),
            free_form: row.custom,
            reset: reset::of(row, part),
            row: Some((row, part)),
            versions,
        }
    }

    /// A kind that is shown of another one's objects, or that nothing stores.
    pub fn window(
        schema: &'a Arc<Schema>,
        ty: TypeId,
        gvk: &'a GroupVersionKind,
        subresource: &'static str,
    ) -> Self {
        Self {
            schema,
            ty,
            gvk,
            subresource,
            free_form: false,
            reset: Reset::NONE,
            row: None,
            versions: &(),
        }
    }

    /// The same with elements in the order of their text.
    pub(super) fn in_free_form(self) -> Self {
        Self {
            free_form: true,
            ..self
        }
    }

    pub(super) fn api_version(&self) -> String {
        self.gvk.api_version()
    }

    pub(super) fn own_row(&self) -> Option<&'a ResourceRow> {
        self.row.map(|(row, _)| row)
    }

    pub(super) fn other_row(&self, api_version: &str) -> Option<Arc<ResourceRow>> {
        self.versions.row(api_version)
    }

    pub(super) fn reset(&self) -> Reset {
        self.reset
    }

    /// An object of the kind that says nothing.
    pub(super) fn nothing(&self) -> Tree {
        Tree::new(self.schema, self.ty)
    }

    pub(super) fn typed<'t>(&'t self, document: &'t Tree) -> Typed<'t> {
        Typed {
            schema: self.schema,
            ty: self.ty,
            document,
        }
    }

    /// Changes from the live object to this one, without the fields that the strategy resets.
    pub(super) fn compare(&self, live: &Tree, object: &Tree) -> Comparison {
        compare(self.typed(live), object, self.reset)
    }

    /// The same as managers of another version see it; nothing where that version is not served any more.
    pub(super) fn compare_in(&self, api_version: &str, live: &Tree, object: &Tree) -> Option<Comparison> {
        let (row, part) = self.row?;
        let other = self.versions.row(api_version)?;
        let (live, object) = (converted(row, &other, live), converted(row, &other, object));
        let typed = Typed {
            schema: &other.schema,
            ty: other.ty,
            document: &live,
        };
        Some(compare(typed, &object, reset::of(&other, part)))
    }
}

fn compare(live: Typed<'_>, object: &Tree, reset: Reset) -> Comparison {
    let members: Vec<&str> = reset.members().collect();
    let changes = live.compare_without(object, &members);
    changes.map(|fields| reset.kept(fields))
}

/// An object of one version in another one.
fn converted(from: &ResourceRow, to: &ResourceRow, object: &Tree) -> Tree {
    let stored = match &from.stored.conversion {
        Some(conversion) => conversion.to_stored(object, &from.stored.schema, from.stored.ty),
        None => object.clone(),
    };
    match &to.stored.conversion {
        Some(conversion) => conversion.to_served(&stored, &to.schema, to.ty),
        None => stored,
    }
}

/// A document to merge with: free-form, without the record of its owners.
pub(super) fn document(object: &Tree) -> Tree {
    let mut free = to_untyped(object);
    super::forget(&mut free);
    free
}
