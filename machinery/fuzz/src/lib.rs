//! Hostile bytes for tests: seeded mutations of good input, and inputs built of depth, repetition and size.
//!
//! A parser of outside bytes is given a corpus of what it takes; [`fuzz`] shows it what becomes of that when bits turn,
//! pieces move, double or vanish, numbers grow and parts are nested, repeated and drawn out; [`fuzz_built`] takes a builder for
//! the format's own structure as well. Everything comes from a seed, so that a failure can be run again. [`in_proportion`]
//! asserts that what is held and done is in proportion to the input; [`growth`] finds what takes longer than in proportion to it.
//! `cargo test` makes a few hundred rounds; `KNARR_FUZZ_ROUNDS` requests more, `KNARR_FUZZ_SECONDS` ends them after a time and
//! `KNARR_FUZZ_FROM` sets the first seed. `KNARR_FUZZ_REPORT` names a file to which each target adds a line: crate, test, first seed, inputs, milliseconds. With
//! `KNARR_FUZZ_SLOW_MS` an input that takes longer is a failure: that is for hunting, tests never look at the clock.
//!
//! Only tests use this crate.

mod filled;
mod grow;
mod growth;
mod meter;

pub use filled::filled;
pub use growth::{Stages, growth};
pub use meter::{Cost, cost, held, held_by_all, in_proportion, resident};

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 600;
/// Bytes that mean something somewhere.
const BYTES: &[u8] = b"{}[]\",:\\0-e.ntf$/~ \n\x00\xff=!()%&+;*@'#<>";
/// Numbers at the edges of their types, in the forms that outside bytes have.
const WORDS: &[&[u8]] = &[
    b"-1",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e999999999",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    b"%00",
    b"..",
    b"\xc3\x28",
    "\u{2028}".as_bytes(),
];
/// Longest piece that is moved or doubled at once.
const PIECE: usize = 24;
const COPIES: usize = 40;

/// A stream of numbers, the same for the same seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero; neighbours would begin alike.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.draw() % bound).unwrap_or(0)
    }

    /// One to five changes of a good input; `other` lends pieces.
    pub fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut out = input.to_vec();
        for _ in 0..=self.below(5) {
            self.change(&mut out, other);
        }
        out
    }

    fn change(&mut self, out: &mut Vec<u8>, other: &[u8]) {
        if out.is_empty() {
            out.push(self.draw().to_le_bytes()[0]);
            return;
        }
        let at = self.below(out.len());
        let end = (at + self.below(PIECE)).min(out.len());
        match self.below(8) {
            0 => out[at] ^= 1 << self.below(8),
            1 => out[at] = BYTES[self.below(BYTES.len())],
            2 => {
                let piece = out[at..end].repeat(self.below(COPIES));
                out.splice(at..at, piece);
            }
            3 => drop(out.drain(at..end)),
            4 => {
                let piece: Vec<u8> = out.drain(at..end).collect();
                let to = self.below(out.len() + 1);
                out.splice(to..to, piece);
            }
            5 => out.truncate(at),
            6 => drop(out.splice(at..end, WORDS[self.below(WORDS.len())].iter().copied())),
            _ => {
                let from = self.below(other.len());
                let to = (from + self.below(PIECE)).min(other.len());
                out.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long and from where to try comes from outside"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    setting(name)?.parse().ok()
}

/// Shows `attempt` every input of the corpus as it is, then mutations of it, of which every second one is grown. It has
/// to come back from each; the seed and the input that kept it from that are named.
#[track_caller]
pub fn fuzz<I>(corpus: I, attempt: impl Fn(&[u8]))
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    let make = |random: &mut Random, one: &[u8], other: &[u8]| match random.below(2) {
        0 => random.mutate(one, other),
        _ => random.grow(one, other),
    };
    rounds(corpus, make, attempt);
}

/// The same as [`fuzz`], with half of the inputs from a builder that knows the format.
#[track_caller]
pub fn fuzz_built<I>(corpus: I, build: impl Fn(&mut Random) -> Vec<u8>, attempt: impl Fn(&[u8]))
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    let make = |random: &mut Random, one: &[u8], other: &[u8]| match random.below(6) {
        0 => random.mutate(one, other),
        1 => random.grow(one, other),
        2 => {
            let built = build(random);
            random.mutate(&built, other)
        }
        _ => build(random),
    };
    rounds(corpus, make, attempt);
}

