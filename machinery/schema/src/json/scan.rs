//! The scanner: positions in the input, strings, numbers, and Go's words for what is not JSON.

use super::DecodeError;
use crate::MAX_DEPTH;

/// Bytes at which the fast loop over a string stops.
static STOPS: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 0x20 {
        table[at] = true;
        at += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

/// The first of eight bytes that is one of [`STOPS`].
#[inline]
fn first_stop(bytes: u64) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // A byte's high bit is set where it is below `limit`; above the first such byte the others mean nothing.
    let below = |bytes: u64, limit: u8| bytes.wrapping_sub(ONES * u64::from(limit)) & !bytes & HIGH;
    let is = |byte: u8| below(bytes ^ (ONES * u64::from(byte)), 1);
    let stops = below(bytes, 0x20) | is(b'"') | is(b'\\');
    (stops != 0).then(|| (stops.trailing_zeros() / 8) as usize)
}

/// The next of [`STOPS`] from here on, or the end: eight bytes at a time, as long as there are so many.
#[inline]
pub(crate) fn stop_from(input: &[u8], mut at: usize) -> usize {
    while let Some(eight) = input.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        match first_stop(u64::from_le_bytes(*eight)) {
            Some(stop) => return at + stop,
            None => at += 8,
        }
    }
    while let Some(byte) = input.get(at)
        && !STOPS[*byte as usize]
    {
        at += 1;
    }
    at
}

/// A string literal without its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Literal {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) escaped: bool,
}

/// A number literal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) start: usize,
    pub(super) end: usize,
    /// No fraction and no exponent.
    pub(super) whole: bool,
}

#[derive(Debug)]
pub(super) struct Scanner<'i> {
    text: &'i str,
    input: &'i [u8],
    pub(super) at: usize,
    /// The first byte that was not UTF-8, which the text no longer has, and where it was.
    broken: Option<(usize, u8)>,
}

impl<'i> Scanner<'i> {
    pub(super) fn new(text: &'i str) -> Self {
        Self {
            text,
            input: text.as_bytes(),
            at: 0,
            broken: None,
        }
    }

    /// The text is `original` but for bytes that are not UTF-8.
    pub(super) fn repaired(text: &'i str, original: &[u8]) -> Self {
        let first = std::str::from_utf8(original)
            .err()
            .map(|error| error.valid_up_to());
        Self {
            broken: first.and_then(|at| Some((at, *original.get(at)?))),
            ..Self::new(text)
        }
    }

