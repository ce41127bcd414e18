//! Times of entries when nothing else changed.

use super::record;
use machinery_schema::{Ref, Tree};

/// Puts the times of a record back where they are all that a write would change, so that nothing is written (upstream's
/// `IgnoreManagedFieldsTimestampsTransformer`). The candidate has what the store fills in by now.
pub(crate) fn keep_times(object: &mut Tree, live: &Tree) {
    let (Some(new), Some(old)) = (record(object), record(live)) else {
        return;
    };
    if new.len() != old.len() || new == old || !new.items().zip(old.items()).all(|(a, b)| same_but_time(a, b))
    {
        return;
    }
    if !same_but_record(object, live) {
        return;
    }
    object.with(&["metadata"], |mut meta| meta.set("managedFields", old));
}

fn same_but_time(new: Ref<'_>, old: Ref<'_>) -> bool {
    same_members(new, old, |name, a, b| name == "time" || a == b)
}

fn same_but_record(object: &Tree, live: &Tree) -> bool {
    same_members(object.root(), live.root(), |name, a, b| match name {
        "metadata" => same_members(a, b, |name, a, b| name == "managedFields" || a == b),
        _ => a == b,
    })
}

fn same_members(new: Ref<'_>, old: Ref<'_>, same: impl Fn(&str, Ref<'_>, Ref<'_>) -> bool) -> bool {
    new.len() == old.len()
        && new
            .entries()
            .all(|(name, value)| old.get(name).is_some_and(|former| same(name, value, former)))
}
