//! A running SPDY connection.
//!
//! One task reads, one writes. A stream has a bounded queue of what came in; a slow reader of one
//! stream therefore holds the connection back, which is what flow control would do more finely.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use machinery_runtime::Runtime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::frame::{Frame, decode, encode};
use super::headers::{HeaderReader, HeaderWriter, Headers};

/// Streams open at once on one connection.
const STREAMS_MAX: usize = 512;
const PIECES_MAX: usize = 16;
const READ_BYTES: usize = 32 << 10;
/// Data is sent in pieces no larger than this.
const PIECE_BYTES_MAX: usize = 32 << 10;
const STATUS_CANCEL: u32 = 5;

/// Command of one stream to the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Command {
    Open { id: u32, headers: Vec<(String, String)> },
    Accept { id: u32 },
    Data { id: u32, data: Bytes, fin: bool },
    Reset { id: u32 },
    Pong { id: u32 },
}

/// One stream: read with [`SpdyStream::read`], write with its [`SpdyWriter`].
#[derive(Debug)]
pub struct SpdyStream {
    /// The headers it was opened with.
    pub headers: Headers,
    id: u32,
    incoming: mpsc::Receiver<Bytes>,
    commands: mpsc::Sender<Command>,
}

/// The writing half of a stream.
#[derive(Debug, Clone)]
pub struct SpdyWriter {
    id: u32,
    commands: mpsc::Sender<Command>,
}

impl SpdyStream {
    /// A header's value.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map_or("", |(_, value)| value)
    }

    /// The next piece; `None` when the other side has finished or gone.
    pub async fn read(&mut self) -> Option<Bytes> {
        self.incoming.recv().await
    }

    /// The writing half.
    pub fn writer(&self) -> SpdyWriter {
        SpdyWriter {
            id: self.id,
            commands: self.commands.clone(),
        }
    }
}

impl SpdyWriter {
    /// Sends bytes; false if the connection has gone.
    pub async fn write(&self, data: Bytes) -> bool {
        let mut rest = data;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES_MAX));
            if self
                .commands
                .send(Command::Data {
                    id: self.id,
                    data: piece,
                    fin: false,
                })
                .await
                .is_err()
            {
                return false;
            }
        }
        true
    }

    /// Sends no more.
    pub async fn finish(&self) {
        // A connection that has gone needs no end.
        let _ = self
            .commands
            .send(Command::Data {
                id: self.id,
                data: Bytes::new(),
                fin: true,
            })
            .await;
    }

    /// Ends the stream both ways.
    pub async fn reset(&self) {
        let _ = self.commands.send(Command::Reset { id: self.id }).await;
    }
}

/// A connection.
#[derive(Debug)]
pub struct SpdySession {
    accepted: mpsc::Receiver<SpdyStream>,
    commands: mpsc::Sender<Command>,
    opened: mpsc::Sender<(u32, mpsc::Sender<Bytes>)>,
    next_id: u32,
}

impl SpdySession {
    /// Runs a connection on which the other side opens streams.
    pub fn server(runtime: &Runtime, io: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Self::start(runtime, io, 2)
    }

    /// Runs a connection on which we open streams.
    pub fn client(runtime: &Runtime, io: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Self::start(runtime, io, 1)
    }

    fn start(runtime: &Runtime, io: impl AsyncRead + AsyncWrite + Send + 'static, next_id: u32) -> Self {
        let (read_half, write_half) = tokio::io::split(io);
        let (commands, command_queue) = mpsc::channel(PIECES_MAX);
        let (accept, accepted) = mpsc::channel(PIECES_MAX);
        let (opened, opened_queue) = mpsc::channel(PIECES_MAX);
        let reader = Reader {
            streams: HashMap::new(),
            headers: HeaderReader::default(),
            accept,
            commands: commands.clone(),
            opened: opened_queue,
        };
        runtime.spawn("spdy reader", reader.run(read_half));
        runtime.spawn("spdy writer", write_frames(write_half, command_queue));
        Self {
            accepted,
            commands,
            opened,
            next_id,
        }
    }

    /// The next stream the other side opened; `None` when the connection has ended.
    pub async fn accept(&mut self) -> Option<SpdyStream> {
        let stream = self.accepted.recv().await?;
        let _ = self.commands.send(Command::Accept { id: stream.id }).await;
        Some(stream)
    }

    /// Opens a stream; `None` when the connection has ended.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> Option<SpdyStream> {
        let id = self.next_id;
        self.next_id += 2;
        let (sender, incoming) = mpsc::channel(PIECES_MAX);
        self.opened.send((id, sender)).await.ok()?;
        let headers: Headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_string(), (*value).to_string()))
            .collect();
        self.commands
            .send(Command::Open {
                id,
                headers: headers.clone(),
            })
            .await
            .ok()?;
        Some(SpdyStream {
            headers,
            id,
            incoming,
            commands: self.commands.clone(),
        })
    }
}

