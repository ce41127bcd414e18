//! Owners that care about a changed object.

use crate::views::Selector;
use machinery_client::{Change, IndexName, Informer, Projection};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Controller, Reconciler};
use std::borrow::Cow;

/// Owners of a kind.
pub(crate) struct Owners<P: Projection> {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) cache: Informer<P>,
    pub(crate) selector: fn(&P) -> &Selector,
}

/// Puts the owners that care about a changed object in line: its controller before and after; and for one that has become an
/// orphan, or has changed its labels as one, all of its namespace whose selector matches (upstream's rule). Those are found in turns of
/// the namespaces, since each may have many owners and many orphans.
pub(crate) fn watch_owned<R: Reconciler, C: Projection, P: Projection>(
    controller: Controller<R>,
    owned: &Informer<C>,
    owners: Owners<P>,
    key: fn(ObjectKey) -> R::Key,
) -> Controller<R> {
    let Owners {
        kind,
        cache,
        selector,
    } = owners;
    controller
        .watches(owned, move |change| {
            controllers_of(change, &kind).into_iter().map(key)
        })
        .watches_in_turns(owned, is_new_orphan, move |change| {
            wanting(change, &cache, selector).into_iter().map(key)
        })
}

/// The controllers of an object before and after a change.
fn controllers_of<C: Projection>(change: &Change<C>, kind: &str) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = change
        .sides()
        .filter_map(|object| {
            let owner = object.header.controller().filter(|owner| &*owner.kind == kind)?;
            Some(ObjectKey::new(object.namespace(), &*owner.name))
        })
        .collect();
    keys.dedup();
    keys
}

/// The object is an orphan that owners may want, and was none before or had other labels.
fn is_new_orphan<C: Projection>(change: &Change<C>) -> bool {
    let Some(new) = &change.new else { return false };
    let is_orphan = |object: &machinery_client::Object<C>| object.header.controller().is_none();
    let same = |old: &machinery_client::Object<C>| is_orphan(old) && old.header.labels == new.header.labels;
    is_orphan(new) && !change.old.as_ref().is_some_and(|old| same(old))
}

/// The owners of an orphan's namespace whose selectors match it.
fn wanting<C: Projection, P: Projection>(
    change: &Change<C>,
    owners: &Informer<P>,
    selector: fn(&P) -> &Selector,
) -> Vec<ObjectKey> {
    let Some(orphan) = change
        .new
        .as_ref()
        .filter(|new| new.header.controller().is_none())
    else {
        return Vec::new();
    };
    let near = owners.by_index(IndexName::NAMESPACE, orphan.namespace());
    let wanting = near
        .iter()
        .filter(|owner| selector(owner).matches(&orphan.header));
    wanting.map(|owner| owner.key().clone()).collect()
}
