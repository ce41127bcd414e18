//! Names of properties as expressions can have them: `namespace` is `__namespace__`, `a-b` is `a__dash__b`.

use std::borrow::Cow;

/// Words that are kept for later, and no names of variables or functions.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Reports whether a word is no name of a variable or function.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

const ESCAPES: [(&str, &str); 4] = [
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
];

/// The name in expressions; none when there is no way to write it.
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.starts_with(|own: char| own.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__").into());
    }
    let plain = |own: char| own.is_ascii_alphanumeric() || own == '_';
    if !name
        .chars()
        .all(|own| plain(own) || matches!(own, '-' | '.' | '/'))
    {
        return None;
    }
    if !name.contains(['-', '.', '/']) && !name.contains("__") {
        return Some(name.into());
    }
    let (mut out, mut rest) = (String::new(), name);
    while let Some(first) = rest.chars().next() {
        let found = ESCAPES.iter().find(|own| rest.starts_with(own.0));
        let taken = found.map_or(first.len_utf8(), |own| own.0.len());
        out.push_str(found.map_or(&rest[..taken], |own| own.1));
        rest = &rest[taken..];
    }
    Some(out.into())
}

/// The name of a property that an expression has in escaped form.
pub fn unescape(escaped: &str) -> Option<Cow<'_, str>> {
    if !escaped.contains("__") {
        return Some(escaped.into());
    }
    let (mut out, mut rest) = (String::new(), escaped);
    while let Some(start) = rest.find("__") {
        let inner = &rest[start + 2..];
        let Some(end) = inner
            .find('_')
            .filter(|end| *end > 0 && inner[*end..].starts_with("__"))
        else {
            // Nothing between the underscores: they stay, and reading goes on behind the first.
            out.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        };
        let word = &inner[..end];
        let meant = ESCAPES
            .iter()
            .find(|own| own.1[2..].strip_suffix("__") == Some(word));
        out.push_str(&rest[..start]);
        match meant {
            Some(own) => out.push_str(own.0),
            None if is_reserved(word) && word.len() + 4 == escaped.len() => out.push_str(word),
            None => return None,
        }
        rest = &inner[end + 2..];
    }
    out.push_str(rest);
    Some(out.into())
}
