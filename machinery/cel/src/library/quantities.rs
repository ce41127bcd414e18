//! Quantities.

use super::{Function, fail, yes};
use crate::value::{Evaluated, Opaque, Value};
use machinery_meta::Quantity;
use std::cmp::Ordering;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "quantity" => |_, args| match args {
            [Value::String(own)] => match own.as_str().parse() {
                Ok(quantity) => made(Scaled {
                    quantity,
                    exact: Exact::read(own.as_str()),
                }),
                Err(error) => fail(machinery_meta::quantity::ParseQuantityError::to_string(&error)),
            },
            _ => None,
        },
        "isQuantity" => |_, args| match args {
            [Value::String(own)] => yes(own.as_str().parse::<Quantity>().is_ok()),
            _ => None,
        },
        "sign" => |_, args| {
            let own = of(args.first()?)?.quantity;
            Some(Ok(Value::Int(match own.cmp(&Quantity::from_units(0)) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            })))
        },
        "asApproximateFloat" => |_, args| Some(Ok(Value::Double(of(args.first()?)?.approximate()))),
        "isInteger" => |_, args| yes(of(args.first()?)?.whole().is_some()),
        "asInteger" => |_, args| match of(args.first()?)?.whole() {
            Some(own) => Some(Ok(Value::Int(own))),
            None => fail("cannot convert value to integer"),
        },
        "add" => |_, args| {
            let (own, other) = two(args)?;
            made(own.plus(other, false))
        },
        "sub" => |_, args| {
            let (own, other) = two(args)?;
            made(own.plus(other, true))
        },
        _ => return None,
    })
}

pub(super) fn of(value: &Value<'_>) -> Option<Scaled> {
    match value {
        Value::Opaque(own) => match **own {
            Opaque::Quantity(own) => Some(own),
            _ => None,
        },
        _ => None,
    }
}

