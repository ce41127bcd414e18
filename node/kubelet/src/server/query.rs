//! Parameters of a request's address.

use std::collections::HashMap;

/// Parsed parameters of a request; a name may come several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    values: HashMap<String, Vec<String>>,
}

impl Query {
    /// Parses what follows the question mark.
    pub(crate) fn parse(text: &str) -> Self {
        let mut values: HashMap<String, Vec<String>> = HashMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decoded(name)).or_default().push(decoded(value));
        }
        Self { values }
    }

    /// The first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .and_then(|list| list.first())
            .map(String::as_str)
    }

    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.values.get(name).cloned().unwrap_or_default()
    }

    /// Reports whether a flag is set, in any of the forms that clients use.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1" | "t" | "T" | "TRUE" | "True"))
    }
}

pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let raw = text.as_bytes();
    let mut at = 0;
    while at < raw.len() {
        let hex = (raw[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match (raw[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (_, Some(byte)) => {
                bytes.push(byte);
                at += 3;
            }
            (b'+', None) => {
                bytes.push(b' ');
                at += 1;
            }
            (byte, None) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_may_repeat() {
        let query = Query::parse("command=sh&command=-c&command=echo+%22a%26b%22&stdin=1");
        assert_eq!(query.all("command"), ["sh", "-c", "echo \"a&b\""]);
        assert!(query.flag("stdin") && !query.flag("tty"));
    }
}
