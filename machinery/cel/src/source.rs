//! The text of an expression, places in it, and the problems that are found there.

use std::fmt::Write as _;

/// Longest line that is shown below a problem.
const MAX_SNIPPET: usize = 16_384;
/// Problems that are reported; further ones are counted.
const MAX_ISSUES: usize = 100;

/// The text of an expression by code points, with the beginnings of its lines.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) chars: Vec<char>,
    lines: Vec<usize>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut lines = vec![0];
        let breaks = chars.iter().enumerate().filter(|(_, own)| **own == '\n');
        lines.extend(breaks.map(|(at, _)| at + 1));
        Self { chars, lines }
    }

    /// Line, counted from one, and column, counted from zero.
    pub(crate) fn location(&self, offset: usize) -> Location {
        let line = self.lines.partition_point(|start| *start <= offset);
        let column = offset - self.lines[line - 1];
        Location {
            line: i64::try_from(line).unwrap_or(i64::MAX),
            column: i64::try_from(column).unwrap_or(i64::MAX),
        }
    }

    /// A line as upstream shows it below a problem: nothing of an empty text, nor of an empty last line.
    fn snippet(&self, line: i64) -> Option<String> {
        let at = usize::try_from(line).ok()?.checked_sub(1)?;
        let start = *self.lines.get(at)?;
        let end = self.lines.get(at + 1).map_or(self.chars.len(), |next| next - 1);
        if start == end && at + 1 == self.lines.len() {
            return None;
        }
        Some(self.chars[start..end].iter().collect())
    }
}

/// A place in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Counted from one.
    pub line: i64,
    /// Counted from zero.
    pub column: i64,
}

impl Location {
    /// No place: the problem is the expression's as a whole.
    pub(crate) const NONE: Self = Self { line: -1, column: -1 };
}

/// One problem of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub location: Location,
    pub message: String,
}

/// The problems of an expression that does not compile, in the order of their places.
///
/// Its text is upstream's: each problem with the line it is in and a mark below the place.
#[derive(Debug, Clone)]
pub struct Issues {
    list: Vec<Issue>,
    count: usize,
    source: Source,
}

impl Issues {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            list: Vec::new(),
            count: 0,
            source,
        }
    }

    pub(crate) fn report(&mut self, location: Location, message: String) {
        self.count += 1;
        if self.list.len() < MAX_ISSUES {
            self.list.push(Issue { location, message });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn sort(&mut self) {
        self.list.sort_by_key(|issue| issue.location);
    }

    /// The problems, at most a hundred of them.
    pub fn list(&self) -> &[Issue] {
        &self.list
    }
}

impl std::error::Error for Issues {}

impl std::fmt::Display for Issues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, issue) in self.list.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&shown(issue, &self.source))?;
        }
        if self.count > self.list.len() {
            write!(f, "\n{} more errors were truncated", self.count - self.list.len())?;
        }
        Ok(())
    }
}

fn shown(issue: &Issue, source: &Source) -> String {
    let Location { line, column } = issue.location;
    // The end of an empty text is before its first column.
    let is_empty = line == 1 && source.snippet(1).is_none_or(|own| own.is_empty());
    let shown_column = if is_empty { 0 } else { column + 1 };
    let mut out = format!("ERROR: <input>:{line}:{shown_column}: {}", issue.message);
    let Some(snippet) = source.snippet(line).filter(|own| own.len() <= MAX_SNIPPET) else {
        return out;
    };
    let snippet = snippet.replace('\t', " ");
    let _ = write!(out, "\n | {snippet}\n | ");
    let column = usize::try_from(column).unwrap_or_default();
    let mut rest = snippet.chars();
    for own in rest.by_ref().take(column) {
        out.push(if own.is_ascii() { '.' } else { '\u{ff0e}' });
    }
    let wide = rest.next().is_some_and(|own| !own.is_ascii());
    out.push(if wide { '\u{ff3e}' } else { '^' });
    out
}