struct Reader {
    streams: HashMap<u32, mpsc::Sender<Bytes>>,
    headers: HeaderReader,
    accept: mpsc::Sender<SpdyStream>,
    commands: mpsc::Sender<Command>,
    opened: mpsc::Receiver<(u32, mpsc::Sender<Bytes>)>,
}

impl Reader {
    async fn run(mut self, mut io: impl AsyncRead + Unpin) {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        loop {
            loop {
                match decode(&mut buffer) {
                    Ok(Some(frame)) => {
                        if self.take(frame).await.is_none() {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return tracing::debug!(error = %error, "spdy connection ended"),
                }
            }
            match io.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// `None` ends the connection.
    async fn take(&mut self, frame: Frame) -> Option<()> {
        while let Ok((id, sender)) = self.opened.try_recv() {
            self.streams.insert(id, sender);
        }
        match frame {
            Frame::SynStream { id, fin, block } => {
                let headers = self.headers.read(&block).ok()?;
                if self.streams.len() >= STREAMS_MAX {
                    return None;
                }
                let (sender, incoming) = mpsc::channel(PIECES_MAX);
                if !fin {
                    self.streams.insert(id, sender);
                }
                let stream = SpdyStream {
                    headers,
                    id,
                    incoming,
                    commands: self.commands.clone(),
                };
                self.accept.send(stream).await.ok()?;
            }
            Frame::SynReply { id, fin, block } | Frame::Headers { id, fin, block } => {
                // Read even if nobody asks: the blocks of a session depend on each other.
                self.headers.read(&block).ok()?;
                if fin {
                    self.streams.remove(&id);
                }
            }
            Frame::Data { id, fin, data } => self.data(id, fin, data).await,
            Frame::Reset { id, .. } => drop(self.streams.remove(&id)),
            Frame::Ping { id } => self.commands.send(Command::Pong { id }).await.ok()?,
            Frame::GoAway | Frame::Other => {}
        }
        Some(())
    }

    async fn data(&mut self, id: u32, fin: bool, data: Bytes) {
        if let Some(stream) = self.streams.get(&id)
            && !data.is_empty()
            && stream.send(data).await.is_err()
        {
            // Nobody reads it any more; the rest is thrown away.
            self.streams.remove(&id);
        }
        if fin {
            self.streams.remove(&id);
        }
    }
}

async fn write_frames(mut io: impl AsyncWrite + Unpin, mut commands: mpsc::Receiver<Command>) {
    let mut headers = HeaderWriter::default();
    let mut buffer = BytesMut::new();
    while let Some(command) = commands.recv().await {
        let frame = match command {
            Command::Open { id, headers: own } => {
                let pairs: Vec<(&str, &str)> = own
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str()))
                    .collect();
                Frame::SynStream {
                    id,
                    fin: false,
                    block: headers.write(&pairs),
                }
            }
            Command::Accept { id } => Frame::SynReply {
                id,
                fin: false,
                block: headers.write(&[]),
            },
            Command::Data { id, data, fin } => Frame::Data { id, fin, data },
            Command::Reset { id } => Frame::Reset {
                id,
                status: STATUS_CANCEL,
            },
            Command::Pong { id } => Frame::Ping { id },
        };
        buffer.clear();
        encode(&frame, &mut buffer);
        if io.write_all(&buffer).await.is_err() || io.flush().await.is_err() {
            return;
        }
    }
    let _ = io.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spdy_session_two_sides_exchange_data() {
        let runtime = Runtime::real();
        let (left, right) = tokio::io::duplex(1024);
        let mut client = SpdySession::client(&runtime, left);
        let mut server = SpdySession::server(&runtime, right);
        let mut ours = client
            .open(&[("streamtype", "data"), ("port", "80")])
            .await
            .unwrap();
        let mut theirs = server.accept().await.unwrap();
        assert_eq!(
            (theirs.header("streamtype"), theirs.header("port")),
            ("data", "80")
        );
        ours.writer().write(Bytes::from(vec![7; 100_000])).await;
        ours.writer().finish().await;
        let mut count = 0;
        while let Some(piece) = theirs.read().await {
            count += piece.len();
        }
        assert_eq!(count, 100_000);
        theirs.writer().write(Bytes::from_static(b"answer")).await;
        theirs.writer().finish().await;
        assert_eq!(ours.read().await.unwrap(), Bytes::from_static(b"answer"));
        assert_eq!(ours.read().await, None);
    }
}
