//! Annotations of storage classes that have no effect yet.

use crate::shared::not_enforced::{Field, default_class};
use machinery_schema::Ref;

/// Annotations of the class that objects without one get, with their older names.
const DEFAULT_STORAGE_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// The annotations of the class for claims without one.
pub(crate) fn fields(object: Ref<'_>) -> Vec<Field> {
    let missing = "claims without a class do not get this one";
    default_class(object, &DEFAULT_STORAGE_CLASS, missing)
}
