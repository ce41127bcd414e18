//! Defaults of Jobs.

use machinery_schema::{Ref, Step, Tree};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.completionMode=\"NonIndexed\"",
    "spec.manualSelector=false",
    "spec.suspend=false",
    "spec.podFailurePolicy.rules[].onPodConditions[].status=\"True\"",
];

/// Numbers that depend on each other, and the labels of the template.
pub(super) fn set(object: &mut Tree) {
    let has = |object: &Tree, name: &str| object.at(&["spec", name]).is_some_and(|value| !value.is_null());
    let (completions, parallelism) = (has(object, "completions"), has(object, "parallelism"));
    let per_index = has(object, "backoffLimitPerIndex");
    let policy = has(object, "podFailurePolicy");
    let labelled = object
        .at(&["metadata", "labels"])
        .is_some_and(|labels| !labels.is_empty());
    let template = object
        .at(&["spec", "template", "metadata", "labels"])
        .filter(|l| !l.is_empty())
        .map(Ref::to_tree);
    object.with(&["spec"], |mut spec| {
        if !completions && !parallelism {
            spec.default("completions", 1);
        }
        spec.default("parallelism", 1);
        spec.default("backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
        spec.default(
            "podReplacementPolicy",
            if policy { "Failed" } else { "TerminatingOrFailed" },
        );
    });
    if let Some(labels) = template.filter(|_| !labelled) {
        object.set(&[Step::Name("metadata"), Step::Name("labels")], labels.root());
    }
}
