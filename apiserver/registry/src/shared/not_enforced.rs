//! Fields that are stored and have no effect yet, as kinds name them. Such entries only go (decision 0030).

use machinery_schema::Ref;

/// The warning for a field.
pub(crate) fn stored_only(path: &str, missing: &str) -> String {
    format!("{path}: stored but not enforced by this server yet: {missing}")
}

/// A field without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) path: String,
    /// As JSON.
    value: String,
    pub(crate) missing: &'static str,
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
