//! Server-side apply of one configuration.

use super::entries::{self, Entry, Operation};
use super::fields::Fields;
use super::subject::document;
use super::update::{Changes, updated};
use super::{Subject, UNOWNED_FIELDS, Writer, last_applied, record};
use machinery_schema::apply::{FieldSet, ShownBytes, Steps, Typed};
use machinery_schema::{DecodeError, Exceeded, Strictness, Tree, decode_json, encode_json};

/// A field that another manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name it.
    pub manager: String,
    pub path: String,
}

/// The reason for which a configuration was not applied, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It does not fit the schema.
    #[error("failed to create typed patch object ({object}): {problems}")]
    Misfit { object: String, problems: String },
    /// The live object's `managedFields` cannot be decoded.
    #[error("failed to decode managed fields: {0}")]
    Record(String),
    #[error("the managers of the object's fields take more room than an object has for them")]
    TooManyOwners,
    #[error("{}", summary(.0))]
    Conflicts(Vec<Conflict>),
    /// The merged object is not one of its kind.
    #[error("{0}")]
    Result(#[from] DecodeError),
    /// It takes more steps than are allowed.
    #[error("{0}")]
    TooLong(#[from] Exceeded),
}

/// `Apply failed with 1 conflict: conflict with "m": .data.k`
fn summary(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager, only.path
        );
    }
    let mut lines: Vec<String> = Vec::new();
    let mut last = "";
    for conflict in conflicts {
        if conflict.manager != last {
            lines.push(format!("conflicts with {}:", conflict.manager));
        }
        lines.push(format!("- {}", conflict.path));
        last = &conflict.manager;
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

/// The manager of all fields that existed before the first apply, if there is no record of owners.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The object that a configuration makes of the live one (or of none), with the record of its owners.
pub fn apply(
    subject: Subject<'_>,
    writer: &Writer,
    live: Option<&Tree>,
    configuration: &Tree,
    force: bool,
) -> Result<Tree, ApplyError> {
    within(&Steps::default(), subject, writer, live, (configuration, force))
}

/// The same within so many steps.
pub(super) fn within(
    steps: &Steps,
    subject: Subject<'_>,
    writer: &Writer,
    live: Option<&Tree>,
    (configuration, force): (&Tree, bool),
) -> Result<Tree, ApplyError> {
    let nothing = subject.nothing();
    let live = live.unwrap_or(&nothing);
    let mut owners = known_owners(steps, subject, writer, live, &nothing)?;
    let wanted = subject.typed(configuration);
    steps.read(configuration)?;
    check(subject, wanted)?;
    let named = wanted.fields();
    let own = Entry::new(
        subject,
        writer,
        Operation::Apply,
        subject.reset().kept(named.clone()),
    );
    let former = take(&mut owners, &own);
    let before = document(live);
    steps.read(&before)?;
    let merged = subject.typed(&before).merge(configuration)?;
    let last = former
        .as_ref()
        .map(|entry| entry.fields.set().into_owned())
        .unwrap_or_default();
    let pruned = prune(steps, subject.typed(&merged), &last, &owners, &named)?;
    steps.read(&pruned)?;
    let changed = pruned != before;
    let mut object = if changed {
        decoded(subject, &pruned)?
    } else {
        live.clone()
    };
    let here = subject.compare(&before, &pruned);
    let mut changes = Changes::between(steps, subject, here, live, &object);
    if !force {
        let continued = last_applied::continued(steps, subject, &writer.manager, live)?;
        let conflicts = conflicts(&mut changes, &owners, &continued)?;
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    changes.give_up(&mut owners, None)?;
    let own = Entry {
        // The time moves only when the object does.
        time: match former {
            _ if changed => own.time,
            former => former.map(|entry| entry.time).unwrap_or_default(),
        },
        fields: Fields::Set(own.fields.set().difference(&UNOWNED_FIELDS)),
        ..own
    };
    if !own.fields.is_empty() {
        owners.push(own);
    }
    last_applied::renew(&writer.manager, configuration, &mut object);
    entries::store(subject, &mut object, owners).map_err(|_| ApplyError::TooManyOwners)?;
    Ok(object)
}

/// Takes the entry of the same manager out of the others.
fn take(owners: &mut Vec<Entry>, own: &Entry) -> Option<Entry> {
    let at = owners.iter().position(|other| other.key() == own.key())?;
    Some(owners.remove(at))
}

/// A free-form document as an object of the kind.
fn decoded(subject: Subject<'_>, document: &Tree) -> Result<Tree, DecodeError> {
    let mut text = Vec::with_capacity(4096);
    encode_json(document, &mut text);
    Ok(decode_json(subject.schema, subject.ty, &text, Strictness::Ignore)?.tree)
}

fn check(subject: Subject<'_>, wanted: Typed<'_>) -> Result<(), ApplyError> {
    let problems = wanted.problems();
    let problems = match problems.as_slice() {
        [] => return Ok(()),
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    let metadata = |name| wanted.document.str_at(&["metadata", name]);
    let object = format!(
        "{}/{}; {}/{}, Kind={}",
        metadata("namespace"),
        metadata("name"),
        subject.gvk.group,
        subject.gvk.version,
        subject.gvk.kind
    );
    Err(ApplyError::Misfit { object, problems })
}

/// The owners of a live object; of one without a record, `before-first-apply` owns all.
fn known_owners(
    steps: &Steps,
    subject: Subject<'_>,
    writer: &Writer,
    live: &Tree,
    nothing: &Tree,
) -> Result<Vec<Entry>, ApplyError> {
    let owners = entries::read(record(live)).map_err(ApplyError::Record)?;
    if !owners.is_empty() {
        return Ok(owners);
    }
    let before = Writer {
        manager: BEFORE_FIRST_APPLY.to_owned(),
        now: writer.now.clone(),
    };
    Ok(updated(steps, subject, &before, nothing, live, owners)?)
}

/// Removes the fields that the manager applied before, does not apply now, and no other manager owns.
fn prune(
    steps: &Steps,
    merged: Typed<'_>,
    last: &FieldSet,
    others: &[Entry],
    wanted: &FieldSet,
) -> Result<Tree, ApplyError> {
    if last.is_empty() {
        return Ok(merged.document.clone());
    }
    // The configuration counts with unowned fields: an object keeps the name by which it is applied.
    let mut owned = wanted.clone();
    for entry in others {
        steps.absorb(&mut owned, &entry.fields.set())?;
    }
    let named = |fields: &FieldSet| merged.with_named_parents(fields);
    let (last, owned, all) = (named(last), named(&owned), named(&merged.fields()));
    let without_last = merged.remove(&last)?;
    let left = named(&merged.with(&without_last).fields());
    // Back come owned fields, then what was not the manager's own.
    let with_owned = merged.remove(&steps.difference(&all, &steps.union(&left, &owned)?)?)?;
    let left = named(&merged.with(&with_owned).fields());
    let unowned = steps.difference(&all, &left)?;
    Ok(merged.remove(&steps.intersection(&unowned, &last)?)?)
}

/// Fields that the apply changes and other managers own, without those in `continued`.
fn conflicts(
    changes: &mut Changes<'_>,
    others: &[Entry],
    continued: &FieldSet,
) -> Result<Vec<Conflict>, Exceeded> {
    let mut conflicts = Vec::new();
    let mut room = ShownBytes::default();
    for entry in others {
        let contested = changes.contested(entry)?;
        let left = changes.steps.difference(&contested, continued)?;
        let manager = entry.shown();
        conflicts.extend(left.paths(&mut room).into_iter().map(|path| Conflict {
            manager: manager.clone(),
            path,
        }));
    }
    conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
    Ok(conflicts)
}
