//! `sort` and `sortBy`.

use super::{Function, fail};
use crate::eval::Meter;
use crate::value::{EvalError, Evaluated, List, Value};
use std::cmp::Ordering;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "sort" => |meter, args| match args {
            [Value::List(own)] => sorted(own, own, meter),
            _ => None,
        },
        "@sortByAssociatedKeys" => |meter, args| match args {
            [Value::List(own), Value::List(keys)] => sorted(own, keys, meter),
            _ => None,
        },
        _ => return None,
    })
}

/// A list in the order of its keys.
fn sorted<'a>(list: &List<'a>, keys: &List<'a>, meter: &mut Meter) -> Option<Evaluated<'a>> {
    let (count, other) = (list.len(), keys.len());
    if count != other {
        return fail(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {count} and {other} elements respectively"
        ));
    }
    Some(by_keys(list, keys, meter))
}

fn by_keys<'a>(list: &List<'a>, keys: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let keys = keys.iter().collect::<Result<Vec<_>, _>>()?;
    let Some(first) = keys.first() else {
        return Ok(Value::List(list.clone()));
    };
    // Sorting compares about `n log n` times.
    let steps = keys.len() as u64;
    meter.work(steps.saturating_mul(u64::from(steps.max(1).ilog2()) + 1))?;
    meter.hold(keys.len() * 2 * size_of::<Value<'_>>())?;
    if first.order(first).is_err() && !matches!(first, Value::Double(own) if own.is_nan()) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    if keys.iter().any(|own| own.ty() != first.ty()) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut places: Vec<usize> = (0..keys.len()).collect();
    places.sort_by(|own, other| keys[*own].order(&keys[*other]).unwrap_or(Ordering::Equal));
    let values = places.into_iter().filter_map(|at| list.get(at));
    super::list(values.collect::<Result<Vec<_>, _>>()?, meter)
}
