//! Costs of calls that were made.

use super::range::scaled;
use super::{CHECK, LIST, OBJECT, PATTERN, TRAVERSAL};
use crate::value::{List, Map, Opaque, Value};

/// Rule by which the cost of a call is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CallRule {
    Fixed(u64),
    /// The size of an argument, times a factor.
    Size(usize, f64),
    /// The size of the result, times a factor.
    Result(f64),
    Selector,
    Traverse,
    Pattern,
    Smaller,
    Sum,
    Product,
    Contains {
        cidr: bool,
        text: bool,
    },
    Validate,
    Sets(f64),
    Allocated,
    Flatten,
    SelfCompare(usize),
}

/// The rule for a function, with its overload when there is only one.
pub(crate) fn rule(function: &str, overload: Option<&str>) -> CallRule {
    use CallRule::{
        Allocated, Contains, Fixed, Flatten, Pattern, Product, Result, Selector, SelfCompare, Sets, Size,
        Smaller, Sum, Traverse, Validate,
    };
    let overload = overload.unwrap_or_default();
    match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => return Sets(1.0),
        "list_sets_equivalent_list" => return Sets(2.0),
        "list_slice" | "lists_range" | "list_reverse" => return Allocated,
        "list_flatten" | "list_flatten_int" => return Flatten,
        "list_distinct" => return SelfCompare(0),
        _ if overload.ends_with("_sort") => return SelfCompare(0),
        _ if overload.ends_with("_sortByAssociatedKeys") => return SelfCompare(1),
        _ => {}
    }
    match function {
        "check" => return Fixed(CHECK),
        "fieldSelector" | "labelSelector" => return Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => return Traverse,
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => return Size(0, TRAVERSAL),
        "ip" if overload != "cidr_ip" => return Size(0, TRAVERSAL),
        "replace" | "split" | "ip.isCanonical" => return Size(0, 2.0 * TRAVERSAL),
        "join" => return Result(2.0 * TRAVERSAL),
        "find" | "findAll" => return Pattern,
        "containsIP" | "containsCIDR" => {
            return Contains {
                cidr: function == "containsCIDR",
                text: overload.ends_with("_string"),
            };
        }
        "validate" => return Validate,
        _ => {}
    }
    match overload {
        "starts_with_string" | "ends_with_string" => Size(1, TRAVERSAL),
        "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => Size(0, TRAVERSAL),
        "in_list" => Size(1, 1.0),
        "add_string" | "add_bytes" => Sum,
        "matches" | "matches_string" => Pattern,
        "contains_string" => Product,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => Smaller,
        _ => Fixed(1),
    }
}

/// Reports whether a function looks at the beginning or the end of a text alone, and not through it.
pub(crate) fn looks_at_an_edge(rule: CallRule) -> bool {
    rule == CallRule::Size(1, TRAVERSAL)
}

/// The smaller of the sizes of two values; of two texts, no more is counted than is in the shorter one.
fn smaller(left: Option<&Value<'_>>, right: Option<&Value<'_>>) -> u64 {
    if let (Some(Value::String(left)), Some(Value::String(right))) = (left, right) {
        let (left, right) = (left.as_str(), right.as_str());
        let (short, long) = if left.len() < right.len() {
            (left, right)
        } else {
            (right, left)
        };
        let count = short.chars().count();
        return long.chars().take(count).count() as u64;
    }
    size(left).min(size(right))
}

/// Size of a value as `size` has it; one of what has none.
pub(super) fn size(value: Option<&Value<'_>>) -> u64 {
    let count = match value {
        Some(Value::String(own)) => own.as_str().chars().count(),
        Some(Value::Bytes(own)) => own.len(),
        Some(Value::List(own)) => own.len(),
        Some(Value::Map(own)) => own.len(),
        Some(Value::Optional(Some(own))) => return size(Some(own)),
        Some(Value::Opaque(own)) => match &**own {
            Opaque::Ip(own) => return if own.is_ipv4() { 4 } else { 16 },
            Opaque::Cidr(_, bits) => return u64::from(bits.div_ceil(8)),
            _ => 1,
        },
        _ => 1,
    };
    count as u64
}

