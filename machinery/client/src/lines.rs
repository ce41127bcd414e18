//! Cuts a body that arrives in pieces into lines, without copying a byte.

use crate::object::Slices;
use bytes::Bytes;

/// The longest watch event a client accepts.
pub(crate) const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// The line grew beyond [`MAX_LINE_BYTES`].
#[derive(Debug)]
pub(crate) struct LineTooLong;

/// Pieces of the line that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Lines {
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
        self.length += piece.len();
        if self.length > MAX_LINE_BYTES {
            return Err(LineTooLong);
        }
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_however_the_body_is_split() {
        let body = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
        for size in 1..body.len() {
            let mut lines = Lines::default();
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
}
