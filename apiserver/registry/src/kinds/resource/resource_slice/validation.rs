//! Validation of ResourceSlices: where their devices are, and that together they fit.

use super::device;
use crate::kinds::core::pod::validation::scheduling::node_selector;
use crate::kinds::resource::Problems;
use crate::kinds::resource::devices::pool_name;
use crate::shared::validation::{Errors, Path, csi_driver_name, dns_subdomain, present};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use std::collections::HashSet;

const MAX_DEVICES: usize = 128;
/// Most devices of a slice with taints, counters or lists of values.
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const ONE_OF: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

/// Every problem of a new slice.
pub(super) fn validate(slice: Ref<'_>) -> Vec<FieldError> {
    validate_spec(slice.get("spec"), None)
}

/// Every problem of a changed slice, which stays the same driver's, pool's and node's.
pub(super) fn validate_update(slice: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    validate_spec(slice.get("spec"), old.get("spec"))
}

fn validate_spec(spec: Option<Ref<'_>>, old: Option<Ref<'_>>) -> Vec<FieldError> {
    let Some(spec) = spec else { return Vec::new() };
    let mut problems = Problems::default();
    let path = Path::of("spec");
    csi_driver_name(&mut problems.seen, &path.child("driver"), spec.str("driver"));
    pool(&mut problems.seen, &path.child("pool"), spec);
    if let Some(old) = old {
        fixed(&mut problems.seen, &path, spec, old);
    }
    place(&mut problems.seen, &path, spec);
    if present(spec, "sharedCounters").is_some() && present(spec, "devices").is_some() {
        let detail = "only one of `sharedCounters` or `devices` is allowed";
        problems.seen.invalid(&path, "", detail);
    }
    devices(&mut problems, &path, spec, old);
    counter_sets(&mut problems, &path.child("sharedCounters"), spec);
    problems.into_list()
}

fn pool(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let of = |name: &str| spec.at(&["pool", name]).and_then(Ref::as_i64).unwrap_or_default();
    pool_name(errors, &path.child("name"), spec.str_at(&["pool", "name"]));
    if of("resourceSliceCount") <= 0 {
        let at = path.child("resourceSliceCount");
        errors.invalid(&at, of("resourceSliceCount"), "must be greater than zero");
    }
    if of("generation") < 0 {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.child("generation"), of("generation"), detail);
    }
}

fn fixed(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Ref<'_>) {
    for member in [["pool", "name"].as_slice(), &["driver"], &["nodeName"]] {
        let of = |own: Ref<'_>| own.at(member).map(Ref::to_json);
        let (new, was) = (of(spec), of(old));
        if new != was {
            let shown = Shown(new.unwrap_or_else(|| "null".to_owned()));
            let name = member.join(".");
            errors.invalid(&path.child(&name), shown, "field is immutable");
        }
    }
}

/// Validates the nodes whose devices these are.
fn place(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut set = Vec::new();
    match present(spec, "nodeName").and_then(Ref::as_str) {
        None => {}
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            errors.invalid(&path.child("nodeName"), "", detail);
        }
        Some(name) => {
            set.push("`nodeName`");
            dns_subdomain(errors, &path.child("nodeName"), name);
        }
    }
    if let Some(selector) = present(spec, "nodeSelector") {
        set.push("`nodeSelector`");
        let at = path.child("nodeSelector");
        node_selector(errors, &at, selector);
        let terms = selector.list("nodeSelectorTerms");
        if terms.len() != 1 {
            // Upstream shows the terms by Go's names of their members.
            let empty: Vec<&str> = terms
                .map(|_| r#"{"MatchExpressions":null,"MatchFields":null}"#)
                .collect();
            let shown = match empty.as_slice() {
                [] => "null".to_owned(),
                several => format!("[{}]", several.join(",")),
            };
            let shown = Shown(shown);
            let detail = "must have exactly one node selector term";
            errors.invalid(&at.child("nodeSelectorTerms"), shown, detail);
        }
    }
    for (name, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match present(spec, name).and_then(Ref::as_bool) {
            None => {}
            Some(true) => set.push(shown),
            Some(false) => errors.invalid(&path.child(name), false, "must be either unset or set to true"),
        }
    }
    match set.len() {
        0 => errors.required(path, ONE_OF),
        1 => {}
        _ => {
            let detail = format!("{ONE_OF}, but multiple fields are set");
            errors.invalid(path, format!("{{{}}}", set.join(", ")), detail);
        }
    }
}

fn devices(problems: &mut Problems, path: &Path<'_>, spec: Ref<'_>, old: Option<Ref<'_>>) {
    let at = path.child("devices");
    let most = match spec.list("devices").any(device::is_advanced) {
        true => MAX_ADVANCED_DEVICES,
        false => MAX_DEVICES,
    };
    let count = spec.list("devices").len();
    if count > most {
        return problems.seen.too_many(&at, count, most);
    }
    let per_device = spec.get("perDeviceNodeSelection").and_then(Ref::as_bool) == Some(true);
    for (index, own) in spec.list("devices").enumerate() {
        let was = old.and_then(|old| old.list("devices").find(|was| was.str("name") == own.str("name")));
        device::validate(problems, &at.index(index), (own, was), per_device);
    }
    let mut names = HashSet::new();
    for (index, own) in spec.list("devices").enumerate() {
        if !names.insert(own.str("name")) {
            problems.seen.duplicate(&at.index(index), own.str("name"));
        }
    }
}

fn counter_sets(problems: &mut Problems, path: &Path<'_>, spec: Ref<'_>) {
    let count = spec.list("sharedCounters").len();
    if count > MAX_COUNTER_SETS {
        return problems.declared.too_many(path, count, MAX_COUNTER_SETS);
    }
    device::each_once(problems, path, spec.list("sharedCounters"), "name");
    for (index, own) in spec.list("sharedCounters").enumerate() {
        device::counters(problems, &path.index(index), own, "name");
    }
}
