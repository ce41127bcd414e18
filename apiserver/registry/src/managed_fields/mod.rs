//! Managed fields: who set which fields of an object, kept in `metadata.managedFields`.
//!
//! [`apply`] is server-side apply: a configuration is merged into the live object, what its manager applied before
//! and leaves out now goes, and fields of other managers are conflicts unless they are forced. [`track`] notes what
//! any other write changed. Owners are kept from an object's first apply on; until then nobody pays for them, and
//! that first apply finds everything there in the hands of `before-first-apply`, as upstream does it with objects
//! from before their managed fields.
//!
//! Sets of fields and how values merge are `machinery_schema::apply`; this module knows managers, times and which
//! fields belong to nobody.

mod apply;
mod entries;
mod last_applied;
#[cfg(test)]
mod tests;

pub use apply::{ApplyError, Conflict, apply};

use crate::row::ResourceRow;
use crate::strategy::Part;
use entries::{Entry, Operation};
use machinery_schema::apply::{Comparison, FieldSet, Steps, Typed};
use machinery_schema::{Exceeded, Ref, Step, Tree, to_untyped};
use std::sync::LazyLock;

/// Who writes, and through which address.
#[derive(Debug, Clone)]
pub struct Writer {
    pub manager: String,
    pub part: Part,
    /// The time of the request as metadata have it.
    pub now: String,
}

/// Fields of the server, or of the object's identity.
const UNOWNED: &str = r#"{"f:apiVersion":{},"f:kind":{},"f:metadata":{".":{},"f:name":{},"f:namespace":{},"f:creationTimestamp":{},"f:selfLink":{},"f:uid":{},"f:generation":{},"f:managedFields":{},"f:resourceVersion":{}}}"#;

static UNOWNED_FIELDS: LazyLock<FieldSet> =
    LazyLock::new(|| FieldSet::from_json(UNOWNED).expect("the constant is well formed"));

/// Whether anybody has applied the object.
pub fn has_owners(object: &Tree) -> bool {
    object
        .at(&["metadata", "managedFields"])
        .is_some_and(|list| !list.is_empty())
}

/// The fields a write through this part of a kind can own.
fn ownable(row: &ResourceRow, part: Part, fields: FieldSet) -> FieldSet {
    let kept = match part {
        Part::Status if row.custom => fields.only(&["status"]),
        Part::Status => fields.only(&["status", "metadata"]),
        Part::Main if row.has_status() => fields.without(&["status"]),
        _ => fields,
    };
    kept.difference(&UNOWNED_FIELDS)
}

fn ownable_changes(row: &ResourceRow, part: Part, changes: Comparison) -> Comparison {
    changes.map(|fields| ownable(row, part, fields))
}

/// A document to compare: free-form, without the record of its owners.
fn document(object: &Tree) -> Tree {
    let mut free = to_untyped(object);
    free.remove(&["metadata", "managedFields"]);
    free
}

fn typed<'a>(row: &'a ResourceRow, document: &'a Tree) -> Typed<'a> {
    Typed {
        schema: &row.schema,
        ty: row.ty,
        document,
    }
}

/// Leaves out what a client says of a new object's owners: nobody has applied it.
pub fn forget(object: &mut Tree) {
    object.remove(&["metadata", "managedFields"]);
}

/// Notes in a changed object who changed what; an object that nobody has applied stays without a record.
///
/// # Errors
/// It takes more steps than are allowed.
pub fn track(row: &ResourceRow, writer: &Writer, live: &Tree, object: &mut Tree) -> Result<(), Exceeded> {
    if !has_owners(live) {
        forget(object);
        return Ok(());
    }
    let steps = Steps::default();
    let mut owners = owners_before(writer, live, object);
    let (before, after) = (document(live), document(object));
    steps.read(&before)?;
    steps.read(&after)?;
    let changes = ownable_changes(row, writer.part, typed(row, &before).compare(&after));
    let changed = steps.union(&changes.added, &changes.modified)?;
    let mine = owners
        .iter()
        .position(|entry| entry.is(row, writer, Operation::Update));
    for (at, entry) in owners.iter_mut().enumerate() {
        if Some(at) != mine {
            let left = steps.difference(&entry.fields, &changed)?;
            entry.fields = steps.difference(&left, &changes.removed)?;
        }
    }
    match mine {
        Some(at) => {
            let own = &mut owners[at];
            let left = steps.difference(&own.fields, &changes.removed)?;
            let fields = steps.union(&left, &changed)?;
            own.settle(fields, &writer.now);
        }
        None => owners.push(Entry::new(row, writer, Operation::Update, changed)),
    }
    store(&steps, object, owners)
}

/// The owners to go on from: a writer of the whole object may hand fields from one manager to another, or, with a list
/// of nothing, forget them all. Who leaves the list out, or breaks it, changes nothing.
fn owners_before(writer: &Writer, live: &Tree, object: &Tree) -> Vec<Entry> {
    let given = object.at(&["metadata", "managedFields"]);
    let Some(given) = given.filter(|_| writer.part == Part::Main) else {
        return entries::read(live);
    };
    let nothing = given.items().all(Ref::is_empty) && given.len() <= 1;
    match entries::read(object) {
        _ if nothing => Vec::new(),
        owners if owners.is_empty() => entries::read(live),
        owners => owners,
    }
}

/// Puts the record of owners into an object.
fn store(steps: &Steps, object: &mut Tree, mut owners: Vec<Entry>) -> Result<(), Exceeded> {
    owners.retain(|entry| !entry.fields.is_empty());
    entries::limit_updates(steps, &mut owners)?;
    object.remove(&["metadata", "managedFields"]);
    if !owners.is_empty() {
        let list = entries::write(owners);
        object.set(
            &[Step::Name("metadata"), Step::Name("managedFields")],
            list.root(),
        );
    }
    Ok(())
}
