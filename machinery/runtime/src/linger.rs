//! The end of a connection whose client was answered before it had sent everything.
//!
//! A client that is refused for what the head of its request says (401, 403, 413, 429, 431) is often still sending. A socket
//! that is closed with bytes unread signals the other side that the connection broke, and an answer on its way may be lost
//! with that. So such a connection is closed in one direction and read for a while in the other, as Go's server does
//! (`closeWriteAndWait` of `net/http`).
//!
//! A listener wraps each connection in [`LingeringClose`] and notifies its [`UnreadFlag`] of heads and bodies that were read.
//!
//! A connection whose other side has vanished with something on its way there ends here as well ([`silence`]).

use crate::Runtime;
use crate::keepalive::KeepAlive;
use crate::silence::silence;
use futures::future::BoxFuture;
use socket2::SockRef;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A client that goes on sending behind its answer is read for so long. Go reads it for half a second, which is little where
/// both share two busy processors.
const LINGER: Duration = Duration::from_secs(5);
/// Looks at a connection's silence, within the time after which it ends.
const LOOKS: u32 = 5;
/// Bytes thrown away at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// Flag of a connection with a request that was not read to its end.
///
/// It has one from the first byte of a request on, so that a head that is refused while it is read counts as well.
#[derive(Debug, Clone, Default)]
pub struct UnreadFlag(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    unread: AtomicBool,
    /// The bytes are those of another protocol, which ends by its own rules.
    foreign: AtomicBool,
}

impl UnreadFlag {
    /// The head of a request has been read, and a body follows or not.
    pub fn head_read(&self, body_follows: bool) {
        self.0.unread.store(body_follows, Ordering::Relaxed);
    }

    /// The body of the request has been read to its end.
    pub fn body_read(&self) {
        self.0.unread.store(false, Ordering::Relaxed);
    }

    /// Notes that the connection carries no HTTP/1 requests from here on: it speaks HTTP/2, or was upgraded.
    pub fn leave(&self) {
        self.0.foreign.store(true, Ordering::Relaxed);
    }

    /// Reports whether the client is still sending a request that has been answered.
    pub fn is_unread(&self) -> bool {
        self.lingers()
    }

    fn bytes_came(&self) {
        self.0.unread.store(true, Ordering::Relaxed);
    }

    fn lingers(&self) -> bool {
        self.0.unread.load(Ordering::Relaxed) && !self.0.foreign.load(Ordering::Relaxed)
    }
}

/// A connection that is read for a while after its last answer, where its client is still sending.
pub struct LingeringClose<S> {
    stream: S,
    /// The socket below the stream: what TLS makes of the rest no longer matters.
    socket: fn(&mut S) -> &mut TcpStream,
    runtime: Runtime,
    unread: UnreadFlag,
    /// Runs from the moment that nothing more is sent.
    limit: Option<BoxFuture<'static, ()>>,
    /// Silence of the other side after which it counts as vanished.
    longest_silence: Duration,
    next_look: Option<BoxFuture<'static, ()>>,
}

impl<S> fmt::Debug for LingeringClose<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lingering")
            .field("unread", &self.unread)
            .finish_non_exhaustive()
    }
}

impl<S> LingeringClose<S> {
    /// Wraps a connection, of which `socket` is the transport.
    pub fn new(
        stream: S,
        socket: fn(&mut S) -> &mut TcpStream,
        runtime: Runtime,
        unread: &UnreadFlag,
    ) -> Self {
        Self {
            stream,
            socket,
            runtime,
            unread: unread.clone(),
            limit: None,
            longest_silence: KeepAlive::default().total(),
            next_look: None,
        }
    }

    /// Ends the connection after as long a silence as keepalive does where nothing is on its way.
    #[must_use]
    pub fn ends_as(mut self, keep_alive: KeepAlive) -> Self {
        self.longest_silence = keep_alive.total();
        self
    }

    /// Looks now and then whether the other side has vanished. The task is woken for it.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let (runtime, pause) = (&self.runtime, self.longest_silence / LOOKS);
        loop {
            let next = self.next_look.get_or_insert_with(|| runtime.sleep(pause));
            if next.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.next_look = None;
            let socket = (self.socket)(&mut self.stream);
            if silence(socket).is_some_and(|silent| silent >= self.longest_silence) {
                // The kernel too forgets what it would send again.
                let _ = SockRef::from(&*socket).set_linger(Some(Duration::ZERO));
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the other side has vanished",
                ));
            }
        }
    }

    /// Throws away what comes until the other side closes, or its time is over.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit.get_or_insert_with(|| self.runtime.sleep(LINGER));
        let mut room = [0; CHUNK_BYTES];
        while limit.as_mut().poll(cx).is_pending() {
            let mut chunk = ReadBuf::new(&mut room);
            let read = ready!(Pin::new((self.socket)(&mut self.stream)).poll_read(cx, &mut chunk));
            if read.is_err() || chunk.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.look(cx)?;
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            self.unread.bytes_came();
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LingeringClose<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.look(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.limit.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.unread.lingers() {
            ready!(self.poll_rest(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.look(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A size beyond what the buffers of two sockets hold.
    const BODY_BYTES: usize = 16 << 20;

    /// Answers a client that sends a large body behind eight bytes, after what `told` says of those.
    async fn answer_early(told: fn(&UnreadFlag)) -> (io::Result<()>, io::Result<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = async {
            let (stream, _) = listener.accept().await.expect("a connection");
            let unread = UnreadFlag::default();
            let mut stream = LingeringClose::new(stream, |stream| stream, Runtime::real(), &unread);
            stream.read_exact(&mut [0; 8]).await.expect("a head");
            told(&unread);
            stream.write_all(b"refused").await.expect("room");
            stream.shutdown().await.expect("the end");
        };
        let client = async {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            let sent = stream.write_all(&vec![b'x'; BODY_BYTES]).await;
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer).await;
            (sent, read.map(|_| answer))
        };
        tokio::join!(server, client).1
    }

    #[tokio::test]
    async fn lingering_close_lets_a_client_read_its_answer() {
        // A head that was refused while it came, and a body that was not read.
        for told in [(|_| ()) as fn(&UnreadFlag), |unread| unread.head_read(true)] {
            let (sent, answer) = answer_early(told).await;
            sent.expect("all was taken");
            assert_eq!(answer.expect("an answer"), "refused");
        }
    }

    #[tokio::test]
    async fn lingering_close_is_for_unread_requests_alone() {
        for told in [
            (|unread| unread.head_read(false)) as fn(&UnreadFlag),
            |unread| unread.body_read(),
            |unread| unread.leave(),
        ] {
            let (sent, answer) = answer_early(told).await;
            assert!(sent.is_err() || answer.is_err(), "closed with bytes unread");
        }
    }
}
