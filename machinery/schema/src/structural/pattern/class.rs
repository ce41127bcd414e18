//! Classes of characters: Perl's and POSIX' are ASCII, Unicode's go by category and script.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

const WORD: &[(u32, u32)] = &[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)];
const DIGIT: &[(u32, u32)] = &[(0x30, 0x39)];

/// `\d`, `\s` (without the vertical tab), `\w`; upper case is the opposite.
fn perl(letter: char) -> Option<&'static [(u32, u32)]> {
    Some(match letter.to_ascii_lowercase() {
        'd' => DIGIT,
        's' => &[(0x09, 0x0a), (0x0c, 0x0d), (0x20, 0x20)],
        'w' => WORD,
        _ => return None,
    })
}

fn posix(name: &str) -> Option<&'static [(u32, u32)]> {
    Some(match name {
        "alnum" => &[(0x30, 0x39), (0x41, 0x5a), (0x61, 0x7a)],
        "alpha" => &[(0x41, 0x5a), (0x61, 0x7a)],
        "ascii" => &[(0, 0x7f)],
        "blank" => &[(0x09, 0x09), (0x20, 0x20)],
        "cntrl" => &[(0, 0x1f), (0x7f, 0x7f)],
        "digit" => DIGIT,
        "graph" => &[(0x21, 0x7e)],
        "lower" => &[(0x61, 0x7a)],
        "print" => &[(0x20, 0x7e)],
        "punct" => &[(0x21, 0x2f), (0x3a, 0x40), (0x5b, 0x60), (0x7b, 0x7e)],
        "space" => &[(0x09, 0x0d), (0x20, 0x20)],
        "upper" => &[(0x41, 0x5a)],
        "word" => WORD,
        "xdigit" => &[(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
        _ => return None,
    })
}

/// The class of `\d` and the like.
pub(super) fn of_perl(letter: char, fold: bool) -> Option<ClassUnicode> {
    perl(letter).map(|ranges| group(ranges, letter.is_ascii_uppercase(), fold))
}

/// The class of `[:name:]` or `[:^name:]`, by what stands between the colons.
pub(super) fn of_posix(name: &str, fold: bool) -> Option<ClassUnicode> {
    let (own, negated) = name.strip_prefix('^').map_or((name, false), |own| (own, true));
    posix(own).map(|ranges| group(ranges, negated, fold))
}

fn group(ranges: &[(u32, u32)], negated: bool, fold: bool) -> ClassUnicode {
    let mut class = ClassUnicode::empty();
    for (low, high) in ranges {
        add(&mut class, *low, *high);
    }
    settle(&mut class, negated, fold);
    class
}

/// The class of `\p{name}`: a general category or a script, however it is written.
pub(super) fn of_unicode(name: &str, fold: bool) -> Option<ClassUnicode> {
    let (own, negated) = name.strip_prefix('^').map_or((name, false), |own| (own, true));
    let plain: String = own
        .chars()
        .filter(|c| !matches!(c, ' ' | '_' | '-'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    if plain.is_empty() || !plain.chars().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let mut class = match plain.as_str() {
        "any" => group(&[(0, 0x0010_ffff)], false, false),
        "ascii" => group(&[(0, 0x7f)], false, false),
        "assigned" => named("gc", "cn").map(|mut class| {
            class.negate();
            class
        })?,
        // No text has them.
        "cs" | "surrogate" => ClassUnicode::empty(),
        _ => match SCRIPTS.contains(&plain.as_str()) {
            true => named("sc", &plain)?,
            false => named("gc", &plain)?,
        },
    };
    settle(&mut class, negated, fold);
    Some(class)
}

/// Scripts that Go finds: not by their codes, and not those whose names are of several words.
#[rustfmt::skip]
const SCRIPTS: &[&str] = &[
    "adlam", "ahom", "arabic", "armenian", "avestan", "balinese", "bamum", "batak", "bengali",
    "bhaiksuki", "bopomofo", "brahmi", "braille", "buginese", "buhid", "carian", "chakma", "cham",
    "cherokee", "chorasmian", "common", "coptic", "cuneiform", "cypriot", "cyrillic", "deseret",
    "devanagari", "dogra", "duployan", "elbasan", "elymaic", "ethiopic", "georgian", "glagolitic",
    "gothic", "grantha", "greek", "gujarati", "gurmukhi", "han", "hangul", "hanunoo", "hatran",
    "hebrew", "hiragana", "inherited", "javanese", "kaithi", "kannada", "katakana", "kawi",
    "kharoshthi", "khmer", "khojki", "khudawadi", "lao", "latin", "lepcha", "limbu", "lisu", "lycian",
    "lydian", "mahajani", "makasar", "malayalam", "mandaic", "manichaean", "marchen", "medefaidrin",
    "miao", "modi", "mongolian", "mro", "multani", "myanmar", "nabataean", "nandinagari", "newa", "nko",
    "nushu", "ogham", "oriya", "osage", "osmanya", "palmyrene", "phoenician", "rejang", "runic",
    "samaritan", "saurashtra", "sharada", "shavian", "siddham", "sinhala", "sogdian", "soyombo",
    "sundanese", "syriac", "tagalog", "tagbanwa", "takri", "tamil", "tangsa", "tangut", "telugu",
    "thaana", "thai", "tibetan", "tifinagh", "tirhuta", "toto", "ugaritic", "vai", "vithkuqi", "wancho",
    "yezidi", "yi",
];

fn named(property: &str, name: &str) -> Option<ClassUnicode> {
    let parsed = regex_syntax::parse(&format!(r"\p{{{property}={name}}}")).ok()?;
    match parsed.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        // A class of one character is a literal.
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            let ranges = text.chars().map(|c| ClassUnicodeRange::new(c, c));
            Some(ClassUnicode::new(ranges))
        }
        _ => None,
    }
}

/// Adds characters by number; surrogates are none.
pub(super) fn add(class: &mut ClassUnicode, low: u32, high: u32) {
    for (low, high) in [(low, high.min(0xd7ff)), (low.max(0xe000), high)] {
        if let (Some(low), Some(high)) = (char::from_u32(low), char::from_u32(high))
            && low <= high
        {
            class.push(ClassUnicodeRange::new(low, high));
        }
    }
}

pub(super) fn settle(class: &mut ClassUnicode, negated: bool, fold: bool) {
    if fold {
        class.case_fold_simple();
    }
    if negated {
        class.negate();
    }
}
