//! Lists and sets.

use super::operators::includes;
use super::strings::{index_of, last_index_of};
use super::{Function, fail};
use crate::eval::Meter;
use crate::value::{EvalError, Evaluated, List, Value};
use std::cmp::Ordering;

/// Elements of a range, at most.
const MAX_RANGE: i64 = 1_000_000;
/// Lists inside each other that are flattened.
const MAX_FLATTEN: i64 = 256;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "isSorted" => |meter, args| one(args, |list| sorted(list, meter)),
        "sum" => |meter, args| one(args, |list| sum(list, Value::Int(0), meter)),
        "sum(uint)" => |meter, args| one(args, |list| sum(list, Value::Uint(0), meter)),
        "sum(double)" => |meter, args| one(args, |list| sum(list, Value::Double(0.0), meter)),
        "sum(duration)" => |meter, args| one(args, |list| sum(list, Value::Duration(0), meter)),
        "max" => |meter, args| one(args, |list| best(list, "max", Ordering::Less, meter)),
        "min" => |meter, args| one(args, |list| best(list, "min", Ordering::Greater, meter)),
        "indexOf" => |meter, args| index(meter, args, false),
        "lastIndexOf" => |meter, args| index(meter, args, true),
        "includes" => |meter, args| match args {
            [Value::List(list), wanted] => Some(includes(list, wanted, meter).map(Value::Bool)),
            [own, wanted] => Some(own.equals(wanted, meter).map(Value::Bool)),
            _ => None,
        },
        "sets.contains" => |meter, args| two(args, |own, other| all_in(other, own, meter)),
        "sets.equivalent" => |meter, args| {
            two(args, |own, other| {
                Ok(all_in(other, own, meter)? && all_in(own, other, meter)?)
            })
        },
        "sets.intersects" => |meter, args| two(args, |own, other| any_in(own, other, meter)),
        "slice" => slice,
        "flatten" => flatten,
        "lists.range" => range,
        "reverse" => |meter, args| {
            one(args, |list| {
                let mut values = list.iter().collect::<Result<Vec<_>, _>>()?;
                values.reverse();
                super::list(values, meter)
            })
        },
        "distinct" => |meter, args| one(args, |list| distinct(list, meter)),
        _ => return None,
    })
}

fn one<'a>(args: &[Value<'a>], run: impl FnOnce(&List<'a>) -> Evaluated<'a>) -> Option<Evaluated<'a>> {
    match args {
        [Value::List(own)] => Some(run(own)),
        _ => None,
    }
}

fn two<'a>(
    args: &[Value<'a>],
    run: impl FnOnce(&List<'a>, &List<'a>) -> Result<bool, EvalError>,
) -> Option<Evaluated<'a>> {
    match args {
        [Value::List(own), Value::List(other)] => Some(run(own, other).map(Value::Bool)),
        _ => None,
    }
}

