//! Elements of nftables maps and sets, changed over netlink in one transaction.
//!
//! A whole table is better written as text for `nft`; a few elements among a hundred thousand are not: the program
//! costs milliseconds, the kernel microseconds. Messages are made here byte by byte, as `nft --debug=mnl` shows them.

use std::io;

use crate::netlink::{ACK, CREATE, DUMP, REQUEST, Socket, Writer, attribute, attributes, messages};
use nix::sys::socket::{MsgFlags, SockProtocol};
use std::time::Duration;

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const ERROR: u16 = 2;
const SUBSYSTEM: u16 = 10;
const NEW_ELEMENT: u16 = SUBSYSTEM << 8 | 12;
const DELETE_ELEMENT: u16 = SUBSYSTEM << 8 | 14;
const GET_ELEMENT: u16 = SUBSYSTEM << 8 | 13;
const GET_TABLE: u16 = SUBSYSTEM << 8 | 1;
const KEY: u16 = 1;
const DATA: u16 = 2;
const EXPIRATION: u16 = 5;
const KEY_END: u16 = 10;
/// Family `ip`.
const IPV4: u8 = 2;
/// Family `ip6`.
const IPV6: u8 = 10;
/// A nested attribute has a 16-bit length; a new message begins well before it is full.
const MESSAGE_BYTES: usize = 60_000;
/// Room for the largest batch; the kernel takes it in one piece.
const SEND_BUFFER_BYTES: usize = 256 << 20;
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// A table, by family and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    pub(crate) family: TableFamily,
    pub(crate) name: &'static str,
}

/// The packets that a table sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFamily {
    Ip,
    Ip6,
}

impl Table {
    /// A table of IPv4's packets.
    pub const fn ip(name: &'static str) -> Self {
        let family = TableFamily::Ip;
        Self { family, name }
    }

    /// A table of IPv6's packets.
    pub const fn ip6(name: &'static str) -> Self {
        let family = TableFamily::Ip6;
        Self { family, name }
    }

    /// Reports whether the table exists in the network namespace of this thread.
    pub fn exists(self) -> io::Result<bool> {
        has_table(&mut Socket::open(SockProtocol::NetlinkNetFilter, 0)?, self)
    }
}

impl TableFamily {
    /// The kernel's number (`NFPROTO_*`).
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ip => IPV4,
            Self::Ip6 => IPV6,
        }
    }
}

/// Data of a map's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementData<'a> {
    /// Elements of sets have keys only; so have those to delete.
    Nothing,
    /// Bytes in the map's form.
    Value(&'a [u8]),
}

/// Addition or deletion of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementVerb {
    /// It must not be there with other data.
    Add,
    /// It must be there.
    Delete,
}

/// Changes of elements of one `ip` table, applied all or none, in order.
#[derive(Debug)]
pub struct ElementBatch {
    table: String,
    writer: Writer,
    open: Option<Open>,
}

/// The message being filled.
#[derive(Debug)]
struct Open {
    verb: ElementVerb,
    set: String,
    start: usize,
    list: usize,
}

impl ElementBatch {
    /// An empty batch for a table of family `ip`.
    pub fn new(table: &str) -> Self {
        let mut batch = Self {
            table: table.to_owned(),
            writer: Writer::default(),
            open: None,
        };
        batch.edge(BATCH_BEGIN);
        batch
    }

    /// Adds one element. Keys of several fields have each field padded to four bytes.
    pub fn element(&mut self, verb: ElementVerb, set: &str, key: &[u8], data: ElementData<'_>) {
        self.write(verb, set, key, None, data);
    }

    /// Adds all keys between two of them, field by field, to a set of intervals.
    pub fn interval(&mut self, verb: ElementVerb, set: &str, first: &[u8], last: &[u8]) {
        self.write(verb, set, first, Some(last), ElementData::Nothing);
    }

    fn write(
        &mut self,
        verb: ElementVerb,
        set: &str,
        key: &[u8],
        last: Option<&[u8]>,
        data: ElementData<'_>,
    ) {
        self.message_for(verb, set);
        let writer = &mut self.writer;
        let element = writer.nest(1);
        let key_at = writer.nest(1);
        writer.attribute(1, key);
        writer.close(key_at);
        if let Some(last) = last {
            let last_at = writer.nest(KEY_END);
            writer.attribute(1, last);
            writer.close(last_at);
        }
        if let ElementData::Value(value) = data {
            let data_at = writer.nest(2);
            writer.attribute(1, value);
            writer.close(data_at);
        }
        writer.close(element);
    }

