//! Escapes of single characters, in patterns and in classes.

use super::parse::{Code, PatternError};

/// The first character of a text and what follows it.
pub(super) fn next(text: &str) -> Option<(char, &str)> {
    let mut characters = text.chars();
    Some((characters.next()?, characters.as_str()))
}

/// The character that the escape at the beginning of a text stands for, by number, and what follows it.
pub(super) fn escaped(text: &str) -> Result<(u32, &str), PatternError> {
    let Some((letter, rest)) = next(&text[1..]) else {
        return Err(Code::TrailingBackslash.at(""));
    };
    let simple = |character: char| Ok((u32::from(character), rest));
    match letter {
        '0' => Ok(octal(letter, rest)),
        // One digit alone would mean what a group has matched.
        '1'..='7' if rest.starts_with(|c: char| ('0'..='7').contains(&c)) => Ok(octal(letter, rest)),
        'x' => hexadecimal(text, rest),
        'a' => simple('\u{7}'),
        'f' => simple('\u{c}'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\u{b}'),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => simple(c),
        _ => Err(invalid(text, rest)),
    }
}

fn octal(first: char, mut rest: &str) -> (u32, &str) {
    let mut number = first.to_digit(8).unwrap_or(0);
    for _ in 0..2 {
        let Some((digit, after)) = next(rest).and_then(|(c, after)| Some((c.to_digit(8)?, after))) else {
            break;
        };
        (number, rest) = (number * 8 + digit, after);
    }
    (number, rest)
}

/// Two digits, or any number of them in braces.
fn hexadecimal<'p>(text: &'p str, rest: &'p str) -> Result<(u32, &'p str), PatternError> {
    let Some((first, after)) = next(rest) else {
        return Err(invalid(text, rest));
    };
    if first == '{' {
        return braced(text, after);
    }
    // Go reads both characters before it looks at them.
    let Some((second, after)) = next(after) else {
        return Err(invalid(text, after));
    };
    match (first.to_digit(16), second.to_digit(16)) {
        (Some(high), Some(low)) => Ok((high * 16 + low, after)),
        _ => Err(invalid(text, after)),
    }
}

fn braced<'p>(text: &'p str, mut rest: &'p str) -> Result<(u32, &'p str), PatternError> {
    let (mut number, mut digits) = (0_u32, 0);
    loop {
        let Some((character, after)) = next(rest) else {
            return Err(invalid(text, rest));
        };
        rest = after;
        if character == '}' {
            break;
        }
        let Some(digit) = character.to_digit(16) else {
            return Err(invalid(text, rest));
        };
        number = number * 16 + digit;
        digits += 1;
        if number > u32::from(char::MAX) {
            return Err(invalid(text, rest));
        }
    }
    if digits == 0 {
        return Err(invalid(text, rest));
    }
    Ok((number, rest))
}

fn invalid(text: &str, rest: &str) -> PatternError {
    Code::InvalidEscape.at(&text[..text.len() - rest.len()])
}
