//! Server-side apply of one configuration.

use super::entries::{self, Entry, Operation};
use super::{Writer, document, has_owners, last_applied, ownable, ownable_changes, store, typed};
use crate::row::ResourceRow;
use crate::strategy::Part;
use machinery_schema::apply::{FieldSet, ShownBytes, Steps, Typed};
use machinery_schema::{DecodeError, Exceeded, Strictness, Tree, decode_json, encode_json};

/// A field that another manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name it.
    pub manager: String,
    pub path: String,
}

/// Why a configuration was not applied, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It does not fit the schema.
    #[error("failed to create typed patch object ({object}): {problems}")]
    Misfit { object: String, problems: String },
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

/// Who has everything that was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The object that a configuration makes of the live one (or of none), with the record of its owners.
pub fn apply(
    row: &ResourceRow,
    writer: &Writer,
    live: Option<&Tree>,
    configuration: &Tree,
    force: bool,
) -> Result<Tree, ApplyError> {
    within(&Steps::default(), row, writer, live, (configuration, force))
}

/// The same within so many steps.
pub(super) fn within(
    steps: &Steps,
    row: &ResourceRow,
    writer: &Writer,
    live: Option<&Tree>,
    (configuration, force): (&Tree, bool),
) -> Result<Tree, ApplyError> {
    let wanted = typed(row, configuration);
    steps.read(configuration)?;
    check(row, wanted)?;
    let (before, mut owners) = match live {
        Some(live) => (document(live), known_owners(row, writer, live)),
        None => (Tree::untyped(), Vec::new()),
    };
    steps.read(&before)?;
    let mine = owners
        .iter()
        .position(|entry| entry.is(row, writer, Operation::Apply));
    let named = wanted.fields();
    let fields = ownable(row, writer.part, named.clone());
    let last = mine.map(|at| owners[at].fields.clone()).unwrap_or_default();
    match mine {
        Some(at) => {
            let own = &mut owners[at];
            own.settle(fields, &writer.now);
            own.api_version = row.gvk.api_version();
        }
        None => owners.push(Entry::new(row, writer, Operation::Apply, fields)),
    }
    let mine = mine.unwrap_or(owners.len() - 1);
    let merged = typed(row, &before).merge(configuration)?;
    let pruned = prune(steps, typed(row, &merged), &last, &owners, &named)?;
    steps.read(&pruned)?;
    let changes = ownable_changes(row, writer.part, typed(row, &before).compare(&pruned));
    let changed = steps.union(&changes.added, &changes.modified)?;
    let continued = last_applied::continued(steps, row, &writer.manager, live)?;
    let taken = Taken {
        changed: &changed,
        removed: &changes.removed,
        continued: &continued,
    };
    let conflicts = take_over(steps, &mut owners, mine, &taken)?;
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    let mut text = Vec::with_capacity(4096);
    encode_json(&pruned, &mut text);
    let mut object = decode_json(&row.schema, row.ty, &text, Strictness::Ignore)?.tree;
    last_applied::renew(&writer.manager, configuration, &mut object);
    store(steps, &mut object, owners)?;
    Ok(object)
}

fn check(row: &ResourceRow, wanted: Typed<'_>) -> Result<(), ApplyError> {
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
        row.gvk.group,
        row.gvk.version,
        row.gvk.kind
    );
    Err(ApplyError::Misfit { object, problems })
}

/// The owners of a live object; of one that nobody has applied, `before-first-apply` owns all.
fn known_owners(row: &ResourceRow, writer: &Writer, live: &Tree) -> Vec<Entry> {
    if has_owners(live) {
        return entries::read(live);
    }
    let own = document(live);
    let all = typed(row, &Tree::untyped()).compare(&own).added;
    let before = Writer {
        manager: BEFORE_FIRST_APPLY.to_owned(),
        part: Part::Main,
        now: writer.now.clone(),
    };
    let fields = ownable(row, Part::Main, all);
    vec![Entry::new(row, &before, Operation::Update, fields)]
}

/// What the manager applied before, does not apply now and nobody else has goes away.
fn prune(
    steps: &Steps,
    merged: Typed<'_>,
    last: &FieldSet,
    owners: &[Entry],
    wanted: &FieldSet,
) -> Result<Tree, ApplyError> {
    if last.is_empty() {
        return Ok(merged.document.clone());
    }
    // The configuration counts with what nobody owns: an object keeps the name by which it is applied.
    let mut owned = wanted.clone();
    for entry in owners {
        steps.absorb(&mut owned, &entry.fields)?;
    }
    let named = |fields: &FieldSet| merged.with_named_parents(fields);
    let (last, owned, all) = (named(last), named(&owned), named(&merged.fields()));
    let without_last = merged.remove(&last)?;
    let left = named(&merged.with(&without_last).fields());
    // Back comes what somebody has, then what was not the manager's own.
    let with_owned = merged.remove(&steps.difference(&all, &steps.union(&left, &owned)?)?)?;
    let left = named(&merged.with(&with_owned).fields());
    let unowned = steps.difference(&all, &left)?;
    Ok(merged.remove(&steps.intersection(&unowned, &last)?)?)
}

/// Fields that an apply takes from other managers.
struct Taken<'a> {
    changed: &'a FieldSet,
    removed: &'a FieldSet,
    /// Of these nobody is told.
    continued: &'a FieldSet,
}

/// Takes the changed fields from all other managers; answers with what they had of them, less what is `continued`.
fn take_over(
    steps: &Steps,
    owners: &mut [Entry],
    mine: usize,
    taken: &Taken<'_>,
) -> Result<Vec<Conflict>, Exceeded> {
    let mut conflicts = Vec::new();
    let mut room = ShownBytes::default();
    for (at, entry) in owners.iter_mut().enumerate() {
        if at == mine {
            continue;
        }
        let contested = steps.intersection(&entry.fields, taken.changed)?;
        let manager = entry.shown();
        let paths = steps.difference(&contested, taken.continued)?.paths(&mut room);
        conflicts.extend(paths.into_iter().map(|path| Conflict {
            manager: manager.clone(),
            path,
        }));
        let left = steps.difference(&entry.fields, &contested)?;
        entry.fields = steps.difference(&left, taken.removed)?;
    }
    conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
    Ok(conflicts)
}
