//! A remote command session over WebSocket: the first byte of a message is its channel.
//!
//! | channel | 0 | 1 | 2 | 3 | 4 | 255 (v5) |
//! |---|---|---|---|---|---|---|
//! | is | stdin | stdout | stderr | verdict | size | end of a channel |
//!
//! Clients that have text alone, as browsers had, request `base64`: the channel is a digit then, and what follows is
//! encoded. Before `v4` the verdict was the words of an error, and nothing where there was none.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use machinery_runtime::{Runtime, TaskHandle};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::channels::{Channels, Input, Output, PIECES_MAX, Wanted};
use super::idle::Activity;
use super::pieces::{Head, Pieces};
use super::terminal_sizes::TerminalSizes;
use super::unread::PIECE_BYTES_MAX;
use super::upgrade::Taken;

/// Protocols spoken for exec and attach; the first is chosen wherever the client names it.
pub(super) const PROTOCOLS: &[&str] = &[
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];

/// Encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// The channel's byte, then the data.
    Binary,
    /// The channel's digit, then the data in base64. Channels beyond the ninth go on as upstream's: with the characters behind
    /// the digits, up to U+00FF and from there with those from U+0000.
    Base64,
}

impl Framing {
    /// The framing of a protocol.
    pub(super) fn of(protocol: &str) -> Self {
        match protocol.contains("base64.") {
            true => Self::Base64,
            false => Self::Binary,
        }
    }

    /// Beginning of each message.
    pub(super) fn head(self) -> Head {
        match self {
            Self::Binary => Head::Channel,
            Self::Base64 => Head::Digit,
        }
    }

    /// A message of data behind their channel's byte.
    pub(super) fn message(self, framed: Bytes) -> Message {
        match (self, framed.split_first()) {
            (Self::Base64, Some((channel, data))) => {
                let digit = char::from(channel.wrapping_add(b'0'));
                Message::text(format!("{digit}{}", STANDARD.encode(data)))
            }
            (Self::Binary, _) | (Self::Base64, None) => Message::Binary(framed),
        }
    }

    /// The data of a message behind their channel's byte; nothing for a message that has none.
    pub(super) fn data(self, message: Message) -> Option<Bytes> {
        let (digit, encoded) = match (self, &message) {
            (Self::Binary, Message::Binary(data)) => return Some(data.clone()),
            (Self::Binary, Message::Text(text)) => return Some(Bytes::copy_from_slice(text.as_bytes())),
            (Self::Base64, Message::Binary(data)) => {
                data.split_first().map(|(digit, rest)| (*digit, rest))?
            }
            (Self::Base64, Message::Text(text)) => {
                let mut characters = text.chars();
                let digit = u8::try_from(characters.next()?).ok()?;
                (digit, characters.as_str().as_bytes())
            }
            _ => return None,
        };
        let decoded = STANDARD.decode(encoded).ok()?;
        Some(framed(digit.wrapping_sub(b'0'), &decoded))
    }
}

const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The protocol in which a client ends single channels, and the channel of these messages.
const CLOSING_PROTOCOL: &str = "v5.channel.k8s.io";
const CLOSE_SIGNAL: u8 = 255;
const CHANNELS: u8 = 5;
/// Longest wait for the client's answer to a close frame.
const PARTING_TIMEOUT: Duration = Duration::from_secs(5);

/// A WebSocket's connection.
pub(super) type Carried = Pieces<Taken>;

/// A WebSocket on a connection taken over, with bounds: of messages in several frames, and of what comes at a time.
pub(super) async fn open(connection: Taken, head: Head) -> WebSocketStream<Carried> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let connection = Pieces::new(connection, head);
    WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await
}

