//! Frames. Pure.
//!
//! Data of a frame comes in pieces, as far as they are there: no frame has to be held as a whole, so none is too long.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A control frame longer than this ends the session; what is sent is far shorter.
pub(crate) const CONTROL_BYTES_MAX: usize = 64 << 10;
const HEAD_BYTES: usize = 8;
const VERSION: u16 = 3;
const CONTROL: u16 = 0x8000;
const ID_MASK: u32 = 0x7fff_ffff;
/// The sender sends no more on this stream.
pub(crate) const FLAG_FIN: u8 = 0x01;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A frame, header blocks still compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A stream begins.
    SynStream {
        /// Its id.
        id: u32,
        /// True if its opener sends nothing on it.
        fin: bool,
        /// Compressed headers.
        block: Bytes,
    },
    /// A stream is accepted.
    SynReply {
        /// Its id.
        id: u32,
        /// True if the answerer sends nothing on it.
        fin: bool,
        /// Compressed headers.
        block: Bytes,
    },
    /// A stream ends at once, both ways.
    Reset {
        /// Its id.
        id: u32,
        /// Status code of the reset.
        status: u32,
    },
    /// Are you there?
    Ping {
        /// To be sent back.
        id: u32,
    },
    /// No new streams.
    GoAway,
    /// More headers of a stream.
    Headers {
        /// Its id.
        id: u32,
        /// True if nothing more is sent on it.
        fin: bool,
        /// Compressed headers.
        block: Bytes,
    },
    /// Content of a stream.
    Data {
        /// Its id.
        id: u32,
        /// True if nothing more is sent on it, this piece is the last.
        fin: bool,
        /// The bytes, or the next ones of a longer frame.
        data: Bytes,
    },
    /// Settings, windows and other things that need no answer.
    Other,
}

/// Violation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// Larger than we take.
    #[error("a control frame is longer than {CONTROL_BYTES_MAX} bytes")]
    TooLarge,
    /// Of another version of the protocol.
    #[error("a frame is of version {0}")]
    Version(u16),
    /// Shorter than its type requires.
    #[error("a frame is too short")]
    TooShort,
}

/// Reads the frames of one connection.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Data of a frame of which a part has been read.
    rest: Option<Rest>,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    id: u32,
    fin: bool,
    length: usize,
}

impl Decoder {
    /// Takes the first whole control frame or piece of data out of a buffer; `None` if there is none yet.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if let Some(rest) = self.rest.take() {
            return Ok(self.piece(rest, buffer));
        }
        let Some(&[a, b, c, d, flags, high, middle, low]) = buffer.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let fin = flags & FLAG_FIN != 0;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if first & CONTROL == 0 {
            buffer.advance(HEAD_BYTES);
            let id = u32::from(first) << 16 | u32::from(second);
            return Ok(self.piece(Rest { id, fin, length }, buffer));
        }
        if first & !CONTROL != VERSION {
            return Err(FrameError::Version(first & !CONTROL));
        }
        if length > CONTROL_BYTES_MAX {
            return Err(FrameError::TooLarge);
        }
        if buffer.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        buffer.advance(HEAD_BYTES);
        control(second, fin, buffer.split_to(length).freeze()).map(Some)
    }

    /// The part of the data that is there, which is all of a frame that has none.
    fn piece(&mut self, rest: Rest, buffer: &mut BytesMut) -> Option<Frame> {
        let Rest { id, fin, length } = rest;
        let count = length.min(buffer.len());
        let left = length - count;
        if left > 0 {
            self.rest = Some(Rest { length: left, ..rest });
            if count == 0 {
                return None;
            }
        }
        let data = buffer.split_to(count).freeze();
        let fin = fin && left == 0;
        Some(Frame::Data { id, fin, data })
    }
}

fn control(kind: u16, fin: bool, mut body: Bytes) -> Result<Frame, FrameError> {
    let needed = match kind {
        SYN_STREAM => 10,
        RST_STREAM => 8,
        SYN_REPLY | PING | HEADERS => 4,
        _ => 0,
    };
    if body.len() < needed {
        return Err(FrameError::TooShort);
    }
    Ok(match kind {
        SYN_STREAM => {
            let id = body.get_u32() & ID_MASK;
            body.advance(6);
            Frame::SynStream { id, fin, block: body }
        }
        SYN_REPLY => Frame::SynReply {
            id: body.get_u32() & ID_MASK,
            fin,
            block: body,
        },
        RST_STREAM => Frame::Reset {
            id: body.get_u32() & ID_MASK,
            status: body.get_u32(),
        },
        PING => Frame::Ping { id: body.get_u32() },
        GOAWAY => Frame::GoAway,
        HEADERS => Frame::Headers {
            id: body.get_u32() & ID_MASK,
            fin,
            block: body,
        },
        _ => Frame::Other,
    })
}

