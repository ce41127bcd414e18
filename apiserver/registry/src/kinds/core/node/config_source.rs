//! Configuration of a node's agent by a ConfigMap, a feature that upstream has removed: its fields are kept where they are
//! stored and written by no client (`dropDisabledFields` of upstream's `registry/core/node/strategy.go`).

use machinery_schema::Tree;

const FIELDS: [[&str; 2]; 2] = [["spec", "configSource"], ["status", "config"]];

/// Removes the fields from a new node.
pub(super) fn drop(node: &mut Tree) {
    for path in &FIELDS {
        node.remove(path);
    }
}

/// Removes the fields that the stored node has not.
pub(super) fn drop_new(node: &mut Tree, old: &Tree) {
    for path in FIELDS.iter().filter(|path| old.at(*path).is_none()) {
        node.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_source_of_a_node_is_written_by_no_client() {
        let tree = |text| Tree::from_json(text).unwrap();
        let with = r#"{"spec":{"configSource":{},"providerID":"p"}}"#;
        let without = r#"{"spec":{"providerID":"p"}}"#;
        let mut created =
            tree(r#"{"spec":{"configSource":{},"providerID":"p"},"status":{"config":{},"phase":"x"}}"#);
        drop(&mut created);
        assert_eq!(
            created.root().to_json(),
            r#"{"spec":{"providerID":"p"},"status":{"phase":"x"}}"#
        );
        for (old, expected) in [(with, with), (without, without)] {
            let mut changed = tree(with);
            drop_new(&mut changed, &tree(old));
            assert_eq!(changed.root().to_json(), expected);
        }
    }
}
