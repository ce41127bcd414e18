//! The compact form of an answer: what a change of one field can make different.
//!
//! An error is its code, reason and message, its causes and warnings; a message that follows from the causes is left out,
//! and so are details that name the object. A success is what its body has that the answer without the change has not:
//! each server's answers are compared with its own, and the answer without the change is what the lives compare.
//! Objects in the message of a cause are left out: upstream prints many in the form of its internal types, and the
//! difference of two of those behind what is forbidden.

use serde_json::{Map, Value, json};

use crate::differential::case::hash;
use crate::differential::compare::Seen;

/// The answer to a probe that is not answered alike twice.
pub(super) const VARIES: &str = "varies";

/// The answer to a probe at which the connection is closed: a panic of kube-apiserver.
pub(super) const UNANSWERED: &str = "no answer";

/// Texts are cut here: some messages quote whole objects.
const TEXT_MAX: usize = 200;

/// The compact form; `base` is the answer without the change.
pub(crate) fn compact(seen: &Seen, base: Option<&Seen>) -> Value {
    let mut compact = Map::new();
    compact.insert("code".into(), seen.status.into());
    let mut warnings: Vec<&str> = seen
        .headers
        .iter()
        .filter(|header| header.0 == "warning" && base.is_none_or(|base| !base.headers.contains(header)))
        .map(|(_, value)| value.as_str())
        .collect();
    if !warnings.is_empty() {
        warnings.sort_unstable();
        compact.insert("warnings".into(), json!(warnings));
    }
    if seen.body["kind"] == "Status" && seen.status >= 400 {
        error(&seen.body, &mut compact);
    } else if seen.body["kind"] == "Table" || seen.body["items"].is_array() {
        // Rows and items are those of other cases too.
        compact.insert("kind".into(), seen.body["kind"].clone());
    } else if let Some(base) = base {
        let mut changes = Map::new();
        changed(
            "",
            &without_owners(&base.body),
            &without_owners(&seen.body),
            &mut changes,
        );
        if !changes.is_empty() {
            compact.insert("changed".into(), changes.into());
        }
    } else if seen.status >= 400 {
        compact.insert("body".into(), seen.body.clone());
    } else {
        compact.insert("kind".into(), seen.body["kind"].clone());
    }
    let mut compact = Value::Object(compact);
    cut(&mut compact);
    compact
}

/// Faults that an answer has by itself, whatever upstream answers.
pub(crate) fn faults(name: &str, compact: &Value) -> Vec<String> {
    let code = compact["code"].as_u64().unwrap_or_default();
    let keeps_odd = || {
        let changes = compact["changed"].as_object();
        changes.is_some_and(|changes| changes.values().any(|value| value == "Odd"))
    };
    let mut faults = Vec::new();
    if code >= 500 {
        faults.push(format!("an error of the server: {code}"));
    } else if code >= 400 && compact["reason"].is_null() {
        faults.push(format!("{code} without a reason"));
    } else if name.ends_with("=odd") && keeps_odd() {
        faults.push("a value that is not published is stored".to_owned());
    }
    faults
}

/// A compact answer in the form that is compared.
pub(crate) fn seen(compact: &Value) -> Seen {
    let mut body = compact.clone();
    let mut take = |name: &str| body.as_object_mut().and_then(|body| body.remove(name));
    let status = take("code").and_then(|code| code.as_u64()).unwrap_or_default();
    let warnings = take("warnings").unwrap_or_default();
    let warnings = warnings.as_array().into_iter().flatten();
    Seen {
        status: status.try_into().unwrap_or_default(),
        headers: warnings
            .map(|text| ("warning".to_owned(), text.as_str().unwrap_or_default().to_owned()))
            .collect(),
        body,
    }
}

fn error(status: &Value, compact: &mut Map<String, Value>) {
    compact.insert("reason".into(), status["reason"].clone());
    let mut details = status["details"].clone();
    let causes = details
        .as_object_mut()
        .and_then(|details| details.remove("causes"));
    let causes: Vec<[String; 3]> = causes
        .as_ref()
        .and_then(Value::as_array)
        .map(|causes| causes.iter().map(cause).collect())
        .unwrap_or_default();
    let told = status["message"].as_str().unwrap_or_default();
    if causes.is_empty() || told != message(&details, &causes) {
        compact.insert("message".into(), told.into());
    }
    if !causes.is_empty() {
        let causes: Vec<_> = causes.into_iter().map(without_object).collect();
        compact.insert("causes".into(), json!(causes));
    }
    if let Some(details) = details.as_object_mut() {
        // The object is named by the message.
        details.retain(|name, _| !matches!(name.as_str(), "name" | "group" | "kind"));
        if !details.is_empty() {
            compact.insert("details".into(), details.clone().into());
        }
    }
}

/// A cause without the object that its message shows.
fn without_object([reason, field, message]: [String; 3]) -> [String; 3] {
    let end = match message.starts_with("Forbidden: ") {
        true => message.find('\n').unwrap_or(message.len()),
        false => message.len(),
    };
    let message = &message[..end];
    let shown = |(head, rest): (&str, &str)| {
        let is_object = rest.starts_with('{') || rest.starts_with("[{");
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        (is_object && values.next()?.is_ok())
            .then(|| format!("{head}: {{…}}{}", &rest[values.byte_offset()..]))
    };
    let message = message
        .split_once(": ")
        .and_then(shown)
        .unwrap_or_else(|| message.to_owned());
    [reason, field, message]
}

fn cause(cause: &Value) -> [String; 3] {
    ["reason", "field", "message"].map(|name| cause[name].as_str().unwrap_or_default().to_owned())
}

