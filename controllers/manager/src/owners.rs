//! Owners that care about a changed object.

use crate::views::Selector;
use machinery_client::{Change, IndexName, Informer, Projection};
use machinery_meta::ObjectKey;

/// The owners of a kind that care about a changed object: its controller before and after, and for an orphan all of its
/// namespace whose selector matches.
pub fn owners_of<C: Projection, P: Projection>(
    change: &Change<C>,
    kind: &str,
    owners: &Informer<P>,
    selector: impl Fn(&P) -> &Selector,
) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    for object in change.sides() {
        match object.header.controller() {
            Some(owner) if &*owner.kind == kind => {
                keys.push(ObjectKey::new(object.namespace(), &*owner.name));
            }
            Some(_) => {}
            None => {
                let near = owners.by_index(IndexName::NAMESPACE, object.namespace());
                let wanting = near
                    .iter()
                    .filter(|owner| selector(owner).matches(&object.header));
                keys.extend(wanting.map(|owner| owner.key().clone()));
            }
        }
    }
    keys.sort();
    keys.dedup();
    keys
}
