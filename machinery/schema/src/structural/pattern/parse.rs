//! Go's syntax, `regexp/syntax` with the flags of `regexp.Compile`, and its words for what it refuses.

use super::class;
use super::escape::{escaped, next};
use regex_syntax::hir::{Class, ClassUnicode, Dot, Hir, Look, Repetition};

/// Groups nest no deeper than this, which Go counts to 1,000: engines recurse over what is nested.
const MAX_NESTING: usize = 100;
/// Repetitions, multiplied with those within them.
const MAX_REPEAT: u32 = 1_000;

/// Reason why Go refuses a pattern, with the part it names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: `{part}`", .code.words())]
pub(in crate::structural) struct PatternError {
    code: Code,
    part: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidCharRange,
    InvalidEscape,
    InvalidNamedCapture,
    InvalidPerlOp,
    InvalidRepeatOp,
    InvalidRepeatSize,
    MissingBracket,
    MissingParen,
    MissingRepeatArgument,
    NestingDepth,
    TrailingBackslash,
    UnexpectedParen,
}

impl Code {
    pub(super) fn at(self, part: &str) -> PatternError {
        PatternError {
            code: self,
            part: part.to_owned(),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::InvalidCharRange => "invalid character class range",
            Self::InvalidEscape => "invalid escape sequence",
            Self::InvalidNamedCapture => "invalid named capture",
            Self::InvalidPerlOp => "invalid or unsupported Perl syntax",
            Self::InvalidRepeatOp => "invalid nested repetition operator",
            Self::InvalidRepeatSize => "invalid repeat count",
            Self::MissingBracket => "missing closing ]",
            Self::MissingParen => "missing closing )",
            Self::MissingRepeatArgument => "missing argument to repetition operator",
            Self::NestingDepth => "expression nests too deeply",
            Self::TrailingBackslash => "trailing backslash at end of expression",
            Self::UnexpectedParen => "unexpected )",
        }
    }
}

/// Flags that change what matches, and which of several matches is preferred.
#[derive(Clone, Copy, Default)]
struct Flags {
    fold: bool,
    multi_line: bool,
    dot_newline: bool,
    /// Repetitions prefer few, and with a `?` many.
    swap_greed: bool,
}

/// A part of a concatenation, with what repetitions within it multiply to and how deep it nests.
struct Part {
    hir: Hir,
    copies: u32,
    depth: usize,
}

/// An open group: alternatives that are complete, and the parts of the last one.
#[derive(Default)]
struct Level {
    alternatives: Vec<Part>,
    parts: Vec<Part>,
    /// Flags before the group, which come back behind it.
    flags: Flags,
}

impl Level {
    fn end_alternative(&mut self) {
        let part = joined(std::mem::take(&mut self.parts), Hir::concat);
        self.alternatives.push(part);
    }

    fn close(mut self) -> Part {
        self.end_alternative();
        joined(self.alternatives, Hir::alternation)
    }
}

fn joined(parts: Vec<Part>, join: fn(Vec<Hir>) -> Hir) -> Part {
    let copies = parts.iter().map(|part| part.copies).max().unwrap_or(1);
    let deepest = parts.iter().map(|part| part.depth).max().unwrap_or(0);
    let depth = deepest + usize::from(parts.len() > 1);
    let hir = join(parts.into_iter().map(|part| part.hir).collect());
    Part { hir, copies, depth }
}

/// Parses a pattern by Go's rules.
pub(in crate::structural) fn parse(pattern: &str) -> Result<Hir, PatternError> {
    let mut parser = Parser {
        whole: pattern,
        flags: Flags::default(),
        open: Vec::new(),
        level: Level::default(),
    };
    let (mut rest, mut repeated) = (pattern, None);
    while !rest.is_empty() {
        let before = rest;
        let (after, repeats) = parser.step(rest, repeated)?;
        (rest, repeated) = (after, repeats.then_some(before));
    }
    if !parser.open.is_empty() {
        return Err(Code::MissingParen.at(pattern));
    }
    Ok(parser.level.close().hir)
}

