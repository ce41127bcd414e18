//! Label selectors: their string form (`a=b,c in (d,e),!f`) and what they match (apimachinery's `labels` package).

use crate::field::FieldPath;
use crate::header::ObjectHeader;
use crate::syntax;
use std::fmt;

/// A conjunction of requirements; the empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted, without duplicates.
    pub values: Vec<String>,
}

/// Operator of a requirement. `Equals` and `DoubleEquals` mean the same and print as they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// Error of a selector's text, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseSelectorError(pub String);

/// Selectors with more requirements than this are refused, so that matching stays cheap.
pub const MAX_REQUIREMENTS: usize = 1_000;

impl LabelSelector {
    /// Matches everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads the string form. Values may be empty; spaces are free.
    ///
    /// # Errors
    /// The text does not follow the grammar, or a key or value is not a valid label.
    pub fn parse(text: &str) -> Result<Self, ParseSelectorError> {
        let mut requirements = Parser::new(text).requirements()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// A selector from `matchLabels`-like pairs.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut requirements: Vec<Requirement> = pairs
            .into_iter()
            .map(|(key, value)| Requirement {
                key: key.into(),
                operator: Operator::Equals,
                values: vec![value.into()],
            })
            .collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }

    /// Adds requirements as `matchExpressions` writes them. They are sorted once.
    ///
    /// # Errors
    /// That of the first that is refused: its operator does not fit the number of values, or the key or a value is not a
    /// valid label.
    pub fn require_all<'a>(
        &mut self,
        requirements: impl IntoIterator<Item = Result<(&'a str, Operator, Vec<String>), ParseSelectorError>>,
    ) -> Result<(), ParseSelectorError> {
        for requirement in requirements {
            let (key, operator, values) = requirement?;
            self.requirements.push(Requirement::new(key, operator, values)?);
        }
        self.requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(())
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches(&self, header: &ObjectHeader) -> bool {
        self.matches_with(|key| header.label(key))
    }

    /// Matches against any source of labels.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, ParseSelectorError> {
        let refuse = |text: String| Err(ParseSelectorError(text));
        let problems = syntax::qualified_name(key);
        if !problems.is_empty() {
            return refuse(format!("<nil>: Invalid value: {key:?}: {}", problems.join("; ")));
        }
        let shown = || {
            format!(
                "[{}]",
                values
                    .iter()
                    .map(|v| format!("{v:?}"))
                    .collect::<Vec<_>>()
                    .join(",")
            )
        };
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return refuse(
                    "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                        .into(),
                );
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                return refuse(format!(
                    "values: Invalid value: {}: exact-match compatibility requires one single value",
                    shown()
                ));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                return refuse(format!(
                    "values: Invalid value: {}: values set must be empty for exists and does not exist",
                    shown()
                ));
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                return refuse(format!(
                    "values: Invalid value: {}: for 'Gt', 'Lt' operators, exactly one value is required",
                    shown()
                ));
            }
            Operator::GreaterThan | Operator::LessThan if values[0].parse::<i64>().is_err() => {
                return refuse(format!(
                    "values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
                    values[0]
                ));
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let problems = syntax::label_value(value);
            if !problems.is_empty() {
                let path = FieldPath::new("values").index(index).key(key);
                return refuse(format!(
                    "{path}: Invalid value: {value:?}: {}",
                    problems.join("; ")
                ));
            }
        }
        values.sort();
        values.dedup();
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    /// Reports whether a label with this value (or absent) satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| {
            self.values
                .binary_search_by(|own| own.as_str().cmp(value))
                .is_ok()
        };
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value, |left, right| left > right),
            Operator::LessThan => self.compare(value, |left, right| left < right),
        }
    }

    fn compare(&self, value: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|own| own.parse().ok());
        match (value.and_then(|own| own.parse().ok()), bound) {
            (Some(left), Some(right)) => holds(left, right),
            _ => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'static str),
    End,
}

