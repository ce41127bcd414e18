//! The body of a request or an answer: whole, framed on demand from shared slices, or a stream.

use crate::heavy_frames::HeavyFrames;
use crate::paced_body::PacedBody;
use crate::read_body::ReadOn;
use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use machinery_runtime::{HeavyFlow, Runtime};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// The error with which a body ends early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Produces a long body piece by piece, so that a list is never held as one text.
pub trait FrameSource: Send {
    /// The next piece; `None` at the end. An empty one stands for work that has given nothing to send yet.
    fn next_frame(&mut self) -> Option<Bytes>;
    /// The exact number of bytes still to come, where it is known.
    fn remaining_bytes(&self) -> Option<u64>;
}

/// A body; its data are [`Bytes`], shared wherever they can be. The lock is never contended: it makes a body `Sync`, so
/// that a request can be borrowed across awaits.
#[derive(Default)]
pub struct Body {
    inner: Mutex<Inner>,
    /// Let go of when the body is, never read.
    held: Vec<Box<dyn Any + Send + Sync>>,
    /// Takes the bytes that have been sent.
    sent: Option<Arc<AtomicU64>>,
}

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    Chunks(VecDeque<Bytes>),
    Frames(Box<dyn FrameSource>),
    Heavy(Box<HeavyFrames>),
    Paced(PacedBody),
    ReadOn(Box<ReadOn>),
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>),
    Other(http_body_util::combinators::UnsyncBoxBody<Bytes, BodyError>),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self.inner.lock() {
            Inner::Empty => "Body(empty)",
            Inner::Chunks(_) => "Body(chunks)",
            Inner::Frames(_) => "Body(frames)",
            Inner::Heavy(_) => "Body(heavy)",
            Inner::Paced(_) => "Body(paced)",
            Inner::ReadOn(_) => "Body(read on)",
            Inner::Stream(_) => "Body(stream)",
            Inner::Other(_) => "Body(other)",
        })
    }
}

impl From<Inner> for Body {
    fn from(inner: Inner) -> Self {
        Self {
            inner: Mutex::new(inner),
            held: Vec::new(),
            sent: None,
        }
    }
}

impl Body {
    pub fn empty() -> Self {
        Self::default()
    }

    /// Shared slices sent one after the other.
    pub fn chunks(chunks: impl IntoIterator<Item = Bytes>) -> Self {
        Self::from(Inner::Chunks(
            chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect(),
        ))
    }

    pub fn frames(source: impl FrameSource + 'static) -> Self {
        Self::from(Inner::Frames(Box::new(source)))
    }

    pub fn stream(stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Self {
        Self::from(Inner::Stream(Box::pin(stream)))
    }

    /// Any other body, a connection's for instance.
    pub fn wrap<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        Self::from(Inner::Other(body.map_err(Into::into).boxed_unsync()))
    }

    /// Reports whether the whole body is in memory, so that only its client can make it slow.
    pub fn is_at_hand(&self) -> bool {
        match &*self.inner.lock() {
            Inner::Stream(_) | Inner::Other(_) => false,
            Inner::ReadOn(body) => body.is_at_hand(),
            _ => true,
        }
    }

    pub(crate) fn paced(body: PacedBody) -> Self {
        Self::from(Inner::Paced(body))
    }

    pub(crate) fn read_on(body: ReadOn) -> Self {
        Self::from(Inner::ReadOn(Box::new(body)))
    }

    /// Makes frames that are yet to be made in turn with other heavy work of this flow.
    #[must_use]
    pub(crate) fn in_turn(self, runtime: &Runtime, flow: &HeavyFlow) -> Self {
        let Self { inner, held, sent } = self;
        let inner = match inner.into_inner() {
            Inner::Frames(source) => Inner::Heavy(Box::new(HeavyFrames::new(source, runtime, flow))),
            Inner::Paced(body) => {
                body.change(|body| body.in_turn(runtime, flow));
                Inner::Paced(body)
            }
            Inner::ReadOn(body) => {
                body.change(|body| body.in_turn(runtime, flow));
                Inner::ReadOn(body)
            }
            inner => inner,
        };
        Self {
            inner: Mutex::new(inner),
            held,
            sent,
        }
    }

    /// Reports whether it waits for work of the server's own.
    pub(crate) fn is_in_the_making(&self) -> bool {
        match &*self.inner.lock() {
            Inner::Heavy(frames) => frames.is_in_the_making(),
            Inner::ReadOn(body) => body.is_in_the_making(),
            _ => false,
        }
    }

