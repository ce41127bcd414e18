//! The range of what a call may cost.

use super::estimate::{Coster, Path, child, plain};
use super::range::{Range, scaled};
use super::{CHECK, LIST, PATTERN, TRAVERSAL, runtime};
use crate::ast::{Expr, Literal};
use crate::types::Type;
use std::rc::Rc;

/// An argument of a call, or what it is called on.
pub(super) struct Argument<'e> {
    pub(super) expr: &'e Expr,
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
    pub(super) path: Option<Rc<Path>>,
}

impl Argument<'_> {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// A literal that is a whole number, not below zero.
    fn whole(&self, otherwise: u64) -> u64 {
        match self.expr.as_literal() {
            Some(Literal::Int(own)) => u64::try_from(*own).unwrap_or_default(),
            _ => otherwise,
        }
    }
}

pub(super) struct Estimate {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

pub(super) fn sum(args: &[Argument<'_>]) -> Range {
    args.iter()
        .map(|own| own.cost)
        .fold(Range::default(), Range::plus)
}

fn of(cost: Range) -> Option<Estimate> {
    Some(Estimate { cost, size: None })
}

fn sized(cost: Range, size: Range) -> Option<Estimate> {
    Some(Estimate {
        cost,
        size: Some(size),
    })
}

/// Cost and size of the result of a call, with the costs of the arguments.
pub(super) fn estimate(
    coster: &mut Coster<'_>,
    expr: &Expr,
    function: &str,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Estimate {
    let own =
        extensions(overload, target, args).or_else(|| kubernetes(coster, function, overload, target, args));
    if let Some(own) = own {
        return Estimate {
            cost: own.cost.plus(sum(args)),
            size: own.size,
        };
    }
    standard(coster, expr, overload, target, args).unwrap_or_else(|| plain(args))
}

/// Functions of the extension libraries for sets and lists.
fn extensions(overload: &str, target: Option<&Argument<'_>>, args: &[Argument<'_>]) -> Option<Estimate> {
    let allocated = |factor: f64, size: Range| {
        let cost = size.scaled(factor).plus(Range::fixed(1 + LIST));
        sized(cost, size)
    };
    let square = |own: Range| own.times(own);
    match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list" => {
            let [left, right] = args else { return None };
            let factor = if overload == "list_sets_equivalent_list" {
                2.0
            } else {
                1.0
            };
            of(left
                .size()
                .times(right.size())
                .scaled(factor)
                .plus(Range::fixed(1)))
        }
        "list_slice" => {
            let [start, end] = args else { return None };
            let end = end.whole(target?.size().max);
            allocated(1.0, Range::fixed(end.wrapping_sub(start.whole(0))))
        }
        "lists_range" => allocated(1.0, Range::fixed(args.first()?.whole(u64::MAX))),
        "list_reverse" => allocated(1.0, target?.size()),
        "list_flatten" | "list_flatten_int" => {
            let depth = args.first().map_or(1, |own| own.whole(u64::MAX));
            #[expect(clippy::cast_precision_loss, reason = "as upstream")]
            allocated(depth as f64, target?.size())
        }
        "list_distinct" => allocated(2.0, square(target?.size())),
        _ => {
            let by_keys = overload.strip_suffix("_sortByAssociatedKeys");
            let item = by_keys
                .or(overload.strip_suffix("_sort"))?
                .strip_prefix("list_")?;
            let text = matches!(item, "string" | "bytes");
            let factor = if text { 2.0 + TRAVERSAL } else { 2.0 };
            let list = if by_keys.is_some() { args.first()? } else { target? };
            allocated(factor, square(list.size()))
        }
    }
}

