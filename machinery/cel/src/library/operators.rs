//! Operators.

use super::{Function, yes};
use crate::declared::ListKind;
use crate::eval::Meter;
use crate::value::{EvalError, Evaluated, Key, List, Map, Value, compare};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "!_" => |_, args| match args {
            [Value::Bool(own)] => yes(!own),
            _ => None,
        },
        "@not_strictly_false" => |_, args| match args {
            [Value::Bool(own)] => yes(*own),
            _ => yes(true),
        },
        "_<_" => |meter, args| ordered(meter, args, Ordering::is_lt),
        "_<=_" => |meter, args| ordered(meter, args, Ordering::is_le),
        "_>_" => |meter, args| ordered(meter, args, Ordering::is_gt),
        "_>=_" => |meter, args| ordered(meter, args, Ordering::is_ge),
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => negate,
        "@in" => contains,
        "cel.@mapInsert" => insert,
        _ => return None,
    })
}

fn ordered<'a>(meter: &mut Meter, args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Option<Evaluated<'a>> {
    let [left, right] = args else { return None };
    if !super::has_operator("_<_", left) {
        return None;
    }
    if let Err(error) = meter.work(1) {
        return Some(Err(error));
    }
    Some(left.order(right).map(|own| Value::Bool(holds(own))))
}

fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

fn unsigned() -> EvalError {
    EvalError::new("unsigned integer overflow")
}

fn int<'a>(own: Option<i64>) -> Option<Evaluated<'a>> {
    Some(own.map(Value::Int).ok_or_else(overflow))
}

fn uint<'a>(own: Option<u64>) -> Option<Evaluated<'a>> {
    Some(own.map(Value::Uint).ok_or_else(unsigned))
}

fn duration<'a>(own: Option<i64>) -> Option<Evaluated<'a>> {
    Some(
        own.map(Value::Duration)
            .ok_or_else(|| EvalError::new("duration overflow")),
    )
}

fn double<'a>(own: f64) -> Option<Evaluated<'a>> {
    Some(Ok(Value::Double(own)))
}

fn later<'a>(own: crate::value::Timestamp, nanos: i128) -> Option<Evaluated<'a>> {
    let found = own.after(nanos).map(Value::Timestamp);
    Some(found.ok_or_else(|| EvalError::new("timestamp overflow")))
}

fn add<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_add(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_add(*right)),
        [Value::Double(left), Value::Double(right)] => double(left + right),
        [Value::Duration(left), Value::Duration(right)] => duration(left.checked_add(*right)),
        [Value::Timestamp(own), Value::Duration(nanos)] | [Value::Duration(nanos), Value::Timestamp(own)] => {
            later(*own, i128::from(*nanos))
        }
        [Value::String(left), Value::String(right)] => Some(joined(left.as_str(), right.as_str(), meter)),
        [Value::Bytes(left), Value::Bytes(right)] => Some(
            meter
                .hold(left.len() + right.len())
                .map(|()| Value::Bytes([&left[..], &right[..]].concat().into())),
        ),
        [Value::List(left), Value::List(right)] => Some(lists(left, right, meter)),
        _ => None,
    }
}

fn joined<'a>(left: &str, right: &str, meter: &mut Meter) -> Evaluated<'a> {
    meter.hold(left.len() + right.len())?;
    Ok(Value::owned([left, right].concat()))
}

/// Lists of objects that are sets or maps join by their keys.
fn lists<'a>(left: &List<'a>, right: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    match compare::kind(left) {
        Some(kind @ ListKind::Set) => return kept(union(left, right, meter)?, kind, meter),
        Some(kind @ ListKind::Map(keys)) => return kept(merged(left, right, keys, meter)?, kind, meter),
        _ => {}
    }
    let (list, copied) = left.clone().join(right.clone());
    meter.hold((copied + 2) * size_of::<Value<'_>>())?;
    Ok(Value::List(list))
}

