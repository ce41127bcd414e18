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
    same_data_source(object);
}

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, _old: &Tree) {
    if part == ObjectPart::Main {
        same_data_source(object);
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
