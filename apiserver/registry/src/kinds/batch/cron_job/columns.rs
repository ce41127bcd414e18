//! Columns of CronJobs in a Table.

use crate::shared::columns::format::{NONE, UNKNOWN, containers, name, object_age, or, selector};
use crate::shared::columns::{Cell, age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = containers(object.at(&["spec", "jobTemplate", "spec", "template", "spec"]));
    let last = object.str_at(&["status", "lastScheduleTime"]);
    let last = if last.is_empty() {
        NONE.to_owned()
    } else {
        age(last, now)
    };
    let suspend = object
        .at(&["spec", "suspend"])
        .map_or_else(|| UNKNOWN.to_owned(), Ref::to_json);
    let suspend = match suspend.as_str() {
        "true" => "True".to_owned(),
        "false" => "False".to_owned(),
        _ => suspend,
    };
    vec![
        name(object),
        object.str_at(&["spec", "schedule"]).into(),
        or(object.str_at(&["spec", "timeZone"]), NONE).into(),
        suspend.into(),
        Cell::Int(i64::try_from(object.at(&["status", "active"]).map_or(0, Ref::len)).unwrap_or(0)),
        last.into(),
        object_age(object, now),
        names.into(),
        images.into(),
        selector(object.at(&["spec", "jobTemplate", "spec", "selector"])).into(),
    ]
}
