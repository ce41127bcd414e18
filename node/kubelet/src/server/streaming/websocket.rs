//! A remote command session over WebSocket: the first byte of a message is its channel.
//!
//! | channel | 0 | 1 | 2 | 3 | 4 | 255 (v5) |
//! |---|---|---|---|---|---|---|
//! | is | stdin | stdout | stderr | verdict | size | end of a channel |

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use machinery_runtime::{Runtime, TaskHandle};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::channels::{Channels, Input, Output, PIECES_MAX, parse_size};
use super::upgrade::Taken;

/// Protocols spoken for exec and attach, best first.
pub(super) const PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];

const MESSAGE_BYTES_MAX: usize = 1 << 20;
const CLOSE_CHANNEL: u8 = 255;
/// How long a client may take to answer a farewell.
const PARTING_TIMEOUT: Duration = Duration::from_secs(5);

/// A WebSocket on a connection taken over, with bounds.
pub(super) async fn open(connection: Taken) -> WebSocketStream<Taken> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await
}

/// Starts to carry a session.
pub(super) fn carry(runtime: &Runtime, socket: WebSocketStream<Taken>) -> Channels {
    let (input_sender, input) = mpsc::channel(PIECES_MAX);
    let (output, mut outputs) = mpsc::channel::<Output>(PIECES_MAX);
    let (mut sink, mut stream) = socket.split();
    let reader = runtime.spawn("websocket reader", async move {
        while let Some(Ok(message)) = stream.next().await {
            let data = match message {
                Message::Binary(data) => data,
                Message::Text(text) => Bytes::from(text.as_bytes().to_vec()),
                Message::Close(_) => break,
                _ => continue,
            };
            if let Some(piece) = parse(&data) {
                // A process that has ended takes no more; the rest is read for the farewell's sake.
                let _ = input_sender.send(piece).await;
            }
        }
    });
    let own = runtime.clone();
    runtime.spawn("websocket writer", async move {
        while let Some(piece) = outputs.recv().await {
            let (channel, data) = match piece {
                Output::Stdout(data) => (1, data),
                Output::Stderr(data) => (2, data),
                Output::Verdict(data) => (3, data),
            };
            if sink.send(Message::Binary(framed(channel, &data))).await.is_err() {
                return;
            }
        }
        part(&own, sink, reader).await;
    });
    Channels { input, output }
}

/// Tells the client that all is said, and lets `reader` read on until the client has answered or gone: a connection closed
/// with bytes unread is reset, and what the client has not read by then may be lost to it.
pub(super) async fn part(
    runtime: &Runtime,
    mut sink: SplitSink<WebSocketStream<Taken>, Message>,
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

fn parse(data: &Bytes) -> Option<Input> {
    match data.first()? {
        0 => Some(Input::Stdin(data.slice(1..))),
        4 => parse_size(&data[1..]),
        &CLOSE_CHANNEL => (data.get(1) == Some(&0)).then_some(Input::StdinEnd),
        _ => None,
    }
}

pub(super) fn framed(channel: u8, data: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(data.len() + 1);
    message.put_u8(channel);
    message.put_slice(data);
    message.freeze()
}
