//! Validation of one device of a slice.

use super::request_policy::request_policy;
use crate::kinds::core::pod::validation::scheduling::node_selector;
use crate::kinds::resource::Problems;
use crate::kinds::resource::devices::known_effect;
use crate::kinds::resource::qualified_names::qualified_name;
use crate::shared::validation::{
    Errors, Path, csi_driver_name, dns_label, dns_subdomain, present, qualified,
};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::HashSet;

const MAX_ATTRIBUTES_AND_CAPACITIES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_VALUE_BYTES: usize = 64;
const MAX_TAINTS: usize = 16;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_COUNTERS: usize = 32;
const MAX_CONDITIONS: usize = 4;
/// The members of an attribute, of which it has one.
const VALUES: [&str; 8] = [
    "int", "bool", "string", "version", "ints", "bools", "strings", "versions",
];

/// Reports whether a device has what makes it one of fewer.
pub(super) fn is_advanced(device: Ref<'_>) -> bool {
    let lists = |own: Ref<'_>| VALUES[4..].iter().any(|name| own.list(name).len() > 0);
    let mut attributes = device.get("attributes").into_iter().flat_map(Ref::entries);
    device.list("taints").len() > 0
        || device.list("consumesCounters").len() > 0
        || attributes.any(|(_, own)| lists(own))
}

/// Every problem of a device; what it had before is let pass where upstream lets it.
pub(super) fn validate(
    problems: &mut Problems,
    path: &Path<'_>,
    (device, old): (Ref<'_>, Option<Ref<'_>>),
    per_device: bool,
) {
    dns_label(&mut problems.seen, &path.child("name"), device.str("name"));
    sizes(&mut problems.seen, path, device);
    let attributes = path.child("attributes");
    for (name, own) in device.get("attributes").into_iter().flat_map(Ref::entries) {
        qualified_name(&mut problems.seen, &attributes, name, csi_driver_name);
        attribute(problems, &attributes.key(name), own);
    }
    let changed = |name: &str| old.is_none_or(|old| old.get(name) != device.get(name));
    if changed("capacity") {
        capacities(&mut problems.seen, &path.child("capacity"), device);
    }
    if changed("taints") {
        taints(problems, &path.child("taints"), device);
    }
    consumptions(problems, &path.child("consumesCounters"), device);
    place(&mut problems.seen, path, device, per_device);
    conditions(problems, path, device);
}

fn sizes(errors: &mut Errors, path: &Path<'_>, device: Ref<'_>) {
    let entries = |name: &str| device.get(name).map_or(0, Ref::len);
    let count = entries("attributes") + entries("capacity");
    if count > MAX_ATTRIBUTES_AND_CAPACITIES {
        let detail = format!(
            "the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}"
        );
        errors.invalid(path, i64::try_from(count).unwrap_or(i64::MAX), detail);
    }
    let values_of = |own: Ref<'_>| {
        VALUES[4..]
            .iter()
            .map(|name| own.list(name).len())
            .sum::<usize>()
            .max(1)
    };
    let attributes = device.get("attributes").into_iter().flat_map(Ref::entries);
    let values: usize = attributes.map(|(_, own)| values_of(own)).sum();
    if values > MAX_ATTRIBUTE_VALUES {
        let detail = format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}");
        errors.invalid(path, i64::try_from(values).unwrap_or(i64::MAX), detail);
    }
}

fn attribute(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>) {
    let set: Vec<&str> = VALUES
        .into_iter()
        .filter(|name| present(own, name).is_some())
        .collect();
    for (single, list) in [("string", "strings"), ("version", "versions")] {
        let at = path.child(single);
        if let Some(text) = present(own, single).and_then(Ref::as_str) {
            value(&mut problems.seen, &at, text, single == "version");
        }
        let at = path.child(list);
        for (index, text) in own.list(list).filter_map(Ref::as_str).enumerate() {
            value(&mut problems.seen, &at.index(index), text, single == "version");
        }
    }
    let all = VALUES.map(|name| format!("`{name}`")).join(", ");
    match set.len() {
        0 => problems
            .declared
            .invalid(path, "", format!("must specify one of: {all}")),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            problems
                .declared
                .invalid(path, shown, format!("must specify exactly one of: {all}"));
        }
    }
}

fn value(errors: &mut Errors, path: &Path<'_>, text: &str, is_version: bool) {
    if is_version && !is_semantic_version(text) {
        errors.invalid(
            path,
            text,
            "must be a string compatible with semver.org spec 2.0.0",
        );
    }
    if text.len() > MAX_VALUE_BYTES {
        errors.too_long(path, MAX_VALUE_BYTES);
    }
}

/// Three numbers, with what comes before a release and the build behind them.
fn is_semantic_version(text: &str) -> bool {
    let is_number = |own: &str| own == "0" || !own.starts_with('0') && is_digits(own);
    let is_word =
        |own: &str| !own.is_empty() && own.bytes().all(|own| own.is_ascii_alphanumeric() || own == b'-');
    let (text, build) = text
        .split_once('+')
        .map_or((text, None), |(text, own)| (text, Some(own)));
    let (core, early) = text
        .split_once('-')
        .map_or((text, None), |(text, own)| (text, Some(own)));
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3
        && numbers.into_iter().all(is_number)
        && early.is_none_or(|own| {
            own.split('.')
                .all(|own| is_word(own) && (!is_digits(own) || is_number(own)))
        })
        && build.is_none_or(|own| own.split('.').all(is_word))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|own| own.is_ascii_digit())
}

