//! Managed fields: the manager that set each field of an object, kept in `metadata.managedFields` from its create on.
//!
//! [`track`] notes what a create, an update or a patch changed; [`apply`] is server-side apply: a configuration is merged
//! into the live object, what its manager applied before and leaves out now goes, and fields of other managers are
//! conflicts unless they are forced. The store calls `track` for every write that passes the door, before admission; a
//! write that follows an admitted one (binding, eviction) keeps the record as it is, as upstream's does.
//!
//! Upstream: `k8s.io/apimachinery/pkg/util/managedfields`. Its order of wrappers is the order here: the version of the
//! request, `kubectl`'s last-applied annotation ([`last_applied`]), objects without a record, the cap on managers of
//! updates ([`entries`]), times, fields without an owner, and comparing in the version of each manager ([`update`]).
//!
//! Sets of fields and how values merge are `machinery_schema::apply`; this module knows managers, times and which
//! fields have no owner.

mod apply;
mod entries;
mod fields;
mod last_applied;
mod manager;
mod reset;
mod scale;
mod subject;
#[cfg(test)]
mod tests;
mod times;
mod update;

pub use apply::{ApplyError, Conflict, apply};
pub(crate) use entries::problems;
pub use entries::unreadable;
pub use manager::{manager_of, problems as manager_problems};
pub use scale::{from_scale, to_scale};
pub use subject::{Subject, Versions};
pub(crate) use times::keep_times;
pub use update::track;

use crate::engine::error::RegistryError;
use machinery_schema::apply::FieldSet;
use machinery_schema::{Exceeded, Ref, Tree};
use std::sync::LazyLock;

/// The manager of a write, and its time.
#[derive(Debug, Clone)]
pub struct Writer {
    pub manager: String,
    /// The time of the request as metadata have it.
    pub now: String,
}

/// Fields of the server, or of the object's identity.
const UNOWNED: &str = r#"{"f:apiVersion":{},"f:kind":{},"f:metadata":{".":{},"f:name":{},"f:namespace":{},"f:creationTimestamp":{},"f:selfLink":{},"f:uid":{},"f:clusterName":{},"f:generation":{},"f:managedFields":{},"f:resourceVersion":{}}}"#;

/// The members of the metadata among them.
const UNOWNED_METADATA: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

static UNOWNED_FIELDS: LazyLock<FieldSet> =
    LazyLock::new(|| FieldSet::from_json(UNOWNED).expect("the constant is well formed"));

/// The record of an object, where it has one.
pub(crate) fn record(object: &Tree) -> Option<Ref<'_>> {
    object.at(&["metadata", "managedFields"])
}

/// The answer to a write that takes more steps than are allowed.
pub fn refusal(bound: Exceeded) -> RegistryError {
    RegistryError::TooLargePatch(bound.to_string())
}

/// Takes the record of an object away.
pub fn forget(object: &mut Tree) {
    object.remove(&["metadata", "managedFields"]);
}

/// Reports whether a new object that is too large may lose its record: no manager has applied it.
pub(crate) fn is_droppable(object: &Tree) -> bool {
    record(object).is_some_and(|list| list.items().all(|entry| entry.str("operation") != "Apply"))
}
