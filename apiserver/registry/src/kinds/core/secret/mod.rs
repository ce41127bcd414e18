//! Secret: `stringData` is folded into `data`; immutable when it says so.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::validation_rules::ValidationRules;
use base64::Engine;
use machinery_schema::{Ref, Step, Tree};

pub(crate) static KIND: Kind = Kind::of("", "secrets")
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .defaults(fold_texts)
    .warnings(warnings)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["type"]));

/// Upstream folds while it converts to its internal form, before anything else looks.
fn fold_texts(object: &mut Tree) {
    let Some(texts) = object.get("stringData") else {
        return;
    };
    let folded: Vec<(String, String)> = texts
        .entries()
        .map(|(key, value)| {
            let encoded =
                base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
            (key.to_owned(), encoded)
        })
        .collect();
    for (key, value) in folded {
        object.set(&[Step::Name("data"), Step::Name(&key)], value.as_str());
    }
    object.remove(&["stringData"]);
}

fn warnings(object: Ref<'_>, _old: Option<Ref<'_>>) -> Vec<String> {
    if object.str("type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let is_pem = |key: &str| {
        let encoded = object.str_at(&["data", key]);
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded);
        bytes.is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("-----BEGIN "))
    };
    // Go loads the pair, and says so when there is nothing to load.
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")];
    let first = missing.into_iter().find(|(key, _)| !is_pem(key));
    first
        .map(|(_, what)| format!("tls: failed to find any PEM data in {what} input"))
        .into_iter()
        .collect()
}
