//! Names, tolerations and configurations of devices, wherever they are written.

use super::Problems;
use crate::shared::validation::{Errors, Path, dns_label, dns_subdomain, present, qualified};
use machinery_cel::{DEVICE_SELECTOR_MAX_COST, DeviceSelector, ExpressionProblem};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::{Kind, Ref};
use std::collections::{BTreeMap, BTreeSet};

const MAX_DRIVER_CHARACTERS: usize = 63;
const MAX_POOL_BYTES: usize = 253;
/// Most bytes of parameters that a driver alone understands.
const MAX_OPAQUE_BYTES: usize = 10 * 1024;
const MAX_SELECTORS: usize = 32;
const MAX_EXPRESSION_BYTES: usize = 10 * 1024;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const OPERATORS: [&str; 2] = ["Equal", "Exists"];

/// Items that a list of references in a claim may have.
pub(super) const MAX_REFERENCES: usize = 32;

/// The requests of a claim and the alternatives of each.
pub(super) type RequestNames = BTreeMap<String, BTreeSet<String>>;

/// The names that constraints, configurations and results may refer to.
pub(super) fn request_names(devices: Option<Ref<'_>>) -> RequestNames {
    let requests = devices.into_iter().flat_map(|own| own.list("requests"));
    let named = requests.map(|request| {
        let alternatives = request
            .list("firstAvailable")
            .map(|own| own.str("name").to_owned());
        (request.str("name").to_owned(), alternatives.collect())
    });
    named.collect()
}

/// Validates a driver's name by upstream's rules for CSI drivers.
pub(super) fn driver_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_DRIVER_CHARACTERS {
        errors.too_many_characters(path, MAX_DRIVER_CHARACTERS);
    }
    errors.all_invalid(path, name, syntax::dns1123_subdomain(&name.to_lowercase()));
}

/// The same where upstream declares it, in other words.
pub(crate) fn declared_driver_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_DRIVER_CHARACTERS {
        return errors.too_many_characters(path, MAX_DRIVER_CHARACTERS);
    }
    errors.all_invalid(path, name, syntax::caseless_subdomain(name));
}

pub(super) fn pool_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_POOL_BYTES {
        errors.too_long(path, MAX_POOL_BYTES);
    }
    for part in name.split('/') {
        dns_subdomain(errors, path, part);
    }
}

pub(super) fn declared_pool_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_POOL_BYTES {
        return errors.too_long(path, MAX_POOL_BYTES);
    }
    for (index, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errors.invalid(path, name, format!("segment {index}: must not be empty"));
            continue;
        }
        for problem in syntax::dns1123_subdomain(part) {
            errors.invalid(path, name, format!("segment {index}: {problem}"));
        }
    }
}

/// A share of a device is a uuid in its one spelling.
pub(super) fn share_id(errors: &mut Errors, path: &Path<'_>, id: &str) {
    let groups: Vec<&str> = id.split('-').collect();
    let is_hex = |text: &&str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    if lengths != [8, 4, 4, 4, 12] || !groups.iter().all(is_hex) {
        errors.invalid(path, id, "must be a lowercase UUID in 8-4-4-4-12 format");
    }
}

/// Validates the tolerations of device taints.
pub(super) fn tolerations(problems: &mut Problems, path: &Path<'_>, owner: Ref<'_>) {
    let list = path.child("tolerations");
    for (index, own) in owner.list("tolerations").enumerate() {
        let at = list.index(index);
        let (key, value) = (own.str("key"), own.str("value"));
        if !key.is_empty() {
            qualified(&mut problems.declared, &at.child("key"), key);
        }
        match own.str("operator") {
            "Exists" if !value.is_empty() => {
                let detail = "must be empty for operator `Exists`";
                problems.seen.invalid(&at.child("value"), value, detail);
            }
            "Exists" => {}
            "Equal" => {
                let found = syntax::label_value(value);
                problems.seen.all_invalid(&at.child("value"), value, found);
            }
            "" => problems.declared.required(&at.child("operator"), ""),
            other => problems
                .declared
                .not_supported(&at.child("operator"), other, &OPERATORS),
        }
        let effect = own.str("effect");
        if !effect.is_empty() {
            known_effect(&mut problems.declared, &at.child("effect"), effect);
        }
    }
}

