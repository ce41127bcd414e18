//! Columns of Events in a Table.

use crate::shared::columns::format::{UNKNOWN, int, name, or, text};
use crate::shared::columns::{Cell, age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let names = EventNames {
        regarding: "involvedObject",
        note: "message",
        count: "count",
        first: "firstTimestamp",
        last: "lastTimestamp",
        source: "source",
        controller: "reportingComponent",
    };
    event_cells(object, now, &names)
}

/// Names of an event's members, which its two versions spell differently.
pub(crate) struct EventNames {
    pub(crate) regarding: &'static str,
    pub(crate) note: &'static str,
    pub(crate) count: &'static str,
    pub(crate) first: &'static str,
    pub(crate) last: &'static str,
    pub(crate) source: &'static str,
    pub(crate) controller: &'static str,
}

/// The cells of an event of either version.
pub(crate) fn event_cells(object: Ref<'_>, now: Timestamp, names: &EventNames) -> Vec<Cell> {
    let event_time = object.str("eventTime");
    let first = or(object.str(names.first), event_time);
    let series = object.get("series").map(|series| series.str("lastObservedTime"));
    let last = series.unwrap_or_else(|| or(object.str(names.last), first));
    let count = match object.at(&["series", "count"]).and_then(Ref::as_i64) {
        Some(count) => count,
        None => int(object, &[names.count]).max(1),
    };
    let regarding = object.get(names.regarding);
    let member = |field: &str| regarding.map_or("", |r| r.str(field));
    let target = if member("name").is_empty() {
        member("kind").to_lowercase()
    } else {
        format!("{}/{}", member("kind").to_lowercase(), member("name"))
    };
    vec![
        since(last, now).into(),
        text(object, &["type"]),
        text(object, &["reason"]),
        target.into(),
        member("fieldPath").into(),
        event_source(object, names).into(),
        object.str(names.note).trim().into(),
        since(first, now).into(),
        count.into(),
        name(object),
    ]
}

fn event_source(object: Ref<'_>, names: &EventNames) -> String {
    let component = or(
        object.str_at(&[names.source, "component"]),
        object.str(names.controller),
    );
    let host = or(
        object.str_at(&[names.source, "host"]),
        object.str("reportingInstance"),
    );
    let parts: Vec<&str> = [component, host]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(", ")
}

fn since(text: &str, now: Timestamp) -> String {
    if text.is_empty() {
        UNKNOWN.into()
    } else {
        age(text, now)
    }
}
