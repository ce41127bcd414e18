//! Names inside objects.

use super::{Errors, Path};
use machinery_meta::syntax;

/// A DNS label.
pub fn dns_label(errors: &mut Errors, path: &Path<'_>, value: &str) {
    errors.all_invalid(path, value, syntax::dns1123_label(value));
}

/// DNS labels joined by dots.
pub fn dns_subdomain(errors: &mut Errors, path: &Path<'_>, value: &str) {
    errors.all_invalid(path, value, syntax::dns1123_subdomain(value));
}

/// A label key or the like.
pub fn qualified(errors: &mut Errors, path: &Path<'_>, value: &str) {
    errors.all_invalid(path, value, syntax::qualified_name(value));
}

/// The name of a driver of volumes, which may be in capitals.
pub fn csi_driver_name(errors: &mut Errors, path: &Path<'_>, value: &str) {
    const MAX_BYTES: usize = 63;
    if value.is_empty() {
        return errors.required(path, "");
    }
    if value.len() > MAX_BYTES {
        errors.too_long(path, MAX_BYTES);
    }
    errors.all_invalid(path, value, syntax::dns1123_subdomain(&value.to_lowercase()));
}

/// `acme.io/foo`: a domain and a path.
pub fn domain_prefixed_path(errors: &mut Errors, path: &Path<'_>, value: &str) {
    const RULE: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
    let (domain, rest) = match value.split_once('/') {
        _ if value.is_empty() => return errors.required(path, ""),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => (domain, rest),
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return errors.invalid(path, value, detail);
        }
    };
    dns_subdomain(errors, path, domain);
    if !rest
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte))
    {
        errors.invalid(path, rest, RULE);
    }
}
