//! A running SPDY connection.
//!
//! One task reads, one writes. Data waits for the reader of its stream within the connection's [`Room`]; where there is
//! none left nothing more is read from the connection, and the other side waits.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use machinery_runtime::Runtime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::super::unread::{Charge, PIECE_BYTES_MAX, Room, UnreadReceiver};
use super::frame::{Decoder, Frame, encode};
use super::headers::{HeaderReader, HeaderWriter, Headers, bytes_of};
pub(crate) use super::streams::Reading;
use super::streams::{Fate, Refusal, Streams};

/// Frames on their way to the other side.
const COMMANDS_MAX: usize = 16;
/// Streams of the other side on their way to the code that accepts them.
const ACCEPTED_MAX: usize = 16;
const READ_BYTES: usize = 32 << 10;
const STATUS_PROTOCOL_ERROR: u32 = 1;
const STATUS_REFUSED_STREAM: u32 = 3;
const STATUS_CANCEL: u32 = 5;

/// Command of one stream to the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Command {
    Open { id: u32, headers: Vec<(String, String)> },
    Accept { id: u32 },
    Data { id: u32, data: Bytes, fin: bool },
    Reset { id: u32, status: u32 },
    Pong { id: u32 },
}

/// One stream: read with [`SpdyStream::read`], write with its [`SpdyWriter`]. One that is dropped unfinished is reset.
#[derive(Debug)]
pub(crate) struct SpdyStream {
    /// The headers it was opened with.
    pub(crate) headers: Headers,
    incoming: UnreadReceiver,
    writer: SpdyWriter,
    reset: Arc<Notify>,
    /// Of the headers, where the other side sent them.
    _charge: Option<Charge>,
}

/// The writing half of a stream.
#[derive(Debug, Clone)]
pub(crate) struct SpdyWriter {
    handle: Arc<Handle>,
}

/// Place for one piece among the frames on their way.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    id: u32,
    permit: mpsc::Permit<'a, Command>,
}

#[derive(Debug)]
struct Handle {
    id: u32,
    commands: mpsc::Sender<Command>,
    streams: Streams,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.streams.abandon(self.id) {
            // Where the queue is full the other side learns it from data that is not taken.
            let _ = self.commands.try_send(Command::Reset {
                id: self.id,
                status: STATUS_CANCEL,
            });
        }
    }
}

impl SpdyStream {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map_or("", |(_, value)| value)
    }

    /// Its id.
    pub(crate) fn id(&self) -> u32 {
        self.writer.handle.id
    }

    /// Answers the opener, and settles what becomes of data on it; before that they are dropped.
    pub(crate) async fn answer(&self, reading: Reading) {
        self.set_reading(reading);
        self.writer.command(Command::Accept { id: self.id() }).await;
    }

    /// Decides again what becomes of data on it.
    pub(crate) fn set_reading(&self, reading: Reading) {
        self.writer.handle.streams.set_reading(self.id(), reading);
    }

    /// The next piece; `None` when the other side has finished or gone.
    pub(crate) async fn read(&mut self) -> Option<Bytes> {
        self.incoming.recv().await
    }

    /// Waits until the other side resets the stream; for one waiter.
    pub(crate) fn was_reset(&self) -> impl Future<Output = ()> + Send + use<> {
        let reset = Arc::clone(&self.reset);
        async move { reset.notified().await }
    }

    /// The writing half.
    pub(crate) fn writer(&self) -> SpdyWriter {
        self.writer.clone()
    }
}

impl SpdyWriter {
    async fn command(&self, command: Command) -> bool {
        self.handle.commands.send(command).await.is_ok()
    }

    /// Sends bytes; false if the connection has gone.
    pub(crate) async fn write(&self, data: Bytes) -> bool {
        let mut rest = data;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES_MAX));
            match self.place().await {
                Some(place) => place.send(piece),
                None => return false,
            }
        }
        true
    }

    /// Waits for a place, so that its holder need not hold data while waiting; `None` if the connection has gone.
    pub(crate) async fn place(&self) -> Option<Place<'_>> {
        let permit = self.handle.commands.reserve().await.ok()?;
        let id = self.handle.id;
        Some(Place { id, permit })
    }

    /// Sends no more.
    pub(crate) async fn finish(&self) {
        let id = self.handle.id;
        self.handle.streams.ended_here(id);
        // A connection that has gone needs no end.
        self.command(Command::Data {
            id,
            data: Bytes::new(),
            fin: true,
        })
        .await;
    }

    /// Ends the stream both ways.
    pub(crate) async fn reset(&self) {
        let id = self.handle.id;
        if self.handle.streams.remove(id) {
            let status = STATUS_CANCEL;
            self.command(Command::Reset { id, status }).await;
        }
    }
}

