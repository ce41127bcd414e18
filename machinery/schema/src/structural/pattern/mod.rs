//! Patterns as Go's `regexp` reads them (RE2's syntax with Perl's classes), run by the `regex` crates' engines.
//!
//! [`parse`](parse::parse) reads Go's syntax and makes the engines' own syntax tree of it, so that nothing is
//! written in another dialect in between; what Go refuses is refused in its words. The size that all patterns of a definition may
//! take is counted by [`Patterns`].

mod class;
mod escape;
mod parse;
#[cfg(test)]
mod tests;

pub(super) use parse::parse;

use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::WhichCaptures;
use std::collections::HashMap;

/// A regular expression with the text it was made of.
#[derive(Debug, Clone)]
pub struct Pattern {
    pub text: String,
    regex: Regex,
}

impl Pattern {
    /// Reports whether the pattern matches somewhere in a text.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// A regular expression that finds texts in a text, by Go's rules: the first match, and of those that begin there the one
/// that its alternatives prefer.
#[derive(Debug, Clone)]
pub struct Search(Regex);

impl Search {
    /// Compiles a pattern; the error has Go's words.
    pub fn new(text: &str) -> Result<Self, String> {
        let pattern = parse(text).map_err(|error| format!("error parsing regexp: {error}"))?;
        let config = Regex::config()
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(MAX_SEARCH_BYTES))
            .hybrid_cache_capacity(CACHE_BYTES)
            .onepass(false)
            .dfa(false);
        let built = Regex::builder().configure(config).build_from_hir(&pattern);
        built
            .map(Self)
            .map_err(|_| "error parsing regexp: expression too large".to_owned())
    }

    /// Bytes that the compiled pattern takes.
    pub fn memory(&self) -> usize {
        self.0.memory_usage() + CACHE_BYTES
    }

    /// Steps that a search of a text of so many bytes takes at most, in hundreds of the machine's: where the states of the lazy
    /// automaton do not fit, each byte meets all states of the pattern, whatever its text's length (`[a-z]{0,1000}x`).
    pub fn steps(&self, text_bytes: usize) -> u64 {
        let states = 1 + self.0.memory_usage() / BYTES_OF_STATE;
        (text_bytes as u64).saturating_mul(states as u64) / STATES_OF_STEP
    }

    /// Reports whether the pattern matches somewhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The first match.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.0.find(text).map(|found| &text[found.range()])
    }

    /// All matches that do not overlap.
    pub fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.0.find_iter(text).map(|found| &text[found.range()])
    }
}

/// Bytes of a compiled pattern for each of its states.
const BYTES_OF_STATE: usize = 32;
/// States that meet a byte in one step.
const STATES_OF_STEP: u64 = 64;
/// A pattern of an expression takes no more than this when it is compiled.
const MAX_SEARCH_BYTES: usize = 2 << 20;

/// Bytes that the patterns of one definition may take, compiled and while they run.
pub const MAX_PATTERN_BYTES: usize = 64 << 20;
/// One of them takes no more than this when it is compiled.
const MAX_COMPILED_BYTES: usize = 10 << 20;
/// Bytes of the states that a pattern may keep while it runs.
const CACHE_BYTES: usize = 64 << 10;

/// The patterns of one definition: equal ones are one.
#[derive(Debug, Default)]
pub struct Patterns {
    known: HashMap<String, Pattern>,
    bytes: usize,
    over: bool,
}

impl Patterns {
    /// A pattern, compiled once; none for an empty one, one that cannot be read, or one too many.
    pub(crate) fn get(&mut self, text: &str) -> Option<Pattern> {
        if text.is_empty() || self.over {
            return None;
        }
        if let Some(known) = self.known.get(text) {
            return Some(known.clone());
        }
        let pattern = parse(text).ok()?;
        let config = Regex::config()
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(MAX_COMPILED_BYTES))
            .hybrid_cache_capacity(CACHE_BYTES)
            .onepass(false)
            .dfa(false);
        let Ok(regex) = Regex::builder().configure(config).build_from_hir(&pattern) else {
            self.over = true;
            return None;
        };
        self.bytes += regex.memory_usage() + CACHE_BYTES + text.len();
        self.over |= self.bytes > MAX_PATTERN_BYTES;
        let text = text.to_owned();
        let pattern = Pattern {
            text: text.clone(),
            regex,
        };
        self.known.insert(text, pattern.clone());
        Some(pattern)
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reports whether the patterns take more memory than is allowed.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

/// Message with which a definition is refused whose patterns take too much.
pub(super) const TOO_LARGE: &str = "the patterns of this definition take more memory than is allowed";
