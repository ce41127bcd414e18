//! Large frames of a WebSocket's client as messages that are small, so that a session passes data on as they come.
//!
//! Upstream reads a frame of up to 32 MiB as a whole. Here a frame beyond [`PIECE_BYTES_MAX`] becomes messages of that size,
//! each behind the head that the first one has: its channel. Other frames pass as they are.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::unread::PIECE_BYTES_MAX;

/// A larger frame ends the session, as upstream's `DefaultMaxPayloadBytes`.
const FRAME_BYTES_MAX: u64 = 32 << 20;
/// Longest header of a frame: two bytes, a length, a mask.
const HEADER_BYTES_MAX: usize = 14;
const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// Beginning of a message that each of its pieces has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// The byte of a channel.
    Channel,
    /// The character of a channel; what follows is base64, which is cut between its groups of four.
    Digit,
    /// None: messages make up a stream.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    io: T,
    cutter: Cutter,
}

impl<T> Pieces<T> {
    pub(super) fn new(io: T, head: Head) -> Self {
        let cutter = Cutter {
            head,
            input: BytesMut::new(),
            output: BytesMut::new(),
            place: Place::Header,
        };
        Self { io, cutter }
    }
}

/// Frames as they came, and as they go on.
#[derive(Debug)]
struct Cutter {
    head: Head,
    input: BytesMut,
    output: BytesMut,
    place: Place,
}

/// Place in the client's frames where the input begins.
#[derive(Debug)]
enum Place {
    Header,
    /// In a frame that passes as it is, with so many bytes left.
    Passing(u64),
    Cutting(Cut),
}

/// A frame that is cut into pieces.
#[derive(Debug)]
struct Cut {
    opcode: u8,
    left: u64,
    mask: [u8; 4],
    /// Bytes of the frame so far.
    at: usize,
    head: Option<Vec<u8>>,
    piece: BytesMut,
}

impl Cutter {
    /// Brings the output forward as far as the input goes.
    fn advance(&mut self) {
        loop {
            let is_further = match &mut self.place {
                Place::Header => self.header(),
                Place::Passing(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.input.len());
                    self.output.put(self.input.split_to(count));
                    *left -= count as u64;
                    if *left == 0 {
                        self.place = Place::Header;
                    }
                    !self.input.is_empty()
                }
                Place::Cutting(cut) => {
                    if cut.advance(self.head, &mut self.input, &mut self.output) {
                        self.place = Place::Header;
                    }
                    !self.input.is_empty()
                }
            };
            if !is_further {
                return;
            }
        }
    }

    /// Reads the header of the next frame; false where it is not there yet.
    fn header(&mut self) -> bool {
        let Some(header) = Header::read(&self.input) else {
            return false;
        };
        let is_cut = header.is_whole
            && header.length > PIECE_BYTES_MAX as u64
            && header.length <= FRAME_BYTES_MAX
            && (header.opcode == BINARY || (header.opcode == TEXT && self.head != Head::Nothing));
        self.place = match header.mask.filter(|_| is_cut) {
            Some(mask) => {
                self.input.advance(header.bytes);
                Place::Cutting(Cut {
                    // Pieces of text may end within a character.
                    opcode: if self.head == Head::Digit {
                        header.opcode
                    } else {
                        BINARY
                    },
                    left: header.length,
                    mask,
                    at: 0,
                    head: None,
                    piece: BytesMut::new(),
                })
            }
            None => {
                self.output.put(self.input.split_to(header.bytes));
                Place::Passing(header.length)
            }
        };
        true
    }
}

impl Cut {
    /// Takes what there is of the frame; true at its end.
    fn advance(&mut self, head: Head, input: &mut BytesMut, output: &mut BytesMut) -> bool {
        while !input.is_empty() && self.left > 0 {
            let room = (PIECE_BYTES_MAX - self.piece.len()).min(input.len());
            let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(room);
            for byte in input.split_to(count) {
                self.piece.put_u8(byte ^ self.mask[self.at % 4]);
                self.at += 1;
            }
            self.left -= count as u64;
            if self.piece.len() == PIECE_BYTES_MAX || self.left == 0 {
                self.hand_out(head, output);
            }
        }
        self.left == 0
    }

    fn hand_out(&mut self, head: Head, output: &mut BytesMut) {
        let piece = &mut self.piece;
        let own = self
            .head
            .get_or_insert_with(|| piece.split_to(head.length(piece)).to_vec());
        let count = match head {
            // The rest of a group waits for the next piece.
            Head::Digit if self.left > 0 => piece.len() / 4 * 4,
            _ => piece.len(),
        };
        let data = self.piece.split_to(count);
        put_header(output, self.opcode, own.len() + data.len());
        output.put_slice(own);
        output.put(data);
    }
}

impl Head {
    fn length(self, message: &[u8]) -> usize {
        let length = match (self, message.first()) {
            (Self::Nothing, _) | (_, None) => 0,
            // A channel beyond the ninth may be a character of two bytes.
            (Self::Digit, Some(0xc0..=0xdf)) => 2,
            (Self::Channel | Self::Digit, Some(_)) => 1,
        };
        length.min(message.len())
    }
}

/// The header of a client's frame whose mask changes nothing.
fn put_header(output: &mut BytesMut, opcode: u8, length: usize) {
    output.put_u8(0x80 | opcode);
    match u16::try_from(length) {
        Ok(length @ 126..) => {
            output.put_u8(0x80 | 126);
            output.put_u16(length);
        }
        // Pieces are shorter than 64 KiB.
        _ => output.put_u8(0x80 | u8::try_from(length).unwrap_or(125)),
    }
    output.put_bytes(0, 4);
}

