//! Columns of PodCertificateRequests in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{labels, name, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let conditions = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let states = ["Issued", "Denied", "Failed"];
    let state = conditions
        .map(|condition| condition.str("type"))
        .rfind(|own| states.contains(own));
    vec![
        name(object),
        text(object, &["spec", "podName"]),
        text(object, &["spec", "serviceAccountName"]),
        text(object, &["spec", "nodeName"]),
        text(object, &["spec", "signerName"]),
        state.unwrap_or("Pending").into(),
        labels(object.at(&["spec", "unverifiedUserAnnotations"])).into(),
    ]
}
