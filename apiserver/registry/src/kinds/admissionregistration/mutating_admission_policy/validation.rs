//! Validation of MutatingAdmissionPolicies.

use crate::kinds::admissionregistration::expressions::{Known, Written, conditions_of};
use crate::kinds::admissionregistration::policies::{
    Compiler, Stored, mutating_operations, same_conditions, spec,
};
use crate::kinds::admissionregistration::static_names;
use crate::shared::validation::{Errors, Path, one_of, present};
use machinery_cel::Type;
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new policy.
pub(super) fn create(policy: Ref<'_>) -> Vec<FieldError> {
    let mut errors = whole(policy, None);
    static_names::created(&mut errors, policy);
    errors.into_list()
}

/// Every problem of a changed policy.
pub(super) fn update(policy: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    whole(policy, Some(old)).into_list()
}

fn whole(policy: Ref<'_>, old: Option<Ref<'_>>) -> Errors {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let Some(own) = policy.get("spec") else {
        errors.required(&path, "");
        return errors;
    };
    let old = old.and_then(|old| old.get("spec"));
    let stored = Stored {
        conditions: old.into_iter().flat_map(conditions_of).collect(),
        usual: Known::new(),
        same_conditions: old.is_some_and(|old| same_conditions(own, old)),
    };
    let mutations = old.into_iter().flat_map(|old| old.list("mutations"));
    let known: Known<'_> = mutations
        .filter_map(|own| own.at(&["applyConfiguration", "expression"])?.as_str())
        .collect();
    let compiler = Compiler::new(own, true);
    let at = path.child("matchConstraints");
    spec(&mut errors, &path, own, &compiler, &stored, |errors, own| {
        mutating_operations(errors, &at, own);
    });
    let list = path.child("mutations");
    if own.list("mutations").len() == 0 {
        errors.required(&list, "mutations must contain at least one item");
    }
    for (index, own) in own.list("mutations").enumerate() {
        mutation(&mut errors, &list.index(index), own, &compiler, &known);
    }
    let policies = ["IfNeeded", "Never"];
    one_of(&mut errors, &path, own, "reinvocationPolicy", &policies, Some(""));
    errors
}

/// A form of mutations: its name, its member, and the type of its expression.
struct Form {
    name: &'static str,
    member: &'static str,
    ty: Type,
}

fn forms() -> [Form; 2] {
    [
        Form {
            name: "ApplyConfiguration",
            member: "applyConfiguration",
            ty: Type::object("Object"),
        },
        Form {
            name: "JSONPatch",
            member: "jsonPatch",
            ty: Type::list(Type::object("JSONPatch")),
        },
    ]
}

fn mutation(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, compiler: &Compiler, known: &Known<'_>) {
    let kind = own.str("patchType");
    if kind.is_empty() {
        return errors.required(&path.child("patchType"), "");
    }
    let [first, second] = forms();
    let (form, other) = match kind {
        "ApplyConfiguration" => (first, second),
        "JSONPatch" => (second, first),
        _ => {
            let supported = [first.name, second.name];
            return errors.not_supported(&path.child("patchType"), kind, &supported);
        }
    };
    let at = path.child(form.member);
    match present(own, form.member) {
        None => errors.required(&at, &format!("must be specified when patchType is {kind}")),
        Some(own) => {
            let (text, at) = (own.str("expression"), at.child("expression"));
            let written = Written {
                text: text.trim(),
                shown: text.trim(),
                is_known: known.contains(text),
            };
            match text.trim() {
                "" => errors.required(&at, ""),
                _ => compiler.mutation(errors, &at, written, &form.ty),
            }
        }
    }
    if present(own, other.member).is_some() {
        let detail = format!("must not be specified when patchType is {kind}");
        let shown = format!("{{{}}}", other.member);
        errors.invalid(&path.child(other.member), shown.as_str(), detail);
    }
}
