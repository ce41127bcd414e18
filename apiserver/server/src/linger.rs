//! The end of a connection whose client was answered before it had said everything.
//!
//! Who is refused for what the head says (403, 413, 429) is often still sending. A socket that is closed with bytes
//! unread tells the other side that the connection broke, and an answer on its way may be lost with that. So such a
//! connection is closed in one direction and heard for a while in the other, as Go's server does
//! (`closeWriteAndWait` of `net/http`).

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use machinery_runtime::Runtime;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// So long a client is heard that goes on sending behind its answer. Go hears it for half a second, which is little
/// where both share two busy processors.
const LINGER: Duration = Duration::from_secs(5);
/// Bytes thrown away at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// Whether a request of the connection was not read to its end.
pub(crate) type Unread = Arc<AtomicBool>;

/// A request's body that notes when it is dropped before its end.
pub(crate) struct Noted {
    body: Incoming,
    unread: Unread,
    ended: bool,
}

impl Noted {
    pub(crate) fn new(body: Incoming, unread: &Unread) -> Self {
        Self {
            body,
            unread: Arc::clone(unread),
            ended: false,
        }
    }
}

impl Body for Noted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.ended |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if !self.ended && !self.body.is_end_stream() {
            self.unread.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection that is closed with its last words heard.
pub(crate) struct Lingering {
    stream: TlsStream<TcpStream>,
    runtime: Runtime,
    unread: Unread,
    /// Runs from the moment that nothing more is said.
    limit: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Lingering {
    pub(crate) fn new(stream: TlsStream<TcpStream>, runtime: Runtime, unread: &Unread) -> Self {
        Self {
            stream,
            runtime,
            unread: Arc::clone(unread),
            limit: None,
        }
    }

    /// Throws away what comes until the other side closes, or its time is over.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit.get_or_insert_with(|| self.runtime.sleep(LINGER));
        let mut room = [0; CHUNK_BYTES];
        while limit.as_mut().poll(cx).is_pending() {
            let mut chunk = ReadBuf::new(&mut room);
            // What TLS makes of it no longer matters.
            let read = ready!(Pin::new(&mut *self.stream.get_mut().0).poll_read(cx, &mut chunk));
            if read.is_err() || chunk.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.limit.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.unread.load(Ordering::Relaxed) {
            ready!(self.poll_rest(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
