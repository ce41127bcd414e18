//! Mail addresses of alternative names, as Go's `parseRFC2821Mailbox` reads them.

use crate::domain::is_domain;

/// See the module. The case of the domain does not matter.
#[derive(Debug)]
pub(crate) struct Mailbox<'a> {
    /// Without its quotes and escapes.
    local: Vec<u8>,
    pub(crate) domain: &'a str,
}

impl PartialEq for Mailbox<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.local == other.local && self.domain.eq_ignore_ascii_case(other.domain)
    }
}

impl<'a> Mailbox<'a> {
    pub(crate) fn read(email: &'a str) -> Option<Self> {
        let (local, rest) = match email.strip_prefix('"') {
            Some(rest) => quoted(rest)?,
            None => atoms(email)?,
        };
        let domain = rest.strip_prefix('@').filter(|own| is_domain(own))?;
        Some(Self { local, domain })
    }
}

/// Splits a quoted text into its content and the rest behind the second quote.
fn quoted(text: &str) -> Option<(Vec<u8>, &str)> {
    let (mut local, mut bytes) = (Vec::new(), text.bytes().enumerate());
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((local, &text[at + 1..])),
            b'\\' => local.push(bytes.next().map(|(_, byte)| byte).filter(|own| is_text(*own))?),
            b'\t' => return None,
            byte if is_text(byte) => local.push(byte),
            _ => return None,
        }
    }
    None
}

/// Atoms with dots between them, and the rest. RFC 3696 has examples with escapes outside of quotes.
fn atoms(text: &str) -> Option<(Vec<u8>, &str)> {
    const SIGNS: &[u8] = b"!#$%&'*+-/=?^_`{|}~.";
    let (mut local, mut at, bytes) = (Vec::new(), 0, text.as_bytes());
    while let Some(byte) = bytes.get(at) {
        let is_escape = *byte == b'\\';
        if !is_escape && !byte.is_ascii_alphanumeric() && !SIGNS.contains(byte) {
            break;
        }
        at += usize::from(is_escape);
        local.push(*bytes.get(at)?);
        at += 1;
    }
    let has_empty = local.split(|byte| *byte == b'.').any(<[u8]>::is_empty);
    (!has_empty).then_some((local, text.get(at..)?))
}

fn is_text(byte: u8) -> bool {
    matches!(byte, 1..=9 | 11 | 12 | 14..=127)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of Go's `TestRFC2822Parsing`, and some of ours with Go's results.
    #[test]
    fn mailboxes_are_read_as_in_go() {
        for (email, expected) in [
            ("foo@example.com", Some(("foo", "example.com"))),
            ("@example.com", None),
            ("\"@example.com", None),
            ("\"\"@example.com", Some(("", "example.com"))),
            ("\"a\"@example.com", Some(("a", "example.com"))),
            ("\"\\a\"@example.com", Some(("a", "example.com"))),
            ("a\"@example.com", None),
            ("foo..bar@example.com", None),
            (".foo.bar@example.com", None),
            ("foo.bar.@example.com", None),
            ("|{}?'@example.com", Some(("|{}?'", "example.com"))),
            ("Abc\\@def@example.com", Some(("Abc@def", "example.com"))),
            ("Fred\\ Bloggs@example.com", Some(("Fred Bloggs", "example.com"))),
            ("Joe.\\\\Blow@example.com", Some(("Joe.\\Blow", "example.com"))),
            ("\"Abc@def\"@example.com", Some(("Abc@def", "example.com"))),
            (
                "\"Fred Bloggs\"@example.com",
                Some(("Fred Bloggs", "example.com")),
            ),
            (
                "customer/department=shipping@example.com",
                Some(("customer/department=shipping", "example.com")),
            ),
            ("$A12345@example.com", Some(("$A12345", "example.com"))),
            ("!def!xyz%abc@example.com", Some(("!def!xyz%abc", "example.com"))),
            ("_somename@example.com", Some(("_somename", "example.com"))),
            ("a@b@c", Some(("a", "b@c"))),
            ("a@", Some(("a", ""))),
            ("a@c.", None),
            ("a", None),
            ("", None),
            ("a\\", None),
            ("\"a", None),
            ("\"a\tb\"@c", None),
            ("\"a\\\tb\"@c", Some(("a\tb", "c"))),
        ] {
            let found = Mailbox::read(email);
            let expected = expected.map(|(local, domain)| (local.as_bytes().to_vec(), domain));
            assert_eq!(found.map(|own| (own.local, own.domain)), expected, "{email}");
        }
    }
}