fn all_in<'a>(part: &List<'a>, whole: &List<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    for element in part.iter() {
        if !includes(whole, &element?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn any_in<'a>(own: &List<'a>, other: &List<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    for element in own.iter() {
        if includes(other, &element?, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sorted<'a>(list: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let mut before: Option<Value<'a>> = None;
    for element in list.iter() {
        meter.work(1)?;
        let element = element?;
        if let Some(before) = &before
            && before.order(&element)? == Ordering::Greater
        {
            return Ok(Value::Bool(false));
        }
        before = Some(element);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(list: &List<'a>, zero: Value<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let add = super::function("_+_").expect("an operator");
    let mut total: Option<Value<'a>> = None;
    for element in list.iter() {
        let element = element?;
        total = Some(match total {
            None => element,
            Some(total) => add(meter, &[total, element]).unwrap_or_else(|| Err(EvalError::no_overload()))?,
        });
    }
    Ok(total.unwrap_or(zero))
}

fn best<'a>(list: &List<'a>, name: &str, other: Ordering, meter: &mut Meter) -> Evaluated<'a> {
    let mut best: Option<Value<'a>> = None;
    for element in list.iter() {
        meter.work(1)?;
        let element = element?;
        best = Some(match best {
            Some(own) if own.order(&element)? != other => own,
            _ => element,
        });
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

/// Place of an element in a list, or of a part in a string.
fn index<'a>(meter: &mut Meter, args: &[Value<'a>], last: bool) -> Option<Evaluated<'a>> {
    let of_text = if last { last_index_of } else { index_of };
    let found = match args {
        [Value::String(own), Value::String(part)] => of_text(own.as_str(), part.as_str(), None),
        [Value::String(own), Value::String(part), Value::Int(from)] => {
            of_text(own.as_str(), part.as_str(), Some(*from))
        }
        [Value::List(list), wanted] => position(list, wanted, last, meter),
        _ => return None,
    };
    Some(found.map(Value::Int))
}

fn position<'a>(
    list: &List<'a>,
    wanted: &Value<'a>,
    last: bool,
    meter: &mut Meter,
) -> Result<i64, EvalError> {
    let mut found = -1;
    for (at, element) in list.iter().enumerate() {
        if element?.equals(wanted, meter)? {
            found = i64::try_from(at).unwrap_or(i64::MAX);
            if !last {
                break;
            }
        }
    }
    Ok(found)
}

fn slice<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return None;
    };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fail(format!(
            "cannot slice({start}, {end}), negative indexes not supported"
        ));
    };
    if from > to {
        let problem = "start index must be less than or equal to end index";
        return fail(format!("cannot slice({start}, {end}), {problem}"));
    }
    if list.len() < to {
        return fail(format!(
            "cannot slice({start}, {end}), list is length {}",
            list.len()
        ));
    }
    let values: Result<Vec<_>, _> = (from..to).filter_map(|at| list.get(at)).collect();
    Some(values.and_then(|own| super::list(own, meter)))
}

fn flatten<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        [own, rest @ ..] => {
            let depth = rest.first().map(|own| own.ty().to_string()).unwrap_or_default();
            return fail(format!("no such overload: {}.flatten({depth})", own.ty()));
        }
        [] => return None,
    };
    if depth < 0 {
        return fail("level must be non-negative");
    }
    let mut out = Vec::new();
    let flat = flatten_into(list, depth.min(MAX_FLATTEN), &mut out, meter);
    Some(flat.and_then(|()| super::list(out, meter)))
}

fn flatten_into<'a>(
    list: &List<'a>,
    depth: i64,
    out: &mut Vec<Value<'a>>,
    meter: &mut Meter,
) -> Result<(), EvalError> {
    for element in list.iter() {
        meter.work(1)?;
        match element? {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, out, meter)?,
            other => {
                meter.hold(size_of::<Value<'_>>())?;
                out.push(other);
            }
        }
    }
    Ok(())
}

fn range<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let [Value::Int(count)] = args else { return None };
    if *count < 0 {
        return fail(format!("lists.range: size must be non-negative, got {count}"));
    }
    if *count > MAX_RANGE {
        return fail(format!(
            "lists.range: size {count} exceeds maximum allowed ({MAX_RANGE})"
        ));
    }
    let bytes = usize::try_from(*count)
        .unwrap_or(usize::MAX)
        .saturating_mul(size_of::<Value<'_>>());
    Some(
        meter
            .hold(bytes)
            .map(|()| Value::List(List::new((0..*count).map(Value::Int).collect()))),
    )
}

fn distinct<'a>(list: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let mut out: Vec<Value<'a>> = Vec::new();
    for element in list.iter() {
        let element = element?;
        let mut known = false;
        for own in &out {
            if element.equals(own, meter)? {
                known = true;
                break;
            }
        }
        if !known {
            out.push(element);
        }
    }
    super::list(out, meter)
}
