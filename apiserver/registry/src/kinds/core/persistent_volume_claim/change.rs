//! Validation of a changed PersistentVolumeClaim: most of its spec is immutable, since quotas and limits were checked
//! when it was created.

use super::validation::validate;
use crate::shared::validation::{Errors, Path, immutable, quantity};
use machinery_meta::{FieldError, Quantity};
use machinery_schema::{Ref, Tree};
use std::collections::BTreeMap;

/// The annotation that held a claim's class before the field existed.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const ANNOTATED: [&str; 3] = ["metadata", "annotations", BETA_CLASS];
const FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
/// The class of attributes of a volume.
const CLASS: &str = "volumeAttributesClassName";
const REQUESTED: [&str; 3] = ["resources", "requests", "storage"];

/// Every problem of a changed claim.
pub fn validate_update(claim: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    validate(claim).into_iter().for_each(|error| errors.push(error));
    let (Some(spec), Some(old_spec)) = (claim.get("spec"), old.get("spec")) else {
        return errors.into_list();
    };
    let class = class_change(claim, old);
    let annotation = text(claim, &ANNOTATED).unwrap_or_default();
    if class != ClassChange::Moved && annotation != text(old, &ANNOTATED).unwrap_or_default() {
        let path = Path::of("metadata");
        let path = path.child("annotations");
        errors.invalid(&path.child(BETA_CLASS), annotation, "field is immutable");
    }
    let is_bound = claim.str_at(&["status", "phase"]) == "Bound";
    let free = Free {
        volume: old_spec.str("volumeName").is_empty(),
        class: class != ClassChange::None,
        of_bound: is_bound,
    };
    if fixed(spec, &free) != fixed(old_spec, &free) {
        errors.forbidden(&Path::of("spec"), FIXED);
    }
    size(&mut errors, spec, old_spec, old);
    let modes = [spec, old_spec].map(|spec| spec.get("volumeMode"));
    immutable(
        &mut errors,
        &Path::of("volumeMode"),
        modes[0],
        modes[1],
        "field is immutable",
    );
    attributes_class(&mut errors, spec, old_spec, old);
    errors.into_list()
}

/// The way in which a claim without a class in its spec gets one.
#[derive(PartialEq, Eq)]
enum ClassChange {
    None,
    /// From the annotation, which may go then.
    Moved,
    /// One for the first time, or that of the annotation.
    Given,
}

fn class_change(claim: Ref<'_>, old: Ref<'_>) -> ClassChange {
    const NAME: [&str; 2] = ["spec", "storageClassName"];
    let (Some(new), None) = (text(claim, &NAME), text(old, &NAME)) else {
        return ClassChange::None;
    };
    match (text(old, &ANNOTATED), text(claim, &ANNOTATED)) {
        (None, _) => ClassChange::Given,
        (Some(before), _) if before != new => ClassChange::None,
        (Some(before), Some(now)) if now != before => ClassChange::Given,
        (Some(_), _) => ClassChange::Moved,
    }
}

fn text<'a>(claim: Ref<'a>, path: &[&str]) -> Option<&'a str> {
    claim.at(path).and_then(Ref::as_str)
}

/// Members of the spec that may differ.
struct Free {
    volume: bool,
    class: bool,
    /// The size requested and the class of attributes, of claims that have their volume.
    of_bound: bool,
}

/// The rest, amounts as numbers.
fn fixed(spec: Ref<'_>, free: &Free) -> (Tree, [BTreeMap<String, Option<Quantity>>; 2]) {
    let mut rest = spec.to_tree();
    rest.remove(&["resources"]);
    let names = [
        ("volumeName", free.volume),
        ("storageClassName", free.class),
        (CLASS, free.of_bound),
    ];
    for (name, _) in names.iter().filter(|(_, is_free)| *is_free) {
        rest.remove(&[name]);
    }
    let amounts = |list: &str, but: &str| -> BTreeMap<String, Option<Quantity>> {
        let entries = spec.at(&["resources", list]).into_iter().flat_map(Ref::entries);
        entries
            .filter(|(name, _)| *name != but)
            .map(|(name, value)| (name.to_owned(), quantity(value)))
            .collect()
    };
    let but = if free.of_bound { "storage" } else { "" };
    (rest, [amounts("limits", ""), amounts("requests", but)])
}

/// A claim shrinks as far as to what its volume has, for a growth that does not come about.
fn size(errors: &mut Errors, spec: Ref<'_>, old_spec: Ref<'_>, old: Ref<'_>) {
    let amount = |value: Option<Ref<'_>>| value.and_then(quantity).unwrap_or_default();
    let wanted = amount(spec.at(&REQUESTED));
    let has = amount(old.at(&["status", "capacity", "storage"]));
    if wanted < amount(old_spec.at(&REQUESTED)) && wanted <= has {
        let path = Path::of("spec");
        let (path, detail) = (
            path.child("resources"),
            "field can not be less than status.capacity",
        );
        errors.forbidden(&path.child("requests").child("storage"), detail);
    }
}

/// Attributes that were given to a volume are changed, not taken back.
fn attributes_class(errors: &mut Errors, spec: Ref<'_>, old_spec: Ref<'_>, old: Ref<'_>) {
    let (class, before) = (text(spec, &[CLASS]), text(old_spec, &[CLASS]));
    let is_given = old
        .at(&["status", "currentVolumeAttributesClassName"])
        .is_some_and(|class| !class.is_null());
    if class == before || !is_given {
        return;
    }
    let to = match class {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let path = Path::of("spec");
    let detail =
        format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.forbidden(&path.child(CLASS), &detail);
}
