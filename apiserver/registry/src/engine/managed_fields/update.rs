//! Creates, updates and patches: the fields that a manager changed.

use super::entries::{self, Entry, Operation};
use super::fields::Fields;
use super::{Subject, UNOWNED_FIELDS, UNOWNED_METADATA, Writer, forget, record};
use crate::engine::metadata;
use machinery_schema::apply::{Comparison, FieldSet, Steps, UnownedMembers};
use machinery_schema::{Exceeded, Ref, Tree};
use std::collections::HashMap;

/// Records the writer's fields in a new or changed object. `live` is the object as it was; of a new object, an empty one of
/// its kind. An existing object without a record stays without one until a client applies it.
///
/// # Errors
/// It takes more steps than are allowed.
pub fn track(subject: Subject<'_>, writer: &Writer, live: &Tree, object: &mut Tree) -> Result<(), Exceeded> {
    let owners = owners_before(subject, live, object);
    forget(object);
    let steps = Steps::default();
    let owners = match owners.is_empty() {
        true if !metadata::uid(live).is_empty() => return Ok(()),
        true => created(&steps, subject, writer, live, object)?,
        false => updated(&steps, subject, writer, live, object, owners)?,
    };
    if entries::store(subject, object, owners).is_err() {
        // As upstream does with an object that its record makes too large.
        tracing::warn!(kind = %subject.gvk.kind, "managed fields dropped: too many entries");
    }
    Ok(())
}

/// The owner of a new object.
fn created(
    steps: &Steps,
    subject: Subject<'_>,
    writer: &Writer,
    nothing: &Tree,
    object: &Tree,
) -> Result<Vec<Entry>, Exceeded> {
    let reset: Vec<&str> = subject.reset().members().collect();
    if subject.free_form || !subject.reset().is_of_members() {
        return updated(steps, subject, writer, nothing, object, Vec::new());
    }
    steps.read(object)?;
    let root = [&["apiVersion", "kind"], &reset[..]].concat();
    let unowned = UnownedMembers {
        root: &root,
        metadata: &UNOWNED_METADATA,
    };
    let made = subject.typed(nothing).initial_fields(object, unowned);
    let entry = made.map(|text| Entry {
        fields: Fields::Text(text),
        ..Entry::new(subject, writer, Operation::Update, FieldSet::default())
    });
    Ok(entry.into_iter().collect())
}

/// The owners after an update of the live object.
pub(super) fn updated(
    steps: &Steps,
    subject: Subject<'_>,
    writer: &Writer,
    live: &Tree,
    object: &Tree,
    mut owners: Vec<Entry>,
) -> Result<Vec<Entry>, Exceeded> {
    steps.read(live)?;
    steps.read(object)?;
    let mut changes = Changes::of(steps, subject, live, object);
    let own = steps.union(&changes.here.added, &changes.here.modified)?;
    let own = steps.difference(&own, &UNOWNED_FIELDS)?;
    let own = Entry::new(subject, writer, Operation::Update, own);
    changes.give_up(&mut owners, Some(&own))?;
    if !own.fields.is_empty() && owners.iter().all(|other| other.key() != own.key()) {
        owners.push(own);
    }
    entries::limit_updates(steps, &mut owners)?;
    Ok(owners)
}

/// The owners to go on from: a writer of the whole object may hand fields from one manager to another, or, with a list
/// of nothing, forget them all. A writer that leaves the list out, or breaks it, changes nothing.
fn owners_before(subject: Subject<'_>, live: &Tree, object: &Tree) -> Vec<Entry> {
    let before = || entries::stored(record(live)).unwrap_or_default();
    if !subject.subresource.is_empty() {
        return before();
    }
    let given = record(object);
    if given.is_none() || given == record(live) {
        return before();
    }
    if given.is_some_and(is_reset) {
        return Vec::new();
    }
    match entries::read(given) {
        Ok(owners) if !owners.is_empty() => owners,
        _ => before(),
    }
}

