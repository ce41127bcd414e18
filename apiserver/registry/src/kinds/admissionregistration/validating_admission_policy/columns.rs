//! Columns of ValidatingAdmissionPolicies in a Table.

use crate::kinds::admissionregistration::columns::param_kind;
use crate::shared::columns::Cell;
use crate::shared::columns::format::{count, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        count(object, &["spec", "validations"]),
        param_kind(object),
        object_age(object, now),
    ]
}