/// Starts to carry a session.
pub(super) fn carry(
    runtime: &Runtime,
    socket: WebSocketStream<Carried>,
    protocol: &'static str,
    wanted: Wanted,
    activity: Activity,
) -> Channels {
    let framing = Framing::of(protocol);
    let is_early = !protocol.starts_with('v');
    let (input_sender, input) = mpsc::channel(PIECES_MAX);
    let (output, mut outputs) = mpsc::channel::<Output>(PIECES_MAX);
    let (mut sink, mut stream) = socket.split();
    let noted = activity.clone();
    let reader = runtime.spawn("websocket reader", async move {
        let mut receiving = Receiving {
            to: input_sender,
            sizes: Some(TerminalSizes::default()),
            closes_channels: protocol == CLOSING_PROTOCOL,
        };
        while let Some(Ok(message)) = stream.next().await {
            if message.is_close() {
                break;
            }
            noted.note();
            if let Some(data) = framing.data(message)
                && !receiving.take(&data).await
            {
                break;
            }
        }
    });
    let own = runtime.clone();
    runtime.spawn("websocket writer", async move {
        // It says that the connection stands, on the first channel that the client reads.
        let first = framing.message(framed(first_channel(wanted), b""));
        let mut is_open = sink.send(first).await.is_ok();
        while is_open && let Some(piece) = outputs.recv().await {
            let (channel, data) = match piece {
                Output::Stdout(data) => (1, data),
                Output::Stderr(data) => (2, data),
                Output::Verdict(data) if is_early => (3, early_verdict(&data)),
                Output::Verdict(data) => (3, data),
            };
            activity.note();
            is_open = sink.send(framing.message(framed(channel, &data))).await.is_ok();
        }
        match is_open {
            true => part(&own, sink, reader).await,
            false => reader.abort(),
        }
    });
    Channels { input, output }
}

fn first_channel(wanted: Wanted) -> u8 {
    match wanted {
        Wanted { stdout: true, .. } => 1,
        Wanted { stderr: true, .. } => 2,
        _ => 3,
    }
}

/// The words of a verdict, where it is one of failure.
fn early_verdict(status: &[u8]) -> Bytes {
    let status: serde_json::Value = serde_json::from_slice(status).unwrap_or_default();
    match status["status"].as_str() {
        Some("Success") => Bytes::new(),
        _ => Bytes::from(status["message"].as_str().unwrap_or_default().to_owned()),
    }
}

/// Sends the close frame, and lets `reader` read on until the client has answered or gone: a connection closed
/// with bytes unread is reset, and what the client has not read by then may be lost to it.
pub(super) async fn part(
    runtime: &Runtime,
    mut sink: SplitSink<WebSocketStream<Carried>, Message>,
    mut reader: TaskHandle<()>,
) {
    // Clients take a close without a status for a broken connection.
    let frame = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    // The client may have gone already.
    let _ = sink.send(Message::Close(Some(frame))).await;
    let _ = sink.close().await;
    if runtime.timeout(PARTING_TIMEOUT, &mut reader).await.is_err() {
        reader.abort();
    }
}

/// The client's side of a session.
struct Receiving {
    to: mpsc::Sender<Input>,
    /// `None` after something that is no size.
    sizes: Option<TerminalSizes>,
    closes_channels: bool,
}

impl Receiving {
    /// Hands a message on; false if it ends the session. A process that has ended takes no more; the rest is read for the
    /// farewell's sake.
    async fn take(&mut self, message: &[u8]) -> bool {
        match message.split_first() {
            Some((0, stdin)) => {
                // Copies, so that no piece keeps the whole message.
                for piece in stdin.chunks(PIECE_BYTES_MAX) {
                    let _ = self.to.send(Input::Stdin(Bytes::copy_from_slice(piece))).await;
                }
            }
            Some((4, sizes)) => {
                if let Some(reader) = &mut self.sizes
                    && !reader.forward(sizes, &self.to).await
                {
                    self.sizes = None;
                }
            }
            Some((&CLOSE_SIGNAL, closed)) if self.closes_channels => match closed {
                [0] => drop(self.to.send(Input::StdinEnd).await),
                [1..CHANNELS] => {}
                _ => return false,
            },
            _ => {}
        }
        true
    }
}

