//! Columns of Jobs in a Table.

use crate::shared::columns::format::{condition, containers, int, name, object_age, selector};
use crate::shared::columns::{Cell, human_duration};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = containers(object.at(&["spec", "template", "spec"]));
    vec![
        name(object),
        job_status(object).into(),
        completions(object).into(),
        duration(object, now).into(),
        object_age(object, now),
        names.into(),
        images.into(),
        selector(object.at(&["spec", "selector"])).into(),
    ]
}

fn completions(object: Ref<'_>) -> String {
    let succeeded = int(object, &["status", "succeeded"]);
    let number = |path: &[&str]| object.at(path).and_then(Ref::as_i64);
    match (
        number(&["spec", "completions"]),
        number(&["spec", "parallelism"]).unwrap_or(0),
    ) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn duration(object: Ref<'_>, now: Timestamp) -> String {
    let time = |field: &str| object.str_at(&["status", field]).parse::<Timestamp>().ok();
    let Some(start) = time("startTime") else {
        return String::new();
    };
    let end = time("completionTime").unwrap_or(now);
    human_duration(end.as_second() - start.as_second())
}

fn job_status(object: Ref<'_>) -> &'static str {
    let is_true = |kind: &str| condition(object, kind).is_some_and(|c| c.str("status") == "True");
    match () {
        () if is_true("Complete") => "Complete",
        () if is_true("Failed") => "Failed",
        () if !object.str_at(&["metadata", "deletionTimestamp"]).is_empty() => "Terminating",
        () if is_true("Suspended") => "Suspended",
        () if is_true("FailureTarget") => "FailureTarget",
        () if is_true("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}