/// A quantity and another, which may be a whole number.
fn two(args: &[Value<'_>]) -> Option<(Scaled, Scaled)> {
    let [own, other] = args else { return None };
    let other = match other {
        Value::Int(other) => Scaled {
            quantity: Quantity::from_units(*other),
            exact: Some(Exact {
                value: *other,
                scale: 0,
            }),
        },
        other => of(other)?,
    };
    Some((of(own)?, other))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of a function's result")]
fn made<'a>(own: Scaled) -> Option<Evaluated<'a>> {
    Some(Ok(Value::opaque(Opaque::Quantity(own))))
}

/// A quantity that knows how it was written: upstream takes `1` for a whole number and `1000m` not.
#[derive(Debug, Clone, Copy)]
pub struct Scaled {
    pub quantity: Quantity,
    /// Absent where upstream calculates with more digits than an `int64` has.
    exact: Option<Exact>,
}

/// A number of so many powers of ten.
#[derive(Debug, Clone, Copy)]
struct Exact {
    value: i64,
    scale: i32,
}

impl Scaled {
    /// The amount as its text says it.
    pub(crate) fn of(quantity: Quantity) -> Self {
        Self {
            quantity,
            exact: Exact::read(&quantity.to_string()),
        }
    }

    /// The whole number that it was written as.
    fn whole(self) -> Option<i64> {
        let Exact { value, scale } = self.exact?;
        scaled(value, u32::try_from(scale).ok()?)
    }

    #[expect(clippy::cast_precision_loss, reason = "the result is an approximation")]
    fn approximate(self) -> f64 {
        match self.exact {
            Some(Exact { value, scale: 0 }) => value as f64,
            Some(Exact { value, scale }) => {
                let power: f64 = format!("1e{scale}").parse().unwrap_or(f64::INFINITY);
                value as f64 * power
            }
            None => self.quantity.as_f64(),
        }
    }

    fn plus(self, other: Self, negated: bool) -> Self {
        let exact = other.exact.and_then(|own| match negated {
            true => own.value.checked_neg().map(|value| Exact { value, ..own }),
            false => Some(own),
        });
        Self {
            quantity: match negated {
                true => self.quantity - other.quantity,
                false => self.quantity + other.quantity,
            },
            exact: self.exact.zip(exact).and_then(|(own, other)| own.plus(other)),
        }
    }
}

fn scaled(value: i64, scale: u32) -> Option<i64> {
    value.checked_mul(10_i64.checked_pow(scale)?)
}

impl Exact {
    /// Digits that upstream reads without its decimal numbers.
    const MAX_DIGITS: usize = 18;

    /// Reads a quantity as upstream's fast way does (`resource.ParseQuantity`).
    fn read(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            own => own,
        };
        let (exponent, binary) = exponent(suffix)?;
        let fits = match binary {
            true => {
                let digits = usize::try_from(exponent).unwrap_or(0) * 3 / 10;
                fraction.is_empty() && whole.len() + digits < 15
            }
            false => whole.len() + fraction.len() <= Self::MAX_DIGITS,
        };
        let places = i32::try_from(fraction.len()).ok()?;
        let scale = if binary { 0 } else { exponent.checked_sub(places)? };
        if !fits || scale < -9 {
            return None;
        }
        let value: i64 = format!("{whole}{fraction}").parse().ok()?;
        let value = if binary {
            value.checked_mul(1 << exponent)?
        } else {
            value
        };
        let value = if text.starts_with('-') { -value } else { value };
        Some(Self { value, scale })
    }

    /// The sum, by the smaller power.
    fn plus(self, other: Self) -> Option<Self> {
        match (self, other) {
            (own, Self { value: 0, .. }) | (Self { value: 0, .. }, own) => Some(own),
            (own, other) => {
                let scale = own.scale.min(other.scale);
                let of = |own: Self| scaled(own.value, own.scale.checked_sub(scale)?.try_into().ok()?);
                let value = of(own)?.checked_add(of(other)?)?;
                Some(Self { value, scale })
            }
        }
    }
}

/// The exponent that a suffix stands for, and whether it is one of two.
fn exponent(suffix: &str) -> Option<(i32, bool)> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let at = |names: &[&str]| {
        names
            .iter()
            .position(|own| *own == suffix)
            .and_then(|at| i32::try_from(at).ok())
    };
    if let Some(at) = at(&DECIMAL) {
        return Some(((at - 3) * 3, false));
    }
    if let Some(at) = at(&BINARY) {
        return Some(((at + 1) * 10, true));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    Some((digits.parse().ok()?, false))
}

#[cfg(test)]
mod tests {
    use super::{Exact, Scaled};

    fn read(text: &str) -> Scaled {
        Scaled {
            quantity: text.parse().unwrap(),
            exact: Exact::read(text),
        }
    }

    #[test]
    fn quantities_have_exponents_of_any_size() {
        let (small, large) = ("0.1e-2147483648", "1e2147483647");
        assert!(Exact::read(small).is_none());
        let sum = Exact::read(large).unwrap().plus(Exact::read("1n").unwrap());
        assert!(sum.is_none(), "the sum has no exact form");
    }

    /// Answers of `resource.Quantity`, printed by `conformance/tools/quantities`.
    #[test]
    fn quantities_are_whole_as_they_are_written() {
        let mut wrong = Vec::new();
        for line in include_str!("../../testdata/quantities.tsv").lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [left, operator, right, whole, approximate] = fields[..] else {
                panic!("{line}");
            };
            let found = match operator {
                "" => read(left),
                operator => read(left).plus(read(right), operator == "-"),
            };
            let shown = found
                .whole()
                .map_or_else(|| "-".to_owned(), |own| own.to_string());
            // Without an exact form the sum is ours, which has other bounds.
            let float = found.exact.map_or_else(
                || approximate.to_owned(),
                |_| format!("{:?}", found.approximate().to_bits()),
            );
            if (&*shown, &*float) != (whole, approximate) {
                wrong.push(format!("{line}: {shown} {float}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
