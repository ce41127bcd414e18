//! A buffer written from its end: a message's length is known once its content stands, so nothing is moved to put it there.

use super::wire::{BYTES, FIXED64, VARINT};

/// A buffer whose content stands at the end of the bytes.
pub(super) struct ReverseBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl ReverseBuffer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(64);
        Self {
            bytes: vec![0; capacity],
            start: capacity,
        }
    }

    /// Everything, first byte first.
    pub(super) fn written(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Puts bytes before what is there.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > self.start {
            self.grow(bytes.len());
        }
        self.start -= bytes.len();
        self.bytes[self.start..self.start + bytes.len()].copy_from_slice(bytes);
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let written = self.bytes.len() - self.start;
        let mut larger = vec![0; 2 * (self.bytes.len() + more)];
        let start = larger.len() - written;
        larger[start..].copy_from_slice(self.written());
        (self.bytes, self.start) = (larger, start);
    }

    fn varint(&mut self, mut value: u64) {
        let (mut digits, mut count) = ([0; 10], 0);
        loop {
            let low = u8::try_from(value & 0x7f).unwrap_or(0);
            value >>= 7;
            digits[count] = if value == 0 { low } else { low | 0x80 };
            count += 1;
            if value == 0 {
                break;
            }
        }
        self.put(&digits[..count]);
    }

    fn tag(&mut self, number: u16, wire: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire));
    }

    pub(super) fn field_bytes(&mut self, number: u16, bytes: &[u8]) {
        self.put(bytes);
        self.varint(bytes.len() as u64);
        self.tag(number, BYTES);
    }

    #[expect(
        clippy::cast_sign_loss,
        reason = "negative numbers are written as their two's complement"
    )]
    pub(super) fn field_number(&mut self, number: u16, value: i64) {
        self.varint(value as u64);
        self.tag(number, VARINT);
    }

    pub(super) fn field_double(&mut self, number: u16, value: f64) {
        self.put(&value.to_le_bytes());
        self.tag(number, FIXED64);
    }

    /// A field whose content `write` puts there, its last part first.
    pub(super) fn field_message(&mut self, number: u16, write: impl FnOnce(&mut Self)) {
        let before = self.bytes.len() - self.start;
        write(self);
        let length = self.bytes.len() - self.start - before;
        self.varint(length as u64);
        self.tag(number, BYTES);
    }
}