struct Parser<'p> {
    whole: &'p str,
    flags: Flags,
    /// The levels around the innermost one.
    open: Vec<Level>,
    level: Level,
}

impl<'p> Parser<'p> {
    /// Reads one piece; gives what follows, and whether it was a repetition.
    fn step(&mut self, text: &'p str, repeated: Option<&'p str>) -> Result<(&'p str, bool), PatternError> {
        let Some((first, rest)) = next(text) else {
            return Ok((text, false));
        };
        let rest = match first {
            '(' if rest.starts_with('?') => self.perl_group(text)?,
            '(' => self.group(self.flags, rest)?,
            '|' => {
                self.level.end_alternative();
                rest
            }
            ')' => self.right_paren(rest)?,
            '^' if self.flags.multi_line => self.look(Look::StartLF, rest),
            '^' => self.look(Look::Start, rest),
            '$' if self.flags.multi_line => self.look(Look::EndLF, rest),
            '$' => self.look(Look::End, rest),
            '.' => {
                let dot = match self.flags.dot_newline {
                    true => Dot::AnyChar,
                    false => Dot::AnyCharExceptLF,
                };
                self.push(Hir::dot(dot));
                rest
            }
            '[' => self.class(text)?,
            '*' => return self.repeat((0, None), text, rest, repeated),
            '+' => return self.repeat((1, None), text, rest, repeated),
            '?' => return self.repeat((0, Some(1)), text, rest, repeated),
            '{' => match counted(text) {
                Some((count, after)) => return self.repeat_counted(count, text, after, repeated),
                None => self.literal('{', rest),
            },
            '\\' => self.escape(text)?,
            character => self.literal(character, rest),
        };
        Ok((rest, false))
    }

    fn push(&mut self, hir: Hir) {
        self.level.parts.push(Part {
            hir,
            copies: 1,
            depth: 1,
        });
    }

