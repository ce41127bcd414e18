//! Phrases that several kinds' cells share.

use super::{Cell, age};
use crate::shared::validation::parse_label_selector;
use jiff::Timestamp;
use machinery_schema::Ref;

pub(crate) const NONE: &str = "<none>";
pub(crate) const UNKNOWN: &str = "<unknown>";
pub(crate) const UNSET: &str = "<unset>";

pub(crate) fn name(object: Ref<'_>) -> Cell {
    object.str_at(&["metadata", "name"]).into()
}

pub(crate) fn object_age(object: Ref<'_>, now: Timestamp) -> Cell {
    age(object.str_at(&["metadata", "creationTimestamp"]), now).into()
}

pub(crate) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

pub(crate) fn int(object: Ref<'_>, path: &[&str]) -> i64 {
    object.at(path).and_then(Ref::as_i64).unwrap_or(0)
}

pub(crate) fn text(object: Ref<'_>, path: &[&str]) -> Cell {
    object.str_at(path).into()
}

/// Names and images of a pod template's containers.
pub(crate) fn containers(pod_spec: Option<Ref<'_>>) -> (String, String) {
    let all: Vec<Ref<'_>> = pod_spec
        .into_iter()
        .flat_map(|spec| spec.list("containers"))
        .collect();
    let join = |field: &str| all.iter().map(|c| c.str(field)).collect::<Vec<_>>().join(",");
    (join("name"), join("image"))
}

/// `a=b,c=d`, or `<none>`.
pub(crate) fn labels(map: Option<Ref<'_>>) -> String {
    let all: Vec<String> = map
        .into_iter()
        .flat_map(Ref::entries)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if all.is_empty() {
        NONE.into()
    } else {
        all.join(",")
    }
}

/// A label selector object as text: `<none>` without one or when empty, `<error>` for one that does not parse, as upstream
/// formats it.
pub(crate) fn selector(selector: Option<Ref<'_>>) -> String {
    if selector.is_none_or(Ref::is_null) {
        return NONE.into();
    }
    match parse_label_selector(selector).map(|parsed| parsed.to_string()) {
        Some(text) if text.is_empty() => NONE.into(),
        Some(text) => text,
        None => "<error>".into(),
    }
}

/// A condition's status by its type.
pub(crate) fn condition<'a>(object: Ref<'a>, kind: &str) -> Option<Ref<'a>> {
    object
        .get("status")?
        .list("conditions")
        .find(|condition| condition.str("type") == kind)
}

/// An int-or-string as text.
pub(crate) fn int_or_string(value: Ref<'_>) -> String {
    value.as_str().map_or_else(|| value.to_json(), str::to_owned)
}

/// Cut as wide text is, in bytes, with dots at its end.
pub(crate) fn first_then_more(all: &[String], max: usize) -> String {
    match all.len() {
        0 => NONE.into(),
        count if count > max => format!("{} + {} more...", all[..max].join(","), count - max),
        _ => all.join(","),
    }
}

/// The cells of kinds that show nothing of their own.
pub(crate) fn name_and_age(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![name(object), object_age(object, now)]
}

/// Number of members or items.
pub(crate) fn len(of: Option<Ref<'_>>) -> i64 {
    of.map_or(0, |of| i64::try_from(of.len()).unwrap_or(i64::MAX))
}

/// A boolean, with its value where it is absent.
pub(crate) fn flag(object: Ref<'_>, path: &[&str], absent: bool) -> Cell {
    object.at(path).and_then(Ref::as_bool).unwrap_or(absent).into()
}

/// The number of members or items at a path.
pub(crate) fn count(object: Ref<'_>, path: &[&str]) -> Cell {
    Cell::Int(i64::try_from(object.at(path).map_or(0, Ref::len)).unwrap_or(0))
}
