//! The functions of the language and of Kubernetes' libraries.
//!
//! A function is given values of any type; of those that it does not take it makes nothing, which is an error of the call.

mod authorizer;
pub(crate) mod format;
pub(crate) mod format_check;
pub(crate) mod formats;
pub(crate) mod json_patch;
mod lists;
mod network;
mod operators;
mod optionals;
mod quantities;
pub(crate) mod regex;
pub(crate) mod semver;
mod sorting;
mod standard;
mod strings;
pub(crate) mod times;
pub(crate) mod urls;

use crate::eval::Meter;
use crate::value::{EvalError, Evaluated, List, Value};
pub(crate) use quantities::Scaled;
pub(crate) use semver::parse as parse_semver;

/// A function; none when it does not take the arguments.
pub(crate) type Function = for<'a> fn(&mut Meter, &[Value<'a>]) -> Option<Evaluated<'a>>;

/// The function with a name.
pub(crate) fn function(name: &str) -> Option<Function> {
    operators::function(name)
        .or_else(|| standard::function(name))
        .or_else(|| times::function(name))
        .or_else(|| optionals::function(name))
        .or_else(|| strings::function(name))
        .or_else(|| regex::function(name))
        .or_else(|| lists::function(name))
        .or_else(|| sorting::function(name))
        .or_else(|| urls::function(name))
        .or_else(|| network::function(name))
        .or_else(|| quantities::function(name))
        .or_else(|| semver::function(name))
        .or_else(|| formats::function(name))
        .or_else(|| authorizer::function(name))
        .or_else(|| json_patch::function(name))
}

/// Functions that convert, which are applied to constants when a program is made.
pub(crate) fn is_conversion(name: &str) -> bool {
    matches!(
        name,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

/// The error of arguments that a function does not take.
pub(crate) fn no_overload(name: &str, args: &[Value<'_>]) -> EvalError {
    match name {
        "size" => EvalError::new("no such overload: size"),
        "contains" | "startsWith" | "endsWith" | "includes" => EvalError::no_overload(),
        _ if args.first().is_some_and(|own| !has_operator(name, own)) => {
            EvalError::new(format!("no such overload: {name}"))
        }
        _ if name.contains(['_', '@']) => EvalError::no_overload(),
        _ => {
            let types: Vec<_> = args.iter().map(|own| own.ty().name().to_owned()).collect();
            EvalError::new(format!("no such overload: {name}({})", types.join(", ")))
        }
    }
}

/// Reports whether values of a type have an operator; every type has what is none.
fn has_operator(name: &str, own: &Value<'_>) -> bool {
    let whole = matches!(own, Value::Int(_) | Value::Uint(_));
    let number = whole || matches!(own, Value::Double(_));
    let time = matches!(own, Value::Timestamp(_) | Value::Duration(_));
    let text = matches!(own, Value::String(_) | Value::Bytes(_));
    match name {
        "_<_" | "_<=_" | "_>_" | "_>=_" => number || time || text || matches!(own, Value::Bool(_)),
        "_+_" => number || time || text || matches!(own, Value::List(_)),
        "_-_" => number || time,
        "_*_" | "_/_" => number,
        "_%_" => whole,
        "-_" => number || time || matches!(own, Value::Bool(_)),
        _ => true,
    }
}

/// A new string, whose bytes are counted.
fn text<'a>(own: String, meter: &mut Meter) -> Evaluated<'a> {
    meter.hold(own.len())?;
    Ok(Value::owned(own))
}

/// A new list, whose elements are counted.
fn list<'a>(values: Vec<Value<'a>>, meter: &mut Meter) -> Evaluated<'a> {
    meter.hold(values.len() * size_of::<Value<'_>>())?;
    Ok(Value::List(List::new(values)))
}

/// The answer to a question.
#[expect(clippy::unnecessary_wraps, reason = "the form of a function's result")]
fn yes<'a>(own: bool) -> Option<Evaluated<'a>> {
    Some(Ok(Value::Bool(own)))
}

/// An error of a function.
fn fail<'a>(message: impl Into<String>) -> Option<Evaluated<'a>> {
    Some(Err(EvalError::new(message.into())))
}
