//! The headers of upstream's tables, with their descriptions, from `headers.tsv`, which `cargo xtask codegen` makes.
//!
//! A line that begins with `=` is a text that many headers share, by its name; a line without a tab in front is a
//! resource (`group/version/plural`, the core group empty) and the lines with one below it are its columns: name,
//! type, format, priority, description. `\n` in a description is a line break.

use super::Column;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

const HEADERS: &str = include_str!("headers.tsv");

/// The texts with a name; they are shared rather than kept once for each kind.
static SHARED: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    HEADERS
        .lines()
        .map_while(|line| line.strip_prefix('=')?.split_once('\t'))
        .map(|(name, text)| (name, unescaped(text).into_owned()))
        .collect()
});

/// Headers of a built-in resource, as upstream has them.
pub(super) fn of_resource(resource: &str) -> Option<Vec<Column>> {
    let mut lines = HEADERS.lines();
    lines.find(|line| *line == resource)?;
    Some(
        lines
            .map_while(|line| line.strip_prefix('\t'))
            .map(header)
            .collect(),
    )
}

fn header(line: &'static str) -> Column {
    let mut parts = line.splitn(5, '\t');
    let mut next = || parts.next().unwrap_or_default();
    Column {
        name: next().to_owned(),
        kind: next().to_owned(),
        format: next().to_owned(),
        priority: next().parse().unwrap_or(0),
        description: match next() {
            text if text.starts_with('=') => Cow::Borrowed(shared(&text[1..])),
            text => unescaped(text),
        },
    }
}

/// A text that many headers share.
pub(super) fn shared(name: &str) -> &'static str {
    SHARED.get(name).map_or("", String::as_str)
}

fn unescaped(text: &'static str) -> Cow<'static, str> {
    if text.contains("\\n") {
        Cow::Owned(text.replace("\\n", "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_every_resource_has_headers_and_texts() {
        let resources = HEADERS.lines().filter(|line| !line.starts_with(['=', '\t']));
        for resource in resources {
            let headers = of_resource(resource).unwrap();
            assert!(!headers.is_empty(), "{resource}");
            for header in headers {
                assert!(!header.kind.is_empty(), "{resource} {}", header.name);
                // A name of a text that is not there leaves nothing.
                let line = format!("\t{}\t{}\t", header.name, header.kind);
                let told = HEADERS
                    .lines()
                    .any(|own| own.starts_with(&line) && own.ends_with('\t'));
                assert!(
                    told || !header.description.is_empty(),
                    "{resource} {}",
                    header.name
                );
            }
        }
        assert!(shared("age").contains("\n\nPopulated by the system"));
    }
}