    /// Applies the batch in the network namespace of this thread. It blocks for as long as the kernel works.
    pub fn apply(mut self) -> io::Result<()> {
        let Some(last) = self.finish_message(true) else {
            return Ok(());
        };
        self.edge(BATCH_END);
        let mut socket = Socket::open(SockProtocol::NetlinkNetFilter, 0)?;
        // Twice the bytes, as the kernel counts its own bookkeeping of a datagram too. Without the privilege
        // the default size stays, which is enough for small batches.
        let room = SEND_BUFFER_BYTES.min(self.writer.bytes.len() * 2 + 4096);
        socket.set_room(room, RECEIVE_BUFFER_BYTES);
        socket.send(&self.writer.bytes)?;
        loop {
            if acknowledged(socket.receive(MsgFlags::empty())?, last)? {
                return Ok(());
            }
        }
    }

    fn message_for(&mut self, verb: ElementVerb, set: &str) {
        let fits = |open: &Open| {
            open.verb == verb && open.set == set && self.writer.bytes.len() - open.start < MESSAGE_BYTES
        };
        if self.open.as_ref().is_some_and(fits) {
            return;
        }
        self.finish_message(false);
        let (kind, flags) = match verb {
            ElementVerb::Add => (NEW_ELEMENT, REQUEST | CREATE),
            ElementVerb::Delete => (DELETE_ELEMENT, REQUEST),
        };
        let start = self.writer.begin(kind, flags);
        self.writer.raw(&[IPV4, 0, 0, 0]);
        self.writer.text(1, &self.table);
        self.writer.text(2, set);
        let list = self.writer.nest(3);
        self.open = Some(Open {
            verb,
            set: set.to_owned(),
            start,
            list,
        });
    }

    /// Ends the message being filled; gives the sequence number of the one that ended.
    fn finish_message(&mut self, acknowledge: bool) -> Option<u32> {
        let open = self.open.take()?;
        self.writer.close(open.list);
        self.writer.end(open.start);
        // Only the last message requests an acknowledgement; errors of the others come in any case, and before
        // it.
        if acknowledge {
            let flags = &mut self.writer.bytes[open.start + 6..open.start + 8];
            let wanted = u16::from_ne_bytes([flags[0], flags[1]]) | ACK;
            flags.copy_from_slice(&wanted.to_ne_bytes());
        }
        Some(self.writer.sequence)
    }

    fn edge(&mut self, kind: u16) {
        let start = self.writer.begin(kind, REQUEST);
        self.writer.raw(&[0, 0]);
        self.writer.raw(&SUBSYSTEM.to_be_bytes());
        self.writer.end(start);
    }
}

/// An element that the kernel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentElement {
    /// Its key, fields padded to four bytes.
    pub key: Vec<u8>,
    /// Its value; empty in a set.
    pub data: Vec<u8>,
    /// Time for which it stays; `None` for ever.
    pub expires_in: Option<Duration>,
}

/// Reports whether a table exists in the socket's network namespace.
pub(crate) fn has_table(socket: &mut Socket, table: Table) -> io::Result<bool> {
    let mut writer = Writer::default();
    let start = writer.begin(GET_TABLE, REQUEST | ACK);
    writer.raw(&[table.family.number(), 0, 0, 0]);
    writer.text(1, table.name);
    writer.end(start);
    match socket.request(&writer, |_| ()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other.map(|()| true),
    }
}

/// The elements of a map or set of an `ip` table, in the network namespace of this thread.
pub fn elements(table: &str, set: &str) -> io::Result<Vec<PresentElement>> {
    let mut writer = Writer::default();
    let start = writer.begin(GET_ELEMENT, REQUEST | DUMP);
    writer.raw(&[IPV4, 0, 0, 0]);
    writer.text(1, table);
    writer.text(2, set);
    writer.end(start);
    let mut found = Vec::new();
    let mut socket = Socket::open(SockProtocol::NetlinkNetFilter, 0)?;
    socket.request(&writer, |message| {
        let list = message.payload.get(4..).and_then(|rest| attribute(rest, 3));
        found.extend(
            list.into_iter()
                .flat_map(attributes)
                .filter_map(|(_, one)| read_element(one)),
        );
    })?;
    Ok(found)
}

