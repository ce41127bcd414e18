//! Frames. Pure.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A frame larger than this ends the session; what is sent is far smaller.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
const HEAD_BYTES: usize = 8;
const VERSION: u16 = 3;
const CONTROL: u16 = 0x8000;
const ID_MASK: u32 = 0x7fff_ffff;
/// The sender sends no more on this stream.
pub const FLAG_FIN: u8 = 0x01;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A frame, header blocks still compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
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
        /// True if nothing more is sent on it.
        fin: bool,
        /// The bytes.
        data: Bytes,
    },
    /// Settings, windows and other things that need no answer.
    Other,
}

/// Violation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Larger than we take.
    #[error("a frame is larger than {FRAME_BYTES_MAX} bytes")]
    TooLarge,
    /// Of another version of the protocol.
    #[error("a frame is of version {0}")]
    Version(u16),
    /// Shorter than its type asks for.
    #[error("a frame is too short")]
    TooShort,
}

/// Takes the first whole frame out of a buffer; `None` if there is none yet.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(head) = buffer.get(..HEAD_BYTES) else {
        return Ok(None);
    };
    let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge);
    }
    if buffer.len() < HEAD_BYTES + length {
        return Ok(None);
    }
    let mut head = buffer.split_to(HEAD_BYTES).freeze();
    let body = buffer.split_to(length).freeze();
    let first = head.get_u16();
    let second = head.get_u16();
    let fin = head.get_u8() & FLAG_FIN != 0;
    if first & CONTROL == 0 {
        let id = (u32::from(first) << 16) | u32::from(second);
        return Ok(Some(Frame::Data { id, fin, data: body }));
    }
    match first & !CONTROL {
        VERSION => control(second, fin, body).map(Some),
        other => Err(FrameError::Version(other)),
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
pub fn encode(frame: &Frame, out: &mut BytesMut) {
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

/// One byte of flags and three of length. Invariant: what we send is below [`FRAME_BYTES_MAX`].
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
        for cut in 0..whole.len() {
            assert_eq!(decode(&mut BytesMut::from(&whole[..cut])), Ok(None));
        }
        assert_eq!(decode(&mut buffer), Ok(Some(frame)));
        assert!(buffer.is_empty());
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
            machinery_fuzz::in_proportion(input, 16, || while let Ok(Some(_)) = decode(&mut buffer) {});
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
        let too_large = [0, 0, 0, 1, 0, 0xff, 0xff, 0xff];
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
