//! Netlink: messages made and read byte by byte, over a socket that blocks.
//!
//! A socket belongs to the network namespace it was opened in, whichever thread uses it later.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// A request.
pub const REQUEST: u16 = 1;
/// Wants an acknowledgement.
pub const ACK: u16 = 4;
/// Wants everything.
pub const DUMP: u16 = 0x300;
/// Replaces what is there.
pub const REPLACE: u16 = 0x100;
/// Makes what is missing.
pub const CREATE: u16 = 0x400;
/// Leaves what is there, and fails.
pub const EXCLUSIVE: u16 = 0x200;
const NESTED: u16 = 0x8000;
/// Bits of an attribute's type that are its number.
const TYPE: u16 = 0x3fff;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The kernel answers at once; when it does not, something is wrong.
const ANSWER_SECONDS: i64 = 30;
/// Room beyond what the kernel puts into one datagram.
const ANSWER_BYTES: usize = 128 << 10;
/// Bytes of a message's header.
pub const HEADER: usize = 16;

/// Messages being written.
#[derive(Debug, Default)]
pub struct Writer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sequence: u32,
}

impl Writer {
    /// Begins a message; its position is needed to end it.
    pub fn begin(&mut self, kind: u16, flags: u16) -> usize {
        let start = self.bytes.len();
        self.sequence = self.sequence.wrapping_add(1);
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        start
    }

    /// Ends the message that begins there.
    pub fn end(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Bytes as they are: the fixed part of a message.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// An attribute.
    pub fn attribute(&mut self, kind: u16, data: &[u8]) {
        let length = u16::try_from(4 + data.len()).unwrap_or(u16::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(data);
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }

    /// An attribute that is text.
    pub fn text(&mut self, kind: u16, text: &str) {
        let mut data = text.as_bytes().to_vec();
        data.push(0);
        self.attribute(kind, &data);
    }

    /// Begins an attribute of attributes; its position is needed to close it.
    pub fn nest(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend((kind | NESTED).to_ne_bytes());
        start
    }

    /// Closes the nested attribute that begins there.
    pub fn close(&mut self, start: usize) {
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

/// A message that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Type of the message.
    pub kind: u16,
    /// The request it answers or reports.
    pub sequence: u32,
    /// The socket that sent that request.
    pub port: u32,
    /// Everything after the header.
    pub payload: &'a [u8],
}

/// The messages of a datagram, as far as they are whole.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let number =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = usize::try_from(number(0)).ok()?;
        let message = Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            sequence: number(8),
            port: number(12),
            payload: bytes.get(HEADER..length)?,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Attributes by number, as far as they are whole.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header: &[u8; 4] = bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE;
        let data = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// The first attribute with this number.
pub fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(kind, data)| (kind == wanted).then_some(data))
}

/// An open socket.
#[derive(Debug)]
pub struct Socket {
    handle: OwnedFd,
    port: u32,
    answer: Vec<u8>,
}

impl Socket {
    /// A socket of this thread's network namespace. `groups` has a bit for each group whose news it wants.
    pub fn open(protocol: SockProtocol, groups: u32) -> io::Result<Self> {
        let handle = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        bind(handle.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        let port = getsockname::<NetlinkAddr>(handle.as_raw_fd())?.pid();
        // Without it a lost answer would hold the thread for ever; the kernel answers within the call, so 30 s
        // means that it never will.
        let _ = setsockopt(&handle, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_SECONDS, 0));
        Ok(Self {
            handle,
            port,
            answer: vec![0; ANSWER_BYTES],
        })
    }

    /// Port id of the socket in the kernel; notifications of its own changes carry it.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Room for what is sent and for what comes; without the privilege the defaults stay.
    pub fn set_room(&self, send: usize, receive: usize) {
        let _ = setsockopt(&self.handle, sockopt::SndBufForce, &send);
        let _ = setsockopt(&self.handle, sockopt::RcvBufForce, &receive);
    }

    /// Sends messages.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        sendto(
            self.handle.as_raw_fd(),
            bytes,
            &NetlinkAddr::new(0, 0),
            MsgFlags::empty(),
        )?;
        Ok(())
    }

    /// The next datagram; it blocks, unless the flags say otherwise.
    pub fn receive(&mut self, flags: MsgFlags) -> io::Result<&[u8]> {
        let length = recv(self.handle.as_raw_fd(), &mut self.answer, flags)?;
        Ok(&self.answer[..length])
    }

    /// Sends one message and gives every answer to `each`, to the acknowledgement or to the end of a dump.
    pub fn request(&mut self, request: &Writer, mut each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        self.send(&request.bytes)?;
        loop {
            let answer = self.receive(MsgFlags::empty())?;
            // Answers of an earlier request that failed halfway may still be in the socket.
            for message in messages(answer).filter(|message| message.sequence == request.sequence) {
                match message.kind {
                    DONE => return Ok(()),
                    ERROR => return error_of(message.payload),
                    _ => each(&message),
                }
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.handle.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// An error message's code; zero is an acknowledgement.
fn error_of(payload: &[u8]) -> io::Result<()> {
    let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_messages_round_trip() {
        let mut writer = Writer::default();
        let start = writer.begin(7, REQUEST);
        writer.raw(&[2, 0, 0, 0]);
        let nest = writer.nest(3);
        writer.text(1, "ab");
        writer.attribute(2, &[9]);
        writer.close(nest);
        writer.end(start);
        let second = writer.begin(8, REQUEST);
        writer.end(second);
        let all: Vec<Message<'_>> = messages(&writer.bytes).collect();
        assert_eq!(
            all.iter().map(|one| (one.kind, one.sequence)).collect::<Vec<_>>(),
            [(7, 1), (8, 2)]
        );
        let inner = attribute(&all[0].payload[4..], 3).unwrap();
        assert_eq!(
            attributes(inner).collect::<Vec<_>>(),
            [(1, &b"ab\0"[..]), (2, &[9][..])]
        );
        machinery_fuzz::fuzz([&writer.bytes], |input| {
            let bounded = || {
                messages(input)
                    .flat_map(|message| attributes(message.payload))
                    .all(|(_, data)| data.len() < input.len())
            };
            assert!(machinery_fuzz::in_proportion(input, 1, bounded));
        });
    }

    #[test]
    fn error_code_is_an_error() {
        assert!(error_of(&[0; 4]).is_ok());
        assert_eq!(
            error_of(&(-2_i32).to_ne_bytes()).unwrap_err().raw_os_error(),
            Some(2)
        );
    }
}
