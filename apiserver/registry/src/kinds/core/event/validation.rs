//! Validation of Events, in the core group and in events.k8s.io (upstream's `events.go` of validation).

use crate::shared::validation::{Errors, Path, immutable, immutable_text, present};
use machinery_meta::{FieldError, syntax};
use machinery_schema::{Kind, Ref};

const NOTE_LIMIT: usize = 1024;
const SHORT_LIMIT: usize = 128;

/// Names of the validated fields in one of the two versions; messages use upstream's internal names.
struct Names {
    involved: &'static str,
    /// The field, and the name messages have for it.
    controller: &'static str,
    note: &'static str,
}

const CORE: Names = Names {
    involved: "involvedObject",
    controller: "reportingComponent",
    note: "message",
};
const EVENTS: Names = Names {
    involved: "regarding",
    controller: "reportingController",
    note: "note",
};

/// Every problem of an Event written through the core group. Cluster-scoped objects have theirs in `default`.
pub fn validate_core(event: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    either(&mut errors, event, &CORE);
    errors.into_list()
}

/// Every problem of an Event written through events.k8s.io, which demands what the older form left open.
pub fn validate_events(event: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    either(&mut errors, event, &EVENTS);
    series(&mut errors, event);
    if !has_time(event, "eventTime") {
        errors.required(&Path::of("eventTime"), "");
    }
    let kind = event.str("type");
    if kind != "Normal" && kind != "Warning" {
        errors.invalid(&Path::of("type"), "", format!("has invalid value: {kind}"));
    }
    let count = event.get("deprecatedCount").and_then(Ref::as_i64).unwrap_or(0);
    let source = event.get("deprecatedSource");
    let from = |field: &str| source.is_some_and(|source| !source.str(field).is_empty());
    for (name, set) in [
        ("firstTimestamp", has_time(event, "deprecatedFirstTimestamp")),
        ("lastTimestamp", has_time(event, "deprecatedLastTimestamp")),
        ("count", count != 0),
        ("source", from("component") || from("host")),
    ] {
        if set {
            errors.invalid(&Path::of(name), "", "needs to be unset");
        }
    }
    errors.into_list()
}

/// Immutable fields of an Event: the name in messages, and the name in events.k8s.io.
const FIXED: [(&str, &str); 12] = [
    ("involvedObject", "regarding"),
    ("reason", "reason"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
];

/// Those that are strings.
const TEXTS: [&str; 6] = [
    "reason",
    "note",
    "type",
    "action",
    "reportingController",
    "reportingInstance",
];

/// Every problem of an Event changed through events.k8s.io, where all but its series stays.
pub fn validate_events_update(event: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    either(&mut errors, event, &EVENTS);
    let json = |event: Ref<'_>, name: &str| present(event, name).map(Ref::to_json);
    let value = |event, name: &str| present(event, name).filter(|value| !is_zero(*value));
    if json(event, "series") != json(old, "series") {
        series(&mut errors, event);
    }
    for (shown, name) in FIXED
        .into_iter()
        .chain([("reportingInstance", "reportingInstance")])
    {
        let (new, was) = (value(event, name), value(old, name));
        let rule = if TEXTS.contains(&name) {
            immutable_text
        } else {
            immutable
        };
        rule(&mut errors, &Path::of(shown), new, was, "field is immutable");
    }
    errors.into_list()
}

/// Reports whether a value is Go's zero: there an absent member is an empty one.
fn is_zero(value: Ref<'_>) -> bool {
    match value.kind() {
        Kind::Map | Kind::List => value.is_empty(),
        _ => value.as_str() == Some("") || value.as_i64() == Some(0),
    }
}

fn has_time(event: Ref<'_>, field: &str) -> bool {
    !event.str(field).is_empty()
}

/// Rules of both versions: few for an event of the old form, more for one that has an `eventTime`.
fn either(errors: &mut Errors, event: Ref<'_>, names: &Names) {
    let namespace = event.str_at(&["metadata", "namespace"]);
    let involved = event.str_at(&[names.involved, "namespace"]);
    let modern = has_time(event, "eventTime");
    let fits = match (involved.is_empty(), modern) {
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (true, false) => matches!(namespace, "" | "default"),
        (false, true) => true,
        (false, false) => involved == namespace,
    };
    if !fits {
        let path = Path::of("involvedObject");
        let detail = "does not match event.namespace";
        errors.invalid(&path.child("namespace"), involved, detail);
    }
    if modern {
        reporter(errors, event, names);
    }
}

fn reporter(errors: &mut Errors, event: Ref<'_>, names: &Names) {
    let controller = event.str(names.controller);
    let at = Path::of(names.controller);
    if controller.is_empty() {
        errors.required(&at, "");
    }
    errors.all_invalid(&at, controller, syntax::qualified_name(controller));
    for name in ["reportingInstance", "action", "reason"] {
        let value = event.str(name);
        if value.is_empty() {
            errors.required(&Path::of(name), "");
        }
        at_most(errors, name, value, SHORT_LIMIT);
    }
    at_most(errors, "message", event.str(names.note), NOTE_LIMIT);
}

fn at_most(errors: &mut Errors, name: &str, value: &str, limit: usize) {
    if value.len() > limit {
        let detail = format!("can have at most {limit} characters");
        errors.invalid(&Path::of(name), "", detail);
    }
}

fn series(errors: &mut Errors, event: Ref<'_>) {
    let Some(series) = present(event, "series") else {
        return;
    };
    if series.get("count").and_then(Ref::as_i64).unwrap_or(0) < 2 {
        errors.invalid(&Path::of("series.count"), "", "should be at least 2");
    }
    if series.str("lastObservedTime").is_empty() {
        errors.required(&Path::of("series.lastObservedTime"), "");
    }
}