    /// Keeps this for as long as there is something to send.
    #[must_use]
    pub fn holding(mut self, held: impl Any + Send + Sync) -> Self {
        self.held.push(Box::new(held));
        self
    }

    /// Adds the bytes of each piece that is sent to `sent`.
    #[must_use]
    pub fn counting(mut self, sent: Arc<AtomicU64>) -> Self {
        self.sent = Some(sent);
        self
    }

    /// Reads all of it, at most `limit` bytes.
    pub async fn read(mut self, limit: usize) -> Result<Bytes, ReadBodyError> {
        self.read_while(limit, |_| true).await
    }

    /// Reads all of it, at most `limit` bytes, as long as the bytes that have come are admitted, all together; what is
    /// left of a longer one can be discarded.
    pub async fn read_while(
        &mut self,
        limit: usize,
        mut is_admitted: impl FnMut(usize) -> bool,
    ) -> Result<Bytes, ReadBodyError> {
        let mut check = |bytes: usize| {
            if bytes > limit {
                Err(ReadBodyError::TooLarge(limit))
            } else if is_admitted(bytes) {
                Ok(())
            } else {
                Err(ReadBodyError::NotAdmitted)
            }
        };
        if let Inner::Chunks(chunks) = self.inner.get_mut()
            && chunks.len() == 1
        {
            let only = chunks.pop_front().unwrap_or_default();
            return check(only.len()).map(|()| only);
        }
        let mut first: Option<Bytes> = None;
        let mut all: Vec<u8> = Vec::new();
        while let Some(frame) = self.frame().await {
            let frame = frame.map_err(|error| ReadBodyError::Broken(error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            check(first.as_ref().map_or(all.len(), Bytes::len) + data.len())?;
            match first.take() {
                None if all.is_empty() => first = Some(data),
                None => all.extend_from_slice(&data),
                Some(head) => {
                    all.extend_from_slice(&head);
                    all.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| Bytes::from(all)))
    }
}

impl Body {
    /// Reads up to `limit` bytes and forgets them, so that a client that sends first and reads then gets its answer.
    pub async fn discard(mut self, limit: usize) {
        let mut seen = 0;
        while seen < limit {
            let Some(Ok(frame)) = self.frame().await else {
                return;
            };
            seen += frame.data_ref().map_or(0, Bytes::len);
        }
    }
}

/// The body could not be read whole.
#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    #[error("body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("too many bytes of request bodies are in memory")]
    NotAdmitted,
    #[error("reading body: {0}")]
    Broken(String),
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::chunks([bytes])
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::chunks([Bytes::from(text)])
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::chunks([Bytes::from(bytes)])
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::chunks([Bytes::from_static(text.as_bytes())])
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = match self.inner.get_mut() {
            Inner::Empty => Poll::Ready(None),
            Inner::Chunks(chunks) => Poll::Ready(chunks.pop_front().map(|chunk| Ok(Frame::data(chunk)))),
            Inner::Frames(source) => loop {
                match source.next_frame() {
                    Some(chunk) if chunk.is_empty() => {}
                    chunk => break Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk)))),
                }
            },
            Inner::Heavy(frames) => frames
                .poll_frame(cx)
                .map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk)))),
            Inner::Paced(body) => Pin::new(body).poll_frame(cx),
            Inner::ReadOn(body) => Pin::new(body).poll_frame(cx),
            Inner::Stream(stream) => stream
                .as_mut()
                .poll_next(cx)
                .map(|item| item.map(|chunk| chunk.map(Frame::data))),
            Inner::Other(body) => Pin::new(body).poll_frame(cx),
        };
        if let (Some(sent), Poll::Ready(Some(Ok(frame)))) = (&self.sent, &polled) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            sent.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &*self.inner.lock() {
            Inner::Empty => true,
            Inner::Chunks(chunks) => chunks.is_empty(),
            Inner::Frames(source) => source.remaining_bytes() == Some(0),
            Inner::Heavy(frames) => frames.is_over(),
            Inner::Paced(body) => body.is_end_stream(),
            Inner::ReadOn(body) => body.is_end_stream(),
            Inner::Stream(_) => false,
            Inner::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.inner.lock() {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Chunks(chunks) => SizeHint::with_exact(chunks.iter().map(|c| c.len() as u64).sum()),
            Inner::Frames(source) => source
                .remaining_bytes()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Inner::Paced(body) => body.size_hint(),
            Inner::ReadOn(body) => body.size_hint(),
            Inner::Heavy(_) | Inner::Stream(_) => SizeHint::default(),
            Inner::Other(body) => body.size_hint(),
        }
    }
}
