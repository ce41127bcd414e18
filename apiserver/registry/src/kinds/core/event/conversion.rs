//! The two spellings of an event: the same values under other names.

use crate::engine::conversion::Conversion;
use machinery_schema::{Schema, Step, Tree, TypeId};
use std::sync::Arc;

/// Stored (core `v1`) name, `events.k8s.io/v1` name.
const NAMES: [(&str, &str); 16] = [
    ("metadata", "metadata"),
    ("eventTime", "eventTime"),
    ("series", "series"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
    ("action", "action"),
    ("reason", "reason"),
    ("involvedObject", "regarding"),
    ("related", "related"),
    ("message", "note"),
    ("type", "type"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("kind", "kind"),
];

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventsConversion;

impl Conversion for EventsConversion {
    fn to_served(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
        renamed(object, schema, ty, NAMES.iter().copied())
    }

    fn to_stored(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
        renamed(
            object,
            schema,
            ty,
            NAMES.iter().map(|(stored, served)| (*served, *stored)),
        )
    }
}

fn renamed<'n>(
    object: &Tree,
    schema: &Arc<Schema>,
    ty: TypeId,
    names: impl Iterator<Item = (&'n str, &'n str)>,
) -> Tree {
    let mut out = Tree::new(schema, ty);
    for (from, to) in names {
        if let Some(value) = object.get(from) {
            out.set(&[Step::Name(to)], value);
        }
    }
    out
}
