//! Forms of texts in configurations and headers.

use machinery_meta::syntax::dns1123_subdomain;
use machinery_meta::{FieldError, FieldPath};

const PATH_RULE: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";

/// Problems of `acme.io/foo`: a domain and a path.
pub(crate) fn domain_prefixed_path(path: &FieldPath, key: &str) -> Vec<FieldError> {
    let (domain, rest) = match key.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => (domain, rest),
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return vec![FieldError::invalid(path, key, detail)];
        }
    };
    let mut problems: Vec<FieldError> = dns1123_subdomain(domain)
        .into_iter()
        .map(|detail| FieldError::invalid(path, domain, detail))
        .collect();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(fits) {
        problems.push(FieldError::invalid(path, rest, PATH_RULE));
    }
    problems
}
