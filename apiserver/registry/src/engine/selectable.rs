//! Fields that field selectors may request.

use machinery_schema::Ref;

/// A field that field selectors may request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selectable {
    /// The name in selectors: `spec.nodeName`.
    pub label: String,
    pub path: Vec<String>,
    /// The value of an absent field: empty for strings, `0` and `false` for others.
    pub absent: &'static str,
    /// The field that is read if this one is absent or empty.
    pub otherwise: Option<Vec<String>>,
}

impl Selectable {
    /// A string field whose label is its path.
    pub fn text(label: &str) -> Self {
        Self::with_absent(label, "")
    }

    /// String fields whose labels are their paths.
    pub(crate) fn texts<const N: usize>(labels: [&str; N]) -> Vec<Self> {
        labels.map(Self::text).to_vec()
    }

    pub fn with_absent(label: &str, absent: &'static str) -> Self {
        Self {
            label: label.into(),
            path: label.split('.').map(str::to_owned).collect(),
            absent,
            otherwise: None,
        }
    }

    /// The text the selector compares with.
    pub fn value(&self, object: Ref<'_>) -> String {
        let text = |path: &[String]| {
            let found = path.iter().try_fold(object, |at, name| at.get(name));
            found.map_or_else(|| self.absent.to_owned(), text_of)
        };
        let own = text(&self.path);
        match &self.otherwise {
            Some(path) if own.is_empty() => text(path),
            _ => own,
        }
    }
}

fn text_of(value: Ref<'_>) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_null() => String::new(),
        None => value.to_json(),
    }
}