/// A list without entries, or with one that says nothing.
fn is_reset(list: Ref<'_>) -> bool {
    if list.is_null() {
        return false;
    }
    let says_nothing = |entry: Ref<'_>| {
        entry
            .entries()
            .all(|(_, value)| value.is_null() || value.as_str().is_some_and(str::is_empty))
    };
    list.is_empty() || (list.len() == 1 && list.items().all(says_nothing))
}

/// Changes of a write, as each version sees them.
pub(super) struct Changes<'a> {
    pub(super) steps: &'a Steps,
    subject: Subject<'a>,
    live: &'a Tree,
    object: &'a Tree,
    /// In the version of the request.
    pub(super) here: Comparison,
    elsewhere: HashMap<String, Option<Comparison>>,
}

impl<'a> Changes<'a> {
    pub(super) fn of(steps: &'a Steps, subject: Subject<'a>, live: &'a Tree, object: &'a Tree) -> Self {
        Self::between(steps, subject, subject.compare(live, object), live, object)
    }

    /// Changes that were found between free-form documents of these objects.
    pub(super) fn between(
        steps: &'a Steps,
        subject: Subject<'a>,
        here: Comparison,
        live: &'a Tree,
        object: &'a Tree,
    ) -> Self {
        Self {
            steps,
            subject,
            live,
            object,
            here,
            elsewhere: HashMap::new(),
        }
    }

    /// The changes in a version; `None` when it is not served any more.
    fn in_version(&mut self, api_version: &str) -> Result<Option<&Comparison>, Exceeded> {
        if api_version == self.subject.api_version() {
            return Ok(Some(&self.here));
        }
        if !self.elsewhere.contains_key(api_version) {
            self.steps.read(self.live)?;
            self.steps.read(self.object)?;
            let found = self.subject.compare_in(api_version, self.live, self.object);
            self.elsewhere.insert(api_version.to_owned(), found);
        }
        Ok(self.elsewhere.get(api_version).and_then(Option::as_ref))
    }

    /// Fields of a manager that the write adds or changes.
    pub(super) fn contested(&mut self, entry: &Entry) -> Result<FieldSet, Exceeded> {
        let steps = self.steps;
        let Some(seen) = self.in_version(&entry.api_version)? else {
            return Ok(FieldSet::default());
        };
        let fields = entry.fields.set();
        let mut contested = steps.intersection(&fields, &seen.added)?;
        let modified = steps.intersection(&fields, &seen.modified)?;
        steps.absorb(&mut contested, &modified)?;
        Ok(contested)
    }

    /// All lose the fields that changed or went; an entry that has none left, or is of a version that is gone, goes. The
    /// writer's `own` entry gets its fields in the same go, where it is there.
    pub(super) fn give_up(&mut self, owners: &mut Vec<Entry>, own: Option<&Entry>) -> Result<(), Exceeded> {
        let mut kept = Vec::with_capacity(owners.len() + 1);
        for mut entry in owners.drain(..) {
            let own = own.filter(|own| !own.fields.is_empty() && own.key() == entry.key());
            if let Some(own) = own {
                entry.time.clone_from(&own.time);
            }
            if self.is_left(&mut entry, own)? {
                kept.push(entry);
            }
        }
        *owners = kept;
        Ok(())
    }

    /// Takes the fields that changed or went from an entry and adds those of its writer; says whether it has any then.
    fn is_left(&mut self, entry: &mut Entry, own: Option<&Entry>) -> Result<bool, Exceeded> {
        let steps = self.steps;
        let Some(changes) = self.in_version(&entry.api_version)? else {
            return Ok(false);
        };
        let gone = [&changes.added, &changes.modified, &changes.removed];
        if own.is_some() || gone.iter().any(|gone| !gone.is_empty()) {
            let added = own.map(|own| own.fields.set()).unwrap_or_default();
            entry.fields.change(steps, &gone, &added)?;
        }
        Ok(!entry.fields.is_empty())
    }
}
