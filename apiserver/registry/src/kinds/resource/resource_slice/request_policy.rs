//! Validation of the policy by which claims take parts of a device's capacity.
//!
//! Upstream's rules are in `pkg/apis/resource/validation/validation.go`, `validateRequestPolicy`. Fractions follow
//! DRAFractionalCapacityRange, which is off in 1.37: amounts count in whole units, rounded up.

use crate::shared::validation::{Errors, Path, present, quantity};
use machinery_meta::Quantity;
use machinery_schema::Ref;
use std::collections::HashSet;

const MAX_VALUES: usize = 10;
const NEGATIVE: &str = "must be greater than or equal to 0";
const TOO_LARGE: &str = "must not be larger than 9223372036854775807";

/// Amounts that the values of a policy are compared with.
struct Bounds {
    default: Quantity,
    /// The device's amount.
    capacity: Quantity,
}

/// Validates the policy of a capacity whose device may be allocated several times.
pub(super) fn request_policy(errors: &mut Errors, path: &Path<'_>, capacity: Ref<'_>) {
    let (Some(policy), Some(amount)) = (
        present(capacity, "requestPolicy"),
        capacity.get("value").and_then(quantity),
    ) else {
        return;
    };
    let values: Vec<Quantity> = policy.list("validValues").filter_map(quantity).collect();
    let (member, range) = match (values.is_empty(), present(policy, "validRange")) {
        (false, Some(_)) => {
            let detail = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            return errors.forbidden(path, detail);
        }
        (false, None) => ("validValues", None),
        (true, Some(range)) => ("validRange", Some(range)),
        (true, None) => return,
    };
    let Some(default) = present(policy, "default").and_then(quantity) else {
        return errors.required(
            &path.child("default"),
            &format!("required when {member} is defined"),
        );
    };
    let bounds = Bounds {
        default,
        capacity: amount,
    };
    match range {
        None => valid_values(errors, &path.child(member), &values, &bounds),
        Some(range) => valid_range(errors, &path.child(member), range, &bounds),
    }
}

fn valid_values(errors: &mut Errors, path: &Path<'_>, values: &[Quantity], bounds: &Bounds) {
    for (index, pair) in values.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let detail = "values must be sorted in ascending order";
            errors.invalid(&path.index(index + 1), pair[1].to_string(), detail);
        }
    }
    let is_short = values.len() <= MAX_VALUES;
    if is_short {
        listed(errors, path, values, bounds.capacity);
    } else {
        errors.too_many(path, values.len(), MAX_VALUES);
    }
    // Upstream looks for the default while it validates the items, which it does not of a long list.
    if !(is_short && values.contains(&bounds.default)) {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path, bounds.default.to_string(), detail);
    }
}

fn listed(errors: &mut Errors, path: &Path<'_>, values: &[Quantity], capacity: Quantity) {
    for (index, value) in values.iter().enumerate() {
        if *value > capacity {
            let detail = format!("option is larger than capacity value: {capacity}");
            errors.invalid(&path.index(index), value.to_string(), detail);
        }
    }
    let mut known = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        if !known.insert(value.units()) {
            errors.duplicate(&path.index(index), value.units().to_string());
        }
    }
}

fn valid_range(errors: &mut Errors, path: &Path<'_>, range: Ref<'_>, bounds: &Bounds) {
    let of = |name: &str| present(range, name).and_then(quantity);
    let Bounds { default, capacity } = *bounds;
    let Some(min) = of("min") else {
        return errors.required(&path.child("min"), "required when validRange is defined");
    };
    let mut refuse = |fails: bool, name: &str, value: Quantity, detail: String| {
        if fails {
            errors.invalid(&path.child(name), value.to_string(), detail);
        }
    };
    let detail = format!("min is larger than capacity value: {capacity}");
    refuse(min > capacity, "min", min, detail);
    let detail = format!("default is less than min: {min}");
    refuse(default < min, "default", default, detail);
    let max = of("max");
    if let Some(max) = max {
        // Upstream shows the lower bound here.
        refuse(min > max, "max", min, format!("min is larger than max: {max}"));
        let detail = format!("max is larger than capacity value: {capacity}");
        refuse(max > capacity, "max", max, detail);
        let detail = format!("default is more than max: {max}");
        refuse(default > max, "default", default, detail);
    }
    let Some(step) = of("step") else { return };
    if step <= Quantity::default() {
        return refuse(true, "step", step, "must be greater than zero".to_owned());
    }
    let added = min + step;
    let detail = format!("one step {added} is larger than capacity value: {capacity}");
    refuse(added > capacity, "step", step, detail);
    let named = [
        ("default", Some(default)),
        ("min", Some(min)),
        ("max", max),
        ("step", Some(step)),
    ];
    if are_whole_numbers(errors, path, &named) {
        for value in [Some(default), max].into_iter().flatten() {
            multiple(errors, &path.child("step"), value, (min, step));
        }
    }
}

