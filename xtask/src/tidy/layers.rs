//! Layers inside the API server's registry: what serves any kind knows none by its folder.

use super::circles::{module_path, plain};
use std::collections::BTreeMap;

const SOURCES: &str = "apiserver/registry/src/";
/// Folders that every kind stands on.
const BELOW: [&str; 2] = ["engine", "shared"];

/// Files of those folders that name the kinds.
pub(super) fn layers(texts: &BTreeMap<String, String>) -> Vec<String> {
    let below = |path: &str| {
        let module = path.strip_prefix(SOURCES).and_then(module_path);
        module.is_some_and(|module| BELOW.contains(&module[0].as_str()))
    };
    let names = texts
        .iter()
        .filter(|(path, text)| below(path) && plain(text).contains("crate::kinds"));
    names
        .map(|(path, _)| {
            format!("{path}: names a kind by its folder; let the kind say it of itself, in its `KIND`")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_the_registry_are_kept() {
        let file = |path: &str, text: &str| (format!("{SOURCES}{path}"), text.to_owned());
        let texts = BTreeMap::from([
            file("engine/row.rs", "use crate::kinds::core::pod;\n"),
            file("engine/store/tests.rs", "use crate::kinds;\n"),
            file("shared/words.rs", "/// As [`crate::kinds`].\nfn f() {}\n"),
            file("kinds/core/pod/mod.rs", "use crate::kinds::apps;\n"),
        ]);
        let found = layers(&texts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("apiserver/registry/src/engine/row.rs"),
            "{found:?}"
        );
    }
}
