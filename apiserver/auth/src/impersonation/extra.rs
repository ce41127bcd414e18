//! Requirements of constrained impersonation for a user's extras.

use machinery_meta::syntax::dns1123_subdomain;
use machinery_meta::{FieldError, FieldPath};
use std::collections::BTreeMap;

const PATH_RULE: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";

/// The first problem, in upstream's words.
pub(super) fn problem(extra: &BTreeMap<String, Vec<String>>) -> Option<String> {
    extra.iter().find_map(|(key, values)| problem_of(key, values))
}

fn problem_of(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let problems: Vec<String> = key_problems(key).iter().map(ToString::to_string).collect();
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

/// `acme.io/foo`: a domain and a path.
fn key_problems(key: &str) -> Vec<FieldError> {
    let path = FieldPath::new("extra").child("key");
    let (domain, rest) = match key.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => (domain, rest),
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return vec![FieldError::invalid(&path, key, detail)];
        }
    };
    let mut problems: Vec<FieldError> = dns1123_subdomain(domain)
        .into_iter()
        .map(|detail| FieldError::invalid(&path, domain, detail))
        .collect();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(fits) {
        problems.push(FieldError::invalid(&path, rest, PATH_RULE));
    }
    problems
}
