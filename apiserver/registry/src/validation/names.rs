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
