//! Authorities of calls that come over a socket of this machine.
//!
//! gRPC's clients in Go and C name the socket's path as `:authority`. By the grammar of URIs that is none, and the library of HTTP/2
//! refuses such a call before the service has it. [`Readable`] puts another text in its place, in the heads of a client's calls alone,
//! and passes on everything else as it is. The library refuses heads that it cannot read.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

/// Bytes that every client sends first.
const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
/// A longer frame is refused by the library.
const FRAME_BYTES_MAX: usize = 16 << 10;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
/// Place of `:authority` in the table that all know, and the name itself as gRPC's C core writes it out.
const AUTHORITY: usize = 1;
const WRITTEN_OUT: &[u8] = b"\x0a:authority";
/// A text of one letter. It is no longer than any other: so a table of the client's texts that is too small for the library's never is.
const REPLACEMENT: [u8; 2] = [1, b'a'];
const PIECE_BYTES: usize = 8 << 10;

/// A connection of a client, whose authorities can be read.
pub(crate) struct Readable<S> {
    stream: S,
    state: State,
    /// Read and not passed on yet, from this byte on.
    held: (Vec<u8>, usize),
}

/// The part of the stream that comes next.
enum State {
    /// So many bytes that are passed on as they are.
    Passing(usize),
    /// The beginning of a frame, or of its head.
    Frame(Vec<u8>),
}

impl<S> Readable<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            state: State::Passing(PREFACE_BYTES),
            held: (Vec::new(), 0),
        }
    }

    /// Takes in what has come.
    fn take(&mut self, mut bytes: &[u8]) {
        let out = &mut self.held.0;
        while !bytes.is_empty() {
            match &mut self.state {
                State::Passing(left) => {
                    let (passed, rest) = bytes.split_at((*left).min(bytes.len()));
                    out.extend_from_slice(passed);
                    *left -= passed.len();
                    bytes = rest;
                    if *left == 0 {
                        self.state = State::Frame(Vec::new());
                    }
                }
                State::Frame(frame) => {
                    let missing = wanted(frame) - frame.len();
                    let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
                    frame.extend_from_slice(taken);
                    bytes = rest;
                    if frame.len() < wanted(frame) {
                        continue;
                    }
                    let left = FRAME_HEAD_BYTES + payload_bytes(frame) - frame.len();
                    match left {
                        0 => out.extend(replaced(frame).unwrap_or_else(|| std::mem::take(frame))),
                        _ => out.append(frame),
                    }
                    self.state = match left {
                        0 => State::Frame(Vec::new()),
                        left => State::Passing(left),
                    };
                }
            }
        }
    }
}

/// Bytes of a frame that are held until all of them are there: those of a call's head, of others their own heads.
fn wanted(frame: &[u8]) -> usize {
    match frame.get(3) {
        Some(&HEADERS) if frame.len() >= FRAME_HEAD_BYTES && payload_bytes(frame) <= FRAME_BYTES_MAX => {
            FRAME_HEAD_BYTES + payload_bytes(frame)
        }
        _ => FRAME_HEAD_BYTES,
    }
}

fn payload_bytes(frame: &[u8]) -> usize {
    let byte = |at: usize| usize::from(frame.get(at).copied().unwrap_or_default());
    byte(0) << 16 | byte(1) << 8 | byte(2)
}

/// The frame of a call's head with another authority; `None` where it has none, or is another frame.
fn replaced(frame: &[u8]) -> Option<Vec<u8>> {
    let flags = *frame.get(4).filter(|_| frame[3] == HEADERS)?;
    let payload = frame.get(FRAME_HEAD_BYTES..)?;
    let mut start = FRAME_HEAD_BYTES;
    let mut padding = 0;
    if flags & PADDED != 0 {
        padding = usize::from(*payload.first()?);
        start += 1;
    }
    if flags & PRIORITY != 0 {
        start += PRIORITY_BYTES;
    }
    let block = frame.get(start..frame.len().checked_sub(padding)?)?;
    let Range { start: from, end } = authority(block)?;
    let mut other = frame[..start + from].to_vec();
    other.extend(REPLACEMENT);
    other.extend_from_slice(&frame[start + end..]);
    let bytes = u32::try_from(other.len() - FRAME_HEAD_BYTES).ok()?;
    other[..3].copy_from_slice(&bytes.to_be_bytes()[1..]);
    Some(other)
}

/// Place of the authority's text in the fields of a head (RFC 7541, section 6).
fn authority(block: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    while let Some(first) = block.get(at) {
        let name = match *first {
            // A field that both sides know, or the size of the table.
            0x80.. => {
                number(block, &mut at, 7)?;
                continue;
            }
            0x40.. => number(block, &mut at, 6)?,
            0x20.. => {
                number(block, &mut at, 5)?;
                continue;
            }
            _ => number(block, &mut at, 4)?,
        };
        let is_authority = match name {
            0 => &block[text(block, &mut at)?] == WRITTEN_OUT,
            name => name == AUTHORITY,
        };
        let value = text(block, &mut at)?;
        if is_authority && value.len() >= REPLACEMENT.len() {
            return Some(value);
        }
    }
    None
}

/// Passes a text with its length; its place.
fn text(block: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let start = *at;
    let bytes = number(block, at, 7)?;
    let end = at.checked_add(bytes).filter(|end| *end <= block.len())?;
    *at = end;
    Some(start..end)
}

