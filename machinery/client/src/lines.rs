//! Cuts a body that arrives in pieces into lines, without copying a byte.

use crate::object::Slices;
use bytes::Bytes;

/// The longest watch event a client accepts.
pub(crate) const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// Bytes that a piece takes beside its own: the sender of a line chooses how many it is of.
const PIECE_BYTES: usize = 64;

/// The line grew beyond its limit.
#[derive(Debug)]
pub(crate) struct LineTooLong;

/// Pieces of the line that is not complete yet.
#[derive(Debug)]
pub(crate) struct Lines {
    pieces: Vec<Bytes>,
    length: usize,
    limit_bytes: usize,
}

impl Lines {
    /// Lines of no more than so many bytes.
    pub(crate) fn within(limit_bytes: usize) -> Self {
        Self {
            pieces: Vec::new(),
            length: 0,
            limit_bytes,
        }
    }

    /// The limit of a line.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Returns how many bytes the line takes that is not complete yet.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.length + self.pieces.len() * PIECE_BYTES
    }

    /// Takes one piece of the body and calls back with each line it completes.
    pub(crate) fn push(&mut self, mut piece: Bytes, mut line: impl FnMut(Slices)) -> Result<(), LineTooLong> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let last = piece.split_to(end);
            let _newline = piece.split_to(1);
            self.keep(last)?;
            let pieces = std::mem::take(&mut self.pieces);
            if std::mem::take(&mut self.length) > 0 {
                line(Slices(pieces));
            }
        }
        self.keep(piece)
    }

    fn keep(&mut self, piece: Bytes) -> Result<(), LineTooLong> {
        if !piece.is_empty() {
            self.length += piece.len();
            self.pieces.push(piece);
        }
        match self.kept_bytes() > self.limit_bytes {
            true => Err(LineTooLong),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_however_the_body_is_split() {
        let body = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
        for size in 1..body.len() {
            let mut lines = Lines::within(MAX_LINE_BYTES);
            let mut seen = Vec::new();
            for piece in body.chunks(size) {
                lines
                    .push(Bytes::copy_from_slice(piece), |line| {
                        seen.push(String::from_utf8(line.joined().into_owned()).unwrap());
                    })
                    .unwrap();
            }
            assert_eq!(seen, ["{\"a\":1}", "{\"b\":2}"], "pieces of {size}");
        }
    }

    #[test]
    fn line_of_many_pieces_is_as_long_as_the_memory_that_it_takes() {
        let mut lines = Lines::within(1_000);
        let piece = || Bytes::from_static(b"x");
        for _ in 0..15 {
            lines.push(piece(), |_| ()).unwrap();
        }
        assert_eq!(lines.kept_bytes(), 15 * (1 + PIECE_BYTES));
        lines.push(piece(), |_| ()).unwrap_err();
        let mut lines = Lines::within(1_000);
        lines.push(Bytes::from(vec![b'x'; 900]), |_| ()).unwrap();
        lines.push(Bytes::from_static(b"\n"), |_| ()).unwrap();
        assert_eq!(lines.kept_bytes(), 0);
    }
}
