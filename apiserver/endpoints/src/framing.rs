//! From stored slices to bodies: kind, apiVersion and the revision are supplied here and nowhere else.
//!
//! A list is framed while it is sent: each frame is copied from the shared slices when the connection requests it, so
//! that a list of any length needs one frame of memory beyond its slices. Watch events go through the same
//! writer.

use crate::body::FrameSource;
use apiserver_registry::ResourceRow;
use apiserver_registry::{Entry, Record};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use machinery_meta::Revision;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

/// Frames are about this long: a TLS record.
pub(crate) const FRAME_BYTES: usize = 16 * 1024;
/// Answers at least this long are compressed when the client takes it, as upstream does.
pub(crate) const GZIP_FROM_BYTES: u64 = 128 * 1024;

/// `{"kind":"Pod","apiVersion":"v1",` of a row.
pub(crate) fn type_meta(kind: &str, api_version: &str) -> Bytes {
    Bytes::from(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\","))
}

/// The parts from which one object is assembled with its record.
#[derive(Debug, Clone)]
pub(crate) struct ObjectFrame {
    /// Goes before the object's second slice: type meta, or only `{`.
    pub(crate) head: Bytes,
}

impl ObjectFrame {
    pub(crate) fn whole(row: &ResourceRow) -> Self {
        Self {
            head: type_meta(&row.gvk.kind, &row.gvk.api_version()),
        }
    }

    /// Items of built-in lists carry no type meta, custom ones do.
    pub(crate) fn item(row: &ResourceRow) -> Self {
        if row.custom {
            Self::whole(row)
        } else {
            Self {
                head: Bytes::from_static(b"{"),
            }
        }
    }

    /// The number of bytes [`ObjectFrame::write`] will write.
    pub(crate) fn len(&self, record: &Record, revision: Revision) -> usize {
        self.head.len() + record.parts[1].len() + decimal_len(revision.0) + 2 + record.parts[2].len()
    }

    pub(crate) fn write(&self, record: &Record, revision: Revision, out: &mut BytesMut) {
        out.put_slice(&self.head);
        out.put_slice(&record.parts[1]);
        write_revision(revision, out);
        out.put_slice(&record.parts[2]);
    }

    /// The object as slices, for bodies of one object.
    pub(crate) fn slices(&self, record: &Record, revision: Revision) -> [Bytes; 4] {
        let mut middle = BytesMut::with_capacity(24);
        write_revision(revision, &mut middle);
        [
            self.head.clone(),
            record.parts[1].clone(),
            middle.freeze(),
            record.parts[2].clone(),
        ]
    }
}

fn write_revision(revision: Revision, out: &mut BytesMut) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = revision.0;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.put_u8(b'"');
    out.put_slice(&digits[at..]);
    out.put_u8(b'"');
}

fn decimal_len(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}

/// Slices, handed out as copies of a frame's length: what lies in a connection keeps nothing else from being freed.
#[derive(Debug, Default)]
pub(crate) struct CopiedFrames(VecDeque<Bytes>);

impl CopiedFrames {
    pub(crate) fn new(slices: impl IntoIterator<Item = Bytes>) -> Self {
        Self(slices.into_iter().filter(|slice| !slice.is_empty()).collect())
    }

    /// Fills a frame.
    fn copy_to(&mut self, out: &mut BytesMut) {
        while let Some(next) = self.0.front_mut().filter(|_| out.len() < FRAME_BYTES) {
            let bytes = next.len().min(FRAME_BYTES - out.len());
            out.put_slice(&next[..bytes]);
            next.advance(bytes);
            if next.is_empty() {
                self.0.pop_front();
            }
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }
}

impl FrameSource for CopiedFrames {
    fn next_frame(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::with_capacity(self.bytes().min(FRAME_BYTES));
        self.copy_to(&mut out);
        (!out.is_empty()).then(|| out.freeze())
    }

    fn remaining_bytes(&self) -> Option<u64> {
        Some(self.bytes() as u64)
    }
}

/// A list in JSON, framed on demand.
#[derive(Debug)]
pub(crate) struct ListFrames {
    head: Option<Bytes>,
    entries: std::vec::IntoIter<Arc<Entry>>,
    frame: ObjectFrame,
    first: bool,
    tail: Option<Bytes>,
    remaining: u64,
    /// Rest of an object that takes more than a frame.
    pending: CopiedFrames,
}

impl ListFrames {
    pub(crate) fn new(head: Bytes, entries: Vec<Arc<Entry>>, frame: ObjectFrame) -> Self {
        let tail = Bytes::from_static(b"]}\n");
        let items: usize = entries
            .iter()
            .map(|entry| frame.len(&entry.record, entry.revision))
            .sum();
        let commas = entries.len().saturating_sub(1);
        let remaining = (head.len() + items + commas + tail.len()) as u64;
        Self {
            head: Some(head),
            entries: entries.into_iter(),
            frame,
            first: true,
            tail: Some(tail),
            remaining,
            pending: CopiedFrames::default(),
        }
    }

    fn fill(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::with_capacity(FRAME_BYTES + 4096);
        if let Some(head) = self.head.take() {
            out.put_slice(&head);
        }
        loop {
            self.pending.copy_to(&mut out);
            if out.len() >= FRAME_BYTES {
                break;
            }
            let Some(entry) = self.entries.next() else {
                if let Some(tail) = self.tail.take() {
                    out.put_slice(&tail);
                }
                break;
            };
            if !std::mem::take(&mut self.first) {
                out.put_u8(b',');
            }
            if self.frame.len(&entry.record, entry.revision) < FRAME_BYTES {
                self.frame.write(&entry.record, entry.revision, &mut out);
            } else {
                self.pending = CopiedFrames::new(self.frame.slices(&entry.record, entry.revision));
            }
        }
        (!out.is_empty()).then(|| out.freeze())
    }
}

impl FrameSource for ListFrames {
    fn next_frame(&mut self) -> Option<Bytes> {
        let frame = self.fill()?;
        self.remaining = self.remaining.saturating_sub(frame.len() as u64);
        Some(frame)
    }

    fn remaining_bytes(&self) -> Option<u64> {
        Some(self.remaining)
    }
}

/// Bytes that are compressed in one go, however little comes of it.
const MAX_READ_BYTES: usize = 1 << 20;

/// Any frames, compressed on the way.
pub(crate) struct GzipFrames<S> {
    source: S,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<S: FrameSource> GzipFrames<S> {
    /// Upstream's level: 1, the fastest.
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        }
    }
}

impl<S: FrameSource> FrameSource for GzipFrames<S> {
    fn next_frame(&mut self) -> Option<Bytes> {
        let encoder = self.encoder.as_mut()?;
        let mut read = 0;
        while let Some(frame) = self.source.next_frame() {
            if encoder.write_all(&frame).is_err() {
                return None;
            }
            read += frame.len();
            if encoder.get_ref().len() >= FRAME_BYTES || read >= MAX_READ_BYTES {
                return Some(Bytes::from(std::mem::take(encoder.get_mut())));
            }
        }
        let rest = self.encoder.take()?.finish().ok()?;
        Some(Bytes::from(rest))
    }

    fn remaining_bytes(&self) -> Option<u64> {
        self.encoder.is_none().then_some(0)
    }
}

/// Slices that are there already.
#[derive(Debug)]
pub(crate) struct SliceFrames(pub(crate) VecDeque<Bytes>);

impl FrameSource for SliceFrames {
    fn next_frame(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }

    fn remaining_bytes(&self) -> Option<u64> {
        Some(self.0.iter().map(|slice| slice.len() as u64).sum())
    }
}
