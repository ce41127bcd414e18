//! SPDY in the messages of a WebSocket.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use machinery_runtime::Runtime;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_tungstenite::tungstenite::Message;

use super::super::pieces::Head;
use super::super::unread::PIECE_BYTES_MAX;
use super::super::upgrade::Taken;
use super::super::websocket;

/// The byte stream that a WebSocket's messages make up.
pub(super) async fn open(runtime: &Runtime, connection: Taken) -> DuplexStream {
    let socket = websocket::open(connection, Head::Nothing).await;
    let (ours, theirs) = tokio::io::duplex(PIECE_BYTES_MAX);
    let (mut sink, mut stream) = socket.split();
    let (mut from, mut to) = tokio::io::split(ours);
    let reader = runtime.spawn("tunnel reader", async move {
        while let Some(Ok(message)) = stream.next().await {
            let data = match message {
                Message::Binary(data) => data,
                Message::Close(_) => break,
                _ => continue,
            };
            // A session that has ended takes no more; the rest is read for the farewell's sake.
            let _ = to.write_all(&data).await;
        }
        let _ = to.shutdown().await;
    });
    let own = runtime.clone();
    runtime.spawn("tunnel writer", async move {
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        while let Ok(count) = from.read(&mut buffer).await {
            if count == 0
                || sink
                    .send(Message::Binary(Bytes::copy_from_slice(&buffer[..count])))
                    .await
                    .is_err()
            {
                break;
            }
        }
        websocket::part(&own, sink, reader).await;
    });
    theirs
}
