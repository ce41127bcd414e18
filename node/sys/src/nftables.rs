//! Elements of nftables maps and sets, changed over netlink in one transaction.
//!
//! A whole table is better written as text for `nft`; a few elements among a hundred thousand are not: the program
//! costs milliseconds, the kernel microseconds. Messages are made here byte by byte, as `nft --debug=mnl` shows them.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const SUBSYSTEM: u16 = 10;
const NEW_ELEMENT: u16 = SUBSYSTEM << 8 | 12;
const DELETE_ELEMENT: u16 = SUBSYSTEM << 8 | 14;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE: u16 = 0x400;
const NESTED: u16 = 0x8000;
/// Family `ip`.
const IPV4: u8 = 2;
/// The verdict "goto".
const GOTO: i32 = -4;
/// A nested attribute has a 16-bit length; a new message begins well before it is full.
const MESSAGE_BYTES: usize = 60_000;
/// Room for the largest batch; the kernel takes it in one piece.
const SEND_BUFFER_BYTES: usize = 256 << 20;
/// The kernel answers at once; when it does not, something is wrong.
const ANSWER_SECONDS: i64 = 30;
const ANSWER_BYTES: usize = 64 << 10;

/// What an element of a map leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementData<'a> {
    /// Elements of sets have keys only; so have those to delete.
    Nothing,
    /// Bytes in the map's form.
    Value(&'a [u8]),
    /// A chain.
    Goto(&'a str),
}

/// Whether an element comes or goes.
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
    bytes: Vec<u8>,
    sequence: u32,
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
            bytes: Vec::new(),
            sequence: 0,
            open: None,
        };
        batch.edge(BATCH_BEGIN);
        batch
    }

    /// Adds one element. Keys of several fields have each field padded to four bytes.
    pub fn element(&mut self, verb: ElementVerb, set: &str, key: &[u8], data: ElementData<'_>) {
        self.message_for(verb, set);
        let element = self.nest(1);
        let key_at = self.nest(1);
        self.attribute(1, key);
        self.close(key_at);
        match data {
            ElementData::Nothing => {}
            ElementData::Value(value) => {
                let data_at = self.nest(2);
                self.attribute(1, value);
                self.close(data_at);
            }
            ElementData::Goto(chain) => {
                let data_at = self.nest(2);
                let verdict = self.nest(2);
                self.attribute(1, &GOTO.to_be_bytes());
                self.text(2, chain);
                self.close(verdict);
                self.close(data_at);
            }
        }
        self.close(element);
    }

    /// Applies the batch in the network namespace of this thread. It blocks for as long as the kernel works.
    pub fn apply(mut self) -> io::Result<()> {
        let Some(last) = self.finish_message(true) else {
            return Ok(());
        };
        self.edge(BATCH_END);
        let protocol = SockProtocol::NetlinkNetFilter;
        let handle = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        bind(handle.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        // Without the privilege the default size is enough for small batches.
        let _ = setsockopt(
            &handle,
            sockopt::SndBufForce,
            &SEND_BUFFER_BYTES.min(self.bytes.len() * 2 + 4096),
        );
        setsockopt(&handle, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_SECONDS, 0))?;
        sendto(
            handle.as_raw_fd(),
            &self.bytes,
            &NetlinkAddr::new(0, 0),
            MsgFlags::empty(),
        )?;
        let mut answer = vec![0; ANSWER_BYTES];
        loop {
            let length = recv(handle.as_raw_fd(), &mut answer, MsgFlags::empty())?;
            if acknowledged(&answer[..length], last)? {
                return Ok(());
            }
        }
    }

    fn message_for(&mut self, verb: ElementVerb, set: &str) {
        let fits = |open: &Open| {
            open.verb == verb && open.set == set && self.bytes.len() - open.start < MESSAGE_BYTES
        };
        if self.open.as_ref().is_some_and(fits) {
            return;
        }
        self.finish_message(false);
        let start = self.bytes.len();
        let (kind, flags) = match verb {
            ElementVerb::Add => (NEW_ELEMENT, REQUEST | CREATE),
            ElementVerb::Delete => (DELETE_ELEMENT, REQUEST),
        };
        self.header(kind, flags);
        self.bytes.extend([IPV4, 0, 0, 0]);
        let table = self.table.clone();
        self.text(1, &table);
        self.text(2, set);
        let list = self.nest(3);
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
        self.close(open.list);
        self.set_length(open.start);
        if acknowledge {
            let flags = u16::from_ne_bytes([self.bytes[open.start + 6], self.bytes[open.start + 7]]) | ACK;
            self.bytes[open.start + 6..open.start + 8].copy_from_slice(&flags.to_ne_bytes());
        }
        Some(self.sequence)
    }

    fn edge(&mut self, kind: u16) {
        let start = self.bytes.len();
        self.header(kind, REQUEST);
        self.bytes.extend([0, 0]);
        self.bytes.extend(SUBSYSTEM.to_be_bytes());
        self.set_length(start);
    }

    fn header(&mut self, kind: u16, flags: u16) {
        self.sequence += 1;
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
    }

    fn set_length(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn nest(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend((kind | NESTED).to_ne_bytes());
        start
    }

    fn close(&mut self, start: usize) {
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, data: &[u8]) {
        let length = u16::try_from(4 + data.len()).unwrap_or(u16::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(data);
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }

    fn text(&mut self, kind: u16, text: &str) {
        let mut data = text.as_bytes().to_vec();
        data.push(0);
        self.attribute(kind, &data);
    }
}

/// Whether the kernel acknowledged the message; an error of any message is an error.
fn acknowledged(mut answer: &[u8], sequence: u32) -> io::Result<bool> {
    while let Some((header, _)) = answer.split_first_chunk::<20>() {
        let number = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let code = i32::from_ne_bytes(number(16));
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
        }
        if u32::from_ne_bytes(number(8)) == sequence {
            return Ok(true);
        }
        let length = usize::try_from(u32::from_ne_bytes(number(0)))
            .unwrap_or(usize::MAX)
            .max(20);
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_framed_as_the_kernel_reads_it() {
        let mut batch = ElementBatch::new("t");
        batch.element(ElementVerb::Add, "s", &[10, 0, 0, 1], ElementData::Goto("c4"));
        assert_eq!(batch.finish_message(true), Some(2));
        let message = &batch.bytes[20..];
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
                44, 0, 3, 0x80, 40, 0, 1, 0x80, 12, 0, 1, 0x80, 8, 0, 1, 0, 10, 0, 0, 1, 24, 0, 2, 0x80, 20,
                0, 2, 0x80, 8, 0, 1, 0, 0xff, 0xff, 0xff, 0xfc, 7, 0, 2, 0, b'c', b'4', 0, 0
            ]
        );
    }

    #[test]
    fn an_error_of_any_message_is_an_error() {
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
        machinery_fuzz::fuzz([&both], |input| drop(acknowledged(input, 3)));
        assert_eq!(acknowledged(&both, 3).unwrap_err().raw_os_error(), Some(2));
    }
}