impl Place<'_> {
    /// Sends a piece of at most [`PIECE_BYTES_MAX`].
    pub(crate) fn send(self, data: Bytes) {
        let (id, fin) = (self.id, false);
        self.permit.send(Command::Data { id, data, fin });
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct SpdySession {
    accepted: mpsc::Receiver<SpdyStream>,
    commands: mpsc::Sender<Command>,
    streams: Streams,
    room: Room,
    next_id: u32,
}

impl SpdySession {
    /// Runs a connection on which the other side opens streams.
    pub(crate) fn server(runtime: &Runtime, io: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Self::start(runtime, io, 2)
    }

    /// Runs a connection on which we open streams.
    pub(crate) fn client(runtime: &Runtime, io: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Self::start(runtime, io, 1)
    }

    fn start(runtime: &Runtime, io: impl AsyncRead + AsyncWrite + Send + 'static, next_id: u32) -> Self {
        let (read_half, write_half) = tokio::io::split(io);
        let (commands, command_queue) = mpsc::channel(COMMANDS_MAX);
        let (accept, accepted) = mpsc::channel(ACCEPTED_MAX);
        let (streams, room) = (Streams::default(), Room::default());
        let reader = Reader {
            streams: streams.clone(),
            room: room.clone(),
            headers: HeaderReader::default(),
            accept,
            commands: commands.clone(),
            parity: 1 - next_id % 2,
        };
        runtime.spawn("spdy reader", reader.run(read_half));
        runtime.spawn("spdy writer", write_frames(write_half, command_queue));
        Self {
            accepted,
            commands,
            streams,
            room,
            next_id,
        }
    }

    /// The next stream the other side opened, not answered yet; `None` when the connection has ended.
    pub(crate) async fn accept(&mut self) -> Option<SpdyStream> {
        self.accepted.recv().await
    }

    /// Opens a stream; `None` when the connection has ended.
    pub(crate) async fn open(&mut self, headers: &[(&str, &str)]) -> Option<SpdyStream> {
        let id = self.next_id;
        self.next_id += 2;
        let (sender, incoming) = self.room.queue();
        let reset = self.streams.open(id, sender)?;
        let headers: Headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_string(), (*value).to_string()))
            .collect();
        let stream = SpdyStream {
            headers: headers.clone(),
            incoming,
            writer: SpdyWriter {
                handle: Arc::new(Handle {
                    id,
                    commands: self.commands.clone(),
                    streams: self.streams.clone(),
                }),
            },
            reset,
            _charge: None,
        };
        let sent = stream.writer.command(Command::Open { id, headers }).await;
        sent.then_some(stream)
    }
}

struct Reader {
    streams: Streams,
    room: Room,
    headers: HeaderReader,
    accept: mpsc::Sender<SpdyStream>,
    commands: mpsc::Sender<Command>,
    /// Of the ids that the other side gives.
    parity: u32,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.streams.close();
    }
}

