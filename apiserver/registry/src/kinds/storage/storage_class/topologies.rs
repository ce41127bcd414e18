//! Validation of the parts of the cluster in which volumes of a class are made.

use crate::shared::validation::{Errors, Path, qualified};
use machinery_schema::Ref;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The values of each key of a term.
type Term<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Validates the terms, no two of which are the same and none of which is empty.
pub(super) fn validate(errors: &mut Errors, class: Ref<'_>) {
    let path = Path::of("allowedTopologies");
    let mut seen: HashSet<Term<'_>> = HashSet::new();
    for (index, term) in class.list("allowedTopologies").enumerate() {
        let at = path.index(index);
        let at = at.child("matchLabelExpressions");
        let term = read(errors, &at, term);
        // Upstream takes one without expressions for the double of another.
        if term.is_empty() || !seen.insert(term) {
            errors.duplicate(&at, "");
        }
    }
}

fn read<'a>(errors: &mut Errors, path: &Path<'_>, term: Ref<'a>) -> Term<'a> {
    let mut all = Term::new();
    for (index, requirement) in term.list("matchLabelExpressions").enumerate() {
        let at = path.index(index);
        let (key, values) = (requirement.str("key"), values(errors, &at, requirement));
        qualified(errors, &at.child("key"), key);
        if all.insert(key, values).is_some() {
            errors.duplicate(&at.child("key"), key);
        }
    }
    all
}

fn values<'a>(errors: &mut Errors, path: &Path<'_>, requirement: Ref<'a>) -> BTreeSet<&'a str> {
    let at = path.child("values");
    if requirement.list("values").len() == 0 {
        errors.required(&at, "");
    }
    let mut seen = BTreeSet::new();
    for (index, value) in requirement.list("values").enumerate() {
        let value = value.as_str().unwrap_or_default();
        if !seen.insert(value) {
            errors.duplicate(&at.index(index), value);
        }
    }
    seen
}
