//! Annotations of ingress classes that have no effect yet.

use crate::shared::not_enforced::{Field, default_class};
use machinery_schema::Ref;

const DEFAULT_INGRESS_CLASS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];

/// The annotation of the class for ingresses without one.
pub(crate) fn fields(object: Ref<'_>) -> Vec<Field> {
    let missing = "ingresses without a class do not get this one";
    default_class(object, &DEFAULT_INGRESS_CLASS, missing)
}
