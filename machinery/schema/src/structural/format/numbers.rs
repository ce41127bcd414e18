//! Numbers of books, cards, people and colours.

use super::{Search, pattern};
use std::sync::LazyLock;

static CREDIT_CARD: LazyLock<Search> = LazyLock::new(|| {
    pattern(concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}",
        r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    ))
});
static RGB_COLOR: LazyLock<Search> = LazyLock::new(|| {
    const PART: &str = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    let text = format!(r"^rgb\({PART},{PART},{PART}\)$");
    Search::new(&text).expect("the pattern is one of Go's")
});

/// Digits of an ISBN, which may have dashes and white space between them.
fn isbn(text: &str) -> Vec<u8> {
    let is_between = |byte: &u8| matches!(byte, b'-' | b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
    text.bytes().filter(|byte| !is_between(byte)).collect()
}

pub(super) fn is_isbn10(text: &str) -> bool {
    let digits = isbn(text);
    let Some((last, first)) = digits.split_last().filter(|_| digits.len() == 10) else {
        return false;
    };
    let last = match last {
        b'X' => 10,
        b'0'..=b'9' => u32::from(last - b'0'),
        _ => return false,
    };
    if !first.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = (1..)
        .zip(first)
        .map(|(at, digit)| at * u32::from(digit - b'0'))
        .sum();
    (sum + 10 * last).is_multiple_of(11)
}

pub(super) fn is_isbn13(text: &str) -> bool {
    let digits = isbn(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weighed = digits.iter().zip([1, 3].into_iter().cycle());
    let sum: u32 = weighed
        .map(|(digit, weight)| u32::from(digit - b'0') * weight)
        .sum();
    sum.is_multiple_of(10)
}

/// The digits of a text as a card's number (Luhn's sum); all else in the text is passed over.
pub(super) fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |(at, digit): (usize, u8)| match u32::from(digit - b'0') {
        digit if at % 2 == 0 => digit,
        digit if digit < 5 => digit * 2,
        digit => digit * 2 - 9,
    };
    let sum: u32 = digits.bytes().rev().enumerate().map(doubled).sum();
    CREDIT_CARD.is_match(&digits) && sum.is_multiple_of(10)
}

/// `111-11-1111`, with spaces for its dashes.
pub(super) fn is_social_security(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        3 | 6 => matches!(byte, b'-' | b' '),
        _ => byte.is_ascii_digit(),
    };
    text.len() == 11 && text.bytes().enumerate().all(fits)
}

pub(super) fn is_rgb_color(text: &str) -> bool {
    RGB_COLOR.is_match(text)
}