/// A frame's header.
struct Header {
    bytes: usize,
    /// The first and last frame of its message, without extensions.
    is_whole: bool,
    opcode: u8,
    length: u64,
    mask: Option<[u8; 4]>,
}

impl Header {
    /// The header that the input begins with; `None` where it is not all there.
    fn read(input: &[u8]) -> Option<Self> {
        let (first, second) = (*input.first()?, *input.get(1)?);
        let (length, at) = match second & 0x7f {
            126 => (
                u64::from(u16::from_be_bytes(input.get(2..4)?.try_into().ok()?)),
                4,
            ),
            127 => (u64::from_be_bytes(input.get(2..10)?.try_into().ok()?), 10),
            short => (u64::from(short), 2),
        };
        let is_masked = second & 0x80 != 0;
        let mask = match is_masked {
            true => Some(input.get(at..at + 4)?.try_into().ok()?),
            false => None,
        };
        Some(Self {
            bytes: at + if is_masked { 4 } else { 0 },
            is_whole: first & 0xf0 == 0x80,
            opcode: first & 0x0f,
            length,
            mask,
        })
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Pieces<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, cutter } = &mut *self;
        while cutter.output.is_empty() {
            let mut bytes = [0; 8 << 10];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *io).poll_read(task, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            debug_assert!(
                cutter.input.len() < HEADER_BYTES_MAX,
                "only a part of a header waits"
            );
            cutter.input.extend_from_slice(read.filled());
            cutter.advance();
        }
        let count = cutter.output.len().min(buffer.remaining());
        buffer.put_slice(&cutter.output.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Pieces<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(task, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use tokio::io::AsyncWriteExt;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    const MASK: [u8; 4] = [7, 0, 255, 3];

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first, 0x80 | 127];
        frame.extend((payload.len() as u64).to_be_bytes());
        frame.extend(MASK);
        frame.extend(
            payload
                .iter()
                .zip(MASK.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        frame
    }

    /// Messages that a server reads of what a client sends that stays for the answers.
    async fn received(head: Head, sent: Vec<u8>) -> Vec<Message> {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let server = Pieces::new(server, head);
        let mut socket = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        let sending = async move {
            // A server that refuses a frame reads no further.
            let _ = client.write_all(&sent).await;
            let _ = client.shutdown().await;
            client
        };
        let receiving = async move {
            let mut all = Vec::new();
            while let Some(Ok(message)) = socket.next().await {
                all.push(message);
            }
            all
        };
        futures::join!(sending, receiving).1
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| b'a' + u8::try_from(at % 23).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn websocket_frame_of_many_megabytes_comes_in_pieces() {
        let data = [&b"\x00"[..], &text(5 << 20)].concat();
        let sent = [frame(0x82, &data), frame(0x82, b"\x04{}")].concat();
        let all = received(Head::Channel, sent).await;
        let (last, pieces) = all.split_last().unwrap();
        assert_eq!(last, &Message::binary(&b"\x04{}"[..]));
        let pieces: Vec<_> = pieces.iter().map(|piece| piece.clone().into_data()).collect();
        assert!(
            pieces
                .iter()
                .all(|piece| piece[0] == 0 && piece.len() <= PIECE_BYTES_MAX + 1)
        );
        assert!(pieces.len() >= 160, "{}", pieces.len());
        let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece[1..].to_vec()).collect();
        assert!(joined == data[1..]);
    }

    #[tokio::test]
    async fn websocket_base64_is_cut_between_its_groups() {
        for digit in ["0", "\u{80}"] {
            let sent = format!("{digit}{}YQ==", "QUJD".repeat(50_000));
            let all = received(Head::Digit, frame(0x81, sent.as_bytes())).await;
            let rest = all.iter().map(|message| {
                let Message::Text(text) = message else {
                    panic!("{message:?}")
                };
                let rest = text.strip_prefix(digit).unwrap();
                assert_eq!(rest.len() % 4, 0);
                rest.to_owned()
            });
            assert_eq!(rest.collect::<String>(), sent[digit.len()..]);
            assert!(all.len() > 6);
        }
    }

    #[tokio::test]
    async fn websocket_stream_has_no_heads() {
        let data = text(100_000);
        let all = received(Head::Nothing, frame(0x82, &data)).await;
        assert!(all.len() > 3);
        let joined: Vec<u8> = all
            .into_iter()
            .flat_map(|piece| piece.into_data().to_vec())
            .collect();
        assert!(joined == data);
    }

    #[tokio::test]
    async fn websocket_frame_beyond_upstreams_bound_ends_the_session() {
        // The default bound of tungstenite is 16 MiB a frame.
        let data = vec![0; usize::try_from(FRAME_BYTES_MAX).unwrap() + 1];
        assert!(
            received(Head::Channel, frame(0x82, &data)[..1 << 20].to_vec())
                .await
                .is_empty()
        );
    }

    #[tokio::test]
    async fn websocket_small_frames_and_fragments_pass_as_they_are() {
        let sent = [
            frame(0x02, b"\x00a"),
            frame(0x80, b"b"),
            frame(0x89, b"p"),
            frame(0x82, b"\x00c"),
        ]
        .concat();
        let all = received(Head::Channel, sent).await;
        assert_eq!(all[0], Message::binary(&b"\x00ab"[..]));
        assert_eq!(all[1], Message::Ping((&b"p"[..]).into()));
        assert_eq!(all[2], Message::binary(&b"\x00c"[..]));
    }
}
