//! Output of commands in containers, cut while it arrives.
//!
//! `ExecSync` answers with one message that has all that the command printed, and a decoder holds a message whole before it reads
//! any of it. A probe of a hundred containers that print as fast as they can would hold gigabytes. So the message is read here
//! as it comes, below the generated client: of each stream the first bytes are kept, as many as the caller says, the rest is dropped, and
//! the client decodes a message of what was kept.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use k8s_cri::v1::ExecSyncResponse;
use prost::Message;
use tonic::Status;
use tonic::body::Body;

/// Bytes that are kept of each stream of a command; upstream keeps so many of what a probe prints.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 10 << 10;
/// A flag and the length in front of a message.
const PREFIX_BYTES: usize = 5;
/// Bytes of the longest number.
const VARINT_BYTES: u32 = 10;

/// The body of an answer to `ExecSync` with each stream of its output cut.
pub(crate) fn cut(body: Body, output_bytes_max: usize) -> Body {
    Body::new(CutBody {
        inner: body,
        answer: Answer {
            output_bytes_max,
            ..Answer::default()
        },
        trailers: None,
    })
}

struct CutBody {
    inner: Body,
    answer: Answer,
    /// Trailers that came, and follow the message.
    trailers: Option<HeaderMap>,
}

impl http_body::Body for CutBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        loop {
            let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(context)) else {
                return Poll::Ready(this.answer.take().map(|message| Ok(Frame::data(message))));
            };
            let trailers = match frame?.into_data() {
                Ok(data) => {
                    this.answer.read(&data)?;
                    continue;
                }
                Err(other) => other.into_trailers().unwrap_or_default(),
            };
            let frame = match this.answer.take() {
                None => Frame::trailers(trailers),
                Some(message) => {
                    this.trailers = Some(trailers);
                    Frame::data(message)
                }
            };
            return Poll::Ready(Some(Ok(frame)));
        }
    }
}

/// An `ExecSyncResponse` that is read in pieces.
#[derive(Debug, Default)]
struct Answer {
    prefix: Vec<u8>,
    /// Bytes of the message that are still to come.
    left: usize,
    step: Step,
    /// A number under way, and its bytes so far.
    number: (u64, u32),
    /// Bytes that are kept of each stream.
    output_bytes_max: usize,
    kept: ExecSyncResponse,
}

/// The part of a message that is next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    #[default]
    Tag,
    Number(u64),
    Length(u64),
    /// So many bytes of a field.
    Bytes(u64, u64),
}

const STDOUT: u64 = 1;
const STDERR: u64 = 2;
const EXIT_CODE: u64 = 3;

fn malformed(why: &'static str) -> Status {
    Status::internal(format!("the answer of a command cannot be read: {why}"))
}

impl Answer {
    fn read(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while let [first, rest @ ..] = data {
            if self.prefix.len() < PREFIX_BYTES {
                self.prefix.push(*first);
                data = rest;
                self.begin()?;
                continue;
            }
            if self.left == 0 {
                return Err(malformed("more than one message"));
            }
            let used = self.advance(&data[..data.len().min(self.left)])?;
            self.left -= used;
            data = &data[used..];
        }
        Ok(())
    }

    /// Begins the message once its prefix is whole.
    fn begin(&mut self) -> Result<(), Status> {
        let [flag, a, b, c, d] = self.prefix[..] else {
            return Ok(());
        };
        if flag != 0 {
            return Err(malformed("it is compressed"));
        }
        let length = u32::from_be_bytes([a, b, c, d]);
        self.left = usize::try_from(length).map_err(|_| malformed("it is too long"))?;
        Ok(())
    }

    /// Reads a part of what came; returns its bytes.
    fn advance(&mut self, data: &[u8]) -> Result<usize, Status> {
        if let Step::Bytes(field, left) = self.step {
            let used = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.keep(field, &data[..used]);
            self.step = match left - used as u64 {
                0 => Step::Tag,
                left => Step::Bytes(field, left),
            };
            return Ok(used);
        }
        if let Some(number) = self.number(data[0])? {
            self.step = self.next(number)?;
        }
        Ok(1)
    }

    fn number(&mut self, byte: u8) -> Result<Option<u64>, Status> {
        let (value, bytes) = self.number;
        if bytes == VARINT_BYTES {
            return Err(malformed("a number is too long"));
        }
        let value = value | u64::from(byte & 0x7f).checked_shl(7 * bytes).unwrap_or_default();
        self.number = (value, bytes + 1);
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        self.number = (0, 0);
        Ok(Some(value))
    }

    /// The step after a number.
    fn next(&mut self, number: u64) -> Result<Step, Status> {
        Ok(match self.step {
            Step::Tag => match (number >> 3, number & 7) {
                (field, 0) => Step::Number(field),
                (_, 1) => Step::Bytes(0, 8),
                (field, 2) => Step::Length(field),
                (_, 5) => Step::Bytes(0, 4),
                _ => return Err(malformed("a field has no known type")),
            },
            Step::Number(field) => {
                if field == EXIT_CODE {
                    let [a, b, c, d, ..] = number.to_le_bytes();
                    self.kept.exit_code = i32::from_le_bytes([a, b, c, d]);
                }
                Step::Tag
            }
            Step::Length(field) => {
                // The last of several counts.
                if let Some(kept) = self.stream(field) {
                    kept.clear();
                }
                match number {
                    0 => Step::Tag,
                    length => Step::Bytes(field, length),
                }
            }
            Step::Bytes(..) => Step::Tag,
        })
    }

