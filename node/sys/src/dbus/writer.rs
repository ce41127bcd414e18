//! Bytes of a message that is sent. Pure.

use super::value::Value;

/// Bytes in little endian. The fields begin at a multiple of eight, and so does the body.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(super) fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn length(&mut self, length: usize) {
        self.number(u32::try_from(length).unwrap_or(u32::MAX));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    pub(super) fn signature(&mut self, signature: &str) {
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend(signature.as_bytes());
        self.0.push(0);
    }

    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(value) => self.number(u32::from(*value)),
            Value::Int32(value) => self.number(value.cast_unsigned()),
            Value::Uint32(value) | Value::Handle(value) => self.number(*value),
            Value::Uint64(value) => {
                self.align(8);
                self.0.extend(value.to_le_bytes());
            }
            Value::Text(text) => self.text(text),
            Value::Texts(texts) => self.array(4, |array| {
                for text in texts {
                    array.align(4);
                    array.text(text);
                }
            }),
            Value::Properties(properties) => self.array(8, |array| {
                for (name, value) in properties {
                    array.align(8);
                    array.text(name);
                    array.signature(value.signature());
                    array.value(value);
                }
            }),
            Value::NoUnits => self.array(8, |_| {}),
            Value::Other => {}
        }
    }

    /// An array: its bytes are counted from the first element, which begins at such a multiple.
    fn array(&mut self, element: usize, fill: impl FnOnce(&mut Self)) {
        self.number(0);
        let length_at = self.0.len() - 4;
        self.align(element);
        let begin = self.0.len();
        fill(self);
        let length = u32::try_from(self.0.len() - begin).unwrap_or(u32::MAX);
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    pub(super) fn begin_field(&mut self, number: u8, signature: &str) {
        self.align(8);
        self.0.push(number);
        self.signature(signature);
    }

    pub(super) fn text_field(&mut self, number: u8, signature: &str, text: &str) {
        self.begin_field(number, signature);
        self.text(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dbus_arrays_are_counted_from_their_first_element() {
        let mut body = Writer::default();
        body.value(&Value::Texts(vec!["a".to_owned(), "bc".to_owned()]));
        assert_eq!(
            body.0,
            [15, 0, 0, 0, 1, 0, 0, 0, b'a', 0, 0, 0, 2, 0, 0, 0, b'b', b'c', 0]
        );
        let mut body = Writer::default();
        body.value(&Value::Properties(vec![
            ("N", Value::Uint64(5)),
            ("B", Value::Bool(true)),
        ]));
        let first = [
            1, 0, 0, 0, b'N', 0, 1, b't', 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
        ];
        let second = [1, 0, 0, 0, b'B', 0, 1, b'b', 0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(body.0, [&[40, 0, 0, 0, 0, 0, 0, 0][..], &first, &second].concat());
        let mut body = Writer::default();
        body.value(&Value::NoUnits);
        assert_eq!(
            body.0, [0; 8],
            "the room before a first element is there without one"
        );
    }
}