fn capacities(errors: &mut Errors, path: &Path<'_>, device: Ref<'_>) {
    let shared = device.get("allowMultipleAllocations").and_then(Ref::as_bool) == Some(true);
    for (name, own) in device.get("capacity").into_iter().flat_map(Ref::entries) {
        qualified_name(errors, path, name, csi_driver_name);
        let at = path.key(name);
        if shared {
            request_policy(errors, &at.child("requestPolicy"), own);
        } else if present(own, "requestPolicy").is_some() {
            errors.forbidden(
                &at.child("requestPolicy"),
                "allowMultipleAllocations must be true",
            );
        }
    }
}

fn taints(problems: &mut Problems, path: &Path<'_>, device: Ref<'_>) {
    let count = device.list("taints").len();
    if count > MAX_TAINTS {
        return problems.seen.too_many(path, count, MAX_TAINTS);
    }
    for (index, own) in device.list("taints").enumerate() {
        let at = path.index(index);
        qualified(&mut problems.seen, &at.child("key"), own.str("key"));
        let value = own.str("value");
        problems
            .seen
            .all_invalid(&at.child("value"), value, syntax::label_value(value));
        match own.str("effect") {
            "" => problems.declared.required(&at.child("effect"), ""),
            effect => known_effect(&mut problems.declared, &at.child("effect"), effect),
        }
    }
}

fn consumptions(problems: &mut Problems, path: &Path<'_>, device: Ref<'_>) {
    let count = device.list("consumesCounters").len();
    if count > MAX_CONSUMPTIONS {
        return problems.declared.too_many(path, count, MAX_CONSUMPTIONS);
    }
    each_once(problems, path, device.list("consumesCounters"), "counterSet");
    for (index, own) in device.list("consumesCounters").enumerate() {
        counters(problems, &path.index(index), own, "counterSet");
    }
}

/// Notes the items of a list whose name another has.
pub(super) fn each_once<'a>(
    problems: &mut Problems,
    path: &Path<'_>,
    items: impl Iterator<Item = Ref<'a>>,
    named: &str,
) {
    let mut names = HashSet::new();
    for (index, own) in items.enumerate() {
        if !names.insert(own.str(named)) {
            problems
                .declared
                .duplicate(&path.index(index), Shown(own.to_json()));
        }
    }
}

/// Validates a set of counters, or what is taken of one.
pub(super) fn counters(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>, named: &str) {
    let at = path.child(named);
    match own.str(named) {
        "" => problems.declared.required(&at, ""),
        name => dns_label(&mut problems.declared, &at, name),
    }
    let at = path.child("counters");
    let count = own.get("counters").map_or(0, Ref::len);
    if count == 0 {
        problems.declared.required(&at, "");
    } else if count > MAX_COUNTERS {
        problems.seen.too_many(&at, count, MAX_COUNTERS);
    }
    for (name, _) in own.get("counters").into_iter().flat_map(Ref::entries) {
        dns_label(&mut problems.declared, &at, name);
    }
}

/// Validates the nodes of a device, which it has where its slice says so.
fn place(errors: &mut Errors, path: &Path<'_>, device: Ref<'_>, per_device: bool) {
    const ONE_OF: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (name, selector) = (present(device, "nodeName"), present(device, "nodeSelector"));
    let all = present(device, "allNodes");
    if !per_device {
        if name.or(selector).or(all).is_some() {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(path, Shown("null".to_owned()), detail);
        }
        return;
    }
    let mut set = Vec::new();
    match name.and_then(Ref::as_str) {
        None => {}
        Some("") => errors.invalid(&path.child("nodeName"), "", "must not be empty"),
        Some(name) => {
            set.push("`nodeName`");
            dns_subdomain(errors, &path.child("nodeName"), name);
        }
    }
    if let Some(selector) = selector {
        set.push("`nodeSelector`");
        node_selector(errors, &path.child("nodeSelector"), selector);
    }
    match all.and_then(Ref::as_bool) {
        None => {}
        Some(true) => set.push("`allNodes`"),
        Some(false) => errors.invalid(
            &path.child("allNodes"),
            false,
            "must be either unset or set to true",
        ),
    }
    match set.len() {
        0 => errors.required(path, ONE_OF),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", set.join(", ")), ONE_OF),
    }
}

/// Validates the conditions that a device waits for when it is bound.
fn conditions(problems: &mut Problems, path: &Path<'_>, device: Ref<'_>) {
    const NAMES: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    let lists = NAMES.map(|name| device.list(name).filter_map(Ref::as_str).collect::<Vec<_>>());
    for (name, list) in NAMES.into_iter().zip(&lists) {
        let at = path.child(name);
        if list.len() > MAX_CONDITIONS {
            problems.declared.too_many(&at, list.len(), MAX_CONDITIONS);
            continue;
        }
        for (index, own) in list.iter().enumerate() {
            qualified(&mut problems.seen, &at.index(index), own);
        }
    }
    let errors = &mut problems.seen;
    let [bound, failed] = &lists;
    let awaited: HashSet<&str> = bound.iter().copied().collect();
    for (name, list) in NAMES.into_iter().zip(&lists) {
        let (at, mut known) = (path.child(name), HashSet::new());
        for (index, own) in list.iter().enumerate() {
            if !known.insert(own) {
                errors.duplicate(&at.index(index), *own);
            }
            if name == NAMES[1] && awaited.contains(own) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.invalid(&at.index(index), *own, detail);
            }
        }
    }
    for (own, other, [name, to_use]) in [(bound, failed, NAMES), (failed, bound, [NAMES[1], NAMES[0]])] {
        if own.is_empty() && !other.is_empty() {
            let detail = format!("{name} are required to use {to_use}");
            errors.invalid(&path.child(name), Shown("null".to_owned()), detail);
        }
    }
}
