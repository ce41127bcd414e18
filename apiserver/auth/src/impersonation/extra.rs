//! Requirements of constrained impersonation for a user's extras.

use crate::syntax::domain_prefixed_path;
use machinery_meta::FieldPath;
use std::collections::BTreeMap;

/// The first problem, in upstream's words.
pub(super) fn problem(extra: &BTreeMap<String, Vec<String>>) -> Option<String> {
    extra.iter().find_map(|(key, values)| problem_of(key, values))
}

fn problem_of(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let problems: Vec<String> = domain_prefixed_path(&FieldPath::new("extra").child("key"), key)
        .iter()
        .map(ToString::to_string)
        .collect();
    match problems.as_slice() {
        [] => {}
        [one] => {
            return Some(format!(
                "impersonating an invalid key in extra is not allowed: {one}"
            ));
        }
        many => {
            return Some(format!(
                "impersonating an invalid key in extra is not allowed: [{}]",
                many.join(", ")
            ));
        }
    }
    if key != key.to_lowercase() {
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key:?}"
        ));
    }
    if values.is_empty() {
        return Some("impersonating empty values in extra is not allowed".to_owned());
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}
