//! Columns of CustomResourceDefinitions in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{condition, name, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let is = |version: Ref<'_>, name: &str| version.get(name).and_then(Ref::as_bool) == Some(true);
    let versions = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("versions"));
    let mut versions: Vec<String> = versions
        .filter(|version| is(*version, "served"))
        .map(|version| match is(version, "storage") {
            true => format!("{}(storage)", version.str("name")),
            false => version.str("name").to_owned(),
        })
        .collect();
    versions.sort();
    let short: Vec<&str> = object
        .at(&["spec", "names"])
        .into_iter()
        .flat_map(|n| n.list("shortNames"))
        .filter_map(Ref::as_str)
        .collect();
    vec![
        name(object),
        text(object, &["spec", "scope"]),
        versions.join(",").into(),
        text(object, &["metadata", "creationTimestamp"]),
        text(object, &["spec", "group"]),
        text(object, &["spec", "names", "kind"]),
        short.join(",").into(),
        condition(object, "Established")
            .is_some_and(|c| c.str("status") == "True")
            .into(),
    ]
}
