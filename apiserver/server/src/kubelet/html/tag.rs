//! Start tags: where one ends, found byte by byte, and what its attributes are once it has.

/// The position of the next byte in a start tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagState {
    Name,
    BeforeAttribute,
    AttributeName,
    AfterName,
    BeforeValue,
    /// Inside these quotes.
    Quoted(u8),
    Unquoted,
}

impl TagState {
    /// The state after a byte; `None` after the `>` that ends the tag.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Quoted(quote), _) if byte == quote => Self::BeforeAttribute,
            (Self::Quoted(_), _) => self,
            (_, b'>') => return None,
            (Self::BeforeValue, b'"' | b'\'') => Self::Quoted(byte),
            (Self::BeforeValue, _) if is_space(byte) => Self::BeforeValue,
            (Self::Unquoted, _) if is_space(byte) => Self::BeforeAttribute,
            (Self::BeforeValue | Self::Unquoted, _) => Self::Unquoted,
            (_, b'/') => Self::BeforeAttribute,
            (Self::AttributeName | Self::AfterName, b'=') => Self::BeforeValue,
            (Self::AttributeName | Self::AfterName, _) if is_space(byte) => Self::AfterName,
            (_, _) if is_space(byte) => Self::BeforeAttribute,
            (Self::Name, _) => Self::Name,
            (_, _) => Self::AttributeName,
        })
    }
}

/// A start tag.
#[derive(Debug, Default)]
pub(super) struct Tag {
    /// In lower case, as those of attributes.
    pub(super) name: String,
    pub(super) attributes: Vec<Attribute>,
}

/// An attribute, with the place of its value.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) from: usize,
    pub(super) to: usize,
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0c)
}

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

impl Tag {
    /// Reads the name alone of a tag whose beginning this is.
    pub(super) fn name(bytes: &[u8]) -> String {
        Reader { bytes, at: 1 }.name()
    }

    /// Reads a tag that is known to end.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut reader = Reader { bytes, at: 1 };
        let name = reader.name();
        let attributes = std::iter::from_fn(|| reader.attribute()).collect();
        Self { name, attributes }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn until(&mut self, ends: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| ends(*byte)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn name(&mut self) -> String {
        lower(self.until(|byte| is_space(byte) || matches!(byte, b'/' | b'>')))
    }

    /// The next attribute; `None` at the end of the tag, or of the bytes.
    fn attribute(&mut self) -> Option<Attribute> {
        self.until(|byte| !is_space(byte) && byte != b'/');
        if self.peek()? == b'>' {
            return None;
        }
        let name_at = self.at;
        self.until(|byte| is_space(byte) || matches!(byte, b'/' | b'>' | b'='));
        if self.at == name_at {
            // A `=` where a name should be is part of one.
            self.at += 1;
            self.until(|byte| is_space(byte) || matches!(byte, b'/' | b'>' | b'='));
        }
        let name = lower(&self.bytes[name_at..self.at]);
        self.until(|byte| !is_space(byte));
        let (from, to) = match self.peek() {
            Some(b'=') => {
                self.at += 1;
                self.value()
            }
            _ => (self.at, self.at),
        };
        Some(Attribute { name, from, to })
    }

    /// The place of a value.
    fn value(&mut self) -> (usize, usize) {
        self.until(|byte| !is_space(byte));
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => {
                self.at += 1;
                let from = self.at;
                self.until(|byte| byte == quote);
                let to = self.at;
                self.at = (to + 1).min(self.bytes.len());
                (from, to)
            }
            _ => {
                let from = self.at;
                self.until(|byte| is_space(byte) || byte == b'>');
                (from, self.at)
            }
        }
    }
}
