//! Cells that several kinds of the group have.

use crate::shared::columns::format::containers;
use machinery_schema::Ref;

/// Names and images of the containers in a template.
pub(super) fn template(object: Ref<'_>) -> (String, String) {
    containers(object.at(&["spec", "template", "spec"]))
}