    fn stream(&mut self, field: u64) -> Option<&mut Vec<u8>> {
        match field {
            STDOUT => Some(&mut self.kept.stdout),
            STDERR => Some(&mut self.kept.stderr),
            _ => None,
        }
    }

    fn keep(&mut self, field: u64, bytes: &[u8]) {
        let most = self.output_bytes_max;
        if let Some(kept) = self.stream(field) {
            let room = most.saturating_sub(kept.len());
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// The message of what was kept, once; absent where none came, or not all of it.
    fn take(&mut self) -> Option<Bytes> {
        let whole = self.prefix.len() == PREFIX_BYTES && self.left == 0 && self.step == Step::Tag;
        let kept = std::mem::take(self).kept;
        if !whole {
            return None;
        }
        let length = kept.encoded_len();
        let mut message = BytesMut::with_capacity(PREFIX_BYTES + length);
        message.put_u8(0);
        message.put_u32(u32::try_from(length).ok()?);
        message.extend_from_slice(&kept.encode_to_vec());
        Some(message.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};
    use std::convert::Infallible;

    fn message(answer: &impl Message) -> Vec<u8> {
        let body = answer.encode_to_vec();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0][..], &length, &body].concat()
    }

    /// The answer that a client decodes of a body that comes in pieces, and its trailers.
    fn decoded(body: &[u8], piece: usize) -> Result<(ExecSyncResponse, HeaderMap), Status> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let data = body
            .chunks(piece)
            .map(|chunk| Frame::data(Bytes::copy_from_slice(chunk)));
        let frames: Vec<_> = data
            .chain([Frame::trailers(trailers)])
            .map(Ok::<_, Infallible>)
            .collect();
        let cut = cut(
            Body::new(StreamBody::new(futures::stream::iter(frames))),
            EXEC_OUTPUT_BYTES_MAX,
        );
        let collected = futures::executor::block_on(cut.collect())?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let bytes = collected.to_bytes();
        let read = bytes.get(PREFIX_BYTES..).unwrap_or_default();
        Ok((ExecSyncResponse::decode(read).unwrap(), trailers))
    }

    #[test]
    fn output_is_cut_and_the_code_stays() {
        let answer = ExecSyncResponse {
            stdout: b"out".repeat(20_000),
            stderr: b"err".to_vec(),
            exit_code: -7,
        };
        for piece in [1, 3, 4_096, 16 << 20] {
            let (read, trailers) = decoded(&message(&answer), piece).unwrap();
            assert_eq!(read.stdout, answer.stdout[..EXEC_OUTPUT_BYTES_MAX]);
            assert_eq!((read.stderr, read.exit_code), (answer.stderr.clone(), -7));
            assert_eq!(trailers["grpc-status"], "0");
        }
        let short = ExecSyncResponse {
            stdout: Vec::new(),
            stderr: b"x".repeat(EXEC_OUTPUT_BYTES_MAX),
            exit_code: 0,
        };
        assert_eq!(decoded(&message(&short), 7).unwrap().0, short);
    }

    #[test]
    fn output_that_is_dropped_takes_no_memory() {
        let mut answer = Answer {
            output_bytes_max: EXEC_OUTPUT_BYTES_MAX,
            ..Answer::default()
        };
        let body = message(&ExecSyncResponse {
            stdout: vec![b'x'; 20 << 20],
            ..ExecSyncResponse::default()
        });
        for piece in body.chunks(16 << 10) {
            answer.read(piece).unwrap();
            assert!(answer.kept.stdout.capacity() <= 2 * EXEC_OUTPUT_BYTES_MAX);
        }
        assert!(answer.take().unwrap().len() <= EXEC_OUTPUT_BYTES_MAX + 16);
    }

    #[test]
    fn fields_of_later_versions_are_passed_over_and_nonsense_is_an_error() {
        // A text, a number, eight and four bytes; then the code.
        let body = [
            0x22, 2, b'a', b'b', 0x28, 0x96, 1, 0x31, 1, 2, 3, 4, 5, 6, 7, 8, 0x3d, 1, 2, 3, 4, 0x18, 5,
        ];
        let framed = |body: &[u8]| [&[0, 0, 0, 0, u8::try_from(body.len()).unwrap()], body].concat();
        assert_eq!(decoded(&framed(&body), 2).unwrap().0.exit_code, 5);
        for nonsense in [&[0x0b][..], &[0xff; 12]] {
            assert!(decoded(&framed(nonsense), 5).is_err());
        }
        let compressed = [1, 0, 0, 0, 0];
        assert!(decoded(&compressed, 5).is_err());
        let two = [framed(&[0x18, 5]), framed(&[0x18, 5])].concat();
        assert!(decoded(&two, 5).is_err());
        // One that ends early is none.
        let (read, trailers) = decoded(&framed(&body)[..20], 5).unwrap();
        assert_eq!((read, trailers.len()), (ExecSyncResponse::default(), 1));
    }
}
