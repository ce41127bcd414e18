//! Inputs that are built: depth, repetition and size, which mutation of good inputs never makes.

use crate::Random;

/// Pairs of delimiters of common formats.
const PAIRS: &[(&str, &str)] = &[
    ("[", "]"),
    ("{\"a\":", "}"),
    ("{", "}"),
    ("(", ")"),
    ("\"", "\""),
    ("- ", ""),
    ("a: ", ""),
    ("!", ""),
    ("$.", ""),
    ("/", ""),
    ("\\", ""),
];
/// Separators of parts.
const SEPARATORS: &[u8] = b",&/.; \n:=|+-";
/// Grown inputs are not larger; builders may get more.
const MAX_GROWN: usize = 1 << 14;
/// Counts at which something may begin to matter: the bounds of depth, of small vectors, of hashes.
const COUNTS: &[usize] = &[
    0, 1, 2, 3, 8, 15, 16, 17, 63, 64, 65, 100, 127, 128, 255, 256, 257, 258, 512, 1_000, 4_096,
];

impl Random {
    /// Draws a count: small, or near a bound.
    pub fn count(&mut self) -> usize {
        match self.below(3) {
            0 => self.below(6),
            _ => COUNTS[self.below(COUNTS.len())],
        }
    }

    /// One of these.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// A name, at times a long one, one of many or one with escapes in it.
    pub fn name(&mut self) -> String {
        match self.below(8) {
            0 => "n".repeat(self.count()),
            1 => format!("k{}", self.below(100_000)),
            2 => "é\u{1f600}".repeat(self.below(9)),
            _ => self
                .pick(&["a", "b", "c", "name", "x/y", "~0", "$patch"])
                .to_owned(),
        }
    }

    /// An input with more of itself: nested, repeated or drawn out. One to three times.
    pub fn grow(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut out = input.to_vec();
        for _ in 0..=self.below(3) {
            self.grow_once(&mut out, other);
            out.truncate(MAX_GROWN);
        }
        out
    }

    fn grow_once(&mut self, out: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(out.len() + 1);
        let end = (at + self.below(64)).min(out.len());
        let fits = |piece: usize| MAX_GROWN / piece.max(1);
        match self.below(5) {
            0 => {
                let (open, close) = PAIRS[self.below(PAIRS.len())];
                let times = self.count().min(fits(open.len()));
                let balanced = self.below(4) > 0;
                let tail = if balanced {
                    close.repeat(times)
                } else {
                    String::new()
                };
                out.splice(end..end, tail.bytes());
                out.splice(at..at, open.repeat(times).bytes());
            }
            1 => {
                let piece = out[at..end].to_vec();
                let times = self.count().min(fits(piece.len()));
                out.splice(at..at, piece.repeat(times));
            }
            2 => {
                let byte = out.get(at).copied().unwrap_or(b'x');
                out.splice(at..at, std::iter::repeat_n(byte, self.count()));
            }
            3 => self.repeat_part(out),
            _ => {
                let times = self.count().min(fits(other.len()));
                let separator = SEPARATORS[self.below(SEPARATORS.len())];
                let joined = vec![other; times].join(&separator);
                out.splice(at..end, joined);
            }
        }
    }

    /// One of the parts between separators, many times, numbered so that each is another one.
    fn repeat_part(&mut self, out: &mut Vec<u8>) {
        let separator = SEPARATORS[self.below(SEPARATORS.len())];
        let parts: Vec<&[u8]> = out.split(|byte| *byte == separator).collect();
        let (times, numbered, chosen) = (self.count(), self.below(2) > 0, self.below(parts.len()));
        let mut grown = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let times = if at == chosen { times } else { 1 };
            for number in 0..times.min(MAX_GROWN / (part.len() + 1)) {
                if !grown.is_empty() {
                    grown.push(separator);
                }
                grown.extend_from_slice(part);
                if numbered && times > 1 {
                    grown.extend_from_slice(number.to_string().as_bytes());
                }
            }
        }
        *out = grown;
    }
}