    /// Text between two places that the scanner stopped at.
    #[inline]
    pub(super) fn slice(&self, start: usize, end: usize) -> &'i str {
        &self.text[start..end]
    }

    /// The next byte that is not white space, not taken yet.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.input.get(self.at)?;
            if byte > b' ' || !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Takes `byte` if it is next.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes what must follow.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8, context: &str) -> Result<(), DecodeError> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.unexpected(context))
        }
    }

    #[cold]
    pub(super) fn unexpected(&mut self, context: &str) -> DecodeError {
        self.peek();
        self.bad(context)
    }

    #[cold]
    fn bad(&self, context: &str) -> DecodeError {
        let broken = self.broken.filter(|(at, _)| *at == self.at).map(|(_, byte)| byte);
        let Some(byte) = broken.or_else(|| self.input.get(self.at).copied()) else {
            return DecodeError::Syntax("unexpected end of JSON input".to_owned());
        };
        let shown = match byte {
            b'\'' => "'\\''".to_owned(),
            b'\\' => "'\\\\'".to_owned(),
            b'\n' => "'\\n'".to_owned(),
            b'\r' => "'\\r'".to_owned(),
            b'\t' => "'\\t'".to_owned(),
            0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
            // Go takes the byte for a character, and these cannot be printed.
            0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
            _ => format!("'{}'", byte as char),
        };
        DecodeError::Syntax(format!("invalid character {shown} {context}"))
    }

    /// The literal whose opening quote is next.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Literal, DecodeError> {
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            at = self.stop_from(at);
            match self.input.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    at = self.escape(at + 1)?;
                }
                _ => {
                    self.at = at;
                    return Err(self.bad("in string literal"));
                }
            }
        }
        self.at = at + 1;
        Ok(Literal {
            start,
            end: at,
            escaped,
        })
    }

    /// Checks the escape at the backslash's place, so that text which is never decoded is JSON too; returns the place
    /// behind it.
    fn escape(&mut self, at: usize) -> Result<usize, DecodeError> {
        match self.input.get(at) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
            Some(b'u') => {
                let is_hex = |at: &usize| self.input.get(*at).is_some_and(u8::is_ascii_hexdigit);
                match (at + 1..at + 5).find(|at| !is_hex(at)) {
                    None => Ok(at + 5),
                    Some(wrong) => {
                        self.at = wrong;
                        Err(self.bad("in \\u hexadecimal character escape"))
                    }
                }
            }
            _ => {
                self.at = at;
                Err(self.bad("in string escape code"))
            }
        }
    }

    /// The next byte that a string cannot pass over, or the end: eight at a time, as long as there are so many.
    #[inline]
    fn stop_from(&self, at: usize) -> usize {
        stop_from(self.input, at)
    }

    pub(super) fn number(&mut self) -> Result<Number, DecodeError> {
        let start = self.at;
        let mut whole = true;
        self.at += usize::from(self.next_is(b'-'));
        match self.input.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.bad("in numeric literal")),
        }
        if self.next_is(b'.') {
            whole = false;
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if self.next_is(b'e') || self.next_is(b'E') {
            whole = false;
            self.at += 1;
            self.at += usize::from(self.next_is(b'+') || self.next_is(b'-'));
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(Number {
            start,
            end: self.at,
            whole,
        })
    }

    /// `true`, `false` or `null`, whose first byte is next.
    pub(super) fn word(&mut self, word: &str) -> Result<(), DecodeError> {
        for byte in word.bytes() {
            if !self.next_is(byte) {
                return Err(self.bad(&format!("in literal {word} (expecting '{}')", byte as char)));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Passes over one value of any kind, which stands inside of `depth` lists and maps.
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), DecodeError> {
        match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => Err(DecodeError::TooDeep),
            Some(b'{') => self.skip_object(depth),
            Some(b'[') => self.skip_array(depth),
            Some(b'"') => self.string().map(drop),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn skip_object(&mut self, depth: usize) -> Result<(), DecodeError> {
        self.at += 1;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.key()?;
            self.skip(depth + 1)?;
            if !self.more(b'}', "after object key:value pair")? {
                return Ok(());
            }
        }
    }

    fn skip_array(&mut self, depth: usize) -> Result<(), DecodeError> {
        self.at += 1;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            self.skip(depth + 1)?;
            if !self.more(b']', "after array element")? {
                return Ok(());
            }
        }
    }

    /// A member's key and the colon after it.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Literal, DecodeError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let key = self.string()?;
        self.expect(b':', "after object key")?;
        Ok(key)
    }

    /// Reads on after a member or an item: whether there is another one.
    #[inline]
    pub(super) fn more(&mut self, close: u8, context: &str) -> Result<bool, DecodeError> {
        if self.take(b',') {
            return Ok(true);
        }
        self.expect(close, context).map(|()| false)
    }

    fn next_is(&self, byte: u8) -> bool {
        self.input.get(self.at) == Some(&byte)
    }

    fn digits(&mut self) {
        while self.input.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Result<(), DecodeError> {
        if !self.input.get(self.at).is_some_and(u8::is_ascii_digit) {
            return Err(self.bad(context));
        }
        self.digits();
        Ok(())
    }
}

/// Appends a literal's text with its escapes undone, as Go does: lone surrogates become U+FFFD.
pub(super) fn unescape(literal: &str, out: &mut String) -> Result<(), DecodeError> {
    let mut rest = literal;
    while let Some(found) = rest.find('\\') {
        out.push_str(&rest[..found]);
        rest = &rest[found + 1..];
        let escape = rest.bytes().next().unwrap_or(0);
        let plain = match escape {
            b'"' | b'\\' | b'/' => escape as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (character, taken) = unicode(rest)?;
                out.push(character);
                rest = &rest[taken..];
                continue;
            }
            _ => {
                let shown = rest
                    .chars()
                    .next()
                    .map_or_else(|| "'\"'".to_owned(), |c| format!("'{c}'"));
                return Err(DecodeError::Syntax(format!(
                    "invalid character {shown} in string escape code"
                )));
            }
        };
        out.push(plain);
        rest = &rest[1..];
    }
    out.push_str(rest);
    Ok(())
}

/// `uXXXX`, or a pair of them; the character and how many bytes it took.
fn unicode(text: &str) -> Result<(char, usize), DecodeError> {
    let first = hex_code(text).ok_or_else(|| {
        DecodeError::Syntax("invalid character in \\u hexadecimal character escape".to_owned())
    })?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, 5));
    }
    let second = text
        .get(5..)
        .and_then(|rest| rest.strip_prefix("\\"))
        .filter(|rest| rest.starts_with('u'));
    if let Some(low) = second.and_then(hex_code)
        && (0xd800..0xdc00).contains(&first)
        && (0xdc00..0xe000).contains(&low)
    {
        let joined = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
        return Ok((char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER), 11));
    }
    Ok((char::REPLACEMENT_CHARACTER, 5))
}

/// The number of `uXXXX`.
fn hex_code(text: &str) -> Option<u32> {
    let hex = text
        .get(1..5)
        .filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{STOPS, first_stop};

    #[test]
    fn json_scan_of_eight_bytes_matches_scan_of_one() {
        for byte in 0..=u8::MAX {
            for other in [
                b'a',
                0,
                0x1f,
                0x20,
                b'"' - 1,
                b'"',
                b'"' + 1,
                b'\\',
                0x7f,
                0x80,
                0xff,
            ] {
                for at in 0..8 {
                    let mut bytes = [other; 8];
                    bytes[at] = byte;
                    let expected = bytes.iter().position(|byte| STOPS[*byte as usize]);
                    assert_eq!(first_stop(u64::from_le_bytes(bytes)), expected, "{bytes:?}");
                }
            }
        }
    }
}
