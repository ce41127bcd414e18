//! Paths and errors of fields, in upstream's words (apimachinery's `field` package).

use crate::go_text::go_quote;
use std::fmt;

/// A path such as `spec.containers[0].name` or `metadata.labels[a/b]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FieldPath(String);

impl FieldPath {
    /// The object itself; prints as `<nil>` where upstream does.
    pub fn root() -> Self {
        Self::default()
    }

    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// A field of this one: `a` → `a.name`.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self::new(name)
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    /// An item of a list: `a` → `a[3]`.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of a map: `a` → `a[key]`.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// A path that begins at this one: `a` and `b[0]` → `a.b[0]`.
    #[must_use]
    pub fn join(&self, below: &Self) -> Self {
        match below.0.as_str() {
            "" => self.clone(),
            text if text.starts_with('[') => Self(format!("{}{text}", self.0)),
            text => self.child(text),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// Kind of a field's error; [`FieldErrorKind::reason`] gives the cause's reason, `Display` the words before the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl FieldErrorKind {
    /// The `reason` of the `Status` cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One problem of one field. `Display` is upstream's whole sentence: `spec.x: Invalid value: "v": detail`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub path: FieldPath,
    /// The offending value as upstream prints it (`"text"` quoted, `3` bare, an object as JSON), where it prints one.
    pub value: Option<String>,
    pub detail: String,
}

impl FieldError {
    fn new(kind: FieldErrorKind, path: &FieldPath, value: Option<String>, detail: impl Into<String>) -> Self {
        Self {
            kind,
            path: path.clone(),
            value,
            detail: detail.into(),
        }
    }

    pub fn required(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, None, detail)
    }

    pub fn forbidden(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, None, detail)
    }

    pub fn invalid(path: &FieldPath, value: impl FieldValue, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, Some(value.shown()), detail)
    }

    pub fn duplicate(path: &FieldPath, value: impl FieldValue) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, Some(value.shown()), "")
    }

    pub fn not_found(path: &FieldPath, value: impl FieldValue) -> Self {
        Self::new(FieldErrorKind::NotFound, path, Some(value.shown()), "")
    }

    /// `supported values: "A", "B"`, in the order given (upstream sorts most of its lists, not all).
    pub fn not_supported(path: &FieldPath, value: impl FieldValue, supported: &[&str]) -> Self {
        let listed: Vec<String> = supported.iter().map(|v| format!("{v:?}")).collect();
        let detail = if listed.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", listed.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, path, Some(value.shown()), detail)
    }

    /// `may not be more than N bytes`; the value itself is not printed.
    pub fn too_long(path: &FieldPath, max_bytes: usize) -> Self {
        let bytes = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::new(
            FieldErrorKind::TooLong,
            path,
            None,
            format!("may not be more than {max_bytes} {bytes}"),
        )
    }

    /// The same where upstream counts characters.
    pub fn too_many_characters(path: &FieldPath, max: usize) -> Self {
        let characters = if max == 1 { "character" } else { "characters" };
        let detail = format!("may not be more than {max} {characters}");
        Self::new(FieldErrorKind::TooLong, path, None, detail)
    }

    /// `must have at most N items`.
    pub fn too_many(path: &FieldPath, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(
            FieldErrorKind::TooMany,
            path,
            Some(actual.to_string()),
            format!("must have at most {max} {items}"),
        )
    }

    pub fn internal(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, path, None, detail)
    }

    /// The sentence without the path, as a `Status` cause carries it.
    pub fn message(&self) -> String {
        let mut out = self.kind.words().to_owned();
        if let Some(value) = &self.value {
            out.push_str(": ");
            out.push_str(value);
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

impl std::error::Error for FieldError {}

/// Form of a value in a message: strings quoted as Go's `%q`, numbers and booleans bare.
pub trait FieldValue {
    fn shown(&self) -> String;
}

impl FieldValue for &str {
    fn shown(&self) -> String {
        go_quote(self)
    }
}

impl FieldValue for String {
    fn shown(&self) -> String {
        go_quote(self)
    }
}

impl FieldValue for &String {
    fn shown(&self) -> String {
        go_quote(self)
    }
}

macro_rules! bare { ($($t:ty),*) => { $(impl FieldValue for $t {
    fn shown(&self) -> String { self.to_string() }
})* } }
bare!(i32, i64, u32, u64, usize, bool, f64);

/// `null` where there is none.
impl<T: FieldValue> FieldValue for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| "null".to_owned(), FieldValue::shown)
    }
}

/// A value that is already in its printed form (an object as JSON, say).
#[derive(Debug)]
pub struct Shown(pub String);

impl FieldValue for Shown {
    fn shown(&self) -> String {
        self.0.clone()
    }
}
