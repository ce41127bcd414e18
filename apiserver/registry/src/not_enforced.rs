//! Objects and fields that are stored and have no effect yet. Such entries only go.
//!
//! A kind says of itself what is missing ([`Kind::not_enforced`]), or which of its fields have no effect. Some objects a server
//! does not store unless it is told to: their writer believes that something is kept out, and nothing is (decision 0030).

use crate::kind::Kind;
use machinery_schema::Ref;

impl Kind {
    /// The warning with which an object of this kind is created.
    pub fn not_enforced_warning(&self) -> Option<String> {
        let (plural, missing) = (self.plural, self.not_enforced?);
        Some(format!(
            "{plural} are stored but not enforced by this server yet: {missing}"
        ))
    }

    /// The reason not to store an object that nothing enforces; `None` for objects that may be stored with a warning.
    ///
    /// Refused is what denies by itself: requests (webhooks and policies whose failure refuses them, bindings that deny),
    /// and traffic (network policies that leave anything out).
    pub fn refusal(&self, object: Ref<'_>) -> Option<String> {
        let (path, missing) = self.refusal?(object)?;
        Some(format!(
            "{path}: {missing} by this server yet, so that nothing would be kept out; \
             a server that is started with --allow-unenforced stores it all the same"
        ))
    }

    /// The warnings for fields without effect that an object has and its earlier state had not, or had otherwise.
    pub fn field_warnings(&self, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
        let Some(of) = self.fields_not_enforced else {
            return Vec::new();
        };
        let known = old.map(of).unwrap_or_default();
        let new = of(object).into_iter().filter(|field| !known.contains(field));
        new.map(|field| stored_only(&field.path, field.missing)).collect()
    }
}

/// The warning for a field.
pub(crate) fn stored_only(path: &str, missing: &str) -> String {
    format!("{path}: stored but not enforced by this server yet: {missing}")
}

/// A field without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    path: String,
    /// As JSON.
    value: String,
    missing: &'static str,
}

/// A field with a value; none where it has none.
pub(crate) fn field(path: impl Into<String>, value: Option<Ref<'_>>, missing: &'static str) -> Option<Field> {
    let value = value.filter(|value| !value.is_null())?;
    Some(Field {
        path: path.into(),
        value: value.to_json(),
        missing,
    })
}

/// The annotations that make a class the one for objects without.
pub(crate) fn default_class(object: Ref<'_>, names: &[&str], missing: &'static str) -> Vec<Field> {
    let of = |name: &&str| {
        let value = object.at(&["metadata", "annotations", name]);
        let value = value.filter(|value| value.as_str() == Some("true"));
        field(format!("metadata.annotations[{name}]"), value, missing)
    };
    names.iter().filter_map(of).collect()
}
