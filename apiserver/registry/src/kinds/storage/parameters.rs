//! Validation of classes of volumes: the driver that makes them, and its parameters.

use crate::shared::validation::{Errors, Path};
use machinery_meta::syntax;
use machinery_schema::Ref;

const MAX_PARAMETERS: usize = 512;
/// Bytes of all names and values.
const MAX_BYTES: usize = 256 << 10;

/// Validates the member that names a driver.
pub(super) fn driver(errors: &mut Errors, class: Ref<'_>, member: &str) {
    let (path, driver) = (Path::of(member), class.str(member));
    if driver.is_empty() {
        errors.required(&path, "");
    } else {
        let driver = driver.to_lowercase();
        errors.all_invalid(&path, &driver, syntax::qualified_name(&driver));
    }
}

/// Validates the parameters of a class, of which there is at least one where `needed`.
pub(super) fn parameters(errors: &mut Errors, class: Ref<'_>, needed: bool) {
    let path = Path::of("parameters");
    let parameters = || class.get("parameters").into_iter().flat_map(Ref::entries);
    let count = parameters().count();
    if count > MAX_PARAMETERS {
        return errors.too_long(&path, MAX_PARAMETERS);
    }
    if parameters().any(|(name, _)| name.is_empty()) {
        errors.invalid(&path, "", "field can not be empty.");
    }
    let bytes = parameters().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len));
    if bytes.sum::<usize>() > MAX_BYTES {
        errors.too_long(&path, MAX_BYTES);
    }
    if needed && count == 0 {
        errors.required(&path, "must contain at least one key/value pair");
    }
}
