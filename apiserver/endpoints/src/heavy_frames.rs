//! Frames that cost work of their own (compressed ones), each made in turn with other heavy work.

use crate::body::FrameSource;
use bytes::Bytes;
use machinery_runtime::{ByWeight, HeavyFlow, Runtime};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// See the module.
pub(crate) struct HeavyFrames {
    runtime: Runtime,
    flow: HeavyFlow,
    state: State,
}

type Source = Box<dyn FrameSource>;

enum State {
    Resting(Source),
    Making(ByWeight<(Source, Option<Bytes>)>),
    Over,
}

impl HeavyFrames {
    pub(crate) fn new(source: Source, runtime: &Runtime, flow: &HeavyFlow) -> Self {
        Self {
            runtime: runtime.clone(),
            flow: flow.clone(),
            state: State::Resting(source),
        }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Resting(source) => self.state = State::Making(self.begin(source)),
                State::Over => return Poll::Ready(None),
                State::Making(making) => {
                    self.state = State::Making(making);
                    let Some(frame) = ready!(self.poll_made(cx)) else {
                        return Poll::Ready(None);
                    };
                    if !frame.is_empty() {
                        return Poll::Ready(Some(frame));
                    }
                }
            }
        }
    }

    fn begin(&self, mut source: Source) -> ByWeight<(Source, Option<Bytes>)> {
        self.runtime.heavy(self.flow.clone(), move || {
            let frame = source.next_frame();
            (source, frame)
        })
    }

    fn poll_made(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let State::Making(making) = &mut self.state else {
            return Poll::Ready(None);
        };
        let (source, frame) = ready!(Pin::new(making).poll(cx));
        self.state = match frame {
            Some(_) => State::Resting(source),
            None => State::Over,
        };
        Poll::Ready(frame)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    pub(crate) fn is_in_the_making(&self) -> bool {
        matches!(self.state, State::Making(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Body;
    use crate::framing::{GzipFrames, SliceFrames};
    use std::collections::VecDeque;
    use std::io::Read;

    /// Notes on which threads its frames were made.
    struct Noted(SliceFrames, tokio::sync::mpsc::UnboundedSender<Option<String>>);

    impl FrameSource for Noted {
        fn next_frame(&mut self) -> Option<Bytes> {
            let name = std::thread::current().name().map(str::to_owned);
            let _ = self.1.send(name);
            self.0.next_frame()
        }

        fn remaining_bytes(&self) -> Option<u64> {
            self.0.remaining_bytes()
        }
    }

    #[tokio::test]
    async fn heavy_frames_are_compressed_off_the_threads_of_requests() {
        let (note, mut noted) = tokio::sync::mpsc::unbounded_channel();
        // Much goes into one frame: an empty piece comes before it.
        let pieces: VecDeque<Bytes> = (0..600).map(|_| Bytes::from(vec![b'a'; 16 << 10])).collect();
        let source = GzipFrames::new(Noted(SliceFrames(pieces), note));
        let runtime = Runtime::real();
        let body = Body::frames(source).in_turn(&runtime, &"a".into());
        let compressed = body.read(usize::MAX).await.unwrap();
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&*compressed)
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(text.len(), 600 * (16 << 10));
        let mut made = 0;
        while let Some(thread) = noted.recv().await {
            assert_eq!(thread.as_deref(), Some("heavy-work"));
            made += 1;
        }
        assert_eq!(made, 601);
    }
}