fn read_element(bytes: &[u8]) -> Option<PresentElement> {
    let value = |kind| attribute(attribute(bytes, kind)?, 1);
    let expires_in = attribute(bytes, EXPIRATION).and_then(|data| data.first_chunk());
    Some(PresentElement {
        key: value(KEY)?.to_vec(),
        data: value(DATA).unwrap_or_default().to_vec(),
        expires_in: expires_in.map(|data| Duration::from_millis(u64::from_be_bytes(*data))),
    })
}

/// Reports whether the kernel acknowledged the message; an error of any message is an error.
fn acknowledged(answer: &[u8], sequence: u32) -> io::Result<bool> {
    for message in messages(answer).filter(|message| message.kind == ERROR) {
        let code = message
            .payload
            .first_chunk()
            .map_or(0, |code| i32::from_ne_bytes(*code));
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
        }
        if message.sequence == sequence {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nftables_batch_is_framed_for_the_kernel() {
        let mut batch = ElementBatch::new("t");
        batch.element(
            ElementVerb::Add,
            "s",
            &[10, 0, 0, 1],
            ElementData::Value(&[10, 0, 0, 2, 0x1f, 0x90, 0, 0]),
        );
        assert_eq!(batch.finish_message(true), Some(2));
        let message = &batch.writer.bytes[20..];
        // Header (acknowledged), family, table, set, list.
        assert_eq!(message[..4], u32::try_from(message.len()).unwrap().to_ne_bytes());
        assert_eq!(message[4..8], [0x0c, 0x0a, 0x05, 0x04]);
        assert_eq!(
            message[16..36],
            [2, 0, 0, 0, 6, 0, 1, 0, b't', 0, 0, 0, 6, 0, 2, 0, b's', 0, 0, 0]
        );
        assert_eq!(
            message[36..],
            [
                36, 0, 3, 0x80, 32, 0, 1, 0x80, 12, 0, 1, 0x80, 8, 0, 1, 0, 10, 0, 0, 1, 16, 0, 2, 0x80, 12,
                0, 1, 0, 10, 0, 0, 2, 0x1f, 0x90, 0, 0
            ]
        );
    }

    #[test]
    fn element_is_read_with_the_time_it_has_left() {
        let mut batch = ElementBatch::new("t");
        batch.element(
            ElementVerb::Add,
            "s",
            &[1, 2, 3, 4],
            ElementData::Value(&[5, 6, 7, 8]),
        );
        batch.writer.attribute(EXPIRATION, &1500_u64.to_be_bytes());
        // Header, family, table, set and the beginning of the list.
        let element = &batch.writer.bytes[20 + 16 + 4 + 8 + 8 + 4 + 4..];
        let read = read_element(element).unwrap();
        assert_eq!((&*read.key, &*read.data), (&[1, 2, 3, 4][..], &[5, 6, 7, 8][..]));
        assert_eq!(read.expires_in, Some(Duration::from_millis(1500)));
        machinery_fuzz::fuzz([element], |input| {
            let _ = machinery_fuzz::in_proportion(input, 4, || read_element(input));
        });
    }

    #[test]
    fn nftables_error_of_any_message_is_returned() {
        let answer = |sequence: u32, code: i32| {
            let mut out = 36u32.to_ne_bytes().to_vec();
            out.extend([2, 0, 0, 0]);
            out.extend(sequence.to_ne_bytes());
            out.extend([0; 4]);
            out.extend(code.to_ne_bytes());
            out.resize(36, 0);
            out
        };
        assert!(acknowledged(&answer(3, 0), 3).unwrap());
        assert!(!acknowledged(&answer(2, 0), 3).unwrap());
        let both = [answer(2, -2), answer(3, 0)].concat();
        machinery_fuzz::fuzz([&both], |input| {
            let _ = machinery_fuzz::in_proportion(input, 1, || acknowledged(input, 3));
        });
        assert_eq!(acknowledged(&both, 3).unwrap_err().raw_os_error(), Some(2));
    }
}
