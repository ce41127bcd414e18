//! Messages byte by byte, as the specification of D-Bus has them. Pure.

use super::value::Value;
use super::writer::Writer;

/// Bytes of a message, at most. The answers of logind have some hundred.
pub(super) const BYTES_MAX: usize = 64 << 10;
/// Values of a message that are read; those behind them are left out.
const VALUES_MAX: usize = 8;
/// Bytes of the fixed part of a header.
pub(super) const HEAD: usize = 16;
const VERSION: u8 = 1;
const METHOD_CALL: u8 = 1;

/// Numbers of header fields.
mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const ERROR_NAME: u8 = 4;
    pub(super) const REPLY_SERIAL: u8 = 5;
    pub(super) const DESTINATION: u8 = 6;
    pub(super) const SENDER: u8 = 7;
    pub(super) const SIGNATURE: u8 = 8;
}

/// A message that breaks the specification, or our bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A method call.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Bus name of the service.
    pub destination: &'a str,
    /// Path of the object.
    pub path: &'a str,
    /// Interface of the method.
    pub interface: &'a str,
    /// Name of the method.
    pub member: &'a str,
    /// Its arguments.
    pub arguments: &'a [Value],
}

/// Kind of a message that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The answer of a call.
    Return,
    /// A call that failed.
    Error,
    /// A signal.
    Signal,
    /// A call, or what the specification may add.
    Other,
}

/// A message that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its kind.
    pub kind: Kind,
    /// Number of the call that it answers.
    pub reply_serial: Option<u32>,
    /// Path of the object that sends a signal.
    pub path: Option<String>,
    /// Interface of a signal.
    pub interface: Option<String>,
    /// Name of a signal.
    pub member: Option<String>,
    /// Name of an error.
    pub error_name: Option<String>,
    /// Unique bus name of the sender, which the bus fills in.
    pub sender: Option<String>,
    /// Basic values, up to the first that is none.
    pub values: Vec<Value>,
}

impl Call<'_> {
    /// The bytes of the call with this number.
    pub(super) fn encode(&self, serial: u32) -> Vec<u8> {
        let mut body = Writer::default();
        self.arguments.iter().for_each(|value| body.value(value));
        let signature: String = self.arguments.iter().map(Value::signature).collect();
        let mut fields = Writer::default();
        fields.text_field(field::PATH, "o", self.path);
        fields.text_field(field::INTERFACE, "s", self.interface);
        fields.text_field(field::MEMBER, "s", self.member);
        fields.text_field(field::DESTINATION, "s", self.destination);
        if !signature.is_empty() {
            fields.begin_field(field::SIGNATURE, "g");
            fields.signature(&signature);
        }
        let mut message = Writer::default();
        message.0.extend([b'l', METHOD_CALL, 0, VERSION]);
        message.length(body.0.len());
        message.number(serial);
        message.length(fields.0.len());
        message.0.extend(fields.0);
        message.align(8);
        message.0.extend(body.0);
        message.0
    }
}

/// Bytes of the whole message that begins so.
pub(super) fn length(head: &[u8]) -> Result<usize, Malformed> {
    let head: &[u8; HEAD] = head.first_chunk().ok_or(Malformed)?;
    let mut reader = Reader::of(head)?;
    reader.at = 4;
    let body = reader.length()?;
    reader.at = 12;
    let fields = reader.length()?;
    // Each part before the sum, which would overflow on 32 bits.
    if head[3] != VERSION || body > BYTES_MAX || fields > BYTES_MAX {
        return Err(Malformed);
    }
    let all = (HEAD + fields).next_multiple_of(8) + body;
    if all > BYTES_MAX {
        return Err(Malformed);
    }
    Ok(all)
}

/// Reads a whole message.
pub(super) fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
    if bytes.len() != length(bytes)? {
        return Err(Malformed);
    }
    let mut reader = Reader::of(bytes)?;
    reader.at = 12;
    let end = HEAD + reader.length()?;
    let mut message = Message {
        kind: match bytes.get(1) {
            Some(2) => Kind::Return,
            Some(3) => Kind::Error,
            Some(4) => Kind::Signal,
            _ => Kind::Other,
        },
        reply_serial: None,
        path: None,
        interface: None,
        member: None,
        error_name: None,
        sender: None,
        values: Vec::new(),
    };
    let mut signature = String::new();
    while reader.at < end {
        reader.align(8)?;
        let [number] = reader.take()?;
        let value = reader.variant()?;
        match (number, value) {
            (field::PATH, Value::Text(text)) => message.path = Some(text),
            (field::INTERFACE, Value::Text(text)) => message.interface = Some(text),
            (field::MEMBER, Value::Text(text)) => message.member = Some(text),
            (field::ERROR_NAME, Value::Text(text)) => message.error_name = Some(text),
            (field::SENDER, Value::Text(text)) => message.sender = Some(text),
            (field::SIGNATURE, Value::Text(text)) => signature = text,
            (field::REPLY_SERIAL, Value::Uint32(serial)) => message.reply_serial = Some(serial),
            // Fields that are not known yet are to be left out.
            _ => {}
        }
    }
    if reader.at != end {
        return Err(Malformed);
    }
    reader.align(8)?;
    for kind in signature.bytes().take(VALUES_MAX) {
        match reader.value(kind)? {
            Some(value) => message.values.push(value),
            None => break,
        }
    }
    Ok(message)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big: bool,
}

