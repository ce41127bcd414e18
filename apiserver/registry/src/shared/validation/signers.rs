//! Names of signers, and of the trust bundles that belong to them.

use super::{Errors, Path};
use crate::engine::strategy::name_rule;
use machinery_meta::syntax;

/// Longest name of a signer's domain, and of the path behind it: a namespace, a dot and an object's name.
const MAX_DOMAIN_BYTES: usize = 253;
const MAX_SIGNER_BYTES: usize = MAX_DOMAIN_BYTES + 1 + 63 + 1 + 253;

/// `example.com/signer-name`
pub fn signer_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, rest] = segments.as_slice() else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, detail);
    };
    if domain.len() > MAX_DOMAIN_BYTES {
        errors.too_long(path, MAX_DOMAIN_BYTES);
    }
    labels(errors, path, domain, syntax::dns1123_label);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, *domain, detail);
    }
    labels(errors, path, rest, syntax::dns1123_subdomain);
    if name.len() > MAX_SIGNER_BYTES {
        errors.too_long(path, MAX_SIGNER_BYTES);
    }
}

/// The first part that breaks the rule is reported, as the others would say the same.
fn labels(errors: &mut Errors, path: &Path<'_>, text: &str, rule: fn(&str) -> Vec<String>) {
    for label in text.split('.') {
        let problems = rule(label);
        if problems.is_empty() {
            continue;
        }
        for problem in problems {
            errors.invalid(path, text, format!("validating label {label:?}: {problem}"));
        }
        break;
    }
}

/// Problems of a trust bundle's name for this signer (an empty one: no signer).
pub fn trust_bundle_name_problems(signer: &str, name: &str, prefix: bool) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".into()];
        }
        return name_rule(syntax::dns1123_subdomain, name, prefix);
    }
    let required = signer.replace('/', ":") + ":";
    match name.strip_prefix(&required) {
        Some(rest) => name_rule(syntax::dns1123_subdomain, rest, prefix),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {required}"
        )],
    }
}

/// The signer in a trust bundle's name; empty without one.
pub fn trust_bundle_signer(name: &str) -> String {
    name.rsplit_once(':')
        .map_or_else(String::new, |(signer, _)| signer.replace(':', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(signer: &str, expected: &[&str]) {
        let mut errors = Errors::new();
        signer_name(&mut errors, &Path::of("signerName"), signer);
        let found: Vec<String> = errors.into_list().iter().map(|error| error.message()).collect();
        assert_eq!(found, expected, "{signer}");
    }

    #[test]
    fn signers() {
        check("example.com/me", &[]);
        check("example.com/ns.name", &[]);
        check("", &["Required value"]);
        check(
            "local/me",
            &[r#"Invalid value: "local": should be a domain with at least two segments separated by dots"#],
        );
        check(
            "example.com",
            &[
                r#"Invalid value: "example.com": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
            ],
        );
    }

    #[test]
    fn bundles_are_named_after_their_signer() {
        assert!(trust_bundle_name_problems("a.b/c", "a.b:c:mine", false).is_empty());
        assert_eq!(
            trust_bundle_name_problems("a.b/c", "mine", false),
            ["ClusterTrustBundle for signerName a.b/c must be named with prefix a.b:c:"]
        );
        assert_eq!(trust_bundle_name_problems("", "a:b", false).len(), 1);
        assert_eq!(trust_bundle_signer("a.b:c:mine"), "a.b/c");
    }
}
