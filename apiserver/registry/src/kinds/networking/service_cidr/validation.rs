//! Validation of ServiceCIDRs (upstream's `pkg/apis/networking/validation`).

use crate::shared::validation::{Errors, Path, cidr, lenient_range};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

const IMMUTABLE: &str = "field is immutable";

fn ranges(object: Ref<'_>) -> Vec<&str> {
    let list = object.get("spec").into_iter().flat_map(|spec| spec.list("cidrs"));
    list.filter_map(Ref::as_str).collect()
}

/// Every problem of a new one.
pub fn validate(object: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec(&mut errors, object);
    errors.into_list()
}

fn spec(errors: &mut Errors, object: Ref<'_>) {
    let spec_path = Path::of("spec");
    let path = spec_path.child("cidrs");
    let own = ranges(object);
    let shown = || {
        Shown(
            object
                .at(&["spec", "cidrs"])
                .map(Ref::to_json)
                .unwrap_or_default(),
        )
    };
    if own.is_empty() {
        return errors.required(&path, "at least one CIDR required");
    }
    if own.len() > 2 {
        let shown = Shown(object.get("spec").map(Ref::to_json).unwrap_or_default());
        return errors.invalid(&path, shown, "may only hold up to 2 values");
    }
    for (index, text) in own.iter().enumerate() {
        cidr(errors, &path.index(index), text);
    }
    let is_six = |text: &str| text.contains(':');
    let is_range = own.iter().all(|text| lenient_range(text).is_some());
    if own.len() == 2 && is_range && is_six(own[0]) == is_six(own[1]) {
        let detail =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, shown(), detail);
    }
}

/// Ranges stay; a second one of the other family may come.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec_path = Path::of("spec");
    let path = spec_path.child("cidrs");
    let (after, before) = (ranges(new), ranges(old));
    if after.len() == before.len() || (before.len() == 1 && after.len() == 2) {
        for (index, (after, before)) in after.iter().zip(&before).enumerate() {
            if after != before {
                errors.invalid(&path.index(index), *after, IMMUTABLE);
            }
        }
        if after.len() != before.len() {
            spec(&mut errors, new);
        }
    } else {
        let shown = new.at(&["spec", "cidrs"]).map(Ref::to_json);
        errors.invalid(&path, Shown(shown.unwrap_or_else(|| "null".into())), IMMUTABLE);
    }
    errors.into_list()
}
