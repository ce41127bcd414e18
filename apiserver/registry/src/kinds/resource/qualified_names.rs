//! Names of attributes and capacities of devices: C identifiers, of a domain or without one.

use crate::shared::validation::{Errors, Path};
use machinery_meta::syntax;

const MAX_IDENTIFIER_BYTES: usize = 32;
const MAX_DOMAIN_BYTES: usize = 63;

/// Validates a C identifier.
fn identifier(errors: &mut Errors, path: &Path<'_>, text: &str) {
    if text.len() > MAX_IDENTIFIER_BYTES {
        errors.too_long(path, MAX_IDENTIFIER_BYTES);
    }
    errors.all_invalid(path, text, identifier_problems(text));
}

fn identifier_problems(text: &str) -> Vec<String> {
    let is_word = |own: char| own.is_ascii_alphanumeric() || own == '_';
    if text.starts_with(|own| is_word(own) && !own.is_ascii_digit()) && text.chars().all(is_word) {
        return Vec::new();
    }
    let rule = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
    let examples = ["my_name", "MY_NAME", "MyName"];
    vec![syntax::regex_rule(rule, "[A-Za-z_][A-Za-z0-9_]*", &examples)]
}

/// Validates the name of an attribute or a capacity in a slice. Names with several slashes are passed, as upstream's.
pub(super) fn qualified_name(
    errors: &mut Errors,
    path: &Path<'_>,
    name: &str,
    domain_rule: fn(&mut Errors, &Path<'_>, &str),
) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [own] => identifier(errors, path, own),
        [domain, own] => {
            match *domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => domain_rule(errors, path, domain),
            }
            match *own {
                "" => errors.invalid(path, "", "the name must not be empty"),
                own => identifier(errors, path, own),
            }
        }
        _ => {}
    }
}

/// Validates the name of an attribute in a claim, which has a domain. Upstream declares this rule, in words of its own.
pub(super) fn fully_qualified_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [own] => {
            declared_identifier(errors, path, own);
            let detail = "a fully qualified name must be a domain and a name separated by a slash";
            errors.invalid(path, name, detail);
        }
        [domain, own] => {
            match *domain {
                "" => errors.invalid(path, "", "prefix must not be empty"),
                domain if domain.len() > MAX_DOMAIN_BYTES => errors.too_long(path, MAX_DOMAIN_BYTES),
                domain => {
                    let problems = syntax::dns1123_subdomain(domain).into_iter();
                    let problems = problems.map(|problem| format!("prefix: {problem}")).collect();
                    errors.all_invalid(path, domain, problems);
                }
            }
            match *own {
                "" => errors.invalid(path, "", "name must not be empty"),
                own => declared_identifier(errors, path, own),
            }
        }
        _ => {}
    }
}

fn declared_identifier(errors: &mut Errors, path: &Path<'_>, text: &str) {
    match text.len() > MAX_IDENTIFIER_BYTES {
        true => errors.too_long(path, MAX_IDENTIFIER_BYTES),
        false => errors.all_invalid(path, text, identifier_problems(text)),
    }
}

/// Validates the name of an extended resource, `example.com/gpu`.
pub(super) fn extended_resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if !name.contains('/') {
        let detail = "a name must be a domain-prefixed path, such as 'example.com/my-prop'";
        errors.invalid(path, name, detail);
    }
    if name.contains("kubernetes.io/") {
        errors.invalid(path, name, "must not have \"kubernetes.io/\" domain");
    }
    if name.starts_with("requests.") {
        errors.invalid(path, name, "must not have \"requests.\" prefix");
    }
    let problems = syntax::qualified_name(&format!("requests.{name}"));
    let problems: Vec<String> = problems
        .into_iter()
        .map(|own| {
            own.replace(
                "must be no more than 63 characters",
                "must be no more than 63 bytes",
            )
        })
        .collect();
    errors.all_invalid(path, name, problems);
}
