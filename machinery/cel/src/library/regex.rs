//! `find` and `findAll`, by RE2's meaning.

use super::Function;
use crate::eval::Meter;
use crate::value::{EvalError, Evaluated, Text, Value};
use machinery_schema::structural::Search;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "find" => |meter, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                Some(with(pattern, meter, |search, meter| found(search, text, meter)))
            }
            _ => None,
        },
        "findAll" => |meter, args| match args {
            [Value::String(text), Value::String(pattern), rest @ ..] => {
                let count = rest.first();
                if !matches!(count, None | Some(Value::Int(_))) {
                    return None;
                }
                Some(with(pattern, meter, |search, meter| {
                    found_all(search, text, count, meter).unwrap_or_else(|| Err(EvalError::no_overload()))
                }))
            }
            _ => None,
        },
        _ => return None,
    })
}

/// Searches of a list of matches that count as one: most of them end early.
const SEARCHES_OF_STEP: u64 = 16;

/// Compiles a pattern that is no constant; all of them together take no more memory than an evaluation may.
pub(super) fn compiled(pattern: &str, meter: &mut Meter) -> Result<Result<Search, String>, EvalError> {
    meter.hold(pattern.len() * 16)?;
    let search = Search::new(pattern);
    if let Ok(search) = &search {
        meter.hold(search.memory())?;
    }
    Ok(search)
}

fn with<'a>(
    pattern: &Text<'a>,
    meter: &mut Meter,
    run: impl FnOnce(&Search, &mut Meter) -> Evaluated<'a>,
) -> Evaluated<'a> {
    match compiled(pattern.as_str(), meter)? {
        Ok(search) => run(&search, meter),
        Err(message) => Err(EvalError::new(format!("Illegal regex: {message}"))),
    }
}

/// A part of a text, borrowed where the text is.
pub(super) fn part<'a>(text: &Text<'a>, part: &str, meter: &mut Meter) -> Evaluated<'a> {
    if let Text::Borrowed(whole) = text {
        let start = part.as_ptr() as usize - whole.as_ptr() as usize;
        if let Some(own) = whole.get(start..start + part.len()) {
            return Ok(Value::string(own));
        }
    }
    super::text(part.to_owned(), meter)
}

/// The first match, or an empty text.
pub(crate) fn found<'a>(search: &Search, text: &Text<'a>, meter: &mut Meter) -> Evaluated<'a> {
    meter.work(search.steps(text.as_str().len()))?;
    match search.find(text.as_str()) {
        Some(own) => part(text, own, meter),
        None => Ok(Value::string("")),
    }
}

/// All matches, or the first `count`.
pub(crate) fn found_all<'a>(
    search: &Search,
    text: &Text<'a>,
    count: Option<&Value<'a>>,
    meter: &mut Meter,
) -> Option<Evaluated<'a>> {
    let count = match count {
        None => usize::MAX,
        Some(Value::Int(own)) => usize::try_from(*own).unwrap_or(usize::MAX),
        Some(_) => return None,
    };
    let mut out = Vec::new();
    let (mut found, mut left) = (search.find_all(text.as_str()).take(count), text.as_str().len());
    loop {
        // Each search may look through all that is left (`x[^y]*y|x`).
        if let Err(error) = meter.work(1 + search.steps(left) / SEARCHES_OF_STEP) {
            return Some(Err(error));
        }
        let Some(own) = found.next() else { break };
        left = text.as_str().len() - (own.as_ptr() as usize - text.as_str().as_ptr() as usize);
        let steps = 1 + own.len() as u64 / 16;
        let kept = meter
            .work(steps)
            .and_then(|()| meter.hold(size_of::<Value<'_>>()))
            .and_then(|()| part(text, own, meter));
        match kept {
            Ok(own) => out.push(own),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(super::list(out, meter))
}
