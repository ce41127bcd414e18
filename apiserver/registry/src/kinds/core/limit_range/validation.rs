//! Validation of LimitRanges.

use crate::shared::validation::{
    Errors, Path, container_resource_name, may_overcommit, quantity, resource_name,
};
use machinery_meta::{FieldError, Quantity, syntax};
use machinery_schema::Ref;
use std::collections::{BTreeMap, BTreeSet};

/// Types of limits without a domain.
const TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];

/// The largest amount whose thousandths are still counted.
const MAX_MILLI: i64 = i64::MAX / 1000;

/// Every problem of a range, new or changed.
pub fn validate(range: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    let spec = Path::of("spec");
    let limits = spec.child("limits");
    let items = range.get("spec").into_iter().flat_map(|spec| spec.list("limits"));
    for (index, item) in items.enumerate() {
        let path = limits.index(index);
        let kind = item.str("type");
        type_name(&mut errors, &path.child("type"), kind);
        if !seen.insert(kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        limit(&mut errors, &path, item);
    }
    errors.into_list()
}

fn type_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    let problems = syntax::qualified_name(name);
    if !problems.is_empty() {
        errors.all_invalid(path, name, problems);
    } else if !name.contains('/') && !TYPES.contains(&name) {
        errors.invalid(path, name, "must be a standard limit type or fully qualified");
    }
}

type Amounts = BTreeMap<String, Quantity>;

/// Amounts of one item, by the name of the list.
#[derive(Default)]
struct Lists {
    min: Amounts,
    max: Amounts,
    default: Amounts,
    default_request: Amounts,
    ratio: Amounts,
}

fn limit(errors: &mut Errors, path: &Path<'_>, item: Ref<'_>) {
    let lists = Lists {
        max: amounts(errors, path, item, "max"),
        min: amounts(errors, path, item, "min"),
        default: defaults(errors, path, item, "default"),
        default_request: defaults(errors, path, item, "defaultRequest"),
        ratio: Amounts::new(),
    };
    let bounds_storage = lists.min.contains_key("storage") || lists.max.contains_key("storage");
    if item.str("type") == "PersistentVolumeClaim" && !bounds_storage {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    let ratio = amounts(errors, path, item, "maxLimitRequestRatio");
    let lists = Lists { ratio, ..lists };
    let all = [
        &lists.max,
        &lists.min,
        &lists.default,
        &lists.default_request,
        &lists.ratio,
    ];
    let names: BTreeSet<&String> = all.into_iter().flat_map(BTreeMap::keys).collect();
    for name in names {
        in_order(errors, path, &lists, name);
        ratio_fits(errors, path, &lists, name);
        not_overcommitted(errors, path, &lists, name);
    }
}

/// The amounts of a list, whose names are looked at.
fn amounts(errors: &mut Errors, path: &Path<'_>, item: Ref<'_>, list: &str) -> Amounts {
    let at = path.child(list);
    let of_containers = matches!(item.str("type"), "Pod" | "Container");
    let entries = item.get(list).into_iter().flat_map(Ref::entries);
    entries
        .filter_map(|(name, value)| {
            match of_containers {
                true => container_resource_name(errors, &at.key(name), name),
                false => drop(resource_name(errors, &at.key(name), name)),
            }
            Some((name.to_owned(), quantity(value)?))
        })
        .collect()
}

/// Amounts of a list that limits of whole pods do not have.
fn defaults(errors: &mut Errors, path: &Path<'_>, item: Ref<'_>, list: &str) -> Amounts {
    if item.str("type") != "Pod" {
        return amounts(errors, path, item, list);
    }
    if item.get(list).is_some_and(|own| own.entries().next().is_some()) {
        errors.forbidden(&path.child(list), "may not be specified when `type` is 'Pod'");
    }
    Amounts::new()
}

/// Least, default request, default and most, in this order. Values shown are those that upstream shows.
fn in_order(errors: &mut Errors, path: &Path<'_>, lists: &Lists, name: &str) {
    let of = |list: &Amounts| list.get(name).copied();
    let (min, max) = (of(&lists.min), of(&lists.max));
    let (default, request) = (of(&lists.default), of(&lists.default_request));
    let mut ordered =
        |list: &str, low: Option<Quantity>, high: Option<Quantity>, shows_low, words: (&str, &str)| {
            let (Some(low), Some(high)) = (low, high) else {
                return;
            };
            if low > high {
                let shown = if shows_low { low } else { high };
                let detail = format!("{} value {low} is greater than {} value {high}", words.0, words.1);
                errors.invalid(&path.child(list).key(name), shown.to_string(), detail);
            }
        };
    ordered("min", min, max, true, ("min", "max"));
    ordered("defaultRequest", min, request, false, ("min", "default request"));
    ordered("defaultRequest", request, max, true, ("default request", "max"));
    ordered(
        "defaultRequest",
        request,
        default,
        true,
        ("default request", "default limit"),
    );
    ordered("default", min, default, true, ("min", "default"));
    ordered("default", default, max, false, ("default", "max"));
}

fn ratio_fits(errors: &mut Errors, path: &Path<'_>, lists: &Lists, name: &str) {
    let Some(ratio) = lists.ratio.get(name).copied() else {
        return;
    };
    let list = path.child("maxLimitRequestRatio");
    let at = list.key(name);
    if ratio < Quantity::from_units(1) {
        errors.invalid(&at, ratio.to_string(), format!("ratio {ratio} is less than 1"));
    }
    let (Some(min), Some(max)) = (lists.min.get(name), lists.max.get(name)) else {
        return;
    };
    let fine = [ratio, *min, *max].iter().all(|own| own.units() < MAX_MILLI);
    let (value, most) = match fine {
        true => (
            ratio.millis() as f64 / 1000.0,
            max.millis() as f64 / min.millis() as f64,
        ),
        false => (ratio.units() as f64, max.units() as f64 / min.units() as f64),
    };
    if value > most {
        let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
        errors.invalid(&at, ratio.to_string(), detail);
    }
}

/// Huge pages and extended resources are limited to what is requested.
fn not_overcommitted(errors: &mut Errors, path: &Path<'_>, lists: &Lists, name: &str) {
    let (Some(default), Some(request)) = (lists.default.get(name), lists.default_request.get(name)) else {
        return;
    };
    if !may_overcommit(name) && default != request {
        let detail =
            format!("default value {default} must equal to defaultRequest value {request} in {name}");
        errors.invalid(
            &path.child("defaultRequest").key(name),
            request.to_string(),
            detail,
        );
    }
}