pub(super) fn framed(channel: u8, data: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(data.len() + 1);
    message.put_u8(channel);
    message.put_slice(data);
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn goes_and_comes(protocol: &str, framed: &'static [u8], expected: &Message) {
        let framing = Framing::of(protocol);
        let message = framing.message(Bytes::from_static(framed));
        assert_eq!(&message, expected, "{protocol}");
        assert_eq!(framing.data(message).as_deref(), Some(framed), "{protocol}");
    }

    #[test]
    fn websocket_message_begins_with_channel() {
        let bytes = Message::Binary(Bytes::from_static(b"\x01ab"));
        goes_and_comes("v5.channel.k8s.io", b"\x01ab", &bytes);
        goes_and_comes("", b"\x01ab", &bytes);
        goes_and_comes("v4.base64.channel.k8s.io", b"\x01ab", &Message::text("1YWI="));
        goes_and_comes("base64.channel.k8s.io", b"\x03", &Message::text("3"));
        // The data of a 41st forwarded port, and the errors of the last.
        goes_and_comes(
            "v4.base64.channel.k8s.io",
            b"\x50ab",
            &Message::text("\u{80}YWI="),
        );
        goes_and_comes("v4.base64.channel.k8s.io", b"\xffab", &Message::text("/YWI="));
        assert_eq!(Framing::Base64.data(Message::text("1no base64!")), None);
        assert_eq!(Framing::Base64.data(Message::text("")), None);
        assert_eq!(
            Framing::Base64.data(Message::text("\u{100}YWI=")),
            None,
            "no channel has it"
        );
    }

    #[tokio::test]
    async fn websocket_sizes_end_with_what_is_none() {
        let (to, mut input) = mpsc::channel(PIECES_MAX);
        let sizes = Some(TerminalSizes::default());
        let closes_channels = true;
        let mut receiving = Receiving {
            to,
            sizes,
            closes_channels,
        };
        // A value may go over messages.
        for message in [
            &b"\x04{\"Width\":1,"[..],
            b"\x04\"Height\":2}",
            b"\x041",
            b"\x04{}",
            b"\0in",
        ] {
            assert!(receiving.take(message).await);
        }
        drop(receiving);
        let (width, height) = (1, 2);
        assert_eq!(input.recv().await, Some(Input::Resize { width, height }));
        assert_eq!(input.recv().await, Some(Input::Stdin(Bytes::from_static(b"in"))));
        assert_eq!(input.recv().await, None);
    }

    #[tokio::test]
    async fn websocket_close_signal_names_one_channel() {
        for (closes_channels, message, goes_on, ends_stdin) in [
            (true, &b"\xff\0"[..], true, true),
            (true, b"\xff\x04", true, false),
            (true, b"\xff\x05", false, false),
            (true, b"\xff", false, false),
            (true, b"\xff\0\0", false, false),
            (false, b"\xff\0", true, false),
        ] {
            let (to, mut input) = mpsc::channel(PIECES_MAX);
            let sizes = None;
            let mut receiving = Receiving {
                to,
                sizes,
                closes_channels,
            };
            assert_eq!(receiving.take(message).await, goes_on, "{message:?}");
            drop(receiving);
            let expected = ends_stdin.then_some(Input::StdinEnd);
            assert_eq!(input.recv().await, expected, "{message:?}");
        }
    }

    #[test]
    fn websocket_first_message_goes_to_the_first_channel_that_is_read() {
        let first = |stdin, stdout, stderr| {
            let tty = false;
            first_channel(Wanted {
                stdin,
                stdout,
                stderr,
                tty,
            })
        };
        assert_eq!(first(true, true, true), 1);
        assert_eq!(first(true, false, true), 2);
        assert_eq!(first(true, false, false), 3);
        let empty = Framing::Base64.message(framed(1, b""));
        assert_eq!(empty, Message::text("1"));
    }

    #[test]
    fn websocket_early_protocols_report_failures_only() {
        assert!(early_verdict(br#"{"status":"Success"}"#).is_empty());
        assert_eq!(
            early_verdict(br#"{"status":"Failure","message":"exit code 3"}"#),
            "exit code 3"
        );
    }
}
