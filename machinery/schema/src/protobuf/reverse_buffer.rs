//! A buffer written from its end: a message's length is known once its content stands, so nothing is moved to put it there,
//! however deep messages are.

use super::wire::{BYTES, FIXED64, VARINT};

/// A buffer of fields whose content stands at the end of the bytes: the last field is put first.
#[derive(Debug)]
pub struct ReverseBuffer {
    bytes: Vec<u8>,
    start: usize,
    /// Bytes copied so far: put, or moved to a larger buffer.
    #[cfg(test)]
    copied: usize,
}

impl ReverseBuffer {
    /// An empty buffer with room for so many bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(64);
        Self {
            bytes: vec![0; capacity],
            start: capacity,
            #[cfg(test)]
            copied: 0,
        }
    }

    /// Everything, first byte first.
    pub fn written(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Puts bytes before what is there.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > self.start {
            self.grow(bytes.len());
        }
        #[cfg(test)]
        {
            self.copied += bytes.len();
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
        #[cfg(test)]
        {
            self.copied += written;
        }
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

    /// Puts a field of bytes: a text, or a message that is written already.
    pub fn field_bytes(&mut self, number: u16, bytes: &[u8]) {
        self.put(bytes);
        self.varint(bytes.len() as u64);
        self.tag(number, BYTES);
    }

    /// Puts a field with an integer or a flag.
    #[expect(
        clippy::cast_sign_loss,
        reason = "negative numbers are written as their two's complement"
    )]
    pub fn field_number(&mut self, number: u16, value: i64) {
        self.varint(value as u64);
        self.tag(number, VARINT);
    }

    /// Puts a field with a floating point number.
    pub fn field_double(&mut self, number: u16, value: f64) {
        self.put(&value.to_le_bytes());
        self.tag(number, FIXED64);
    }

    /// Puts a field whose content `write` puts, its last field first.
    pub fn field_message(&mut self, number: u16, write: impl FnOnce(&mut Self)) {
        let before = self.bytes.len() - self.start;
        write(self);
        let length = self.bytes.len() - self.start - before;
        self.varint(length as u64);
        self.tag(number, BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{write_bytes, write_number};
    use super::*;
    use machinery_fuzz::Random;

    /// A field, as a message is made of them.
    #[derive(Debug)]
    enum Field {
        Bytes(Vec<u8>),
        Number(i64),
        Double(f64),
        Message(Vec<(u16, Field)>),
    }

    fn fields(random: &mut Random, depth: usize) -> Vec<(u16, Field)> {
        let count = random.below(8);
        let field = |random: &mut Random| match random.below(if depth > 6 { 3 } else { 5 }) {
            0 => Field::Bytes(vec![7; random.below(300)]),
            1 => Field::Number(i64::try_from(random.below(1 << 20)).unwrap() - (1 << 19)),
            2 => Field::Double(f64::from(u16::try_from(random.below(1 << 16)).unwrap()) / 3.0),
            _ => Field::Message(fields(random, depth + 1)),
        };
        let number = |random: &mut Random| u16::try_from(1 + random.below(3000)).unwrap();
        (0..count).map(|_| (number(random), field(random))).collect()
    }

    /// The message written from its beginning: every level is a copy of what is below it.
    fn forward(fields: &[(u16, Field)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, field) in fields {
            match field {
                Field::Bytes(bytes) => write_bytes(&mut out, *number, bytes),
                Field::Number(value) => write_number(&mut out, *number, *value),
                Field::Double(value) => {
                    super::super::wire::write_tag(&mut out, *number, FIXED64);
                    out.extend_from_slice(&value.to_le_bytes());
                }
                Field::Message(own) => write_bytes(&mut out, *number, &forward(own)),
            }
        }
        out
    }

    fn backward(fields: &[(u16, Field)], out: &mut ReverseBuffer) {
        for (number, field) in fields.iter().rev() {
            match field {
                Field::Bytes(bytes) => out.field_bytes(*number, bytes),
                Field::Number(value) => out.field_number(*number, *value),
                Field::Double(value) => out.field_double(*number, *value),
                Field::Message(own) => out.field_message(*number, |out| backward(own, out)),
            }
        }
    }

    #[test]
    fn protobuf_written_backward_has_the_bytes_of_one_written_forward() {
        let mut random = Random::new(1);
        let mut longest = 0;
        for _ in 0..2_000 {
            let message = fields(&mut random, 0);
            let mut out = ReverseBuffer::with_capacity(random.below(200));
            backward(&message, &mut out);
            assert_eq!(out.written(), forward(&message), "{message:?}");
            longest = longest.max(out.written().len());
        }
        assert!(longest > 5_000, "messages are nested and long: {longest}");
    }

    #[test]
    fn protobuf_content_is_copied_once_whatever_its_depth() {
        fn nested(depth: usize, content: &[u8], out: &mut ReverseBuffer) {
            match depth {
                0 => out.field_bytes(1, content),
                _ => out.field_message(1, |out| nested(depth - 1, content, out)),
            }
        }
        let content = vec![7; 100_000];
        for depth in [0, 10, 100] {
            let mut out = ReverseBuffer::with_capacity(content.len() + 1_000);
            nested(depth, &content, &mut out);
            assert_eq!(out.copied, out.written().len(), "{depth}");
            assert!(out.written().len() < content.len() + 5 * (depth + 1), "{depth}");
        }
        // Growing moves what is there, so that no byte is moved more than twice on average.
        let mut out = ReverseBuffer::with_capacity(0);
        (0..10_000).for_each(|_| out.field_bytes(1, &[7; 30]));
        assert!(out.copied < 3 * out.written().len(), "{}", out.copied);
    }
}
