//! Columns of CertificateSigningRequests in a Table.

use crate::shared::columns::format::{NONE, name, object_age, or, text};
use crate::shared::columns::{Cell, human_duration};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let duration = object.at(&["spec", "expirationSeconds"]).and_then(Ref::as_i64);
    let mut states: Vec<&str> = Vec::new();
    for condition in object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"))
    {
        states.push(condition.str("type"));
    }
    let decided = ["Denied", "Approved"]
        .into_iter()
        .find(|state| states.contains(state));
    let mut shown = vec![decided.unwrap_or("Pending")];
    if states.contains(&"Failed") {
        shown.push("Failed");
    }
    if !object.str_at(&["status", "certificate"]).is_empty() {
        shown.push("Issued");
    }
    vec![
        name(object),
        object_age(object, now),
        or(object.str_at(&["spec", "signerName"]), NONE).into(),
        text(object, &["spec", "username"]),
        duration.map_or_else(|| NONE.to_owned(), human_duration).into(),
        shown.join(",").into(),
    ]
}
