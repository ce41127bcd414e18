//! Numbers, choices and amounts.

use super::{Errors, Path};
use machinery_meta::field::Shown;
use machinery_meta::{Quantity, syntax};
use machinery_schema::{Kind, Ref};

const NEGATIVE: &str = "must be greater than or equal to 0";

/// An integer member that may not be negative; an absent one is fine.
pub fn non_negative(errors: &mut Errors, path: &Path<'_>, object: Ref<'_>, name: &str) {
    if let Some(value) = object.get(name).and_then(Ref::as_i64) {
        non_negative_int(errors, &path.child(name), value);
    }
}

/// An integer that may not be negative.
pub fn non_negative_int(errors: &mut Errors, path: &Path<'_>, value: i64) {
    if value < 0 {
        errors.invalid(path, value, NEGATIVE);
    }
}

/// An integer member within bounds; an absent one is fine.
pub fn range(errors: &mut Errors, path: &Path<'_>, object: Ref<'_>, name: &str, low: i64, high: i64) {
    match object.get(name).and_then(Ref::as_i64) {
        Some(value) if !(low..=high).contains(&value) => {
            errors.invalid(&path.child(name), value, syntax::inclusive_range(low, high));
        }
        _ => {}
    }
}

/// A string member that is one of a few; an absent or empty one is `required`, when that has a sentence. Where Go has a
/// pointer an empty one is none of the few.
pub fn one_of(
    errors: &mut Errors,
    path: &Path<'_>,
    object: Ref<'_>,
    name: &str,
    supported: &[&str],
    required: Option<&str>,
) {
    let value = object.str(name);
    let is_given = object.is_pointer(name) && present(object, name).is_some();
    if value.is_empty() && !is_given {
        if let Some(detail) = required {
            errors.required(&path.child(name), detail);
        }
    } else if !supported.contains(&value) {
        errors.not_supported(&path.child(name), value, supported);
    }
}

/// A member that may not change; `detail` is upstream's sentence, usually `field is immutable`.
pub fn immutable(
    errors: &mut Errors,
    path: &Path<'_>,
    new: Option<Ref<'_>>,
    old: Option<Ref<'_>>,
    detail: &str,
) {
    let text = |value: Option<Ref<'_>>| value.map(Ref::to_json);
    let (new, old) = (text(new), text(old));
    if new != old {
        errors.invalid(path, Shown(new.unwrap_or_else(|| "null".into())), detail);
    }
}

/// A string that may not change and that is no pointer: an absent one is empty.
pub fn immutable_text(
    errors: &mut Errors,
    path: &Path<'_>,
    new: Option<Ref<'_>>,
    old: Option<Ref<'_>>,
    detail: &str,
) {
    let text = |value: Option<Ref<'_>>| value.and_then(Ref::as_str).unwrap_or_default().to_owned();
    let (new, old) = (text(new), text(old));
    if new != old {
        errors.invalid(path, new, detail);
    }
}

/// The amount in a string value.
pub fn quantity(value: Ref<'_>) -> Option<Quantity> {
    value.as_str()?.parse().ok()
}

/// An `IntOrString` that is a non-negative integer or a percentage.
pub fn int_or_percent(errors: &mut Errors, path: &Path<'_>, value: Ref<'_>) {
    match (value.as_i64(), value.as_str()) {
        (Some(number), _) => non_negative_int(errors, path, number),
        (None, Some(text)) => errors.all_invalid(path, text, syntax::percent(text)),
        (None, None) => {}
    }
}

/// A percentage above a hundred.
pub fn not_over_100_percent(errors: &mut Errors, path: &Path<'_>, value: Ref<'_>) {
    let Some(text) = value.as_str().filter(|text| syntax::percent(text).is_empty()) else {
        return;
    };
    if text
        .trim_end_matches('%')
        .parse::<u64>()
        .map_or(true, |percent| percent > 100)
    {
        errors.invalid(path, text, "must not be greater than 100%");
    }
}

/// The number or percentage in an `IntOrString`; a text that is neither counts as zero, as upstream counts it.
pub fn is_zero_amount(value: Option<Ref<'_>>) -> bool {
    let Some(value) = value else { return true };
    let percent = || {
        value
            .as_str()
            .and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok())
    };
    value
        .as_i64()
        .or_else(|| percent().and_then(|n| i64::try_from(n).ok()))
        .unwrap_or_default()
        == 0
}

/// A member that is there and not null; Go writes an absent pointer without `omitempty` as null.
pub fn present<'a>(object: Ref<'a>, name: &str) -> Option<Ref<'a>> {
    object.get(name).filter(|value| !value.is_null())
}

/// Absent, null, or without members.
pub fn is_empty_object(value: Option<Ref<'_>>) -> bool {
    value.is_none_or(|value| value.kind() != Kind::Map || value.is_empty())
}
