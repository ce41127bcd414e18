//! Quantities.

use super::{Function, fail, yes};
use crate::value::{Evaluated, Opaque, Value};
use machinery_meta::Quantity;
use std::cmp::Ordering;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "quantity" => |_, args| match args {
            [Value::String(own)] => match own.as_str().parse() {
                Ok(own) => made(own),
                Err(error) => fail(machinery_meta::quantity::ParseQuantityError::to_string(&error)),
            },
            _ => None,
        },
        "isQuantity" => |_, args| match args {
            [Value::String(own)] => yes(own.as_str().parse::<Quantity>().is_ok()),
            _ => None,
        },
        "sign" => |_, args| {
            let own = of(args.first()?)?;
            Some(Ok(Value::Int(match own.cmp(&Quantity::from_units(0)) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            })))
        },
        "asApproximateFloat" => |_, args| Some(Ok(Value::Double(of(args.first()?)?.as_f64()))),
        "isInteger" => |_, args| yes(whole(of(args.first()?)?).is_some()),
        "asInteger" => |_, args| match whole(of(args.first()?)?) {
            Some(own) => Some(Ok(Value::Int(own))),
            None => fail("cannot convert value to integer"),
        },
        "add" => |_, args| {
            let (own, other) = two(args)?;
            made(own + other)
        },
        "sub" => |_, args| {
            let (own, other) = two(args)?;
            made(own - other)
        },
        _ => return None,
    })
}

pub(super) fn of(value: &Value<'_>) -> Option<Quantity> {
    match value {
        Value::Opaque(own) => match **own {
            Opaque::Quantity(own) => Some(own),
            _ => None,
        },
        _ => None,
    }
}

/// A quantity and another, which may be a whole number.
fn two(args: &[Value<'_>]) -> Option<(Quantity, Quantity)> {
    let [own, other] = args else { return None };
    let other = match other {
        Value::Int(other) => Quantity::from_units(*other),
        other => of(other)?,
    };
    Some((of(own)?, other))
}

/// The whole number that a quantity is.
fn whole(own: Quantity) -> Option<i64> {
    own.is_integer().then(|| own.units())
}

#[expect(clippy::unnecessary_wraps, reason = "the form of a function's result")]
fn made<'a>(own: Quantity) -> Option<Evaluated<'a>> {
    Some(Ok(Value::opaque(Opaque::Quantity(own))))
}
