//! `fieldPath` of a rule: names after dots, or in brackets and quotes.

use crate::value::Data;
use machinery_meta::FieldPath;

/// The path as problems show it, when it leads to something that the schema has.
pub(super) fn normal(path: &str, schema: Data<'_>) -> Option<String> {
    if path.is_empty() {
        return None;
    }
    let (mut out, mut schema, mut rest) = (FieldPath::root(), schema, path);
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        let property = schema.member("properties").and_then(|own| own.member(&name));
        match property {
            Some(own) => {
                out = out.child(&name);
                schema = own;
            }
            None => {
                schema = schema.member("additionalProperties").filter(|own| own.is_map())?;
                out = out.key(&name);
            }
        }
        rest = after;
    }
    Some(out.as_str().to_owned())
}

/// One name, and what is after it.
fn step(rest: &str) -> Option<(String, &str)> {
    if let Some(rest) = rest.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        return (end > 0).then(|| (rest[..end].to_owned(), &rest[end..]));
    }
    let mut chars = rest.strip_prefix("['")?.char_indices();
    let (whole, mut name) = (rest.strip_prefix("['")?, String::new());
    while let Some((at, own)) = chars.next() {
        match own {
            '\'' => return Some((name, whole[at + 1..].strip_prefix(']')?)),
            '\\' => name.push(match chars.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                other @ ('\'' | '\\') => other,
                _ => return None,
            }),
            _ => name.push(own),
        }
    }
    None
}
