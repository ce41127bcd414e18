//! Columns of ResourceQuotas in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{name, object_age, or};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = object.at(&["status", "hard"]).into_iter().flat_map(Ref::entries);
    for (resource, amount) in hard {
        let used = or(object.str_at(&["status", "used", resource]), "0");
        let shown = format!("{resource}: {used}/{}", amount.as_str().unwrap_or_default());
        if resource.starts_with("limits.") {
            limits.push(shown)
        } else {
            requests.push(shown)
        }
    }
    vec![
        name(object),
        requests.join(", ").into(),
        limits.join(", ").into(),
        object_age(object, now),
    ]
}
