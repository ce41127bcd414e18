//! Varints, tags and lengths; every length is checked against what is there.

use crate::json::DecodeError;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
pub(super) const FIXED32: u8 = 5;

/// A field's number and how its value is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) number: u32,
    pub(super) wire: u8,
}

#[derive(Debug)]
pub(super) struct Reader<'a> {
    input: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// The next tag, or nothing at the end.
    pub(super) fn tag(&mut self) -> Result<Option<Tag>, DecodeError> {
        if self.input.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| illegal("proto: illegal tag"))?;
        let wire = u8::try_from(key & 7).unwrap_or(7);
        if number == 0 {
            return Err(illegal(&format!("proto: illegal tag 0 (wire type {wire})")));
        }
        Ok(Some(Tag { number, wire }))
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for at in 0..10 {
            let byte = *self.input.get(at).ok_or_else(cut_short)?;
            value |= u64::from(byte & 0x7f)
                .checked_shl(7 * u32::try_from(at).unwrap_or(64))
                .unwrap_or(0);
            if byte < 0x80 {
                self.input = &self.input[at + 1..];
                return Ok(value);
            }
        }
        Err(illegal("proto: integer overflow"))
    }

    /// A varint field's value.
    pub(super) fn number(&mut self, tag: Tag) -> Result<i64, DecodeError> {
        expect(tag, VARINT)?;
        #[expect(
            clippy::cast_possible_wrap,
            reason = "negative numbers are written as their two's complement"
        )]
        self.varint().map(|value| value as i64)
    }

    pub(super) fn double(&mut self, tag: Tag) -> Result<f64, DecodeError> {
        expect(tag, FIXED64)?;
        let bytes = self.take(8)?;
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        Ok(f64::from_le_bytes(word))
    }

    pub(super) fn bytes(&mut self, tag: Tag) -> Result<&'a [u8], DecodeError> {
        expect(tag, BYTES)?;
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| cut_short())?)
    }

    pub(super) fn str(&mut self, tag: Tag) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(tag)?).map_err(|_| illegal("proto: a name is not UTF-8"))
    }

    pub(super) fn skip(&mut self, tag: Tag) -> Result<(), DecodeError> {
        match tag.wire {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            BYTES => self.bytes(tag).map(drop),
            FIXED32 => self.take(4).map(drop),
            wire => Err(illegal(&format!("proto: illegal wireType {wire}"))),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.input.split_at_checked(count).ok_or_else(cut_short)?;
        self.input = rest;
        Ok(head)
    }
}

fn expect(tag: Tag, wire: u8) -> Result<(), DecodeError> {
    if tag.wire == wire {
        return Ok(());
    }
    Err(illegal(&format!(
        "proto: wrong wireType = {} for field {}",
        tag.wire, tag.number
    )))
}

/// Error within a message; around one it is [`DecodeError::Syntax`].
pub(super) fn illegal(problem: &str) -> DecodeError {
    DecodeError::Value(problem.to_owned())
}

fn cut_short() -> DecodeError {
    illegal("unexpected EOF")
}

pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

pub(super) fn write_tag(out: &mut Vec<u8>, number: u16, wire: u8) {
    write_varint(out, u64::from(number) << 3 | u64::from(wire));
}

/// Appends a field of bytes: a text, or a message that is written already (a list's metadata, 1, and items, 2).
pub fn write_bytes(out: &mut Vec<u8>, number: u16, bytes: &[u8]) {
    write_tag(out, number, BYTES);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field with an integer or a flag.
#[expect(
    clippy::cast_sign_loss,
    reason = "negative numbers are written as their two's complement"
)]
pub fn write_number(out: &mut Vec<u8>, number: u16, value: i64) {
    write_tag(out, number, VARINT);
    write_varint(out, value as u64);
}