pub(super) fn known_effect(errors: &mut Errors, path: &Path<'_>, effect: &str) {
    if !EFFECTS.contains(&effect) {
        errors.not_supported(path, effect, &EFFECTS);
    }
}

/// Names of requests in a list, each once.
pub(super) fn references(problems: &mut Problems, path: &Path<'_>, owner: Ref<'_>, known: &RequestNames) {
    let names: Vec<&str> = owner.list("requests").filter_map(Ref::as_str).collect();
    if names.len() > MAX_REFERENCES {
        return problems.declared.too_many(path, names.len(), MAX_REFERENCES);
    }
    for (index, name) in names.iter().enumerate() {
        reference(&mut problems.seen, &path.index(index), name, known);
        if names[..index].contains(name) {
            problems.declared.duplicate(&path.index(index), *name);
        }
    }
}

/// The name of a request, or of one of its alternatives behind a slash.
pub(super) fn reference(errors: &mut Errors, path: &Path<'_>, name: &str, known: &RequestNames) {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() <= 2 {
        for part in &parts {
            dns_label(errors, path, part);
        }
    }
    let is_known = match parts.as_slice() {
        [request] => known.contains_key(*request),
        [request, alternative] => known.get(*request).is_some_and(|all| all.contains(*alternative)),
        _ => false,
    };
    if !is_known {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        errors.invalid(path, name, detail);
    }
}

/// Validates the parameters that a driver receives unchanged.
pub(super) fn opaque(problems: &mut Problems, path: &Path<'_>, config: Ref<'_>) {
    let at = path.child("opaque");
    let Some(own) = present(config, "opaque") else {
        return problems.seen.required(&at, "");
    };
    declared_driver_name(&mut problems.declared, &at.child("driver"), own.str("driver"));
    json_object(
        &mut problems.seen,
        &at.child("parameters"),
        own.get("parameters"),
        MAX_OPAQUE_BYTES,
    );
}

/// JSON that must be an object, of a bounded size.
pub(super) fn json_object(errors: &mut Errors, path: &Path<'_>, value: Option<Ref<'_>>, most: usize) {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return errors.required(path, "");
    };
    let text = value.to_json();
    if text.len() > most {
        errors.too_long(path, most);
    } else if text == "null" {
        errors.required(path, "");
    } else if value.kind() != Kind::Map && !text.starts_with('{') {
        let shown = Shown("\"<value omitted>\"".into());
        errors.invalid(path, shown, "must be a valid JSON object");
    }
}

/// Validates the selectors of devices, whose expressions must compile.
pub(super) fn selectors(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>) {
    each_selector(problems, path, own, expression);
}

/// The same of selectors that are stored already: their expressions compiled once.
pub(super) fn stored_selectors(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>) {
    each_selector(problems, path, own, |_, _, _| {});
}

fn each_selector(
    problems: &mut Problems,
    path: &Path<'_>,
    own: Ref<'_>,
    look: impl Fn(&mut Errors, &Path<'_>, &str),
) {
    let count = own.list("selectors").len();
    if count > MAX_SELECTORS {
        return problems.declared.too_many(path, count, MAX_SELECTORS);
    }
    for (index, selector) in own.list("selectors").enumerate() {
        let item = path.index(index);
        let at = item.child("cel");
        match present(selector, "cel") {
            None => problems.seen.required(&at, ""),
            Some(cel) => look(&mut problems.seen, &at.child("expression"), cel.str("expression")),
        }
    }
}

/// Validates a new expression that selects devices.
fn expression(errors: &mut Errors, path: &Path<'_>, text: &str) {
    if text.len() > MAX_EXPRESSION_BYTES {
        return errors.too_long(path, MAX_EXPRESSION_BYTES);
    }
    match DeviceSelector::compile(text, false) {
        Ok(own) if own.max_cost() > DEVICE_SELECTOR_MAX_COST => {
            errors.forbidden(path, "too complex, exceeds cost limit");
        }
        Ok(_) => {}
        Err(ExpressionProblem::Invalid(why)) => errors.invalid(path, text, why),
        Err(ExpressionProblem::Internal(why)) => errors.note(|| FieldError::internal(&path.to_path(), why)),
    }
}
