//! Numbers, names and protocols of ports.

use crate::shared::validation::{Errors, Path};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;

/// Upstream's protocols of ports.
pub const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// A port between 1 and 65535.
pub fn port_number(errors: &mut Errors, path: &Path<'_>, port: i64) {
    for problem in syntax::port_number(port) {
        errors.invalid(path, port, problem);
    }
}

/// A port given as a number or by name.
pub fn port_or_name(errors: &mut Errors, path: &Path<'_>, port: Option<Ref<'_>>) {
    match (port.and_then(Ref::as_i64), port.and_then(Ref::as_str)) {
        (Some(number), _) => port_number(errors, path, number),
        (None, Some(name)) => errors.all_invalid(path, name, syntax::port_name(name)),
        (None, None) => errors.invalid(path, Shown("0".into()), syntax::inclusive_range(1, 65535)),
    }
}
