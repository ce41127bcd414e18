//! CSIDriver: how volumes of a driver are handled.

mod columns;
mod defaults;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Ref;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "csidrivers")
    .traits(Traits::COUNTED.returned().revision_wanted())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .warnings(warnings)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);

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