    fn look(&mut self, look: Look, rest: &'p str) -> &'p str {
        self.push(Hir::look(look));
        rest
    }

    fn literal(&mut self, character: char, rest: &'p str) -> &'p str {
        self.character(u32::from(character));
        rest
    }

    /// One character by its number, which may be a surrogate: those are in no text.
    fn character(&mut self, number: u32) {
        let mut class = ClassUnicode::empty();
        class::add(&mut class, number, number);
        class::settle(&mut class, false, self.flags.fold);
        self.push(Hir::class(Class::Unicode(class)));
    }

    fn group(&mut self, flags: Flags, rest: &'p str) -> Result<&'p str, PatternError> {
        if self.open.len() >= MAX_NESTING {
            return Err(Code::NestingDepth.at(self.whole));
        }
        let level = Level {
            flags: self.flags,
            ..Level::default()
        };
        self.open.push(std::mem::replace(&mut self.level, level));
        self.flags = flags;
        Ok(rest)
    }

    fn right_paren(&mut self, rest: &'p str) -> Result<&'p str, PatternError> {
        let Some(around) = self.open.pop() else {
            return Err(Code::UnexpectedParen.at(self.whole));
        };
        let closed = std::mem::replace(&mut self.level, around);
        self.flags = closed.flags;
        self.level.parts.push(closed.close());
        Ok(rest)
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` and `(?flags:`.
    fn perl_group(&mut self, text: &'p str) -> Result<&'p str, PatternError> {
        let bytes = text.as_bytes();
        let named = match (bytes.get(2), bytes.get(3)) {
            (Some(b'P'), Some(b'<')) if bytes.len() > 4 => Some(4),
            (Some(b'<'), Some(_)) => Some(3),
            _ => None,
        };
        if let Some(begin) = named {
            let Some(end) = text.find('>') else {
                return Err(Code::InvalidNamedCapture.at(text));
            };
            let name = text.get(begin..end).unwrap_or_default();
            let fits = |c: char| c == '_' || c.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(fits) {
                return Err(Code::InvalidNamedCapture.at(&text[..=end]));
            }
            return self.group(self.flags, &text[end + 1..]);
        }
        self.perl_flags(text)
    }

    fn perl_flags(&mut self, text: &'p str) -> Result<&'p str, PatternError> {
        let (mut flags, mut on, mut seen, mut rest) = (self.flags, true, false, &text[2..]);
        while let Some((character, after)) = next(rest) {
            rest = after;
            match character {
                'i' => flags.fold = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.swap_greed = on,
                '-' if on => {
                    (on, seen) = (false, false);
                    continue;
                }
                ':' | ')' if on || seen => {
                    if character == ':' {
                        return self.group(flags, rest);
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            }
            seen = true;
        }
        Err(Code::InvalidPerlOp.at(&text[..text.len() - rest.len()]))
    }

    fn repeat_counted(
        &mut self,
        (least, most): (Option<u32>, Option<u32>),
        text: &'p str,
        after: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, bool), PatternError> {
        let invalid = || Code::InvalidRepeatSize.at(&text[..text.len() - after.len()]);
        let least = least.filter(|least| *least <= MAX_REPEAT).ok_or_else(invalid)?;
        if most.is_some_and(|most| most > MAX_REPEAT || most < least) {
            return Err(invalid());
        }
        let (rest, repeats) = self.repeat((least, most), text, after, repeated)?;
        let Some(part) = self.level.parts.last_mut() else {
            return Ok((rest, repeats));
        };
        let copies = most.unwrap_or(least);
        part.copies = match most {
            Some(0) => 1,
            _ => part.copies.saturating_mul(copies.max(1)),
        };
        let many = least >= 2 || most.is_some_and(|most| most >= 2);
        if many && part.copies > MAX_REPEAT {
            return Err(Code::InvalidRepeatSize.at(&text[..text.len() - rest.len()]));
        }
        Ok((rest, repeats))
    }

    /// Repeats the last part.
    fn repeat(
        &mut self,
        (min, max): (u32, Option<u32>),
        text: &'p str,
        after: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, bool), PatternError> {
        let rest = after.strip_prefix('?').unwrap_or(after);
        if let Some(before) = repeated {
            return Err(Code::InvalidRepeatOp.at(&before[..before.len() - rest.len()]));
        }
        let Some(part) = self.level.parts.last_mut() else {
            return Err(Code::MissingRepeatArgument.at(&text[..text.len() - rest.len()]));
        };
        part.depth += 1;
        if part.depth > MAX_NESTING {
            return Err(Code::NestingDepth.at(self.whole));
        }
        let sub = Box::new(std::mem::replace(&mut part.hir, Hir::empty()));
        let lazy = rest.len() < after.len();
        let greedy = lazy == self.flags.swap_greed;
        part.hir = Hir::repetition(Repetition {
            min,
            max,
            greedy,
            sub,
        });
        Ok((rest, true))
    }

    fn escape(&mut self, text: &'p str) -> Result<&'p str, PatternError> {
        let Some((letter, rest)) = next(&text[1..]) else {
            return Err(Code::TrailingBackslash.at(""));
        };
        match letter {
            'A' => return Ok(self.look(Look::Start, rest)),
            'z' => return Ok(self.look(Look::End, rest)),
            'b' => return Ok(self.look(Look::WordAscii, rest)),
            'B' => return Ok(self.look(Look::WordAsciiNegate, rest)),
            'C' => return Err(Code::InvalidEscape.at(&text[..2])),
            'Q' => {
                let (literal, rest) = rest.split_once(r"\E").unwrap_or((rest, ""));
                for character in literal.chars() {
                    self.literal(character, rest);
                }
                return Ok(rest);
            }
            _ => {}
        }
        if let Some((class, rest)) = self.named_class(text)? {
            self.push(Hir::class(Class::Unicode(class)));
            return Ok(rest);
        }
        let (number, rest) = escaped(text)?;
        self.character(number);
        Ok(rest)
    }

    /// `\p{Greek}` or `\d` at the beginning of a text.
    fn named_class(&self, text: &'p str) -> Result<Option<(ClassUnicode, &'p str)>, PatternError> {
        let Some((letter, rest)) = text.strip_prefix('\\').and_then(next) else {
            return Ok(None);
        };
        if !matches!(letter, 'p' | 'P') {
            return Ok(class::of_perl(letter, self.flags.fold).map(|class| (class, rest)));
        }
        let Some((first, mut after)) = next(rest) else {
            return Err(Code::InvalidCharRange.at(text));
        };
        let mut name = &rest[..rest.len() - after.len()];
        if first == '{' {
            let Some(end) = text.find('}') else {
                return Err(Code::InvalidCharRange.at(text));
            };
            (name, after) = (&text[3..end], &text[end + 1..]);
        }
        let Some(mut class) = class::of_unicode(name, self.flags.fold) else {
            return Err(Code::InvalidCharRange.at(&text[..text.len() - after.len()]));
        };
        if letter == 'P' {
            class.negate();
        }
        Ok(Some((class, after)))
    }

    /// `[…]`.
    fn class(&mut self, text: &'p str) -> Result<&'p str, PatternError> {
        let mut rest = &text[1..];
        let negated = rest.starts_with('^');
        rest = rest.strip_prefix('^').unwrap_or(rest);
        let (mut class, mut first) = (ClassUnicode::empty(), true);
        while first || !rest.starts_with(']') {
            first = false;
            if let Some((own, after)) = self.posix_class(rest)? {
                class.union(&own);
                rest = after;
            } else if let Some((own, after)) = self.named_class(rest)? {
                class.union(&own);
                rest = after;
            } else {
                rest = self.class_range(&mut class, rest, text)?;
            }
        }
        class::settle(&mut class, negated, false);
        self.push(Hir::class(Class::Unicode(class)));
        Ok(&rest[1..])
    }

    fn posix_class(&self, text: &'p str) -> Result<Option<(ClassUnicode, &'p str)>, PatternError> {
        let Some(inner) = text.strip_prefix("[:") else {
            return Ok(None);
        };
        let Some((name, rest)) = inner.split_once(":]") else {
            return Ok(None);
        };
        match class::of_posix(name, self.flags.fold) {
            Some(class) => Ok(Some((class, rest))),
            None => Err(Code::InvalidCharRange.at(&text[..text.len() - rest.len()])),
        }
    }

    /// One character or a range of them.
    fn class_range(
        &self,
        class: &mut ClassUnicode,
        text: &'p str,
        whole: &'p str,
    ) -> Result<&'p str, PatternError> {
        let (low, mut rest) = class_character(text, whole)?;
        let mut high = low;
        if rest.len() >= 2 && rest.starts_with('-') && !rest.starts_with("-]") {
            (high, rest) = class_character(&rest[1..], whole)?;
            if high < low {
                return Err(Code::InvalidCharRange.at(&text[..text.len() - rest.len()]));
            }
        }
        let mut own = ClassUnicode::empty();
        class::add(&mut own, low, high);
        class::settle(&mut own, false, self.flags.fold);
        class.union(&own);
        Ok(rest)
    }
}

fn class_character<'p>(text: &'p str, whole: &str) -> Result<(u32, &'p str), PatternError> {
    match next(text) {
        None => Err(Code::MissingBracket.at(whole)),
        Some(('\\', _)) => escaped(text),
        Some((character, rest)) => Ok((u32::from(character), rest)),
    }
}

/// Least and most of `{2}`, `{2,}` or `{2,5}`, and what follows; a least of `None` is too large a number. `None` where the
/// brace is a literal.
#[expect(clippy::type_complexity, reason = "two bounds and the rest")]
fn counted(text: &str) -> Option<((Option<u32>, Option<u32>), &str)> {
    let (least, rest) = number(&text[1..])?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some(((least, least), rest));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some(((least, None), rest));
    }
    let (most, rest) = number(rest)?;
    let rest = rest.strip_prefix('}')?;
    Some(((least.filter(|_| most.is_some()), most), rest))
}

/// Digits without a leading zero; the number is `None` where it is too large.
fn number(text: &str) -> Option<(Option<u32>, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().ok().filter(|number| *number < 100_000_000), rest))
}
