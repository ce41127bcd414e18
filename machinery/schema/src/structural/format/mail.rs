//! Mail addresses as Go's `net/mail` reads them: of RFC 5322, with a name, comments and groups.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;

/// Reports whether a text is one address, or a group of one.
pub(super) fn is_address(text: &str) -> bool {
    let mut reader = Reader { rest: text };
    let found = reader.address(true);
    found == Some(1) && reader.skip_comments().is_some() && reader.rest.is_empty()
}

/// The rest of a text. Readers return nothing where there is an error.
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    /// A mailbox or, where allowed, a group; returns the number of addresses.
    fn address(&mut self, may_be_group: bool) -> Option<usize> {
        self.skip_space();
        let begin = self.rest;
        if self.address_spec().is_some() {
            self.skip_space();
            if self.take('(') {
                let comment = self.comment()?;
                let mut words = comment.split([' ', '\t']);
                return words
                    .all(|word| encoded(word) != Word::UnknownCharset)
                    .then_some(1);
            }
            return Some(1);
        }
        self.rest = begin;
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if may_be_group && self.take(':') {
            return self.group();
        }
        if !self.take('<') {
            return None;
        }
        self.address_spec()?;
        self.take('>').then_some(1)
    }

    fn group(&mut self) -> Option<usize> {
        let mut count = 0;
        self.skip_space();
        if self.take(';') {
            return self.skip_comments().map(|()| 0);
        }
        loop {
            count += self.address(false)?;
            self.skip_comments()?;
            if self.take(';') {
                return self.skip_comments().map(|()| count);
            }
            if !self.take(',') {
                return None;
            }
        }
    }

    fn address_spec(&mut self) -> Option<()> {
        self.skip_space();
        match self.rest.starts_with('"') {
            true => self.quoted().filter(|length| *length > 0).map(drop)?,
            false => self.atom().filter(|own| is_strict(own)).map(drop)?,
        }
        if !self.take('@') {
            return None;
        }
        self.skip_space();
        match self.rest.starts_with('[') {
            true => self.literal(),
            false => self.atom().filter(|own| is_strict(own)).map(drop),
        }
    }

    /// Words, of which one is enough: what cannot be read ends them.
    fn phrase(&mut self) -> Option<()> {
        // Encoded words that follow each other are one word, which may be empty.
        let (mut words, mut encoded_length) = (0, 0);
        loop {
            if words > 0 {
                self.skip_comments()?;
            }
            self.skip_space();
            let read = match self.rest.starts_with('"') {
                true => self.quoted().map(Word::Plain),
                false => self.atom().map(encoded),
            };
            match read {
                Some(Word::Encoded(length)) => encoded_length += length,
                Some(Word::Plain(_)) => {
                    words += 1 + usize::from(encoded_length > 0);
                    encoded_length = 0;
                }
                Some(Word::UnknownCharset) | None => {
                    let ended = self.rest.is_empty() && read.is_none();
                    return (ended || words > 0 || encoded_length > 0).then_some(());
                }
            }
        }
    }

    /// A quoted text; returns its length.
    fn quoted(&mut self) -> Option<usize> {
        let (mut length, mut escaped) = (0, false);
        for (at, own) in self.rest.char_indices().skip(1) {
            if !escaped && own == '"' {
                self.rest = &self.rest[at + 1..];
                return Some(length);
            }
            if !escaped && own == '\\' {
                escaped = true;
                continue;
            }
            if !is_visible(own) && !matches!(own, ' ' | '\t') {
                return None;
            }
            length += 1;
            escaped = false;
        }
        None
    }

    /// Characters of an atom, with dots.
    fn atom(&mut self) -> Option<&'t str> {
        let end = self.rest.find(|own| !is_of_atom(own)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(end);
        self.rest = rest;
        (end > 0).then_some(atom)
    }

    /// An IP address in brackets.
    fn literal(&mut self) -> Option<()> {
        let (inner, rest) = self.rest[1..].split_once(']')?;
        self.rest = rest;
        inner.parse::<IpAddr>().ok().map(drop)
    }

    /// White space and comments.
    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.take('(') {
            self.comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// The text of a comment whose bracket was taken.
    fn comment(&mut self) -> Option<String> {
        let (mut depth, mut text) = (1, String::new());
        let mut all = self.rest.char_indices();
        while let Some((at, own)) = all.next() {
            let own = match own {
                '\\' => all.next().map_or(own, |(_, escaped)| escaped),
                '(' => {
                    depth += 1;
                    own
                }
                ')' => {
                    depth -= 1;
                    if depth == 0 {
                        self.rest = &self.rest[at + 1..];
                        return Some(text);
                    }
                    own
                }
                own => own,
            };
            text.push(own);
        }
        None
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn is_visible(own: char) -> bool {
    own.is_ascii_graphic() || !own.is_ascii()
}

fn is_of_atom(own: char) -> bool {
    is_visible(own) && !"()<>[]:;@\\,\"".contains(own)
}

fn is_strict(atom: &str) -> bool {
    !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..")
}

/// A word of a name.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Plain(usize),
    /// By RFC 2047, with the length of what it says.
    Encoded(usize),
    UnknownCharset,
}

/// Reads a word that may be encoded: `=?utf-8?q?a?=`.
fn encoded(word: &str) -> Word {
    let plain = Word::Plain(word.len());
    let inner = word.strip_prefix("=?").and_then(|own| own.strip_suffix("?="));
    let parts: Vec<&str> = inner.into_iter().flat_map(|own| own.split('?')).collect();
    let [charset, encoding, text] = parts[..] else {
        return plain;
    };
    let length = match encoding {
        "b" | "B" => STANDARD.decode(text).ok().map(|own| own.len()),
        "q" | "Q" => quoted_printable(text),
        _ => None,
    };
    match length {
        Some(_) if charset.is_empty() || word.len() < 8 => plain,
        Some(length) if is_known_charset(charset) => Word::Encoded(length),
        Some(_) => Word::UnknownCharset,
        None => plain,
    }
}

fn is_known_charset(charset: &str) -> bool {
    let known = ["utf-8", "iso-8859-1", "us-ascii"];
    known.iter().any(|own| own.eq_ignore_ascii_case(charset))
}

/// The length of a text in which bytes are `=C3`.
fn quoted_printable(text: &str) -> Option<usize> {
    let (mut rest, mut length) = (text.as_bytes(), 0);
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'=' => {
                after
                    .split_at_checked(2)
                    .filter(|(digits, _)| super::is_hex(digits))?
                    .1
            }
            b' '..=b'~' | b'\n' | b'\r' | b'\t' => after,
            _ => return None,
        };
        length += 1;
    }
    Some(length)
}