/// Reports whether the steps of a range can be counted: upstream's 64 bits hold all of its amounts.
fn are_whole_numbers(errors: &mut Errors, path: &Path<'_>, named: &[(&str, Option<Quantity>)]) -> bool {
    let most = Quantity::from_units(i64::MAX);
    let mut all = true;
    for (name, value) in named {
        let Some(value) = value else { continue };
        let detail = match value {
            value if value.is_negative() => NEGATIVE,
            value if *value > most => TOO_LARGE,
            _ => continue,
        };
        all = false;
        errors.invalid(&path.child(name), value.to_string(), detail);
    }
    all
}

fn multiple(errors: &mut Errors, path: &Path<'_>, value: Quantity, (min, step): (Quantity, Quantity)) {
    // Invariant: none is negative, and a step above zero is one at least once it is rounded up.
    if (value.units() - min.units()) % step.units() != 0 {
        let detail = format!("value is not a multiple of a given step ({step}) from ({min})");
        errors.invalid(path, value.to_string(), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::Tree;

    /// Problems of a policy for a device with ten units.
    #[track_caller]
    fn check(policy: &str, expected: &[&str]) {
        let text = format!(r#"{{"value":"10","requestPolicy":{policy}}}"#);
        let capacity = Tree::from_json(&text).unwrap();
        let mut errors = Errors::default();
        request_policy(&mut errors, &Path::of("p"), capacity.root());
        let found: Vec<String> = errors.into_list().iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{policy}");
    }

    #[test]
    fn request_policy_lists_values_within_the_capacity() {
        check("{}", &[]);
        check(r#"{"default":"1","validValues":["1","2","10"]}"#, &[]);
        check(
            r#"{"validValues":["1"]}"#,
            &["p.default: Required value: required when validValues is defined"],
        );
        check(
            r#"{"default":"3","validValues":["2","1","11","11"]}"#,
            &[
                r#"p.validValues[1]: Invalid value: "1": values must be sorted in ascending order"#,
                r#"p.validValues[2]: Invalid value: "11": option is larger than capacity value: 10"#,
                r#"p.validValues[3]: Invalid value: "11": option is larger than capacity value: 10"#,
                r#"p.validValues[3]: Duplicate value: "11""#,
                r#"p.validValues: Invalid value: "3": default value is not valid according to the requestPolicy"#,
            ],
        );
        check(
            r#"{"default":"1","validValues":["1"],"validRange":{"min":"1"}}"#,
            &[
                r#"p: Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#,
            ],
        );
        check(
            r#"{"default":"1","validValues":["1","2","3","4","5","6","7","8","9","10","10"]}"#,
            &[
                "p.validValues: Too many: 11: must have at most 10 items",
                r#"p.validValues: Invalid value: "1": default value is not valid according to the requestPolicy"#,
            ],
        );
    }

    #[test]
    fn request_policy_range_is_ordered_and_counts_in_steps() {
        check(
            r#"{"default":"3","validRange":{"min":"1","max":"9","step":"2"}}"#,
            &[],
        );
        check(
            r#"{"validRange":{"min":"1"}}"#,
            &["p.default: Required value: required when validRange is defined"],
        );
        check(
            r#"{"default":"1","validRange":{}}"#,
            &["p.validRange.min: Required value: required when validRange is defined"],
        );
        check(
            r#"{"default":"1","validRange":{"min":"12","max":"11"}}"#,
            &[
                r#"p.validRange.min: Invalid value: "12": min is larger than capacity value: 10"#,
                r#"p.validRange.default: Invalid value: "1": default is less than min: 12"#,
                r#"p.validRange.max: Invalid value: "12": min is larger than max: 11"#,
                r#"p.validRange.max: Invalid value: "11": max is larger than capacity value: 10"#,
            ],
        );
        check(
            r#"{"default":"2","validRange":{"min":"1","max":"1","step":"10"}}"#,
            &[
                r#"p.validRange.default: Invalid value: "2": default is more than max: 1"#,
                r#"p.validRange.step: Invalid value: "10": one step 11 is larger than capacity value: 10"#,
                r#"p.validRange.step: Invalid value: "2": value is not a multiple of a given step (10) from (1)"#,
            ],
        );
        check(
            r#"{"default":"1","validRange":{"min":"-1","step":"0"}}"#,
            &[r#"p.validRange.step: Invalid value: "0": must be greater than zero"#],
        );
    }

    #[test]
    fn request_policy_steps_of_amounts_beyond_64_bits_are_refused() {
        check(
            r#"{"default":"-1","validRange":{"min":"-2","max":"1e20","step":"1"}}"#,
            &[
                r#"p.validRange.max: Invalid value: "100e18": max is larger than capacity value: 10"#,
                r#"p.validRange.default: Invalid value: "-1": must be greater than or equal to 0"#,
                r#"p.validRange.min: Invalid value: "-2": must be greater than or equal to 0"#,
                r#"p.validRange.max: Invalid value: "100e18": must not be larger than 9223372036854775807"#,
            ],
        );
    }
}