/// Passes a number whose first byte has so many bits of it (RFC 7541, section 5.1).
fn number(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

impl<S: Read + Unpin> Read for Readable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        loop {
            let (held, passed) = &mut self.held;
            let left = &held[*passed..];
            if !left.is_empty() {
                let count = left.len().min(into.remaining());
                into.put_slice(&left[..count]);
                *passed += count;
                return Poll::Ready(Ok(()));
            }
            held.clear();
            *passed = 0;
            let mut piece = [0; PIECE_BYTES];
            let mut buffer = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer.unfilled()))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.take(buffer.filled());
        }
    }
}

impl<S: Write + Unpin> Write for Readable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{self, Transport, unknown};
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: u8 = 4;
    const RESET: u8 = 3;
    const END_OF_ALL: u8 = 0x5;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let bytes = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&bytes[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    }

    fn literal(name: u8, text: &str) -> Vec<u8> {
        [&[name, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    }

    /// The head of a call, with the name of the authority written out as by gRPC's C core, or by its number as by Go's.
    fn head_of(is_written_out: bool, authority: &str) -> Vec<u8> {
        let name = match is_written_out {
            true => [&[0x40], WRITTEN_OUT].concat(),
            false => vec![0x41],
        };
        let own = [
            literal(0x44, "/a/b"),
            [&name[..], &literal(0, authority)[1..]].concat(),
            vec![0x83, 0x86],
            literal(0x5f, "application/grpc"),
            [&literal(0x40, "te")[..], &literal(8, "trailers")[1..]].concat(),
        ];
        own.concat()
    }

    fn head(authority: &str) -> Vec<u8> {
        head_of(true, authority)
    }

    fn passed(pieces: &[&[u8]]) -> Vec<u8> {
        let mut own = Readable::new(());
        pieces.iter().for_each(|piece| own.take(piece));
        own.held.0
    }

    #[test]
    fn authority_is_replaced_in_heads_alone_however_they_come() {
        let data = frame(0, 0, 1, &head("/run/x.sock"));
        for (flags, before, after) in [
            (END_OF_ALL, &[][..], &[][..]),
            (END_OF_ALL | PRIORITY, &[0, 0, 0, 0, 7], &[]),
            (END_OF_ALL | PADDED, &[3], &[0, 0, 0]),
        ] {
            let headers =
                |authority: &str| frame(HEADERS, flags, 1, &[before, &head(authority), after].concat());
            let all = |authority: &str| {
                let settings = frame(SETTINGS, 0, 0, &[]);
                [
                    &PREFACE[..],
                    &settings,
                    &headers(authority),
                    &data,
                    &headers(authority),
                ]
                .concat()
            };
            let (sent, expected) = (all("/run/x.sock"), all("a"));
            assert_eq!(passed(&[&sent]), expected);
            let bytes: Vec<&[u8]> = sent.chunks(1).collect();
            assert_eq!(passed(&bytes), expected);
        }
    }

    #[test]
    fn head_that_cannot_be_read_is_passed_on() {
        let long = frame(HEADERS, 0, 1, &vec![0x41; FRAME_BYTES_MAX + 1]);
        for other in [
            frame(HEADERS, END_OF_ALL, 1, &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff]),
            frame(HEADERS, END_OF_ALL, 1, &[0x41, 9, b'a']),
            frame(HEADERS, END_OF_ALL | PADDED, 1, &[200, 1]),
            frame(HEADERS, END_OF_ALL | PADDED | PRIORITY, 1, &[]),
            frame(HEADERS, END_OF_ALL, 1, &[0x41, 0]),
            long,
        ] {
            let sent = [&PREFACE[..], &other, &frame(SETTINGS, 0, 0, &[])].concat();
            assert_eq!(passed(&[&sent]), sent);
        }
    }

    #[test]
    fn authority_fuzz_never_panics() {
        let good = [&PREFACE[..], &frame(HEADERS, END_OF_ALL, 1, &head("/run/x.sock"))].concat();
        machinery_fuzz::fuzz([&good[..]], |input| {
            let out = passed(&[input]);
            assert!(out.len() <= input.len());
        });
    }

    #[tokio::test]
    async fn call_that_names_the_path_of_the_socket_is_answered() {
        for is_written_out in [true, false] {
            check_answered(&head_of(is_written_out, "%2Frun%2Fx.sock")).await;
        }
    }

    async fn check_answered(head: &[u8]) {
        let (mut client, server) = UnixStream::pair().unwrap();
        let service = Transport::new(tower::service_fn(|_| async { Ok(unknown()) }.boxed()));
        let serving = calls::serve(server, service);
        let calling = async {
            let settings = frame(SETTINGS, 0, 0, &[]);
            let call = frame(HEADERS, END_OF_ALL, 1, head);
            let sent = [&PREFACE[..], &settings, &call].concat();
            client.write_all(&sent).await.unwrap();
            loop {
                let mut head = [0; FRAME_HEAD_BYTES];
                client.read_exact(&mut head).await.unwrap();
                let mut payload = vec![0; payload_bytes(&head)];
                client.read_exact(&mut payload).await.unwrap();
                if [HEADERS, RESET].contains(&head[3]) {
                    break head[3];
                }
            }
        };
        let kind = tokio::select! {
            ended = serving => panic!("{ended:?}"),
            kind = calling => kind,
        };
        assert_eq!(kind, HEADERS, "not refused");
    }
}