/// The message of an error with causes, as upstream's `NewInvalid` makes it (apimachinery `pkg/api/errors`).
fn message(details: &Value, causes: &[[String; 3]]) -> String {
    let of = |name: &str| details[name].as_str().unwrap_or_default();
    let kind = match of("group") {
        "" => of("kind").to_owned(),
        group => format!("{}.{group}", of("kind")),
    };
    let mut problems: Vec<String> = Vec::new();
    for [_, field, message] in causes {
        let problem = format!("{field}: {message}");
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    let problems = match problems.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    format!("{kind} {:?} is invalid: {problems}", of("name"))
}

/// Owners of fields follow from the fields of the request; their own record compares them (`conformance/owners`).
fn without_owners(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    body
}

/// Paths at which two documents differ, with the value of the second; null where it has none.
fn changed(path: &str, base: &Value, now: &Value, changes: &mut Map<String, Value>) {
    match (base, now) {
        (Value::Object(left), Value::Object(right)) => {
            let more = right.keys().filter(|name| !left.contains_key(*name));
            for name in left.keys().chain(more) {
                let at = format!("{path}.{name}");
                match (left.get(name), right.get(name)) {
                    (Some(left), Some(right)) => changed(&at, left, right, changes),
                    (_, right) => drop(changes.insert(at, right.cloned().unwrap_or(Value::Null))),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                changed(&format!("{path}[{index}]"), left, right, changes);
            }
        }
        (left, right) if left == right => {}
        (_, right) => drop(changes.insert(path.to_owned(), right.clone())),
    }
}

/// Cuts long texts and replaces long values by a hash.
fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > TEXT_MAX => {
            let end = (0..=TEXT_MAX)
                .rev()
                .find(|end| text.is_char_boundary(*end))
                .unwrap_or(0);
            *text = format!("{}… {:x}", &text[..end], hash(text));
        }
        Value::Array(items) => items.iter_mut().for_each(cut),
        Value::Object(members) => members.values_mut().for_each(cut),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: u16, body: Value) -> Seen {
        Seen {
            status,
            headers: vec![("warning".into(), "w".into())],
            body,
        }
    }

    #[test]
    fn compact_error_leaves_out_what_follows_from_the_causes() {
        let causes =
            json!([{"reason": "FieldValueRequired", "field": "spec.a", "message": "Required value"}]);
        let details = json!({"name": "x", "group": "g", "kind": "K", "causes": causes});
        let message = "K.g \"x\" is invalid: spec.a: Required value";
        let body = json!({"kind": "Status", "reason": "Invalid", "message": message, "details": details});
        let expected = json!({
            "code": 422, "reason": "Invalid", "warnings": ["w"],
            "causes": [["FieldValueRequired", "spec.a", "Required value"]],
        });
        assert_eq!(compact(&seen(422, body.clone()), None), expected);
        let mut other = body;
        other["message"] = "another".into();
        assert_eq!(compact(&seen(422, other), None)["message"], "another");
    }

    #[track_caller]
    fn check_message(message: &str, expected: &str) {
        let [_, _, found] = without_object(["r".into(), "f".into(), message.into()]);
        assert_eq!(found, expected);
    }

    #[test]
    fn message_of_a_cause_has_no_object() {
        let shown = "Invalid value: {\"Type\":\"a: b}\",\"Of\":{}}: must be x";
        check_message(shown, "Invalid value: {…}: must be x");
        check_message("Invalid value: [{\"A\":1}]: x", "Invalid value: {…}: x");
        check_message("Invalid value: []: x", "Invalid value: []: x");
        check_message("Invalid value: {a}: x", "Invalid value: {a}: x");
        check_message("Invalid value: \"{}\": x\ny", "Invalid value: \"{}\": x\ny");
        check_message(
            "Forbidden: may not change\n  core.X{",
            "Forbidden: may not change",
        );
    }

    #[test]
    fn compact_success_is_what_the_change_changed() {
        let base =
            json!({"kind": "K", "spec": {"a": 1, "b": [1, 2], "c": 1}, "metadata": {"managedFields": [1]}});
        let mut base = seen(201, base);
        base.headers.clear();
        let now =
            json!({"kind": "K", "spec": {"a": 2, "b": [1, 3], "d": 1}, "metadata": {"managedFields": [2]}});
        let now = compact(&seen(201, now), Some(&base));
        assert_eq!(
            now["changed"],
            json!({".spec.a": 2, ".spec.b[1]": 3, ".spec.c": null, ".spec.d": 1})
        );
        assert_eq!(now["warnings"], json!(["w"]));
        let same = seen(201, base.body.clone());
        assert!(compact(&same, Some(&same)).get("warnings").is_none());
    }

    #[track_caller]
    fn check_fault(name: &str, compact: &Value, expected: &[&str]) {
        assert_eq!(faults(name, compact), expected, "{name} {compact}");
    }

    #[test]
    fn fault_needs_no_other_answer() {
        check_fault("create a=bad", &json!({"code": 422, "reason": "Invalid"}), &[]);
        check_fault("create a=odd", &json!({"code": 201}), &[]);
        check_fault(
            "create a=bad",
            &json!({"code": 201, "changed": {".a": "-Bad Value"}}),
            &[],
        );
        check_fault(
            "create a=bad",
            &json!({"code": 500}),
            &["an error of the server: 500"],
        );
        check_fault(
            "create a=bad",
            &json!({"code": 404, "body": "x"}),
            &["404 without a reason"],
        );
        let kept = json!({"code": 201, "changed": {".a": "Odd"}});
        check_fault(
            "create a=odd",
            &kept,
            &["a value that is not published is stored"],
        );
    }
}
