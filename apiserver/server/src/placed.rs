//! A connection's stream with its place among all connections, which is free when the stream is dropped by its last owner,
//! and with the frames that it may still send.

use crate::connections::ConnectionSlot;
use crate::frame_budget::FrameBudget;
use machinery_runtime::Runtime;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module.
pub(crate) struct CountedStream<S> {
    stream: S,
    place: ConnectionSlot,
    frames: FrameBudget,
    runtime: Runtime,
}

impl<S> CountedStream<S> {
    pub(crate) fn new(stream: S, place: ConnectionSlot, runtime: Runtime) -> Self {
        Self {
            stream,
            place,
            frames: FrameBudget::new(runtime.monotonic()),
            runtime,
        }
    }

    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.frames.sent(*bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let came = &buffer.filled()[before..];
        if !came.is_empty() {
            let now = self.runtime.monotonic();
            self.place.connection.received(now);
            if let Err(error) = self.frames.received(came, now) {
                return Poll::Ready(Err(io::Error::other(error)));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
