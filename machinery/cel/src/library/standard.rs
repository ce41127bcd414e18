//! Sizes, conversions and the first functions of strings.

use super::{Function, yes};
use crate::eval::Meter;
use crate::value::{Evaluated, To, Value};
use machinery_schema::structural::Search;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "size" => size,
        "type" => |_, args| args.first().map(|own| Ok(own.type_value())),
        "dyn" => |_, args| args.first().cloned().map(Ok),
        "bool" => |meter, args| convert(meter, args, To::Bool),
        "bytes" => |meter, args| convert(meter, args, To::Bytes),
        "double" => |meter, args| convert(meter, args, To::Double),
        "duration" => |meter, args| convert(meter, args, To::Duration),
        "int" => |meter, args| convert(meter, args, To::Int),
        "string" => |meter, args| convert(meter, args, To::String),
        "timestamp" => |meter, args| convert(meter, args, To::Timestamp),
        "uint" => |meter, args| convert(meter, args, To::Uint),
        "contains" => |_, args| texts(args, |own, part| own.contains(part)),
        "startsWith" => |_, args| texts(args, |own, part| own.starts_with(part)),
        "endsWith" => |_, args| texts(args, |own, part| own.ends_with(part)),
        "matches" => matches,
        _ => return None,
    })
}

fn size<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let count = match args {
        [Value::String(own)] => own.as_str().chars().count(),
        [Value::Bytes(own)] => own.len(),
        [Value::List(own)] => own.len(),
        [Value::Map(own)] => own.len(),
        _ => return None,
    };
    Some(Ok(Value::size_of(count)))
}

fn convert<'a>(meter: &mut Meter, args: &[Value<'a>], to: To) -> Option<Evaluated<'a>> {
    let [own] = args else { return None };
    let takes = match (to, own) {
        (To::Bool, Value::Bool(_) | Value::String(_))
        | (To::Bytes, Value::Bytes(_) | Value::String(_))
        | (To::Duration, Value::Duration(_) | Value::String(_))
        | (To::Timestamp, Value::Timestamp(_) | Value::Int(_) | Value::String(_))
        | (To::Double | To::Uint, Value::Double(_) | Value::Int(_) | Value::Uint(_) | Value::String(_)) => {
            true
        }
        (To::Int, own) => matches!(
            own,
            Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
                | Value::String(_)
        ),
        (To::String, own) => !matches!(
            own,
            Value::List(_)
                | Value::Map(_)
                | Value::Null
                | Value::Type(_)
                | Value::Object(_)
                | Value::Optional(_)
        ),
        _ => false,
    };
    if !takes {
        return None;
    }
    let length = match own {
        Value::String(own) => own.as_str().len(),
        Value::Bytes(own) => own.len(),
        _ => 0,
    };
    let same = matches!(
        (to, own),
        (To::String, Value::String(_)) | (To::Bytes, Value::Bytes(_))
    );
    if !same && let Err(error) = meter.hold(length) {
        return Some(Err(error));
    }
    Some(own.convert(to))
}

fn texts<'a>(args: &[Value<'a>], holds: fn(&str, &str) -> bool) -> Option<Evaluated<'a>> {
    let [Value::String(own), Value::String(part)] = args else {
        return None;
    };
    yes(holds(own.as_str(), part.as_str()))
}

fn matches<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let [Value::String(own), Value::String(pattern)] = args else {
        return None;
    };
    match super::regex::compiled(pattern.as_str(), meter) {
        Ok(Ok(search)) => match meter.work(search.steps(own.as_str().len())) {
            Ok(()) => yes(Search::is_match(&search, own.as_str())),
            Err(error) => Some(Err(error)),
        },
        Ok(Err(message)) => super::fail(message),
        Err(error) => Some(Err(error)),
    }
}