/// Appends a frame to a buffer.
pub(crate) fn encode(frame: &Frame, out: &mut BytesMut) {
    match frame {
        Frame::SynStream { id, fin, block } => {
            control_head(SYN_STREAM, *fin, 10 + block.len(), out);
            out.put_u32(*id);
            out.put_u32(0);
            out.put_u16(0);
            out.put_slice(block);
        }
        Frame::SynReply { id, fin, block } => with_block(SYN_REPLY, *id, *fin, block, out),
        Frame::Headers { id, fin, block } => with_block(HEADERS, *id, *fin, block, out),
        Frame::Reset { id, status } => {
            control_head(RST_STREAM, false, 8, out);
            out.put_u32(*id);
            out.put_u32(*status);
        }
        Frame::Ping { id } => {
            control_head(PING, false, 4, out);
            out.put_u32(*id);
        }
        Frame::GoAway => {
            control_head(GOAWAY, false, 8, out);
            out.put_u64(0);
        }
        Frame::Data { id, fin, data } => {
            out.put_u32(id & ID_MASK);
            put_flags_and_length(*fin, data.len(), out);
            out.put_slice(data);
        }
        Frame::Other => {}
    }
}

fn with_block(kind: u16, id: u32, fin: bool, block: &Bytes, out: &mut BytesMut) {
    control_head(kind, fin, 4 + block.len(), out);
    out.put_u32(id);
    out.put_slice(block);
}

fn control_head(kind: u16, fin: bool, length: usize, out: &mut BytesMut) {
    out.put_u16(CONTROL | VERSION);
    out.put_u16(kind);
    put_flags_and_length(fin, length, out);
}

/// One byte of flags and three of length. Invariant: what we send is far below 16 MiB.
fn put_flags_and_length(fin: bool, length: usize, out: &mut BytesMut) {
    let flags = u32::from(if fin { FLAG_FIN } else { 0 });
    out.put_u32(flags << 24 | u32::try_from(length).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(frame: Frame) {
        let mut buffer = BytesMut::new();
        encode(&frame, &mut buffer);
        let whole = buffer.clone();
        let is_data = matches!(frame, Frame::Data { .. });
        let cuts = if is_data { HEAD_BYTES } else { whole.len() };
        for cut in 0..cuts {
            assert_eq!(decode(&mut BytesMut::from(&whole[..cut])), Ok(None));
        }
        assert_eq!(decode(&mut buffer), Ok(Some(frame)));
        assert!(buffer.is_empty());
    }

    fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        Decoder::default().decode(buffer)
    }

    #[test]
    fn spdy_data_of_a_long_frame_comes_in_pieces() {
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
        let mut take = |bytes: &[u8]| {
            buffer.extend_from_slice(bytes);
            decoder.decode(&mut buffer).unwrap()
        };
        let piece = |fin, data: &'static [u8]| {
            let data = Bytes::from_static(data);
            Some(Frame::Data { id: 9, fin, data })
        };
        // The end belongs to the last piece, 16 MiB would be no different.
        assert_eq!(take(&[0, 0, 0, 9, FLAG_FIN, 0, 0, 5]), None);
        assert_eq!(take(b"ab"), piece(false, b"ab"));
        assert_eq!(take(b""), None);
        assert_eq!(take(b"cde"), piece(true, b"cde"));
        assert_eq!(take(&[0, 0, 0, 9, 0, 0xff, 0xff, 0xff, 1]), piece(false, &[1]));
    }

    #[test]
    fn spdy_frames_round_trip() {
        let block = Bytes::from_static(b"block");
        check(Frame::SynStream {
            id: 1,
            fin: true,
            block: block.clone(),
        });
        check(Frame::SynReply {
            id: 3,
            fin: false,
            block,
        });
        check(Frame::Reset { id: 5, status: 1 });
        check(Frame::Ping { id: 7 });
        check(Frame::GoAway);
        check(Frame::Data {
            id: 9,
            fin: true,
            data: Bytes::new(),
        });
        check(Frame::Data {
            id: 9,
            fin: false,
            data: Bytes::from_static(&[7; 300]),
        });
    }

    #[test]
    fn spdy_frame_fuzz_never_panics() {
        let mut good = BytesMut::new();
        let block = Bytes::from_static(b"block");
        for frame in [
            Frame::SynStream {
                id: 1,
                fin: false,
                block: block.clone(),
            },
            Frame::Data {
                id: 1,
                fin: true,
                data: block,
            },
            Frame::Ping { id: 2 },
            Frame::Reset { id: 1, status: 5 },
        ] {
            encode(&frame, &mut good);
        }
        machinery_fuzz::fuzz([&good], |input| {
            let mut buffer = BytesMut::from(input);
            let mut decoder = Decoder::default();
            machinery_fuzz::in_proportion(
                input,
                16,
                || {
                    while let Ok(Some(_)) = decoder.decode(&mut buffer) {}
                },
            );
            assert!(buffer.len() <= input.len());
        });
    }

    #[test]
    fn nonsense_is_refused() {
        let version_two = [0x80, 2, 0, 1, 0, 0, 0, 0];
        assert_eq!(
            decode(&mut BytesMut::from(&version_two[..])),
            Err(FrameError::Version(2))
        );
        let too_large = [0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff];
        assert_eq!(
            decode(&mut BytesMut::from(&too_large[..])),
            Err(FrameError::TooLarge)
        );
        let too_short = [0x80, 3, 0, 1, 0, 0, 0, 1, 0];
        assert_eq!(
            decode(&mut BytesMut::from(&too_short[..])),
            Err(FrameError::TooShort)
        );
    }
}
