//! Strings.

use std::sync::Arc;

/// A string, borrowed or shared.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(own) => own,
            Self::Shared(own) => own,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text<'_> {}

impl std::hash::Hash for Text<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
