//! The subresource `pods/resize`: it changes the resources of containers and of the pod, and nothing else.

use crate::engine::metadata;
use machinery_schema::{Ref, Step, Tree};

/// The lists of containers that can be resized.
pub(crate) const LISTS: [&str; 2] = ["containers", "initContainers"];
/// Members of a container that the client sets.
const GIVEN: [&str; 2] = ["resources", "resizePolicy"];

/// Puts everything else back. Containers that were added, removed or renamed are left to validation, which refuses them.
pub(crate) fn keep_only_resources(object: &mut Tree, old: &Tree) {
    let (Some(spec), Some(old_spec)) = (object.get("spec"), old.get("spec")) else {
        return;
    };
    if LISTS
        .iter()
        .any(|list| spec.list(list).len() != old_spec.list(list).len())
    {
        return;
    }
    let mut kept = old_spec.to_tree();
    for list in LISTS {
        if names(spec, list).eq(names(old_spec, list)) {
            resize_containers(&mut kept, spec, list);
        } else if let Some(renamed) = spec.get(list) {
            kept.set(&[Step::Name(list)], renamed);
        }
    }
    // A client that does not know resources of a pod as a whole leaves them out.
    if let Some(resources) = spec.get("resources") {
        kept.set(&[Step::Name("resources")], resources);
    }
    object.set(&[Step::Name("spec")], kept.root());
    metadata::restore_member(object, old, "status");
    metadata::restore_for_status(object, old);
}

/// The containers' names, in order.
pub(crate) fn names<'a>(spec: Ref<'a>, list: &str) -> impl Iterator<Item = &'a str> {
    spec.list(list).map(|container| container.str("name"))
}

fn resize_containers(kept: &mut Tree, spec: Ref<'_>, list: &str) {
    kept.with(&[list], |mut containers| {
        for (index, given) in spec.list(list).enumerate() {
            if let Some(mut container) = containers.item(index) {
                GIVEN
                    .iter()
                    .for_each(|member| metadata::restore(&mut container, given, member));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Tree, keep_only_resources};

    fn pod(spec: &str) -> Tree {
        Tree::from_json(&format!(
            r#"{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{spec},"status":{{"phase":"Running"}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn pod_resize_changes_resources_only() {
        let old = pod(
            r#"{"containers":[{"name":"a","image":"i","resources":{}},{"name":"b","image":"i"}],"nodeName":"n"}"#,
        );
        let mut new = Tree::from_json(
            r#"{"metadata":{},"spec":{"activeDeadlineSeconds":5,"containers":[{"name":"a","image":"other","resources":{"requests":{"cpu":"1"}}},{"name":"b","image":"other","command":["sh"]}]},"status":{"phase":"Failed"}}"#,
        )
        .unwrap();
        keep_only_resources(&mut new, &old);
        let wanted = pod(
            r#"{"containers":[{"name":"a","image":"i","resources":{"requests":{"cpu":"1"}}},{"name":"b","image":"i"}],"nodeName":"n"}"#,
        );
        assert_eq!(new.root(), wanted.root());
    }
}