impl Reader {
    async fn run(mut self, mut io: impl AsyncRead + Unpin) {
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
        loop {
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(Some(frame)) => {
                        if self.take(frame).await.is_none() {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return tracing::debug!(error = %error, "spdy connection ended"),
                }
            }
            buffer.reserve(READ_BYTES);
            match io.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// `None` ends the connection.
    async fn take(&mut self, frame: Frame) -> Option<()> {
        match frame {
            Frame::SynStream { id, fin, block } => {
                let headers = self.headers.read(&block).ok()?;
                match self.entered(id, fin, headers) {
                    Ok(stream) => self.accept.send(stream).await.ok()?,
                    Err(status) => self.commands.send(Command::Reset { id, status }).await.ok()?,
                }
            }
            Frame::SynReply { id, fin, block } | Frame::Headers { id, fin, block } => {
                // Read even if not needed: the blocks of a session depend on each other.
                self.headers.read(&block).ok()?;
                if fin {
                    self.streams.ended_there(id);
                }
            }
            Frame::Data { id, fin, data } => self.data(id, fin, &data).await?,
            Frame::Reset { id, .. } => self.streams.reset_there(id),
            Frame::Ping { id } => self.commands.send(Command::Pong { id }).await.ok()?,
            Frame::GoAway | Frame::Other => {}
        }
        Some(())
    }

    /// A stream of the other side, or the status of its reset.
    fn entered(&self, id: u32, fin: bool, headers: Headers) -> Result<SpdyStream, u32> {
        let charge = self
            .room
            .charge(bytes_of(&headers))
            .ok_or(STATUS_REFUSED_STREAM)?;
        let (sender, incoming) = self.room.queue();
        let sender = (!fin).then_some(sender);
        let reset = self
            .streams
            .accept(id, self.parity, sender)
            .map_err(|refusal| match refusal {
                Refusal::Id => STATUS_PROTOCOL_ERROR,
                Refusal::Full => STATUS_REFUSED_STREAM,
            })?;
        let handle = Handle {
            id,
            commands: self.commands.clone(),
            streams: self.streams.clone(),
        };
        Ok(SpdyStream {
            headers,
            incoming,
            writer: SpdyWriter {
                handle: Arc::new(handle),
            },
            reset,
            _charge: Some(charge),
        })
    }

    async fn data(&mut self, id: u32, fin: bool, data: &[u8]) -> Option<()> {
        if !data.is_empty() {
            match self.streams.fate(id) {
                Fate::Drop => {}
                Fate::Keep(queue) => drop(queue.send(data).await),
                Fate::Refuse => {
                    self.streams.reset_there(id);
                    let status = STATUS_REFUSED_STREAM;
                    self.commands.send(Command::Reset { id, status }).await.ok()?;
                }
            }
        }
        if fin {
            self.streams.ended_there(id);
        }
        Some(())
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
            Command::Reset { id, status } => Frame::Reset { id, status },
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
    use super::super::super::unread::{CONNECTION_BYTES_MAX, STREAM_BYTES_MAX};
    use super::super::streams::STREAMS_MAX;
    use super::*;
    use tokio::io::DuplexStream;

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
        theirs.answer(Reading::Kept).await;
        assert_eq!(
            (theirs.header("streamtype"), theirs.header("port")),
            ("data", "80")
        );
        let writer = ours.writer();
        let (_, count) = tokio::join!(
            async {
                writer.write(Bytes::from(vec![7; 1_000_000])).await;
                writer.finish().await;
            },
            async {
                let mut count = 0;
                while let Some(piece) = theirs.read().await {
                    count += piece.len();
                }
                count
            }
        );
        assert_eq!(count, 1_000_000);
        theirs.writer().write(Bytes::from_static(b"answer")).await;
        theirs.writer().finish().await;
        assert_eq!(ours.read().await.unwrap(), Bytes::from_static(b"answer"));
        assert_eq!(ours.read().await, None);
    }

    const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_secs(20);

    /// A client that heeds no rules.
    struct Client {
        runtime: Runtime,
        io: DuplexStream,
        headers: HeaderWriter,
        read: BytesMut,
    }

    impl Client {
        fn of(runtime: &Runtime) -> (Self, SpdySession) {
            let (io, theirs) = tokio::io::duplex(64 << 10);
            let client = Self {
                runtime: runtime.clone(),
                io,
                headers: HeaderWriter::default(),
                read: BytesMut::new(),
            };
            (client, SpdySession::server(runtime, theirs))
        }

        async fn send(&mut self, frame: Frame) {
            let mut bytes = BytesMut::new();
            encode(&frame, &mut bytes);
            let sent = self.runtime.clone();
            let sent = sent.timeout(LONGEST_WAIT, self.io.write_all(&bytes)).await;
            sent.expect("the session reads no more").unwrap();
        }

        async fn open(&mut self, id: u32, fin: bool) {
            let block = self.headers.write(&[("streamtype", "data")]);
            self.send(Frame::SynStream { id, fin, block }).await;
        }

        async fn data(&mut self, id: u32, length: usize) {
            let data = Bytes::from(vec![7; length]);
            self.send(Frame::Data { id, fin: false, data }).await;
        }

        /// The next frame of the session.
        async fn next(&mut self) -> Frame {
            loop {
                if let Some(frame) = Decoder::default().decode(&mut self.read).unwrap() {
                    return frame;
                }
                let runtime = self.runtime.clone();
                let read = runtime.timeout(LONGEST_WAIT, self.io.read_buf(&mut self.read));
                let count = read.await.expect("the session does not answer").unwrap();
                assert_ne!(count, 0, "the session has ended");
            }
        }

        /// The session has done with all that was sent before.
        async fn settled(&mut self) {
            self.send(Frame::Ping { id: 77 }).await;
            assert_eq!(self.next().await, Frame::Ping { id: 77 });
        }
    }

    #[tokio::test]
    async fn spdy_data_of_streams_that_nobody_reads_is_not_kept() {
        let runtime = Runtime::real();
        let (mut client, mut session) = Client::of(&runtime);
        client.open(1, false).await;
        client.data(1, 3 << 20).await;
        let early = session.accept().await.unwrap();
        client.open(3, false).await;
        let written = session.accept().await.unwrap();
        written.answer(Reading::Dropped).await;
        assert!(matches!(client.next().await, Frame::SynReply { id: 3, .. }));
        client.data(3, 3 << 20).await;
        client.settled().await;
        assert!(session.room.charge(CONNECTION_BYTES_MAX - 1024).is_some());

        client.open(5, false).await;
        let half = session.accept().await.unwrap();
        half.answer(Reading::Refused).await;
        assert!(matches!(client.next().await, Frame::SynReply { id: 5, .. }));
        client.data(5, 1).await;
        let status = STATUS_REFUSED_STREAM;
        assert_eq!(client.next().await, Frame::Reset { id: 5, status });
        half.was_reset().await;
        drop((early, written));
    }

    #[tokio::test]
    async fn spdy_client_waits_for_a_slow_reader() {
        let runtime = Runtime::real();
        let (mut client, mut session) = Client::of(&runtime);
        let mut streams = Vec::new();
        for id in [1, 3, 5, 7, 9, 11] {
            client.open(id, false).await;
            let stream = session.accept().await.unwrap();
            stream.answer(Reading::Kept).await;
            assert!(matches!(client.next().await, Frame::SynReply { .. }));
            streams.push(stream);
        }
        let total = 6 * (STREAM_BYTES_MAX - (16 << 10));
        let sending = async {
            for id in [1, 3, 5, 7, 9, 11] {
                client.data(id, STREAM_BYTES_MAX - (16 << 10)).await;
            }
            client.settled().await;
        };
        tokio::pin!(sending);
        // Nothing is read, so it cannot end: everything is in the session, or waits in the pipe.
        let room = session.room.clone();
        let is_full = async {
            while room.charge(64 << 10).is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = &mut sending => panic!("more than {CONNECTION_BYTES_MAX} bytes are kept"),
            () = is_full => {}
        }
        let reading = async {
            let mut count = 0;
            for stream in &mut streams {
                let mut own = 0;
                while own < total / 6 {
                    own += stream.read().await.unwrap().len();
                }
                count += own;
            }
            count
        };
        let ((), count) = tokio::join!(sending, reading);
        assert_eq!(count, total);
    }

    #[tokio::test]
    async fn spdy_streams_count_until_both_sides_have_ended() {
        let runtime = Runtime::real();
        let (mut client, mut session) = Client::of(&runtime);
        let mut streams = Vec::new();
        let mut id = 1;
        for _ in 0..STREAMS_MAX {
            // Half closed from the beginning.
            client.open(id, true).await;
            streams.push(session.accept().await.unwrap());
            id += 2;
        }
        client.open(id, true).await;
        let status = STATUS_REFUSED_STREAM;
        assert_eq!(client.next().await, Frame::Reset { id, status });
        // A client that resets its streams has not ended what works on them.
        client.send(Frame::Reset { id: 1, status }).await;
        client.open(id + 2, true).await;
        assert_eq!(client.next().await, Frame::Reset { id: id + 2, status });
        streams.remove(0).writer().finish().await;
        streams.pop();
        assert_eq!(session.streams.len(), STREAMS_MAX - 2);
        client.open(id + 4, true).await;
        streams.push(session.accept().await.unwrap());
        // An id that was used comes no more.
        client.open(3, true).await;
        let answers = [client.next().await, client.next().await, client.next().await];
        let status = STATUS_PROTOCOL_ERROR;
        assert!(answers.contains(&Frame::Reset { id: 3, status }), "{answers:?}");
    }

    #[tokio::test]
    async fn spdy_headers_count_as_unread() {
        let runtime = Runtime::real();
        let (mut client, mut session) = Client::of(&runtime);
        let long = "x".repeat(60_000);
        let mut streams = Vec::new();
        for id in (1..).step_by(2) {
            let block = client.headers.write(&[("name", long.as_str())]);
            client.send(Frame::SynStream { id, fin: true, block }).await;
            tokio::select! {
                stream = session.accept() => streams.push(stream.unwrap()),
                frame = client.next() => {
                    let status = STATUS_REFUSED_STREAM;
                    assert_eq!(frame, Frame::Reset { id, status });
                    break;
                }
            }
        }
        assert!(streams.len() < CONNECTION_BYTES_MAX / 60_000 + 1);
    }
}
