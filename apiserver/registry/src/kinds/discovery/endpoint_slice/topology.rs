//! Topology of endpoints, which `v1beta1` had as labels and `v1` has no writes for (upstream's `dropTopologyOnV1`).

use machinery_schema::Tree;

/// Removes the topology of every endpoint.
pub(super) fn drop(slice: &mut Tree) {
    slice.root_mut().each("endpoints", |mut endpoint| {
        endpoint.remove("deprecatedTopology");
    });
}

/// Removes it from endpoints that are not the stored ones. Upstream keeps the node's name that it may hold; no version
/// that is served could store one.
pub(super) fn drop_of_changed(slice: &mut Tree, old: &Tree) {
    if slice.at(&["endpoints"]) != old.at(&["endpoints"]) {
        drop(slice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH: &str = r#"{"endpoints":[{"addresses":["a"],"deprecatedTopology":{"k":"v"}}]}"#;
    const OTHER: &str = r#"{"endpoints":[{"addresses":["b"],"deprecatedTopology":{"k":"v"}}]}"#;

    #[test]
    fn topology_of_endpoints_is_written_by_no_client() {
        let tree = |text| Tree::from_json(text).unwrap();
        let mut created = tree(WITH);
        drop(&mut created);
        assert_eq!(created.root().to_json(), r#"{"endpoints":[{"addresses":["a"]}]}"#);
        let mut same = tree(WITH);
        drop_of_changed(&mut same, &tree(WITH));
        assert_eq!(same.root().to_json(), WITH);
        let mut changed = tree(OTHER);
        drop_of_changed(&mut changed, &tree(WITH));
        assert_eq!(changed.root().to_json(), r#"{"endpoints":[{"addresses":["b"]}]}"#);
    }
}
