//! Field selectors: `metadata.name=a,status.phase!=Running` (apimachinery's `fields` package).

use crate::header::ObjectHeader;
use std::fmt;

/// A conjunction of equalities and inequalities; the empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    pub field: String,
    pub value: String,
    pub equal: bool,
}

/// The text is not a field selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseFieldSelectorError {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: \\{0}")]
    Escape(String),
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(char),
    #[error("invalid field selector: more than {MAX_TERMS} terms")]
    TooMany,
}

/// Selectors with more terms than this are refused.
pub const MAX_TERMS: usize = 100;

impl FieldSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    /// A selector with one equality.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            terms: vec![Term {
                field: field.into(),
                value: value.into(),
                equal: true,
            }],
        }
    }

    /// A selector of these comparisons.
    ///
    /// # Errors
    /// There are too many.
    pub fn from_terms(terms: Vec<Term>) -> Result<Self, ParseFieldSelectorError> {
        if terms.len() > MAX_TERMS {
            return Err(ParseFieldSelectorError::TooMany);
        }
        Ok(Self { terms })
    }

    /// Reads the string form; a backslash escapes `,`, `=` and itself in values.
    ///
    /// # Errors
    /// A term has no operator, an escape is unknown, or there are too many terms.
    pub fn parse(text: &str) -> Result<Self, ParseFieldSelectorError> {
        let mut terms = Vec::new();
        for part in split_unescaped(text) {
            if part.is_empty() {
                continue;
            }
            if terms.len() == MAX_TERMS {
                return Err(ParseFieldSelectorError::TooMany);
            }
            terms.push(parse_term(text, part)?);
        }
        terms.sort_by(|a: &Term, b| a.field.cmp(&b.field));
        Ok(Self { terms })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The value an equality demands of a field, so that dispatch can use it as a key.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| term.value.as_str())
    }

    pub fn matches(&self, header: &ObjectHeader) -> bool {
        self.matches_with(|field| header.field(field).unwrap_or(""))
    }

    /// Matches against any source of field values; an absent field is the empty string.
    pub fn matches_with<'a>(&self, value: impl Fn(&str) -> &'a str) -> bool {
        self.terms
            .iter()
            .all(|term| (value(&term.field) == term.value) == term.equal)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", term.field, escape(&term.value))?;
        }
        Ok(())
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=")
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_term(selector: &str, part: &str) -> Result<Term, ParseFieldSelectorError> {
    for (at, _) in part.char_indices() {
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if part[at..].starts_with(operator) {
                let value = unescape(&part[at + operator.len()..])?;
                return Ok(Term {
                    field: part[..at].to_owned(),
                    value,
                    equal,
                });
            }
        }
    }
    Err(ParseFieldSelectorError::Term {
        selector: selector.to_owned(),
        term: part.to_owned(),
    })
}

fn unescape(value: &str) -> Result<String, ParseFieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                other => {
                    return Err(ParseFieldSelectorError::Escape(
                        other.map(String::from).unwrap_or_default(),
                    ));
                }
            },
            ',' | '=' => return Err(ParseFieldSelectorError::Unescaped(c)),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, printed: &str) {
        assert_eq!(FieldSelector::parse(text).expect("valid").to_string(), printed);
    }

    #[test]
    fn reads_and_prints() {
        check("", "");
        check("a=b", "a=b");
        check("b==c,a!=d", "a!=d,b=c");
        check(r"a=x\,y\=z", r"a=x\,y\=z");
        check("a=", "a=");
    }

    #[test]
    fn field_selector_unsupported_syntax_is_refused() {
        let error = FieldSelector::parse("nonsense").expect_err("refused");
        assert_eq!(
            error.to_string(),
            "invalid selector: 'nonsense'; can't understand 'nonsense'"
        );
        assert!(FieldSelector::parse(r"a=\x").is_err());
        assert!(FieldSelector::parse("a=b=c").is_err());
    }

    #[test]
    fn field_selector_absent_field_is_empty() {
        let header = ObjectHeader::default();
        assert!(
            FieldSelector::parse("spec.nodeName=")
                .expect("valid")
                .matches(&header)
        );
        assert!(
            !FieldSelector::parse("spec.nodeName!=")
                .expect("valid")
                .matches(&header)
        );
    }
}