impl Token<'_> {
    fn shown(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

/// Longest first, so that `==` is not read as two `=`.
const SYMBOLS: [&str; 9] = ["==", "!=", "!", "=", ">", "<", "(", ")", ","];

/// Characters that upstream takes for space. A form feed is none: it belongs to its word.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn peek(&self) -> (Token<'a>, usize) {
        let trimmed = self.rest.trim_start_matches(SPACES);
        let skipped = self.rest.len() - trimmed.len();
        if trimmed.is_empty() {
            return (Token::End, skipped);
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| trimmed.starts_with(**symbol)) {
            return (Token::Symbol(symbol), skipped + symbol.len());
        }
        let ends = |c: char| SPACES.contains(&c) || "=!<>(),".contains(c);
        let length = trimmed.find(ends).unwrap_or(trimmed.len());
        (Token::Word(&trimmed[..length]), skipped + length)
    }

    fn next(&mut self) -> Token<'a> {
        let (token, used) = self.peek();
        self.rest = &self.rest[used..];
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, ParseSelectorError> {
        let mut out = Vec::new();
        if self.peek().0 == Token::End {
            return Ok(out);
        }
        loop {
            if out.len() == MAX_REQUIREMENTS {
                return Err(ParseSelectorError(format!(
                    "a selector may have at most {MAX_REQUIREMENTS} requirements"
                )));
            }
            if !matches!(self.peek().0, Token::Word(_) | Token::Symbol("!")) {
                return Err(expected(&self.peek().0, "!, identifier, or 'end of string'"));
            }
            let requirement = self.requirement().map_err(|ParseSelectorError(problem)| {
                ParseSelectorError(format!("unable to parse requirement: {problem}"))
            })?;
            out.push(requirement);
            match self.next() {
                Token::End => return Ok(out),
                Token::Symbol(",") => match self.peek().0 {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(expected(&other, "identifier after ','")),
                },
                other => return Err(expected(&other, "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, ParseSelectorError> {
        let negated = self.peek().0 == Token::Symbol("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(expected(&other, "identifier")),
        };
        let at_end = matches!(self.peek().0, Token::End | Token::Symbol(","));
        if negated || at_end {
            let operator = if negated {
                Operator::DoesNotExist
            } else {
                Operator::Exists
            };
            return Requirement::new(key, operator, Vec::new());
        }
        let operator = match self.next() {
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            other => return Err(expected(&other, "in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(key, operator, values)
    }

    /// The single value after `=`; nothing there means the empty value.
    fn exact_value(&mut self) -> Result<String, ParseSelectorError> {
        match self.peek().0 {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(word) => {
                self.next();
                Ok(word.to_owned())
            }
            other => Err(expected(&other, "identifier")),
        }
    }

    /// `(a,b)`; an empty item is the empty value.
    fn set(&mut self) -> Result<Vec<String>, ParseSelectorError> {
        match self.next() {
            Token::Symbol("(") => {}
            // Here upstream writes no comma.
            other => {
                let found = other.shown();
                return Err(ParseSelectorError(format!("found '{found}' expected: '('")));
            }
        }
        match self.peek().0 {
            Token::Word(_) | Token::Symbol(",") => self.set_items(),
            Token::Symbol(")") => {
                self.next();
                Ok(vec![String::new()])
            }
            other => Err(expected(&other, "',', ')' or identifier")),
        }
    }

    /// The items of a set up to and with its end. Each place has its own complaint.
    fn set_items(&mut self) -> Result<Vec<String>, ParseSelectorError> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word.to_owned());
                    match self.peek().0 {
                        Token::Symbol(",") => continue,
                        Token::Symbol(")") => {}
                        other => return Err(expected(&other, "',' or ')'")),
                    }
                }
                Token::Symbol(",") => {
                    let follows = self.peek().0;
                    let ends = follows == Token::Symbol(")");
                    if values.is_empty() || ends || follows == Token::Symbol(",") {
                        values.push(String::new());
                    }
                    if !ends {
                        continue;
                    }
                }
                other => return Err(expected(&other, "',', or identifier")),
            }
            self.next();
            return Ok(values);
        }
    }
}

fn expected(found: &Token<'_>, what: &str) -> ParseSelectorError {
    ParseSelectorError(format!("found '{}', expected: {what}", found.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let parsed = LabelSelector::parse(selector).expect("the selector is valid");
        let lookup = |key: &str| {
            labels
                .iter()
                .find(|(own, _)| *own == key)
                .map(|(_, value)| *value)
        };
        assert_eq!(parsed.matches_with(lookup), expected, "{selector} on {labels:?}");
    }

    #[test]
    fn matches_as_upstream_does() {
        let web = [("app", "web"), ("tier", "front"), ("n", "5")];
        check("", &web, true);
        check("app=web", &web, true);
        check("app==web,tier!=back", &web, true);
        check("app in (db, web)", &web, true);
        check("app notin (db)", &web, true);
        check("gone notin (db)", &web, true);
        check("gone!=x", &web, true);
        check("!gone", &web, true);
        check("!app", &web, false);
        check("app", &web, true);
        check("n>4,n<6", &web, true);
        check("n>5", &web, false);
        check("app=", &web, false);
        check("app in (,web)", &web, true);
    }

    #[test]
    fn prints_in_key_order() {
        let parsed = LabelSelector::parse("z , a in (c,b),!m, k!=v").expect("valid");
        assert_eq!(parsed.to_string(), "a in (b,c),k!=v,!m,z");
    }

    #[track_caller]
    fn refused(selector: &str, message: &str) {
        assert_eq!(
            LabelSelector::parse(selector).expect_err("refused").to_string(),
            message,
            "{selector}"
        );
    }

    #[test]
    fn refuses_in_upstreams_words() {
        refused(
            "a in (\u{c}b",
            "unable to parse requirement: found '', expected: ',' or ')'",
        );
        refused(
            "a in (b c)",
            "unable to parse requirement: found 'c', expected: ',' or ')'",
        );
        refused(
            "a in (b,!)",
            "unable to parse requirement: found '!', expected: ',', or identifier",
        );
        refused(
            "a in (!)",
            "unable to parse requirement: found '!', expected: ',', ')' or identifier",
        );
        refused("a in", "unable to parse requirement: found '' expected: '('");
        refused(",", "found ',', expected: !, identifier, or 'end of string'");
        refused(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        refused("a,", "found '', expected: identifier after ','");
        refused(
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        );
    }
}