/// Functions that Kubernetes has figures for.
fn kubernetes(
    coster: &mut Coster<'_>,
    function: &str,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Option<Estimate> {
    let first = || args.first().map(Argument::size);
    match function {
        "check" => of(Range::fixed(CHECK)),
        "serviceAccount"
        | "path"
        | "group"
        | "resource"
        | "subresource"
        | "namespace"
        | "name"
        | "allowed"
        | "reason"
        | "error"
        | "errored"
        | "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => of(Range::fixed(1)),
        "fieldSelector" | "labelSelector" => of(selector(first()?)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
            traversal(coster, function, target?)
        }
        "url" | "jsonpatch.escapeKey" => sized(first()?.scaled(TRAVERSAL), first()?),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => {
            let size = target?.size();
            sized(size.scaled(TRAVERSAL), size)
        }
        "replace" => replace(target?.size(), args),
        "split" => {
            let size = target?.size();
            let max = args.get(1).map_or(size.max, |own| match own.expr.as_literal() {
                // A negative number of parts is no limit to upstream's arithmetic either.
                Some(Literal::Int(own)) => own.cast_unsigned(),
                _ => size.max,
            });
            sized(size.scaled(2.0 * TRAVERSAL), Range::new(0, max))
        }
        "join" => join(coster, target?, args),
        "find" | "findAll" => {
            let size = target?.size();
            let text = size.plus(Range::fixed(1)).scaled(TRAVERSAL);
            sized(text.times(first()?.scaled(PATTERN)), Range::new(0, size.max))
        }
        "ip" if overload == "cidr_ip" => of(Range::fixed(1)),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            of(first()?.scaled(TRAVERSAL))
        }
        "ip.isCanonical" => of(first()?.scaled(2.0 * TRAVERSAL)),
        "containsIP" | "containsCIDR" => {
            let size = Range::new(4, 16);
            let mut cost = size.plus(size).scaled(TRAVERSAL);
            if function == "containsCIDR" {
                cost = cost.plus(size.scaled(TRAVERSAL)).plus(Range::fixed(1));
            }
            if overload.ends_with("_string") {
                cost = cost.plus(first()?.scaled(TRAVERSAL));
            }
            of(cost)
        }
        "validate" => of(first()?.scaled(TRAVERSAL).scaled(128.0 * PATTERN)),
        "_==_" => opaque_equality(coster, args),
        _ => None,
    }
}

fn selector(length: Range) -> Range {
    Range::new(runtime::selector(length.min), {
        let requirements = scaled(scaled(length.max, 0.5), 50.0);
        LIST.saturating_add(scaled(length.max, TRAVERSAL))
            .saturating_add(requirements)
    })
}

fn opaque_equality(coster: &Coster<'_>, args: &[Argument<'_>]) -> Option<Estimate> {
    let [left, right] = args else { return None };
    let ty = coster.ty(left.expr.id);
    if ty != coster.ty(right.expr.id) {
        return None;
    }
    match ty {
        Type::Opaque(name, _) if matches!(&**name, "net.IP" | "net.CIDR") => of(Range::fixed(1)),
        Type::Object(name) => match &**name {
            "kubernetes.Quantity" | "kubernetes.Semver" => of(Range::fixed(1)),
            "kubernetes.NamedFormat" => of(Range::new(1, 64).scaled(TRAVERSAL)),
            "kubernetes.URL" => {
                let max = right.size.map_or(1, |own| own.max);
                of(Range::new(1, max).scaled(TRAVERSAL))
            }
            _ if name.starts_with("kubernetes.authorization.") => of(Range::fixed(1)),
            _ => None,
        },
        _ => None,
    }
}

/// Element of a list, with the path to it.
fn element(coster: &Coster<'_>, list: &Argument<'_>) -> Option<(Type, Range)> {
    let item = coster.ty(list.expr.id).params().first().copied()?.clone();
    let path = list.path.as_ref().and_then(|path| child(Some(path), "@items"));
    let size = coster.size_at(path.as_ref()).unwrap_or(Range::UNKNOWN);
    Some((item, size))
}

fn traversal(coster: &Coster<'_>, function: &str, target: &Argument<'_>) -> Option<Estimate> {
    let size = target.size();
    match element(coster, target) {
        Some((item, own)) => {
            let mut cost = Range::fixed(1);
            if matches!(item, Type::String | Type::Bytes) {
                cost = cost.plus(own.scaled(TRAVERSAL));
            }
            of(size.times(cost))
        }
        None if function == "includes" => of(size),
        None => of(size.scaled(TRAVERSAL)),
    }
}