/// Cost of `==` or `!=`; what failed has size one.
pub(crate) fn equality(left: Option<&Value<'_>>, right: Option<&Value<'_>>, equal: bool) -> u64 {
    if equal && matches!(left, Some(Value::Opaque(_))) {
        return 1;
    }
    scaled(smaller(left, right), TRAVERSAL)
}

/// Cost of a call.
pub(crate) fn call(rule: CallRule, args: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
    let arg = |at: usize| size(args.get(at));
    match rule {
        CallRule::Fixed(own) => own,
        CallRule::Size(at, factor) => scaled(arg(at), factor),
        CallRule::Result(factor) => scaled(size(result), factor),
        CallRule::Selector => selector(arg(1)),
        CallRule::Traverse => args.first().map_or(0, traversal),
        CallRule::Pattern => pattern(arg(0), arg(1)),
        CallRule::Smaller => scaled(smaller(args.first(), args.get(1)), TRAVERSAL),
        CallRule::Sum => scaled(arg(0) + arg(1), TRAVERSAL),
        CallRule::Product => scaled(arg(0), TRAVERSAL).saturating_mul(scaled(arg(1), TRAVERSAL)),
        CallRule::Contains { cidr, text } => {
            let mut cost = scaled(2 * arg(0), TRAVERSAL);
            if cidr {
                cost += scaled(arg(0), TRAVERSAL) + 1;
            }
            if text {
                cost += scaled(arg(1), TRAVERSAL);
            }
            cost
        }
        CallRule::Validate => match args.first() {
            Some(Value::Opaque(own)) => match &**own {
                Opaque::Format(own) => pattern(arg(1), own.max_regex_size),
                _ => 1,
            },
            _ => 1,
        },
        CallRule::Sets(factor) => 1u64.saturating_add(whole(arg(0).saturating_mul(arg(1)), factor)),
        CallRule::Allocated => allocated(1.0, size(result)),
        CallRule::Flatten => {
            let depth = match args.get(1) {
                Some(Value::Int(own)) => crate::value::float(*own),
                _ => 1.0,
            };
            allocated(depth, arg(0))
        }
        CallRule::SelfCompare(at) => self_compare(args.get(at)),
    }
}

fn self_compare(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else {
        return 1;
    };
    let count = list.len() as u64;
    let text = matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let factor = if text { 2.0 + TRAVERSAL } else { 2.0 };
    allocated(factor, count.saturating_mul(count))
}

/// A number times a factor, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a cast saturates"
)]
fn whole(own: u64, factor: f64) -> u64 {
    (own as f64 * factor) as u64
}

fn allocated(factor: f64, size: u64) -> u64 {
    let factor = if factor < 0.0 { 1.0 } else { factor };
    whole(size, factor).saturating_add(1 + LIST)
}

fn pattern(text: u64, pattern: u64) -> u64 {
    scaled(text + 1, TRAVERSAL).saturating_mul(scaled(pattern, PATTERN))
}

/// Reading a selector, and making a requirement of every two characters.
pub(super) fn selector(length: u64) -> u64 {
    let requirements = scaled(
        scaled(length, 0.5),
        f64::from(u32::try_from(LIST + OBJECT).unwrap_or(0)),
    );
    LIST + scaled(length, TRAVERSAL) + requirements
}

/// Visiting every part of a value.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(own) => whole(own.as_str().len() as u64, TRAVERSAL),
        Value::Bytes(own) => whole(own.len() as u64, TRAVERSAL),
        Value::List(own) => list_traversal(own),
        Value::Map(own) => map_traversal(own),
        _ => 1,
    }
}

fn list_traversal(list: &List<'_>) -> u64 {
    let elements = list.iter().map(|own| own.as_ref().map_or(1, traversal));
    elements.fold(0, u64::saturating_add)
}

fn map_traversal(map: &Map<'_>) -> u64 {
    let keys = map.keys();
    let entries = keys.iter().map(|key| {
        let value = map.find(key).map_or(1, |own| own.as_ref().map_or(1, traversal));
        traversal(key).saturating_add(value)
    });
    entries.fold(0, u64::saturating_add)
}
