//! Secret: `stringData` is folded into `data`; immutable when it says so.

use crate::context::RequestContext;
use crate::strategy::Strategy;
use base64::Engine;
use machinery_schema::{Step, Tree};

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretStrategy;

impl Strategy for SecretStrategy {
    /// Upstream folds while it converts to its internal form, before anything else looks.
    fn defaults(&self, object: &mut Tree) {
        let Some(texts) = object.get("stringData") else { return };
        let folded: Vec<(String, String)> = texts
            .entries()
            .map(|(key, value)| {
                let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
                (key.to_owned(), encoded)
            })
            .collect();
        for (key, value) in folded {
            object.set(&[Step::Name("data"), Step::Name(&key)], value.as_str());
        }
        object.remove(&["stringData"]);
    }

    fn prepare_for_create(&self, _ctx: &RequestContext, _object: &mut Tree) {}

    fn counts_generation(&self) -> bool {
        false
    }
}