fn join(coster: &Coster<'_>, list: &Argument<'_>, args: &[Argument<'_>]) -> Option<Estimate> {
    let count = list.size();
    let mut size = match element(coster, list) {
        Some((_, own)) => count.times(own),
        None => Range::default(),
    };
    if let Some(separator) = args.first() {
        let separators = Range::new(count.min.saturating_sub(1), count.max.saturating_sub(1));
        size = size.plus(separator.size().times(separators));
    }
    sized(size.scaled(TRAVERSAL), size)
}

/// The shortest and the longest result of a replacement.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
fn replace(size: Range, args: &[Argument<'_>]) -> Option<Estimate> {
    let [old, new, ..] = args else { return None };
    let (old, new) = (old.size(), new.size());
    let parts = |size: u64, part: u64| (size as f64 / part as f64).ceil() as u64;
    let (mut count, mut kept) = (Range::default(), Range::default());
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = parts(size.max, old.min);
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = parts(size.min, old.max);
    }
    sized(size.scaled(2.0 * TRAVERSAL), count.times(new).plus(kept))
}

/// Functions of the language itself.
fn standard(
    coster: &mut Coster<'_>,
    expr: &Expr,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Option<Estimate> {
    let all = sum(args);
    let size = |at: usize| args.get(at).map(Argument::size);
    match overload {
        "string_format" => of(target?.size().scaled(TRAVERSAL).plus(all)),
        "string_to_bytes" => {
            let own = size(0)?;
            sized(
                own.scaled(TRAVERSAL).plus(all),
                Range::new(own.min, own.max.wrapping_mul(4)),
            )
        }
        "bytes_to_string" => {
            let own = size(0)?;
            sized(own.scaled(TRAVERSAL).plus(all), Range::new(own.min / 4, own.max))
        }
        "strings_quote" => {
            let own = size(0)?;
            let quoted = Range::new(own.min.wrapping_add(2), own.max.wrapping_mul(2).wrapping_add(2));
            sized(own.scaled(TRAVERSAL).plus(all), quoted)
        }
        "starts_with_string" | "ends_with_string" => of(size(0)?.scaled(TRAVERSAL).plus(all)),
        "in_list" => of(size(1)?.plus(all)),
        "matches" => of(pattern(size(0)?, size(1)?).plus(all)),
        "matches_string" => of(pattern(target?.size(), size(0)?).plus(all)),
        "contains_string" => {
            let cost = target?.size().scaled(TRAVERSAL).times(size(0)?.scaled(TRAVERSAL));
            of(cost.plus(all))
        }
        "logical_and" | "logical_or" => {
            let [left, right] = args else { return None };
            of(Range::new(left.cost.min, left.cost.plus(right.cost).max))
        }
        "conditional" => {
            let [condition, truthy, falsy] = args else {
                return None;
            };
            coster.join_entries(expr.id, truthy.expr, falsy.expr);
            let cost = condition.cost.plus(truthy.cost.union(falsy.cost));
            sized(cost, truthy.size().union(falsy.size()))
        }
        "add_string" | "add_bytes" | "add_list" => {
            let [left, right] = args else { return None };
            coster.join_entries(expr.id, left.expr, right.expr);
            let size = left.size().plus(right.size());
            let cost = match overload {
                "add_list" => Range::fixed(1),
                _ => size.scaled(TRAVERSAL),
            };
            sized(cost.plus(all), size)
        }
        "equals"
        | "not_equals"
        | "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => {
            let smallest = size(0)?.max.min(size(1)?.max);
            of(Range::new(smallest.min(1), smallest).scaled(TRAVERSAL).plus(all))
        }
        _ => None,
    }
}

fn pattern(text: Range, pattern: Range) -> Range {
    let text = text.plus(Range::fixed(1)).scaled(TRAVERSAL);
    text.times(pattern.scaled(PATTERN))
}