#[track_caller]
fn rounds<I>(corpus: I, make: impl Fn(&mut Random, &[u8], &[u8]) -> Vec<u8>, attempt: impl Fn(&[u8]))
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    let corpus: Vec<Vec<u8>> = corpus.into_iter().map(|input| input.as_ref().to_vec()).collect();
    assert!(!corpus.is_empty(), "a corpus has at least one input");
    let slow = number("KNARR_FUZZ_SLOW_MS").map(Duration::from_millis);
    for (at, input) in corpus.iter().enumerate() {
        show(&Which::OfCorpus(at), input, &attempt, slow);
    }
    let from = number("KNARR_FUZZ_FROM").unwrap_or(0);
    let until = from.saturating_add(number("KNARR_FUZZ_ROUNDS").unwrap_or(ROUNDS));
    let time = number("KNARR_FUZZ_SECONDS").map(|seconds| (Stopwatch::begin(), Duration::from_secs(seconds)));
    let report = setting("KNARR_FUZZ_REPORT").map(Report::begin);
    let mut shown = 0;
    for seed in from..until {
        if time
            .as_ref()
            .is_some_and(|(since, most)| since.elapsed() >= *most)
        {
            break;
        }
        let mut random = Random::new(seed);
        let (one, other) = (random.below(corpus.len()), random.below(corpus.len()));
        let input = make(&mut random, &corpus[one], &corpus[other]);
        show(&Which::Seed(seed), &input, &attempt, slow);
        shown += 1;
    }
    if let Some(report) = report {
        report.end(from, shown);
    }
}

/// The time since it began, for runs that are timed.
struct Stopwatch(Instant);

impl Stopwatch {
    fn begin() -> Self {
        #[expect(clippy::disallowed_methods, reason = "only a run that is asked to be timed")]
        let now = Instant::now();
        Self(now)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A line for each target.
struct Report {
    path: String,
    since: Stopwatch,
}

impl Report {
    fn begin(path: String) -> Self {
        Self {
            path,
            since: Stopwatch::begin(),
        }
    }

    fn end(&self, from: u64, inputs: u64) {
        let package = setting("CARGO_PKG_NAME").unwrap_or_default();
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let line = format!(
            "{package}\t{test}\t{from}\t{inputs}\t{}\n",
            self.since.elapsed().as_millis()
        );
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", self.path));
    }
}

/// The name of an input.
enum Which {
    OfCorpus(usize),
    Seed(u64),
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OfCorpus(at) => write!(f, "input {at}"),
            Self::Seed(seed) => write!(f, "seed {seed}"),
        }
    }
}

#[track_caller]
fn show(which: &Which, input: &[u8], attempt: &impl Fn(&[u8]), slow: Option<Duration>) {
    let begun = slow.map(|limit| (Stopwatch::begin(), limit));
    let outcome = catch_unwind(AssertUnwindSafe(|| attempt(input)));
    let shown = || {
        let head = &input[..input.len().min(4_000)];
        format!(
            "{which}, {} bytes: {:?}",
            input.len(),
            String::from_utf8_lossy(head)
        )
    };
    assert!(outcome.is_ok(), "{}", shown());
    if let Some((begun, limit)) = begun {
        assert!(begun.elapsed() <= limit, "slow: {}", shown());
    }
}

/// The inputs of a text file, one a line; `\n` in a line is a line feed.
pub fn lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| line.replace("\\n", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn fuzz_same_seed_makes_same_bytes() {
        let make = || Random::new(7).mutate(b"hello world", b"other");
        assert_eq!(make(), make());
        assert_ne!(make(), Random::new(8).mutate(b"hello world", b"other"));
    }

    #[test]
    fn inputs_are_shown_as_they_are_and_in_many_changes() {
        let seen = RefCell::new(std::collections::HashSet::new());
        fuzz(["first", "second"], |input| {
            seen.borrow_mut().insert(input.to_vec());
        });
        assert!(seen.borrow().contains(&b"second"[..]) && seen.borrow().len() > 400);
    }

    #[test]
    fn grown_inputs_are_deep_long_and_many() {
        let longest = Cell::new(0);
        fuzz(["{\"a\":[1,2]}"], |input| {
            longest.set(longest.get().max(input.len()));
        });
        assert!(longest.get() > 10_000);
        let built = Cell::new(0);
        let build = |random: &mut Random| "[".repeat(random.count()).into_bytes();
        fuzz_built(["x"], build, |input| {
            built.set(built.get() + usize::from(input.len() > 255));
        });
        assert!(built.get() > 50);
    }

    #[test]
    #[should_panic(expected = "seed ")]
    fn fuzz_failure_is_reported() {
        let count = Cell::new(0);
        fuzz(["x"], |_| {
            count.set(count.get() + 1);
            assert!(count.get() < 10, "as if");
        });
    }
}
