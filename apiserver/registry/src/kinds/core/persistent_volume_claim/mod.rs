//! PersistentVolumeClaim: its validation, what of it may [`change`]; where its data come from has two spellings.

pub mod change;
mod columns;
mod data_source;
mod defaults;
mod status;
pub mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::{Ref, Tree, Value};

pub(crate) static KIND: Kind = Kind::of("", "persistentvolumeclaims")
    .traits(Traits::PLAIN.returned())
    .rules(
        ValidationRules::create(validation::validate)
            .update(change::validate_update)
            .status(status::validate),
    )
    .prepare_for_create(begin)
    .prepare_for_update(prepare_for_update)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);

/// A claim begins pending.
fn begin(_ctx: &RequestContext, object: &mut Tree) {
    object.set_str(&["status", "phase"], "Pending");
    drop_foreign_source(object, None);
    same_data_source(object);
}

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part == ObjectPart::Main {
        drop_foreign_source(object, Some(old));
        same_data_source(object);
    }
}

/// Removes a `dataSource` that is neither a claim nor a snapshot, which the older spelling never had; the newer one may have
/// any. A stored claim keeps its own.
fn drop_foreign_source(object: &mut Tree, old: Option<&Tree>) {
    const SOURCE: [&str; 2] = ["spec", "dataSource"];
    let has = |object: &Tree, name: &str| object.at(&["spec", name]).is_some_and(|own| !own.is_null());
    let is_stored = old.is_some_and(|old| has(old, "dataSource") || has(old, "dataSourceRef"));
    if is_stored || has(object, "dataSourceRef") {
        return;
    }
    let is_known = object.at(&SOURCE).is_some_and(|source| {
        matches!(
            (source.str("kind"), source.str("apiGroup")),
            ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
        )
    });
    if !is_known {
        object.remove(&SOURCE);
    }
}

/// `dataSource` and its successor `dataSourceRef` say the same, whichever of them was given.
fn same_data_source(object: &mut Tree) {
    let given = |name: &str| {
        let source = object.at(&["spec", name]).filter(|source| !source.is_null());
        source.map(|source| (source.to_tree(), source.str("namespace").is_empty()))
    };
    let (source, to) = match (given("dataSource"), given("dataSourceRef")) {
        (Some((source, _)), None) => (source, "dataSourceRef"),
        // A source elsewhere has the newer spelling only.
        (None, Some((source, true))) => (source, "dataSource"),
        _ => return,
    };
    let group = source.get("apiGroup").and_then(Ref::as_str);
    object.with(&["spec"], |mut spec| {
        let mut copy = spec.entry(to);
        match group {
            Some(group) => copy.set("apiGroup", group),
            None => copy.set("apiGroup", Value::Null),
        }
        copy.set("kind", source.str_at(&["kind"]));
        copy.set("name", source.str_at(&["name"]));
    });
}