/// Elements that stay a set or a map.
fn kept<'a>(values: Vec<Value<'a>>, kind: &'a ListKind, meter: &mut Meter) -> Evaluated<'a> {
    meter.hold(values.len() * size_of::<Value<'_>>())?;
    Ok(Value::List(List::Kept(Arc::new(values), kind)))
}

fn union<'a>(left: &List<'a>, right: &List<'a>, meter: &mut Meter) -> Result<Vec<Value<'a>>, EvalError> {
    let (mut seen, mut out) = (HashSet::new(), Vec::new());
    for element in left.iter() {
        let element = element?;
        seen.insert(element.canonical(meter)?);
        out.push(element);
    }
    for element in right.iter() {
        let element = element?;
        if seen.insert(element.canonical(meter)?) {
            out.push(element);
        }
    }
    Ok(out)
}

/// Elements of the right take the places of those of the left with the same keys.
fn merged<'a>(
    left: &List<'a>,
    right: &List<'a>,
    keys: &[String],
    meter: &mut Meter,
) -> Result<Vec<Value<'a>>, EvalError> {
    let (mut places, mut out) = (std::collections::HashMap::new(), Vec::new());
    for element in left.iter() {
        let element = element?;
        places.insert(compare::composite(&element, keys, meter)?, out.len());
        out.push(element);
    }
    for element in right.iter() {
        let element = element?;
        let key = compare::composite(&element, keys, meter)?;
        match places.get(&key) {
            Some(at) => out[*at] = element,
            None => {
                places.insert(key, out.len());
                out.push(element);
            }
        }
    }
    Ok(out)
}

fn subtract<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_sub(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_sub(*right)),
        [Value::Double(left), Value::Double(right)] => double(left - right),
        [Value::Duration(left), Value::Duration(right)] => duration(left.checked_sub(*right)),
        [Value::Timestamp(own), Value::Duration(nanos)] => later(*own, -i128::from(*nanos)),
        [Value::Timestamp(left), Value::Timestamp(right)] => {
            let nanos = i64::try_from(left.nanos_total() - right.nanos_total()).ok();
            Some(nanos.map(Value::Duration).ok_or_else(overflow))
        }
        _ => None,
    }
}

fn multiply<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_mul(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_mul(*right)),
        [Value::Double(left), Value::Double(right)] => double(left * right),
        _ => None,
    }
}

fn divide<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => super::fail("division by zero"),
        [Value::Int(left), Value::Int(right)] => int(left.checked_div(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_div(*right)),
        [Value::Double(left), Value::Double(right)] => double(left / right),
        _ => None,
    }
}

fn modulo<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => super::fail("modulus by zero"),
        [Value::Int(left), Value::Int(right)] => int(left.checked_rem(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_rem(*right)),
        _ => None,
    }
}

fn negate<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    match args {
        [Value::Int(own)] => int(own.checked_neg()),
        [Value::Double(own)] => double(-own),
        [Value::Duration(own)] => duration(own.checked_neg()),
        _ => None,
    }
}

fn contains<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    match args {
        [element, Value::List(list)] => Some(includes(list, element, meter).map(Value::Bool)),
        [key, Value::Map(Map::Fields(map))] => yes(key.as_str().is_some_and(|name| map.has(name))),
        [key, Value::Map(map)] => Some(match map.find(key) {
            Some(Err(error)) => Err(error),
            found => Ok(Value::Bool(found.is_some())),
        }),
        _ => None,
    }
}

/// Reports whether a list has an element.
pub(super) fn includes<'a>(
    list: &List<'a>,
    wanted: &Value<'a>,
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    for element in list.iter() {
        if wanted.equals(&element?, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn insert<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let mut entries = match args.first()? {
        Value::Map(Map::Values(own)) => (**own).clone(),
        _ => return None,
    };
    let inserted = match args {
        [_, Value::Map(other)] => other
            .keys()
            .into_iter()
            .try_for_each(|key| match other.find(&key) {
                Some(value) => entries.insert(key, value?),
                None => Ok(()),
            }),
        [_, key, value] if Key::of(key).is_some() => entries.insert(key.clone(), value.clone()),
        _ => return None,
    };
    let held = meter.hold(entries.list().len() * 3 * size_of::<Value<'_>>());
    Some(
        held.and(inserted)
            .map(|()| Value::Map(Map::Values(Arc::new(entries)))),
    )
}