impl<'a> Reader<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let is_big = match bytes.first() {
            Some(b'l') => false,
            Some(b'B') => true,
            _ => return Err(Malformed),
        };
        Ok(Self { bytes, at: 0, is_big })
    }

    fn align(&mut self, to: usize) -> Result<(), Malformed> {
        self.at = self.at.next_multiple_of(to);
        if self.at > self.bytes.len() {
            return Err(Malformed);
        }
        Ok(())
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed)?;
        let found = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(found)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.slice(N)?.try_into().map_err(|_| Malformed)
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        self.align(4)?;
        let bytes = self.take()?;
        Ok(match self.is_big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        self.align(8)?;
        let bytes = self.take()?;
        Ok(match self.is_big {
            true => u64::from_be_bytes(bytes),
            false => u64::from_le_bytes(bytes),
        })
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed)
    }

    /// Text of so many bytes, and the zero behind it.
    fn text(&mut self, length: usize) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.slice(length)?).map_err(|_| Malformed)?;
        match self.take()? {
            [0] => Ok(text.to_owned()),
            _ => Err(Malformed),
        }
    }

    /// A value of this type; nothing where it is not basic.
    fn value(&mut self, kind: u8) -> Result<Option<Value>, Malformed> {
        let value = match kind {
            b'y' => self.take::<1>().map(|_| Value::Other)?,
            b'n' | b'q' => {
                self.align(2)?;
                self.take::<2>().map(|_| Value::Other)?
            }
            b'b' => match self.number()? {
                number @ (0 | 1) => Value::Bool(number == 1),
                _ => return Err(Malformed),
            },
            b'i' => Value::Int32(self.number()?.cast_signed()),
            b'u' => Value::Uint32(self.number()?),
            b'h' => Value::Handle(self.number()?),
            b't' => Value::Uint64(self.long()?),
            b'x' | b'd' => self.long().map(|_| Value::Other)?,
            b's' | b'o' => {
                let length = self.length()?;
                Value::Text(self.text(length)?)
            }
            b'g' => self.signature()?,
            b'v' => self.variant()?,
            _ => return Ok(None),
        };
        Ok(Some(value))
    }

    fn signature(&mut self) -> Result<Value, Malformed> {
        let [length] = self.take()?;
        self.text(usize::from(length)).map(Value::Text)
    }

    /// A variant of a basic value. Others, and a variant in a variant, do not occur in the answers of our calls.
    fn variant(&mut self) -> Result<Value, Malformed> {
        let Value::Text(signature) = self.signature()? else {
            return Err(Malformed);
        };
        match *signature.as_bytes() {
            [kind] if kind != b'v' => self.value(kind)?.ok_or(Malformed),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &[Value]) -> Vec<u8> {
        let call = Call {
            destination: "org.freedesktop.login1",
            path: "/org/freedesktop/login1",
            interface: "org.freedesktop.login1.Manager",
            member: "Inhibit",
            arguments,
        };
        call.encode(7)
    }

    fn arguments() -> Vec<Value> {
        vec![
            Value::Text("shutdown".to_owned()),
            Value::Int32(-1),
            Value::Uint64(u64::MAX),
            Value::Bool(true),
            Value::Handle(0),
            Value::Uint32(9),
        ]
    }

    #[test]
    fn dbus_message_is_read_as_it_was_written() {
        let bytes = call(&arguments());
        assert_eq!(length(&bytes), Ok(bytes.len()));
        let message = decode(&bytes).unwrap();
        assert_eq!(message.values, arguments());
        assert_eq!(message.member.as_deref(), Some("Inhibit"));
        assert_eq!(message.path.as_deref(), Some("/org/freedesktop/login1"));
        assert_eq!(message.kind, Kind::Other, "it is a call");
        assert_eq!(decode(&bytes[..bytes.len() - 1]), Err(Malformed));
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(decode(&longer), Err(Malformed));
    }

    /// An answer with a variant, as another library has written it: of a property, in big endian.
    #[test]
    fn dbus_message_in_big_endian_is_read() {
        let mut bytes = vec![b'B', 2, 1, 1, 0, 0, 0, 16, 0, 0, 0, 3, 0, 0, 0, 15];
        bytes.extend([5, 1, b'u', 0, 0, 0, 0, 7]);
        bytes.extend([8, 1, b'g', 0, 1, b'v', 0, 0]);
        bytes.extend([1, b't', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x4c, 0x4b, 0x40]);
        let message = decode(&bytes).unwrap();
        assert_eq!(message.reply_serial, Some(7));
        assert_eq!(message.values, [Value::Uint64(5_000_000)]);
        bytes[16 + 16 + 1] = b'v';
        assert_eq!(decode(&bytes), Err(Malformed), "a variant in a variant");
    }

    #[test]
    fn dbus_message_above_its_bounds_is_refused() {
        let head = |body: u32, fields: u32| {
            let mut head = vec![b'l', 4, 0, 1];
            head.extend(body.to_le_bytes());
            head.extend(1_u32.to_le_bytes());
            head.extend(fields.to_le_bytes());
            head
        };
        assert_eq!(length(&head(8, 8)), Ok(32));
        let most = u32::try_from(BYTES_MAX).unwrap();
        assert_eq!(length(&head(most - 16, 0)), Ok(BYTES_MAX));
        for (body, fields) in [(most - 15, 0), (0, most - 15), (u32::MAX, 0), (0, u32::MAX)] {
            assert_eq!(length(&head(body, fields)), Err(Malformed), "{body} {fields}");
        }
        let many = vec![Value::Uint32(1); 200];
        assert_eq!(decode(&call(&many)).unwrap().values.len(), VALUES_MAX);
    }

    #[test]
    fn dbus_messages_fuzzed_are_read_in_proportion() {
        let written = call(&arguments());
        machinery_fuzz::fuzz([&written[..]], |input| {
            let _ = machinery_fuzz::in_proportion(input, 4, || (length(input), decode(input)));
        });
    }
}
