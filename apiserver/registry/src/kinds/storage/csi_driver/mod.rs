//! CSIDriver: how volumes of a driver are handled.

mod columns;
mod defaults;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::metadata;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::{Ref, Tree};

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "csidrivers")
    .traits(Traits::PLAIN.returned().revision_wanted())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .prepare_for_update(|_, _, object, old| count_changes(object, old))
    .warnings(warnings)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);

/// Changes of the spec are counted; a new driver has no number.
fn count_changes(object: &mut Tree, old: &Tree) {
    if metadata::spec_differs(object, old) {
        metadata::set_generation(object, metadata::generation(old) + 1);
    }
}

/// Tokens for a driver are better kept out of its logs.
fn warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let requests = |object: Ref<'_>| object.at(&["spec", "tokenRequests"]).map(Ref::to_json);
    let asks = object
        .at(&["spec", "tokenRequests"])
        .is_some_and(|requests| !requests.is_empty());
    let unset = object
        .at(&["spec", "serviceAccountTokenInSecrets"])
        .is_none_or(Ref::is_null);
    if asks && unset && old.is_none_or(|old| requests(old) != requests(object)) {
        return vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".into()];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::count_changes;
    use crate::engine::metadata::generation;
    use machinery_schema::Tree;

    #[test]
    fn changes_of_a_driver_are_counted_from_none() {
        let tree = |text: &str| Tree::from_json(text).unwrap();
        let old = tree(r#"{"metadata": {"name": "a"}, "spec": {"storageCapacity": false}}"#);
        let mut same =
            tree(r#"{"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"storageCapacity": false}}"#);
        count_changes(&mut same, &old);
        assert_eq!(generation(&same), 0);
        let mut changed = tree(r#"{"metadata": {"name": "a"}, "spec": {"storageCapacity": true}}"#);
        count_changes(&mut changed, &old);
        assert_eq!(generation(&changed), 1);
    }
}
