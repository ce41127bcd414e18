//! The body of a proxied page whose links are rewritten on the way, also inside gzip and deflate.
//!
//! Upstream holds the whole page; here it passes piece by piece, and a page packed to burst never lies unpacked.

use super::html::LinkRewriter;
use super::links::Links;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder};
use http_body::{Body, Frame};
use std::error::Error;
use std::io::{self, Write};
use std::mem::take;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Packed bytes that are unpacked at a time: at most a thousand times as many come of them.
const STEP_BYTES: usize = 64;
/// Bytes of the page after which other work of the thread gets its turn.
const TURN_BYTES: usize = 16 << 10;

/// The content coding of a page.
pub(super) enum Coding {
    Plain,
    Packed {
        decoder: Box<dyn Coder>,
        encoder: Box<dyn Coder>,
    },
}

/// One direction of a coding.
pub(super) trait Coder: Write + Send {
    /// Takes out what has come of the bytes written; with the end of everything where that was written.
    fn take(&mut self, ends: bool) -> io::Result<Vec<u8>>;
}

macro_rules! coders {
    ($($name:ident),*) => {$(
        impl Coder for $name<Vec<u8>> {
            fn take(&mut self, ends: bool) -> io::Result<Vec<u8>> {
                match ends {
                    true => self.try_finish()?,
                    false => self.flush()?,
                }
                Ok(take(self.get_mut()))
            }
        }
    )*};
}

coders!(DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder);

impl Coding {
    /// The coding by `Content-Encoding`; `None` where links cannot be found in it.
    pub(super) fn of(encoding: &str) -> Option<Self> {
        let (unpacked, packed) = (Vec::new(), Vec::new());
        Some(match encoding {
            "" => Self::Plain,
            "gzip" => Self::Packed {
                decoder: Box::new(MultiGzDecoder::new(unpacked)),
                encoder: Box::new(GzEncoder::new(packed, Compression::default())),
            },
            "deflate" => Self::Packed {
                decoder: Box::new(DeflateDecoder::new(unpacked)),
                encoder: Box::new(DeflateEncoder::new(packed, Compression::best())),
            },
            _ => return None,
        })
    }
}

/// See the module.
pub(super) struct Page<B> {
    body: B,
    coding: Coding,
    links: LinkRewriter,
    /// Bytes that have arrived from the page's server and are not yet processed.
    rest: Bytes,
    ended: bool,
}

impl<B> Page<B> {
    pub(super) fn new(body: B, coding: Coding, links: Links) -> Self {
        Self {
            body,
            coding,
            links: LinkRewriter::new(links),
            rest: Bytes::new(),
            ended: false,
        }
    }

    /// Passes on a turn's worth of what has come, as the client gets it.
    fn pass(&mut self) -> io::Result<Vec<u8>> {
        let Coding::Packed { decoder, encoder } = &mut self.coding else {
            let piece = self.rest.split_to(self.rest.len().min(TURN_BYTES));
            return Ok(passed(&mut self.links, Some(&piece)));
        };
        let mut turn = 0;
        while turn < TURN_BYTES && !self.rest.is_empty() {
            let step = self.rest.split_to(self.rest.len().min(STEP_BYTES));
            decoder.write_all(&step)?;
            let unpacked = decoder.take(false)?;
            turn += unpacked.len();
            encoder.write_all(&passed(&mut self.links, Some(&unpacked)))?;
        }
        encoder.take(false)
    }

    /// Returns the bytes that end the page.
    fn finish(&mut self) -> io::Result<Vec<u8>> {
        let rest = passed(&mut self.links, None);
        let Coding::Packed { encoder, .. } = &mut self.coding else {
            return Ok(rest);
        };
        encoder.write_all(&rest)?;
        encoder.take(true)
    }
}

/// A piece of the page, rewritten.
fn passed(links: &mut LinkRewriter, piece: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    match piece {
        Some(piece) => links.push(piece, &mut out),
        None => links.finish(&mut out),
    }
    out
}

impl<B> Body for Page<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        while !self.ended {
            let out = if self.rest.is_empty() {
                match ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose() {
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    // Trailers would speak of bytes that are others now.
                    Ok(frame) => match frame.and_then(|frame| frame.into_data().ok()) {
                        Some(data) => {
                            self.rest = data;
                            continue;
                        }
                        None => {
                            self.ended = true;
                            self.finish()?
                        }
                    },
                }
            } else {
                self.pass()?
            };
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
            if !self.ended {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::{DeflateDecoder as DeflateReader, GzDecoder as GzReader};
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::io::Read;
    use std::task::Waker;

    const PAGE: &[u8] = b"<a href='/x'>test</a>";
    const EXPECTED: &[u8] = b"<a href='/proxy/x'>test</a>";

    fn links() -> Links {
        Links {
            prefix: "/proxy".to_owned(),
            backend: "b".to_owned(),
            client: "c".to_owned(),
        }
    }

    /// Returns the bytes that a client receives of a page that arrives in pieces of this size.
    async fn sent(
        page: &[u8],
        encoding: &str,
        piece: usize,
    ) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let pieces: Vec<_> = page
            .chunks(piece)
            .map(|piece| Ok::<_, io::Error>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body = StreamBody::new(futures::stream::iter(pieces));
        let page = Page::new(body, Coding::of(encoding).unwrap(), links());
        Ok(page.collect().await?.to_bytes().to_vec())
    }

    #[tokio::test]
    async fn page_is_rewritten_however_it_is_packed() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(PAGE).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::fast());
        deflate.write_all(PAGE).unwrap();
        let deflate = deflate.finish().unwrap();
        for piece in [1, 5, 1_000] {
            assert_eq!(sent(PAGE, "", piece).await.unwrap(), EXPECTED);
            let mut text = Vec::new();
            let packed = sent(&gzip, "gzip", piece).await.unwrap();
            GzReader::new(&packed[..]).read_to_end(&mut text).unwrap();
            assert_eq!(text, EXPECTED);
            text.clear();
            let packed = sent(&deflate, "deflate", piece).await.unwrap();
            DeflateReader::new(&packed[..]).read_to_end(&mut text).unwrap();
            assert_eq!(text, EXPECTED);
        }
        assert!(Coding::of("br").is_none());
        sent(b"not packed", "gzip", 4).await.unwrap_err();
    }

    #[tokio::test]
    async fn page_packed_to_burst_passes_in_pieces() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let much = vec![b' '; 8 << 20];
        gzip.write_all(&much).unwrap();
        let gzip = gzip.finish().unwrap();
        let packed = sent(&gzip, "gzip", gzip.len()).await.unwrap();
        assert!(packed.len() < 128 << 10, "{} bytes", packed.len());
    }

    #[tokio::test]
    async fn page_packed_to_burst_lets_others_have_their_turn() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![b' '; 8 << 20]).unwrap();
        let body = Full::new(Bytes::from(gzip.finish().unwrap()));
        let mut page = Page::new(body, Coding::of("gzip").unwrap(), links());
        let mut cx = Context::from_waker(Waker::noop());
        let mut turns = 0;
        while !matches!(Pin::new(&mut page).poll_frame(&mut cx), Poll::Ready(None)) {
            turns += 1;
        }
        assert!(turns >= 100, "{turns} turns");
    }
}
