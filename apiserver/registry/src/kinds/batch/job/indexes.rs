//! Indexes of pods as text: `0,2-4,7`, ascending and below a number of completions.

/// The reason for which a text is no list of indexes, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum IndexesError {
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    Parts(String),
    #[error("cannot convert string to integer for index: {0:?}")]
    NotANumber(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
}

/// Number of indexes in a text.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, IndexesError> {
    let mut last: Option<i64> = None;
    let mut total = 0;
    for fragment in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = interval(fragment, completions)?;
        if let Some(previous) = last.filter(|last| *last >= first) {
            return Err(IndexesError::Order {
                previous,
                current: first,
            });
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that both texts name; what cannot be read is left out.
pub(super) fn common(a: &str, b: &str, completions: i64) -> Option<i64> {
    let all = |text: &str| -> Vec<(i64, i64)> {
        let parsed = text.split(',').map(|fragment| interval(fragment, completions));
        parsed.filter_map(Result::ok).collect()
    };
    let (mut a, mut b) = (all(a).into_iter().peekable(), all(b).into_iter().peekable());
    while let (Some(one), Some(other)) = (a.peek().copied(), b.peek().copied()) {
        if one.0 <= other.1 && other.0 <= one.1 {
            return Some(one.0.max(other.0));
        }
        if one.0 <= other.0 {
            a.next();
        } else {
            b.next();
        }
    }
    None
}

fn interval(fragment: &str, completions: i64) -> Result<(i64, i64), IndexesError> {
    let index = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(IndexesError::NotANumber(text.to_owned())),
        Ok(index) if index >= completions => Err(IndexesError::TooLarge(text.to_owned())),
        Ok(index) => Ok(index),
    };
    match fragment.split('-').collect::<Vec<_>>()[..] {
        [only] => index(only).map(|index| (index, index)),
        [first, last] => {
            let (previous, current) = (index(first)?, index(last)?);
            if previous >= current {
                return Err(IndexesError::Order { previous, current });
            }
            Ok((previous, current))
        }
        _ => Err(IndexesError::Parts(fragment.to_owned())),
    }
}
